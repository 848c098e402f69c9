//! The bound on the units that a migration moves into quarantine: more of them are no damage, but a
//! wrong key or a faulty module, which would empty the deployment.

use bbs_database::{StatementResult, Transaction, signed};
use bbs_model::quarantine::is_too_many;
use sea_query::{Expr, ExprTrait, Query};

use super::{QUARANTINE, QuarantineEntry};
use crate::migrate::{MigrateError, Work, residue, unit_counts};

/// Checks the number of pending entries of a group, those of earlier runs included: a host that is
/// started again and again quarantines no more than one that runs through.
pub(super) async fn refuse_too_many(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    last: QuarantineEntry,
) -> Result<(), MigrateError> {
    let of_group = &work.lens.groups[group];
    let restored = of_group.restored.iter().map(|left| &left.table);
    let tables = of_group.sources.iter().chain(restored).map(String::as_str);
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
            if of_group.sources.is_empty() {
                residue::count_units(tx, &of_group.restored).await
            } else {
                unit_counts::units(tx, work, group, None).await
            }
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
