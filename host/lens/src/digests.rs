//! Digests of rows and units, by which residue is recognised that still belongs to them.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use super::budget::OverBudget;
use super::frame::Frame;
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
pub(super) fn unit_digests(
    frame: &Frame<'_>,
    accesses: &[Access],
    layout: &Layout,
) -> Result<Vec<Vec<u8>>, OverBudget> {
    let accesses = distinguishing(accesses, layout);
    digests_of(frame, &accesses, Column::is_identity)
}

/// The digests of [`unit_digests`] as earlier hosts computed them: of all tables, and before that
/// without the identity.
pub(super) fn unit_digests_of_earlier_hosts(
    frame: &Frame<'_>,
    accesses: &[Access],
) -> Result<[Vec<Vec<u8>>; 2], OverBudget> {
    let accesses: Vec<_> = accesses.iter().collect();
    Ok([
        digests_of(frame, &accesses, Column::is_identity)?,
        digests_of(frame, &accesses, |_| false)?,
    ])
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

fn digests_of(
    frame: &Frame<'_>,
    accesses: &[&Access],
    is_added: impl Fn(&Column) -> bool,
) -> Result<Vec<Vec<u8>>, OverBudget> {
    let encoded = |access: &&Access| {
        let table = frame.table(&access.table);
        let mut columns: Vec<_> = table
            .primary_key
            .iter()
            .chain(&access.writes)
            .cloned()
            .collect();
        let added = table
            .columns
            .iter()
            .map(|column| &column.column)
            .filter(|column| is_added(column));
        columns.extend(added.map(|column| column.name.clone()));
        Ok((
            access.table.clone(),
            frame.encoded(&access.table, &columns)?,
        ))
    };
    let tables = accesses
        .iter()
        .map(encoded)
        .collect::<Result<Vec<_>, OverBudget>>()?;
    let of_unit = |unit| {
        digest(
            tables
                .iter()
                .flat_map(|(table, rows)| rows[frame.table(table).rows_of(unit)].iter()),
        )
    };
    Ok((0..frame.units()).map(of_unit).collect())
}

/// The digest of a row, or of the rows of a unit.
#[derive(Debug, Clone, Default)]
pub(super) struct RowDigest {
    now: Vec<u8>,
    /// As earlier hosts computed it, where that may have been saved.
    earlier: Option<Vec<u8>>,
}

impl From<Vec<u8>> for RowDigest {
    fn from(now: Vec<u8>) -> Self {
        Self { now, earlier: None }
    }
}

impl RowDigest {
    /// Whether a saved digest is of this row.
    pub(super) fn is(&self, saved: &[u8]) -> bool {
        self.now == saved || self.earlier.as_deref() == Some(saved)
    }
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

/// The digests of [`row_digests`] as earlier hosts computed them, of the values of all columns.
fn row_digests_of_earlier_hosts(
    frame: &Frame<'_>,
    table: &str,
) -> Result<Vec<Vec<u8>>, OverBudget> {
    let names: Vec<_> = digested(frame, table)
        .into_iter()
        .map(|column| column.name)
        .collect();
    let encoded = frame.encoded(table, &names)?;
    frame.budget().spend(encoded.len() * DIGEST_BYTES)?.keep();
    Ok(encoded.iter().map(|row| digest([row])).collect())
}

/// The digests of rows, to be compared with saved ones.
pub(super) fn row_digests_for<'a>(
    frame: &Frame<'_>,
    table: &str,
    saved: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<RowDigest>, OverBudget> {
    compared(row_digests(frame, table)?, saved, || {
        row_digests_of_earlier_hosts(frame, table)
    })
}

/// For each unit, the digest of its rows in some tables, to be compared with saved ones.
pub(super) fn unit_row_digests_for<'a>(
    frame: &Frame<'_>,
    tables: &[String],
    saved: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<RowDigest>, OverBudget> {
    let earlier = || unit_row_digests_by(frame, tables, row_digests_of_earlier_hosts);
    compared(unit_row_digests(frame, tables)?, saved, earlier)
}

/// Digests, with those of earlier hosts if there are saved ones which are none of these.
fn compared<'a>(
    now: Vec<Vec<u8>>,
    saved: impl Iterator<Item = &'a [u8]>,
    earlier: impl FnOnce() -> Result<Vec<Vec<u8>>, OverBudget>,
) -> Result<Vec<RowDigest>, OverBudget> {
    let known: HashSet<_> = now.iter().map(Vec::as_slice).collect();
    let is_unknown = |digest: &[u8]| !digest.is_empty() && !known.contains(digest);
    let mut saved = saved;
    if !saved.any(is_unknown) {
        return Ok(now.into_iter().map(RowDigest::from).collect());
    }
    let digests = now.into_iter().zip(earlier()?);
    Ok(digests
        .map(|(now, earlier)| RowDigest {
            now,
            earlier: Some(earlier),
        })
        .collect())
}

/// For each unit, the digest of its rows in some tables, in any order of rows.
pub(super) fn unit_row_digests(
    frame: &Frame<'_>,
    tables: &[String],
) -> Result<Vec<Vec<u8>>, OverBudget> {
    unit_row_digests_by(frame, tables, row_digests)
}

fn unit_row_digests_by(
    frame: &Frame<'_>,
    tables: &[String],
    row_digests: impl Fn(&Frame<'_>, &str) -> Result<Vec<Vec<u8>>, OverBudget>,
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
    let encoded = |owner: &String| {
        let columns = frame
            .table(owner)
            .columns
            .iter()
            .map(|column| &column.column);
        let columns: Vec<_> = columns
            .filter(|column| column.is_identity())
            .map(|column| column.name.clone())
            .collect();
        frame.encoded(owner, &columns)
    };
    let encoded = owners
        .iter()
        .map(encoded)
        .collect::<Result<Vec<_>, OverBudget>>()?;
    let owners: Vec<_> = owners.iter().zip(&encoded).collect();
    let of_unit = |unit| {
        digest(
            owners
                .iter()
                .flat_map(|(owner, rows)| rows[frame.table(owner).rows_of(unit)].iter()),
        )
    };
    frame.budget().spend(frame.units() * DIGEST_BYTES)?.keep();
    Ok((0..frame.units()).map(of_unit).collect())
}
