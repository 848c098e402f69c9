//! The units that an unfinished migration has left out: they are in their tables, but not in the
//! copies.

use std::collections::{BTreeMap, BTreeSet};

use bbs_database::{StatementResult, Transaction};
use bbs_units::UnitKey;
use sea_query::{Expr, ExprTrait, Query};

use super::{QUARANTINE, damaged, forget, has_pending, key_at, pending, stopped, text_at};
use crate::migrate::state::signed;
use crate::migrate::{MigrateError, Work};

/// These units, by group.
pub(in crate::migrate) async fn left_out(
    tx: &mut Transaction,
    work: &Work,
) -> Result<BTreeMap<usize, BTreeSet<UnitKey>>, MigrateError> {
    let mut units: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let query = Query::select()
        .columns(["unit", "unit_key", "table_name"])
        .from(QUARANTINE)
        .cond_where(pending().add(stopped::is_stopped().not()))
        .and_where(Expr::col("from_version").eq(signed(work.from)))
        .take();
    for row in tx.fetch(&query).await.about(QUARANTINE)? {
        let group = work.group_of(text_at(&row, 2)?);
        let (Some(key), Some(group)) = (key_at(&row, 1)?, group) else {
            return Err(damaged(text_at(&row, 0)?));
        };
        units.entry(group).or_default().insert(key);
    }
    Ok(units)
}

/// Units whose entries one statement removes.
const FORGOTTEN_AT_ONCE: usize = 1000;

/// Removes the entries of the units of a batch, which is copied: a client's write had left them out.
pub(in crate::migrate) async fn forget_copied(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    units: &[UnitKey],
) -> Result<(), MigrateError> {
    if has_pending(tx).await? {
        for units in units.chunks(FORGOTTEN_AT_ONCE) {
            forget(tx, work, group, units).await?;
        }
    }
    Ok(())
}
