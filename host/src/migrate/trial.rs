//! Whether this user may change the schema as a migration does: tried on a table without rows,
//! because only the server knows. A right that is missing is found before anything is recorded, and
//! not when hours of copying are over.

use bbs_database::{Dialect, is_outage, schema};
use bbs_lens::layout::schema::{Column, Index, Table};

use super::lock_waits::patiently;
use super::{Context, MigrateError};
use crate::lock::fence::{Fence, FenceError};

/// A table that is there only while something is tried.
pub(super) const TRIAL: &str = "bbs_trial";
const RENAMED: &str = "bbs_trial_renamed";

/// Creates, changes, renames and drops a table. While a lock keeps an online migration from that, as
/// a backup's on MySQL, the rights stay untried: clients wait, and what follows waits beside them.
pub(super) async fn try_schema_changes(
    context: &Context,
    fence: &Fence,
) -> Result<(), MigrateError> {
    let dialect = context.database.dialect();
    if dialect == Dialect::Sqlite {
        return Ok(());
    }
    // All of them in each attempt: the first ones drop what one without a lock has left.
    let statements = changes(dialect);
    let tried = patiently(&context.before_serving(), || async {
        Ok(fence.change_schema(&statements).await?)
    })
    .await;
    match tried {
        Err(MigrateError::Locked { .. }) if context.is_online => Ok(()),
        Err(MigrateError::Fence(FenceError::Schema { statement, source }))
            if !is_outage(&source) =>
        {
            // Fails for the same reason, if that is the missing right.
            let _ = fence.change_schema(&dropped(dialect)).await;
            Err(MigrateError::Trial { statement, source })
        }
        tried => tried,
    }
}

/// The rights to drop come first: without them, a table would be left behind.
fn changes(dialect: Dialect) -> Vec<String> {
    let id = Column::varchar("id", 16);
    let table = Table::new(TRIAL).column(id).primary_key(["id"]);
    let added = Column::varchar("added", 16).nullable();
    let index = Index::new("bbs_trial_idx", ["added"]);
    let mut statements = dropped(dialect);
    statements.extend([
        schema::create_table(dialect, &table, TRIAL),
        schema::add_column(dialect, TRIAL, &added),
        schema::create_index(dialect, TRIAL, &index),
        schema::rename_table(dialect, TRIAL, RENAMED),
        schema::rename_table(dialect, RENAMED, TRIAL),
    ]);
    statements.extend(dropped(dialect));
    statements
}

fn dropped(dialect: Dialect) -> Vec<String> {
    [TRIAL, RENAMED]
        .iter()
        .map(|name| schema::drop_table(dialect, name))
        .collect()
}
