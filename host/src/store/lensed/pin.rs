//! Transformation of changed units to the stored layout, and the check of a pin. Under a pin, a
//! change must survive the round trip through the stored layout; one that does not is rejected with
//! the columns that would be lost. Content that a record had before the migration down to the pin
//! stays stored as residue, and so does the residue of row functions.

use std::collections::BTreeSet;

use bbs_encryption::Keyring;
use bbs_lens::ResidueEntry;
use bbs_lens::layout::values::Value;
use bbs_units::{Difference, RowsError, UnitBatch, differences};

use super::{Lenses, TransformPermit, failed};
use crate::store::StoreError;

/// Transforms changed units to the stored layout; also returns their residue. `residue` is that of
/// the transformation to the native layout.
///
/// # Errors
/// [`StoreError::NotHeld`] under a pin, if the stored layout cannot hold the change.
pub(super) fn to_stored(
    lenses: &Lenses,
    keyring: &Keyring,
    group: usize,
    before: &UnitBatch,
    now: &UnitBatch,
    residue: Vec<ResidueEntry>,
    permit: &TransformPermit,
) -> Result<(UnitBatch, Vec<ResidueEntry>), StoreError> {
    let transformed = lenses.transform_to_stored(keyring, group, now, residue, permit);
    let (after, mut residue) = transformed.map_err(|fault| lenses.not_written(fault))?;
    if !lenses.is_pinned || residue.iter().all(|entry| entry.table.is_empty()) {
        return Ok((after, residue));
    }
    let of_modules = residue
        .iter()
        .filter(|entry| entry.table.is_empty())
        .cloned()
        .collect();
    let back = lenses
        .transform_to_native(keyring, group, &after, of_modules, permit)
        .map_err(|fault| lenses.not_written(fault))?;
    let lost = differences(lenses.native(), &back, now, keyring, is_equivalent);
    if lost.is_empty() {
        residue.retain(|entry| entry.table.is_empty());
        return Ok((after, residue));
    }
    let changed = differences(lenses.native(), before, now, keyring, is_equivalent);
    let is_new = |(table, key, column): &&Difference| {
        changed.contains(&(table.clone(), key.clone(), column.clone()))
            || changed.contains(&(table.clone(), key.clone(), String::new()))
    };
    let named = |(table, _, column): &Difference| {
        if column.is_empty() {
            table.clone()
        } else {
            format!("{table}.{column}")
        }
    };
    let rejected: BTreeSet<_> = lost.iter().filter(is_new).map(named).collect();
    if rejected.is_empty() {
        return Ok((after, residue));
    }
    let fields = rejected.into_iter().collect::<Vec<_>>().join(", ");
    Err(lenses.not_held(fields))
}

/// Whether two values have the same meaning: readers do not distinguish NULL, empty text, and empty
/// JSON.
fn is_equivalent(one: Value<'_>, other: Value<'_>) -> bool {
    let is_empty = |value: Value<'_>| match value {
        Value::Null => true,
        Value::Text(text) => [&b""[..], b"[]", b"{}", b"null"].contains(&text),
        Value::Boolean(_) | Value::Integer(_) => false,
    };
    one == other || (is_empty(one) && is_empty(other))
}

impl Lenses {
    /// The error for a changed unit that cannot be written.
    pub(super) fn not_written(&self, fault: RowsError) -> StoreError {
        match fault {
            RowsError::TooLong { table, column } => self.not_held(format!("{table}.{column}")),
            RowsError::Lens(fault) if self.is_pinned => self.not_held(fault.to_string()),
            fault => failed("write a record through the lens")(fault),
        }
    }
}
