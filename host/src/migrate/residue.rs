//! Which residue a migration gives back, and its removal once the migration in the other direction has used it. The
//! entries themselves are `rows::residue`'s.

use std::collections::BTreeSet;

use sea_query::{Cond, Expr, ExprTrait, Order, Query};

use super::own_tables::{QUARANTINE, RESIDUE};
use super::state::exists;
use super::{MigrateError, removal};
use crate::database::{Row, SqlError, Transaction};
use crate::layout::manifest::{DataVersion, Direction};
use crate::lock::fence::Fence;
use crate::rows;
use crate::rows::digest::digest_of;
use crate::rows::residue::{at_any_of, of};

type Versions = std::ops::RangeInclusive<DataVersion>;

fn failed(source: SqlError) -> MigrateError {
    MigrateError::Sql { what: RESIDUE.to_owned(), source }
}

/// The versions and tables for which steps of a direction have left residue.
pub(super) async fn present(
    tx: &mut Transaction,
    direction: Direction,
    versions: Versions,
) -> Result<BTreeSet<(DataVersion, String)>, MigrateError> {
    if !exists(tx, RESIDUE).await? {
        return Ok(BTreeSet::new());
    }
    let mut query = Query::select();
    query.distinct().columns(["version", "table_name"]).from(RESIDUE).cond_where(of(direction, &versions));
    let read = |row: &Row| -> Result<_, SqlError> {
        Ok((row.integer(0)?.unwrap_or_default().unsigned_abs(), row.text(1)?.unwrap_or_default().to_owned()))
    };
    tx.fetch(&query).await.map_err(failed)?.iter().map(read).collect::<Result<_, _>>().map_err(failed)
}

/// The residue that a migration gives back. None in a database that is begun anew: its residue belongs to records that
/// are gone.
pub(super) async fn restorable(
    tx: &mut Transaction,
    from: DataVersion,
    to: DataVersion,
) -> Result<BTreeSet<(DataVersion, String)>, MigrateError> {
    match (from, to >= from) {
        (0, _) => Ok(BTreeSet::new()),
        (_, true) => present(tx, Direction::Down, super::versions(from, to)).await,
        (_, false) => present(tx, Direction::Up, super::versions(from, to)).await,
    }
}

/// Units of dropped tables of which only residue is left, after a given one.
pub(super) async fn units_of(
    tx: &mut Transaction,
    direction: Direction,
    restored: &[(DataVersion, String)],
    after: Option<&str>,
    most: u64,
) -> Result<Vec<String>, MigrateError> {
    let mut query = Query::select();
    query
        .columns(["unit_digest", "unit"])
        .distinct()
        .from(RESIDUE)
        .and_where(Expr::col("direction").eq(direction.to_string()))
        .cond_where(at_any_of(restored))
        .order_by("unit_digest", Order::Asc)
        .limit(most);
    if let Some(after) = after {
        query.and_where(Expr::col("unit_digest").gt(digest_of(after.as_bytes())));
    }
    let rows = tx.fetch(&query).await.map_err(failed)?;
    let unit = |row: &Row| Ok(row.text(1)?.unwrap_or_default().to_owned());
    rows.iter().map(unit).collect::<Result<_, _>>().map_err(failed)
}

/// The residue of a direction at these versions, without that of units in quarantine, which was not used.
fn used(direction: Direction, versions: &Versions) -> Cond {
    let quarantined = Query::select().column("unit_digest").from(QUARANTINE).take();
    of(direction, versions).add(Expr::col("unit_digest").not_in_subquery(quarantined))
}

/// Removes it. Clients may write the same units meanwhile.
pub(super) async fn remove(fence: &Fence, direction: Direction, versions: Versions) -> Result<(), MigrateError> {
    removal::remove(fence, &rows::residue::table(), used(direction, &versions)).await
}
