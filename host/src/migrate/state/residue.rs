//! Which residue a migration gives back, and its removal once the migration in the other direction
//! has used it. The entries themselves are `bbs_units::residue`'s.

use std::collections::BTreeSet;

use bbs_database::{StatementResult, Transaction, signed};
use bbs_files::digest::digest_of;
use bbs_lens::LeftTable;
use bbs_lens::layout::history::Way;
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::migration_set::MigrationSet;
use bbs_units::residue::left_by;
use sea_query::{Cond, Expr, ExprTrait, Order, Query};

use super::own_tables::{QUARANTINE, RESIDUE};
use super::{exists, history_pair, removal};
use crate::lock::fence::Fence;
use crate::migrate::{Context, MigrateError};

/// The residue that a migration gives back: versions and tables. None in a database that is begun
/// anew: its residue belongs to records that are gone.
pub(crate) async fn restorable(
    tx: &mut Transaction,
    way: Way<'_>,
) -> Result<BTreeSet<(DataVersion, String)>, MigrateError> {
    if way.from == 0 || !exists(tx, RESIDUE).await? {
        return Ok(BTreeSet::new());
    }
    let mut query = Query::select();
    query
        .distinct()
        .columns(["version", "table_name"])
        .from(RESIDUE)
        .cond_where(left_by(&way.returning()));
    let found = tx.fetch_as(&query, |row| Ok((row.unsigned(0)?, row.owned_text(1)?)));
    Ok(found.await.about(RESIDUE)?)
}

/// Units of dropped tables of which only residue is left, after a given one.
pub(crate) async fn units_of(
    tx: &mut Transaction,
    restored: &[LeftTable],
    after: Option<&str>,
    most: u64,
) -> Result<Vec<String>, MigrateError> {
    let mut query = Query::select();
    query
        .columns(["unit_digest", "unit"])
        .distinct()
        .from(RESIDUE)
        .cond_where(of_tables(restored))
        .order_by("unit_digest", Order::Asc)
        .limit(most);
    if let Some(after) = after {
        query.and_where(Expr::col("unit_digest").gt(digest_of(after.as_bytes())));
    }
    let units = tx.fetch_as(&query, |row| row.owned_text(1)).await;
    Ok(units.about(RESIDUE)?)
}

/// The number of units of dropped tables of which residue is left.
pub(crate) async fn count_units(
    tx: &mut Transaction,
    restored: &[LeftTable],
) -> Result<u64, MigrateError> {
    if restored.is_empty() {
        return Ok(0);
    }
    let mut query = Query::select();
    query
        .expr(Expr::cust("COUNT(DISTINCT unit_digest)"))
        .from(RESIDUE)
        .cond_where(of_tables(restored));
    let count = tx.fetch_number(&query).await.about(RESIDUE)?;
    Ok(count.unsigned_abs())
}

/// The residue of dropped tables.
fn of_tables(restored: &[LeftTable]) -> Cond {
    restored.iter().fold(Cond::any(), |any, left| {
        let of_table = Expr::col("table_name").eq(left.table.as_str());
        any.add(Cond::all().add(left_by(&[left.left_by])).add(of_table))
    })
}

/// The residue that no migration of a database can give back on which these ran: what they saved on
/// a way down, and what others saved on a way up. That of units in quarantine was not used, and is
/// none of it.
fn useless(ran: &MigrationSet) -> Cond {
    let saved =
        |direction: Direction| Cond::all().add(Expr::col("direction").eq(direction.to_string()));
    let versions = || ran.versions().map(signed);
    let useless = Cond::any()
        .add(saved(Direction::Down).add(Expr::col("version").is_in(versions())))
        .add(saved(Direction::Up).add(Expr::col("version").is_not_in(versions())));
    let quarantined = Query::select()
        .column("unit_digest")
        .from(QUARANTINE)
        .take();
    Cond::all()
        .add(useless)
        .add(Expr::col("unit_digest").not_in_subquery(quarantined))
}

/// Removes what a complete migration has given back, or what one has saved that is not completed.
/// Clients may write the same units meanwhile.
pub(crate) async fn remove_useless(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let ran = history_pair::ran_of_any_catalog(context, &mut reader).await?;
    drop(reader);
    removal::remove(fence, &bbs_units::residue::table(), useless(&ran)).await
}
