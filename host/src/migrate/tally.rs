//! How many rows the lens put out for each table so far, and their digest: what the copies are verified against. The
//! copier keeps one sum a table; what clients write meanwhile is noted beside it, each change for itself, so that
//! nobody waits for the copier's row.

use super::MigrateError;
use super::key::{from_hex, to_hex};
use super::plan::TablePlan;
use super::transform::Checksum;
use crate::database::{Row, SqlError, Transaction, sql, upsert};

/// Rows and the digest of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub rows: u64,
    pub checksum: Checksum,
}

fn failed(source: SqlError) -> MigrateError {
    MigrateError::Sql { what: "bbs_copy_table".to_owned(), source }
}

fn signed(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

fn digest(checksum: Checksum) -> String {
    to_hex(&checksum.0.to_le_bytes())
}

/// Adds what the copier wrote.
pub(super) async fn add(tx: &mut Transaction, plan: &TablePlan, more: Written) -> Result<(), MigrateError> {
    let mut sum = copied(tx, plan).await?;
    sum.rows += more.rows;
    sum.checksum.add(more.checksum);
    let values = [("rows_out", signed(sum.rows).into()), ("digest", digest(sum.checksum).into())];
    let row = upsert("bbs_copy_table", [("table_name", plan.table.name.as_str().into())], values);
    tx.execute(&row).await.map_err(failed)?;
    Ok(())
}

/// Notes that rows of a copy took the place of others.
pub(super) async fn note(
    tx: &mut Transaction,
    plan: &TablePlan,
    before: Written,
    after: Written,
) -> Result<(), MigrateError> {
    let mut change = after.checksum;
    change.subtract(before.checksum);
    let insert = sql("INSERT INTO bbs_copy_change (id, table_name, rows_out, digest) VALUES (?, ?, ?, ?)")
        .bind(uuid::Uuid::new_v4().to_string())
        .bind(plan.table.name.as_str())
        .bind(signed(after.rows) - signed(before.rows))
        .bind(digest(change));
    tx.execute(insert).await.map_err(failed)?;
    Ok(())
}

/// What has to be in a copy now.
pub(super) async fn written(tx: &mut Transaction, plan: &TablePlan) -> Result<Written, MigrateError> {
    let mut sum = copied(tx, plan).await?;
    let select = sql("SELECT rows_out, digest FROM bbs_copy_change WHERE table_name = ?");
    for row in tx.fetch(select.bind(plan.table.name.as_str())).await.map_err(failed)? {
        let (rows, checksum) = read(&row, plan)?;
        sum.rows = sum.rows.wrapping_add_signed(rows);
        sum.checksum.add(checksum);
    }
    Ok(sum)
}

async fn copied(tx: &mut Transaction, plan: &TablePlan) -> Result<Written, MigrateError> {
    let select = sql("SELECT rows_out, digest FROM bbs_copy_table WHERE table_name = ?").bind(plan.table.name.as_str());
    let Some(row) = tx.fetch_optional(select).await.map_err(failed)? else { return Ok(Written::default()) };
    let (rows, checksum) = read(&row, plan)?;
    Ok(Written { rows: rows.unsigned_abs(), checksum })
}

fn read(row: &Row, plan: &TablePlan) -> Result<(i64, Checksum), MigrateError> {
    let damaged = || MigrateError::DamagedCursor { group: plan.group };
    let digest = row.text(1).map_err(failed)?.and_then(from_hex).and_then(|bytes| bytes.try_into().ok());
    let checksum = Checksum(u128::from_le_bytes(digest.ok_or_else(damaged)?));
    Ok((row.integer(0).map_err(failed)?.unwrap_or_default(), checksum))
}
