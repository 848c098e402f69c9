//! Undoes the changes that a given-up migration made ahead of its cut-over, where each change of the
//! schema commits by itself. Distinguishes its objects from the owner's of the same names.

use bbs_database::schema::{self, PhysicalTable};
use bbs_database::{Dialect, StatementResult, Transaction};
use bbs_lens::layout::schema::{Column, Index};
use sea_query::{Alias, Expr, ExprTrait, Query};

use super::changed_ahead;
use crate::lock::fence::Fence;
use crate::migrate::lock_waits::patiently;
use crate::migrate::plan::{Strategy, TablePlan};
use crate::migrate::{Context, MigrateError, Work, state};

/// The modules that began a migration which is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::migrate) enum BegunBy {
    /// The modules of the catalog.
    TheseModules,
    /// Others of the same versions, such as ones that were corrected since. An object with the name
    /// of a new one counts as theirs, unless it is a column with values, or has a definition that
    /// no module can make.
    OtherModules,
}

/// Undoes what [`change_ahead`](super::change_ahead) did for a migration that is given up. A type
/// that became wider stays so: every value still fits.
pub(in crate::migrate) async fn undo_ahead(
    context: &Context,
    fence: &Fence,
    work: &Work,
    begun_by: BegunBy,
) -> Result<(), MigrateError> {
    if context.database.dialect() != Dialect::Mysql {
        return Ok(());
    }
    for plan in changed_ahead(&work.plans) {
        let (_, _, old_indexes) = plan.additions(work.lens.source.tables.get(&plan.table.name));
        patiently(context, || async {
            let statements = inverse_changes(context, work, plan, begun_by).await?;
            Ok(fence.build_indexes(&statements, old_indexes.len()).await?)
        })
        .await?;
    }
    Ok(())
}

/// The statements that undo the additive changes of a table, as far as these are made.
async fn inverse_changes(
    context: &Context,
    work: &Work,
    plan: &TablePlan,
    begun_by: BegunBy,
) -> Result<Vec<String>, MigrateError> {
    let name = &plan.table.name;
    let mut reader = context.database.read().await?;
    let Some(found) = schema::read_back(&mut reader, name).await? else {
        return Ok(Vec::new());
    };
    Ok(match plan.strategy {
        Strategy::InPlace => {
            let columns = added_columns(&mut reader, work, plan, &found, begun_by).await?;
            out_of_place(work, plan, &found, begun_by, &columns)
        }
        Strategy::Create if state::count(&mut reader, name).await? == 0 => {
            vec![schema::drop_table(work.dialect, name)]
        }
        Strategy::Create | Strategy::Untouched | Strategy::Copy => Vec::new(),
    })
}

/// The columns that the migration has added to a table. None of them has values: clients write them
/// from the cut-over on.
async fn added_columns(
    tx: &mut Transaction,
    work: &Work,
    plan: &TablePlan,
    found: &PhysicalTable,
    begun_by: BegunBy,
) -> Result<Vec<Column>, MigrateError> {
    let table = &plan.table.name;
    let (columns, _, _) = plan.additions(work.lens.source.tables.get(table));
    let mut added = Vec::new();
    for column in columns {
        let mut there = found.columns.iter();
        let Some(there) = there.find(|there| there.name == column.name) else {
            continue;
        };
        if begun_by == BegunBy::TheseModules && !schema::serves(work.dialect, there, &column) {
            continue;
        }
        // No module makes one that no layout describes.
        let is_made = match there.portable(work.dialect) {
            Some(there) => !has_values(tx, table, &there).await?,
            None => false,
        };
        if is_made {
            added.push(column);
        } else {
            tracing::warn!(
                table,
                column = column.name,
                "a column has the name of one that the given-up migration adds, but has values, or a definition that no migration \
                 makes; it counts as the owner's and stays"
            );
        }
    }
    Ok(added)
}

/// Whether any row has a value other than the default in a column.
async fn has_values(
    tx: &mut Transaction,
    table: &str,
    column: &Column,
) -> Result<bool, MigrateError> {
    let value = || Expr::col(Alias::new(&column.name));
    let is_other = match &column.default {
        None => value().is_not_null(),
        Some(default) => {
            let default = schema::literal(tx.dialect(), column.kind, Some(default));
            value().is_null().or(value().ne(default))
        }
    };
    let mut query = Query::select();
    query
        .expr(Expr::cust("1"))
        .from(Alias::new(table))
        .and_where(is_other)
        .limit(1);
    Ok(tx.fetch_optional(&query).await.about(table)?.is_some())
}

/// The inverse of [`statements::in_place`](crate::migrate::statements::in_place), as far as its
/// changes are there, but for types; `columns` are those that it has added.
fn out_of_place(
    work: &Work,
    plan: &TablePlan,
    found: &PhysicalTable,
    begun_by: BegunBy,
    columns: &[Column],
) -> Vec<String> {
    let name = &plan.table.name;
    let (_, new, old) = plan.additions(work.lens.source.tables.get(name));
    // The owner may have others of these names.
    let is_made = |index: &&Index| {
        let is_old = |old: &Index| old.name == index.name && found.has_same_index(old);
        let mut there = found.indexes.iter();
        found.has_same_index(index)
            || begun_by == BegunBy::OtherModules
                && !old.iter().any(is_old)
                && there.any(|there| there.name == index.name && there.portable(found).is_some())
    };
    let old = old.iter().filter(|index| {
        let mut made = new.iter().filter(is_made);
        !found.has_index(&index.name) || made.any(|made| made.name == index.name)
    });
    new.iter()
        .filter(is_made)
        .map(|index| schema::drop_index(work.dialect, name, &index.name))
        .chain(restored_defaults(work, plan, found))
        .chain(schema::drop_columns(work.dialect, name, columns))
        .chain(schema::create_indexes(work.dialect, name, old))
        .collect()
}

/// The statements that give columns the defaults of the source, and leave their types.
fn restored_defaults(work: &Work, plan: &TablePlan, found: &PhysicalTable) -> Vec<String> {
    let name = &plan.table.name;
    let target = found.widened(work.dialect, &plan.table);
    let is_made = |after: &Column| {
        let mut columns = found.columns.iter();
        columns.any(|column| schema::serves(work.dialect, column, after))
    };
    let before = work.lens.source.tables.get(name);
    let restored = before
        .into_iter()
        .flat_map(|source| &source.columns)
        .filter_map(|before| {
            let after = target.find_column(&before.name)?;
            (before.default != after.default && is_made(after)).then(|| Column {
                default: before.default.clone(),
                ..after.clone()
            })
        });
    restored
        .map(|column| {
            let options = found.options_of(&column.name);
            schema::alter_column(work.dialect, name, &column, &options)
        })
        .collect()
}
