//! Digests of rows and units, by which residue is recognised that still belongs to them.

use sha2::{Digest, Sha256};

use super::budget::OverBudget;
use super::column::EncodedRows;
use super::frame::{Frame, FrameTable};
use crate::layout::manifest::Access;
use crate::layout::schema::{Column, Layout, RECORD_VERSION, Sealing, Table};
use crate::layout::values::{Encoding, Value};

/// The memory of a digest.
const DIGEST_BYTES: usize = 16 + size_of::<Vec<u8>>();

fn digest(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.as_ref().len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..16].to_vec()
}

/// For each unit, the digest of what a row function wrote and whose it is: keys, identity and
/// written columns of its tables, as far as these distinguish units. `layout` is that of the frame.
/// In any order of rows: that of the row function becomes that of the keys once they are stored.
pub(super) fn unit_digests(
    frame: &Frame<'_>,
    accesses: &[Access],
    layout: &Layout,
) -> Result<Vec<Vec<u8>>, OverBudget> {
    let tables = encoded_tables(frame, accesses, layout)?;
    let of_unit = |unit| {
        digest(tables.iter().flat_map(|(table, rows)| {
            let mut rows: Vec<_> = rows[frame.table(table).rows_of(unit)].iter().collect();
            rows.sort_unstable();
            rows
        }))
    };
    Ok((0..frame.units()).map(of_unit).collect())
}

/// As [`unit_digests`], in the order of the rows, as builds before this one saved them.
pub(super) fn ordered_unit_digests(
    frame: &Frame<'_>,
    accesses: &[Access],
    layout: &Layout,
) -> Result<Vec<Vec<u8>>, OverBudget> {
    let tables = encoded_tables(frame, accesses, layout)?;
    Ok(encoded_digests(frame, &tables))
}

/// The rows that the digest of a unit is of, by table.
fn encoded_tables<'a, 'f>(
    frame: &'f Frame<'_>,
    accesses: &'a [Access],
    layout: &Layout,
) -> Result<Vec<(&'a String, EncodedRows<'f>)>, OverBudget> {
    let encoded = |access: &'a Access| {
        let table = frame.table(&access.table);
        let known = table.primary_key.iter().chain(&access.writes);
        let known: Vec<_> = known.cloned().collect();
        let rows = frame.encoded(&access.table, &known, &identity(table))?;
        Ok((&access.table, rows))
    };
    let tables = distinguishing(accesses, layout).into_iter().map(encoded);
    tables.collect()
}

/// The names of the columns that identify the records of a table. Digests are of those that have
/// another value than their default: one that a migration adds that was inserted since changes no
/// digest of the records that were there.
fn identity(table: &FrameTable) -> Vec<String> {
    let columns = table.columns.iter().map(|column| &column.column);
    columns
        .filter(|column| column.is_identity())
        .map(|column| column.name.clone())
        .collect()
}

/// For each unit, the digest of its encoded rows in some tables.
fn encoded_digests(frame: &Frame<'_>, tables: &[(&String, EncodedRows<'_>)]) -> Vec<Vec<u8>> {
    let of_unit = |unit| {
        digest(
            tables
                .iter()
                .flat_map(|(table, rows)| rows[frame.table(table).rows_of(unit)].iter()),
        )
    };
    (0..frame.units()).map(of_unit).collect()
}

/// The accesses to tables with the record of each unit, and to those that the row function changes.
/// Rows of other tables come and go while the record stays the same, as instances of an LRP do.
/// Without a record, all accesses.
fn distinguishing<'a>(accesses: &'a [Access], layout: &Layout) -> Vec<&'a Access> {
    let has_records = |access: &Access| {
        let table = layout.tables.get(&access.table);
        table.is_some_and(Table::identifies_units)
    };
    if !accesses.iter().any(has_records) {
        return accesses.iter().collect();
    }
    let is_changed = |access: &Access| !access.writes.is_empty() || access.reshapes;
    let stay = accesses
        .iter()
        .filter(|access| has_records(access) || is_changed(access));
    stay.collect()
}

/// The columns of a table that a digest of a row is of: an edit changes them, through Diego's
/// modification tag if nothing else, and a new encryption key does not. The record version is left
/// out: the host sets it, so it is no edit.
fn digested(frame: &Frame<'_>, table: &str) -> Vec<Column> {
    let columns = frame
        .table(table)
        .columns
        .iter()
        .map(|column| column.column.clone());
    let mut columns: Vec<_> = columns
        .filter(|column| column.sealing == Sealing::Plain && column.name != RECORD_VERSION)
        .collect();
    columns.sort_by(|one, other| one.name.cmp(&other.name));
    columns
}

/// For each row, the digest of those of its columns that have another value than their default:
/// what a migration adds that was inserted since changes no digest.
pub(super) fn row_digests(frame: &Frame<'_>, table: &str) -> Result<Vec<Vec<u8>>, OverBudget> {
    let mut hashes = vec![Sha256::new(); frame.table(table).rows()];
    frame
        .budget()
        .spend(hashes.len() * size_of::<Sha256>())?
        .keep();
    let mut encoded = Vec::new();
    for column in digested(frame, table) {
        let values = frame.read(table, &column.name)?;
        let default = Value::of(column.default.as_ref());
        for (row, hash) in hashes.iter_mut().enumerate() {
            let value = values.get(Encoding::from(column.kind), row);
            if value != default {
                encoded.clear();
                Value::Text(column.name.as_bytes()).encode(&mut encoded);
                value.encode(&mut encoded);
                hash.update(&encoded);
            }
        }
    }
    Ok(hashes
        .into_iter()
        .map(|hash| hash.finalize()[..16].to_vec())
        .collect())
}

/// For each unit, the digest of its rows in some tables, in any order of rows.
pub(super) fn unit_row_digests(
    frame: &Frame<'_>,
    tables: &[String],
) -> Result<Vec<Vec<u8>>, OverBudget> {
    let digests = |table: &String| Ok((table.clone(), row_digests(frame, table)?));
    let tables = tables
        .iter()
        .filter(|table| frame.has(table))
        .map(digests)
        .collect::<Result<Vec<_>, OverBudget>>()?;
    let of_unit = |unit: usize| {
        digest(tables.iter().map(|(table, rows)| {
            let mut rows = rows[frame.table(table).rows_of(unit)].to_vec();
            rows.sort();
            digest(rows)
        }))
    };
    Ok((0..frame.units()).map(of_unit).collect())
}

/// For each unit, a digest of what identifies its record in the tables of the owners: another
/// record under the same key has another one. Empty without owners.
pub(super) fn identities(frame: &Frame<'_>, owners: &[String]) -> Result<Vec<Vec<u8>>, OverBudget> {
    if owners.is_empty() {
        return Ok(vec![Vec::new(); frame.units()]);
    }
    let tables = owners
        .iter()
        .map(|owner| {
            let columns = identity(frame.table(owner));
            Ok((owner, frame.encoded(owner, &[], &columns)?))
        })
        .collect::<Result<Vec<_>, OverBudget>>()?;
    frame.budget().spend(frame.units() * DIGEST_BYTES)?.keep();
    Ok(encoded_digests(frame, &tables))
}
