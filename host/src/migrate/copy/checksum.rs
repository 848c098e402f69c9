//! The number and the checksum of the rows that the lens returned for each table so far, and the
//! checksum of the originals that it was given: what the copies are verified against.

use std::iter::once;

use bbs_database::{Row, StatementResult, Transaction, signed, sql, upsert};
use bbs_encryption::Keyring;
use bbs_files::digest::{from_hex, to_hex};
use bbs_lens::Provenance;
use bbs_lens::layout::schema::Layout;
use bbs_lens::layout::values::{Encoding, Value};
use bbs_units::{TableRows, UnitBatch};
use sha2::{Digest, Sha256};

use crate::migrate::MigrateError;
use crate::migrate::plan::TablePlan;

/// A checksum of rows that does not depend on their order: the sum of the digests of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checksum(u128);

impl Checksum {
    /// The checksum of the plain values of [`TablePlan::digested`].
    pub(crate) fn of(plan: &TablePlan, rows: &TableRows) -> Self {
        let columns = plan
            .digested()
            .into_iter()
            .map(|(column, _)| (column, &rows.columns[&column.name].data));
        let columns: Vec<_> = columns.collect();
        let mut sum = Self::default();
        for row in 0..rows.count() {
            sum.add_row(
                columns
                    .iter()
                    .map(|(column, data)| data.get(column.kind.into(), row)),
            );
        }
        sum
    }

    /// The checksum of rows that were just sealed, or are in a copy.
    pub(super) fn of_copied(
        plan: &TablePlan,
        mut rows: TableRows,
        keyring: &Keyring,
    ) -> Result<Self, MigrateError> {
        let count = rows.count();
        for (column, _) in plan
            .digested()
            .into_iter()
            .filter(|(_, from)| *from == Provenance::Computed)
        {
            let mut failed = None;
            let values = &rows.columns[&column.name];
            let opened = bbs_units::opened(values, count, keyring, |_, fault| {
                failed = failed.take().or(Some(fault))
            });
            if let Some(fault) = failed {
                return Err(MigrateError::Verify {
                    table: plan.table.name.clone(),
                    problem: format!("a value that was just written does not open: {fault}"),
                });
            }
            if let Some(plain) = opened {
                rows.columns.insert(column.name.clone(), plain);
            }
        }
        Ok(Self::of(plan, &rows))
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.0 = self.0.wrapping_sub(other.0);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    fn add_row<'a>(&mut self, values: impl Iterator<Item = Value<'a>>) {
        let mut hash = Sha256::new();
        for value in values {
            match value {
                // Long text is hashed without a copy.
                Value::Text(bytes) => {
                    hash.update([3]);
                    hash.update((bytes.len() as u64).to_le_bytes());
                    hash.update(bytes);
                }
                value => {
                    let mut bytes = Vec::with_capacity(9);
                    value.encode(&mut bytes);
                    hash.update(bytes);
                }
            }
        }
        let digest = hash.finalize();
        let first = digest.first_chunk().expect("32 bytes");
        self.0 = self.0.wrapping_add(u128::from_le_bytes(*first));
    }
}

/// The checksum of each unit of a batch, as a layout stores it.
pub(super) fn of_units(batch: &UnitBatch, layout: &Layout) -> Vec<Checksum> {
    let mut sums = vec![Checksum::default(); batch.units.len()];
    for (name, rows) in &batch.tables {
        let table = &layout.tables[name];
        let columns = rows.columns.iter().filter_map(|(column, values)| {
            let kind = table.find_column(column)?.kind;
            Some((Encoding::from(kind), values))
        });
        let columns: Vec<_> = columns.collect();
        for (unit, sum) in sums.iter_mut().enumerate() {
            for row in rows.of(unit) {
                let values = columns
                    .iter()
                    .map(|(encoding, values)| values.data.get(*encoding, row));
                sum.add_row(once(Value::Text(name.as_bytes())).chain(values));
            }
        }
    }
    sums
}

/// Rows and the checksum of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CopiedRows {
    pub rows: u64,
    pub checksum: Checksum,
}

fn digest(checksum: Checksum) -> String {
    to_hex(&checksum.0.to_le_bytes())
}

/// Adds rows that were written to a copy.
pub(crate) async fn add(
    tx: &mut Transaction,
    plan: &TablePlan,
    more: CopiedRows,
) -> Result<(), MigrateError> {
    replace(tx, plan, CopiedRows::default(), more).await
}

/// Records that rows of a copy were replaced by others.
pub(crate) async fn replace(
    tx: &mut Transaction,
    plan: &TablePlan,
    before: CopiedRows,
    after: CopiedRows,
) -> Result<(), MigrateError> {
    let mut sum = written(tx, plan).await?;
    sum.rows = sum.rows.wrapping_add(after.rows).wrapping_sub(before.rows);
    sum.checksum.add(after.checksum);
    sum.checksum.subtract(before.checksum);
    write(tx, &plan.table.name, sum).await
}

/// The rows that a copy has to contain now.
pub(crate) async fn written(
    tx: &mut Transaction,
    plan: &TablePlan,
) -> Result<CopiedRows, MigrateError> {
    read(tx, &plan.table.name, plan.group).await
}

/// Adds units of a group to those whose originals were read.
pub(super) async fn add_originals(
    tx: &mut Transaction,
    group: usize,
    more: Checksum,
) -> Result<(), MigrateError> {
    if more == Checksum::default() {
        return Ok(());
    }
    let mut checksum = originals(tx, group).await?;
    checksum.add(more);
    let sum = CopiedRows { rows: 0, checksum };
    write(tx, &name_of_originals(group), sum).await
}

/// The checksum of a group's originals when they were read.
pub(crate) async fn originals(
    tx: &mut Transaction,
    group: usize,
) -> Result<Checksum, MigrateError> {
    let read = read(tx, &name_of_originals(group), group).await?;
    Ok(read.checksum)
}

/// The name under which it is stored, which no table has.
fn name_of_originals(group: usize) -> String {
    format!("originals of group {group}")
}

async fn write(tx: &mut Transaction, name: &str, sum: CopiedRows) -> Result<(), MigrateError> {
    let values = [
        ("rows_out", signed(sum.rows).into()),
        ("digest", digest(sum.checksum).into()),
    ];
    let row = upsert("bbs_copy_table", [("table_name", name.into())], values);
    tx.execute(&row).await.about("bbs_copy_table")?;
    Ok(())
}

async fn read(tx: &mut Transaction, name: &str, group: usize) -> Result<CopiedRows, MigrateError> {
    let select = sql("SELECT rows_out, digest FROM bbs_copy_table WHERE table_name = ?").bind(name);
    match tx.fetch_optional(select).await.about("bbs_copy_table")? {
        Some(row) => parse(&row, group),
        None => Ok(CopiedRows::default()),
    }
}

fn parse(row: &Row, group: usize) -> Result<CopiedRows, MigrateError> {
    let damaged = || MigrateError::DamagedCursor { group };
    let digest = row
        .text(1)
        .about("bbs_copy_table")?
        .and_then(from_hex)
        .and_then(|bytes| bytes.try_into().ok());
    let checksum = Checksum(u128::from_le_bytes(digest.ok_or_else(damaged)?));
    let rows = row.unsigned(0).about("bbs_copy_table")?;
    Ok(CopiedRows { rows, checksum })
}
