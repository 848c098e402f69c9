//! The rule that a row stays in its unit: a partition key that a row function writes is that of the
//! row's unit, in one of the spellings that the rows of the unit have. Databases that ignore case
//! find rows of one unit under several.

use std::collections::BTreeSet;

use super::UnitKeys;
use super::budget::OverBudget;
use super::error::{MOVES_ROW, StepError};
use super::frame::Frame;
use super::step::Step;
use crate::layout::columns::{ColumnData, Outcome, Written};
use crate::layout::values::{Encoding, Value};

/// The keys of the units before a step: those of the units, and those that the given rows have.
pub(super) struct KeysBefore {
    units: Option<UnitKeys>,
    /// For each access to a table that there was before the step.
    given: Vec<(Vec<u32>, Encoding, ColumnData)>,
}

impl KeysBefore {
    /// None if the step writes no partition key.
    pub(super) fn of(step: &Step, frame: &Frame<'_>) -> Result<Option<Self>, OverBudget> {
        if !step.writes_keys() {
            return Ok(None);
        }
        let before = step
            .accesses()
            .iter()
            .filter_map(|access| step.partition_key_before(access));
        let given = before.map(|(table, key)| {
            let values = frame.read(&table, &key.name)?.into_owned(frame.budget())?;
            Ok((
                frame.table(&table).unit_offsets.clone(),
                Encoding::from(key.kind),
                values,
            ))
        });
        let units = frame.unit_keys().cloned();
        given
            .collect::<Result<_, _>>()
            .map(|given| Some(Self { units, given }))
    }

    /// Checks what the row function returned.
    ///
    /// # Errors
    /// Each unit of which a row has another key.
    pub(super) fn check(
        &self,
        step: &Step,
        units: usize,
        outcome: &Outcome,
    ) -> Result<(), StepError> {
        let mut moved = BTreeSet::new();
        for (access, written) in step.accesses().iter().zip(&outcome.tables) {
            let Some((place, key)) = step.partition_key_written(access) else {
                continue;
            };
            let Written {
                shape: Some(shape),
                columns,
            } = written
            else {
                continue;
            };
            let encoding = Encoding::from(key.kind);
            for unit in 0..units {
                let rows = shape.unit_offsets[unit] as usize..shape.unit_offsets[unit + 1] as usize;
                let stays = |row| self.has(unit, columns[place].get(encoding, row));
                if !moved.contains(&unit) && !rows.into_iter().all(stays) {
                    moved.insert(unit);
                }
            }
        }
        step.refuse(moved, MOVES_ROW)
    }

    fn has(&self, unit: usize, key: Value<'_>) -> bool {
        let of_unit = self
            .units
            .as_ref()
            .map(|units| units.values.get(units.encoding, unit));
        of_unit.is_some_and(|of_unit| is_same(of_unit, key))
            || self.given.iter().any(|(offsets, encoding, values)| {
                let mut rows = offsets[unit] as usize..offsets[unit + 1] as usize;
                rows.any(|row| is_same(values.get(*encoding, row), key))
            })
    }
}

/// Whether two values are one key. Units without rows may have the text of their key.
fn is_same(one: Value<'_>, other: Value<'_>) -> bool {
    let number = |value: Value<'_>| match value {
        Value::Integer(number) => Some(number),
        Value::Boolean(value) => Some(i64::from(value)),
        Value::Text(_) | Value::Null => None,
    };
    match (one, other) {
        (Value::Text(text), other) | (other, Value::Text(text)) if number(other).is_some() => {
            number(other).is_some_and(|number| number.to_string().as_bytes() == text)
        }
        (one, other) => {
            one != Value::Null
                && (one == other || number(one).is_some() && number(one) == number(other))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_the_same_as_text_and_as_number() {
        let one = Value::Integer(1);
        let text = Value::Text(b"1");
        for (left, right) in [
            (one, one),
            (one, text),
            (text, one),
            (one, Value::Boolean(true)),
            (text, text),
        ] {
            assert!(is_same(left, right), "{left:?} {right:?}");
        }
        for (left, right) in [
            (one, Value::Text(b"2")),
            (one, Value::Null),
            (Value::Null, Value::Null),
            (text, Value::Text(b"a")),
        ] {
            assert!(!is_same(left, right), "{left:?} {right:?}");
        }
    }
}
