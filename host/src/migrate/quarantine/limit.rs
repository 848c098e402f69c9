//! The bound on the units that a migration moves into quarantine: more of them are no damage, but a
//! wrong key or a faulty module, which would empty the deployment.

use bbs_database::{StatementResult, Transaction, signed};
use bbs_model::quarantine::is_too_many;
use sea_query::{Expr, ExprTrait, Query};

use super::{QUARANTINE, QuarantineEntry};
use crate::migrate::look::unit_counts;
use crate::migrate::state::residue;
use crate::migrate::{MigrateError, Work};

/// Checks the number of pending entries of a group, those of earlier runs included: a host that is
/// started again and again quarantines no more than one that runs through.
pub(super) async fn refuse_too_many(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    last: QuarantineEntry,
) -> Result<(), MigrateError> {
    let table_group = &work.lens.groups[group];
    // Entries of a group without sources have the name of its first restored table.
    let restored = table_group.restored.iter().map(|left| &left.table);
    let first = restored.take(usize::from(table_group.sources.is_empty()));
    let tables = table_group.sources.iter().chain(first).map(String::as_str);
    let mut query = Query::select();
    query
        .expr(Expr::cust("COUNT(*)"))
        .from(QUARANTINE)
        .and_where(Expr::col("table_name").is_in(tables))
        .and_where(Expr::col("from_version").eq(signed(work.from)))
        .and_where(Expr::col("pending").eq(true));
    let refused = tx.fetch_number(&query).await.about(QUARANTINE)?;
    let refused = refused.unsigned_abs();
    let all = *work.unit_counts[group]
        .get_or_try_init(|| async {
            let stored = unit_counts::units(tx, work, group, None).await?;
            // A unit may have rows and residue, so their sum could count it twice. The larger one is
            // a lower bound: the limit is reached no later than with the exact number.
            let restored = residue::count_units(tx, &table_group.restored).await?;
            Ok::<_, MigrateError>(Ord::max(stored, restored))
        })
        .await?;
    let limit = work.tuning.quarantine_limit;
    if is_too_many(refused, all, limit) {
        let QuarantineEntry {
            table,
            unit,
            reason,
            ..
        } = last;
        return Err(MigrateError::TooManyRefused {
            table,
            refused,
            all,
            limit,
            unit,
            reason,
        });
    }
    Ok(())
}
