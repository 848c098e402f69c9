//! Lowering what was changed, and what a pin means for it. A layout older than the handlers' holds what comes back
//! from it: a change that puts something where the pinned layout has no place for it is refused, naming the place. What
//! records had before they were taken down to the pin stays kept beside them, and a row function's residue is its
//! module's own way of keeping what it cannot say.

use std::collections::BTreeSet;

use super::{Lenses, failed};
use crate::layout::values::Value;
use crate::lens::ResidueEntry;
use crate::record::Keyring;
use crate::rows::{Difference, RowsError, UnitBatch, differences};
use crate::store::StoreError;

/// The units of a cluster at the data's layout, and what has to be kept of them. `kept` is what lifting lost.
pub(super) fn lowered(
    lenses: &Lenses,
    keyring: &Keyring,
    cluster: usize,
    before: &UnitBatch,
    now: &UnitBatch,
    kept: Vec<ResidueEntry>,
) -> Result<(UnitBatch, Vec<ResidueEntry>), StoreError> {
    let lowered = lenses.lower(keyring, cluster, now, kept);
    let (after, mut left) = lowered.map_err(|fault| lenses.not_written(fault))?;
    if !lenses.is_pinned || left.iter().all(|kept| kept.table.is_empty()) {
        return Ok((after, left));
    }
    let of_modules = left.iter().filter(|kept| kept.table.is_empty()).cloned().collect();
    let back = lenses.lift(keyring, cluster, &after, of_modules).map_err(|fault| lenses.not_written(fault))?;
    let lost = differences(lenses.native(), &back, now, keyring, alike);
    if lost.is_empty() {
        left.retain(|kept| kept.table.is_empty());
        return Ok((after, left));
    }
    let changed = differences(lenses.native(), before, now, keyring, alike);
    let is_new = |(table, key, column): &&Difference| {
        changed.contains(&(table.clone(), key.clone(), column.clone()))
            || changed.contains(&(table.clone(), key.clone(), String::new()))
    };
    let named = |(table, _, column): &Difference| match column.is_empty() {
        true => table.clone(),
        false => format!("{table}.{column}"),
    };
    let new: BTreeSet<_> = lost.iter().filter(is_new).map(named).collect();
    if new.is_empty() {
        return Ok((after, left));
    }
    let fields = new.into_iter().collect::<Vec<_>>().join(", ");
    Err(StoreError::NotHeld { fields, version: lenses.version })
}

/// To a reader there is no difference between nothing and an empty list of any kind.
fn alike(one: Value<'_>, other: Value<'_>) -> bool {
    let is_empty = |value: Value<'_>| match value {
        Value::Null => true,
        Value::Text(text) => [&b""[..], b"[]", b"{}", b"null"].contains(&text),
        Value::Boolean(_) | Value::Integer(_) => false,
    };
    one == other || (is_empty(one) && is_empty(other))
}

impl Lenses {
    /// What it means that a changed unit could not be written.
    pub(super) fn not_written(&self, fault: RowsError) -> StoreError {
        match fault {
            RowsError::TooLong { table, column } => {
                StoreError::NotHeld { fields: format!("{table}.{column}"), version: self.version }
            }
            RowsError::Lens(fault) if self.is_pinned => {
                StoreError::NotHeld { fields: fault.to_string(), version: self.version }
            }
            fault => failed("write a record through the lens")(fault),
        }
    }
}
