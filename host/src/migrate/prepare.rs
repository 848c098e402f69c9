//! Making ready: the originals are what their version says, and the tables that rows are copied into are there.

use super::plan::Strategy;
use super::state::{self, Phase};
use super::{Context, MigrateError, Work, fault, sql, write_phase};
use crate::database::schema::{self, PhysicalTable};
use crate::database::{Dialect, Transaction};
use crate::layout::schema::Table;
use crate::lock::fence::Fence;

/// Makes the tables that rows are copied into, once the originals are what their version says.
pub(super) async fn prepare(
    context: &Context,
    fence: &Fence,
    work: &Work,
    going_down: bool,
) -> Result<(), MigrateError> {
    context.progress.enter("prepare", work.describe(), None);
    let mut reader = context.database.read().await?;
    let dialect = reader.dialect();
    for (name, table) in &work.lens.near.tables {
        let found = schema::read_back(&mut reader, name).await?;
        let table = work.with_what_is_added(table, found.as_ref());
        same_schema(dialect, name, found, &table)?;
    }
    let mut statements = Vec::new();
    for plan in &work.plans {
        match plan.strategy {
            Strategy::Copy => statements.push(schema::create_table(dialect, &plan.table, &plan.staged(work.to))),
            Strategy::Create => statements.extend(make_way(&mut reader, &plan.table.name).await?),
            Strategy::Untouched | Strategy::InPlace => {}
        }
    }
    drop(reader);
    fence.change_schema(&statements).await?;
    let mut tx = fence.begin().await?;
    for plan in work.plans.iter().filter(|plan| plan.strategy == Strategy::Copy) {
        let staged = plan.staged(work.to);
        let found = schema::read_back(&mut tx, &staged).await?;
        same_schema(dialect, &staged, found, &Table { indexes: Vec::new(), ..plan.table.clone() })?;
    }
    write_phase(&mut tx, work, going_down, Phase::Copying).await?;
    fault::point(fault::BEFORE_PREPARE);
    tx.commit().await.map_err(sql("the new tables"))?;
    fault::point(fault::AFTER_PREPARE);
    Ok(())
}

/// An empty table of the same name may go; one with rows is somebody's.
async fn make_way(tx: &mut Transaction, table: &str) -> Result<Option<String>, MigrateError> {
    if !state::exists(tx, table).await? {
        return Ok(None);
    }
    if state::count(tx, table).await? > 0 {
        return Err(MigrateError::TableInTheWay { table: table.to_owned() });
    }
    Ok(Some(schema::drop_table(tx.dialect(), table)))
}

pub(super) fn same_schema(
    dialect: Dialect,
    name: &str,
    found: Option<PhysicalTable>,
    table: &Table,
) -> Result<(), MigrateError> {
    let differences = found.map_or_else(
        || vec!["it is missing".to_owned()],
        |found| schema::differences(&found, &schema::expected(dialect, table)),
    );
    if differences.is_empty() {
        Ok(())
    } else {
        Err(MigrateError::SchemaDiffers { table: name.to_owned(), differences })
    }
}
