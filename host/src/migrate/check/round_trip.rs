//! One migration up and down, over units in memory: which units cannot be transformed or do not
//! come back as they were, and why. Pure: reads and writes no database. Its reasons contain no
//! value of a record.

use std::sync::Arc;

use bbs_database::Dialect;
use bbs_encryption::Keyring;
use bbs_lens::layout::history::{LayoutHistory, Way};
use bbs_lens::layout::manifest::{DataVersion, Direction, Manifest};
use bbs_lens::layout::schema::{Column, Layout, Sealing, Table};
use bbs_lens::layout::values::Value;
use bbs_lens::transform::Transform;
use bbs_lens::{Arguments, ComposeError, Lens, LensError, Residue, TableGroup};

use bbs_units::{
    BatchColumn, OwnedValue, Passage, RowsError, TableRows, Transformed, UnitBatch, matched, same,
};

/// A step of a lens, and the step in the other direction.
pub(super) struct RoundTrip {
    forward: Lens,
    /// Absent if the migration is not reversible.
    inverse: Option<Lens>,
    /// The database that the results have to fit, if any.
    writes_to: Option<Dialect>,
}

/// A unit that would not come back as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loss {
    /// The unit's place in the batch.
    pub(super) unit: usize,
    /// The text that all units with this problem share.
    pub(super) reason: String,
    /// Specific to this unit, without a value of it.
    pub(super) detail: Option<String>,
}

/// The result of a round trip.
#[derive(Debug, Default)]
pub(super) struct RoundTripOutcome {
    pub(super) losses: Vec<Loss>,
    /// The places of the units that the first step can transform.
    pub(super) units: Vec<usize>,
    /// The transformed units, at the target of the first step.
    pub(super) target: UnitBatch,
    /// The number of rows that the first step removed.
    pub(super) removed: u64,
}

impl RoundTrip {
    /// `restorable` names the residue of earlier steps in the other direction.
    pub(super) fn new(
        layouts: &LayoutHistory,
        migrations: &[Arc<dyn Transform>],
        migration: &Manifest,
        direction: Direction,
        restorable: impl IntoIterator<Item = (DataVersion, String)>,
        writes_to: Option<Dialect>,
    ) -> Result<Self, ComposeError> {
        let version = migration.version;
        let below = layouts.migrations().up_to(version - 1).newest();
        let (source, target) = match direction {
            Direction::Up => (below, version),
            Direction::Down => (version, below),
        };
        let forward = Lens::new(
            Way::within(layouts, source, target),
            migrations,
            restorable.into_iter().collect(),
        )?;
        // The step back may get residue wherever the step before it may leave some.
        let tables = forward.source.tables.keys().map(String::as_str).chain([""]);
        let anything = tables.map(|table| (version, table.to_owned())).collect();
        let way_back = Way::within(layouts, target, source);
        let inverse = migration
            .reversible
            .then(|| Lens::new(way_back, migrations, anything))
            .transpose()?;
        Ok(Self {
            forward,
            inverse,
            writes_to,
        })
    }

    /// The number of units that have rows in tables that the migration changes.
    pub(super) fn concerns(&self, batch: &UnitBatch) -> u64 {
        let is_changed = |name: &String| {
            let source = &self.forward.source.tables[name];
            self.forward.target.tables.get(name) != Some(source)
                || self
                    .forward
                    .groups
                    .iter()
                    .any(|group| group.visits_units && group.sources.contains(name))
        };
        let changed: Vec<_> = batch
            .tables
            .iter()
            .filter(|(name, _)| is_changed(name))
            .map(|(_, rows)| rows)
            .collect();
        let has_rows = |unit: &usize| changed.iter().any(|rows| !rows.of(*unit).is_empty());
        (0..batch.units.len()).filter(has_rows).count() as u64
    }

    /// The layout of the units before it.
    pub(super) fn source(&self) -> &Layout {
        &self.forward.source
    }

    /// Migrates units and back, in memory.
    ///
    /// # Errors
    /// The units cannot be transformed at once; half of them may.
    pub(super) fn run_both_ways(
        &self,
        batch: &UnitBatch,
        residue: &Residue,
        arguments: &Arguments,
        keyring: &Keyring,
    ) -> Result<RoundTripOutcome, RowsError> {
        let migrated = self.sift(&self.forward, batch, residue, arguments, keyring)?;
        let mut outcome = RoundTripOutcome {
            losses: losses(&migrated),
            units: migrated.places,
            target: migrated.batch,
            removed: migrated.removed,
        };
        let Some(inverse) = &self.inverse else {
            return Ok(outcome);
        };
        let saved = Residue::from(migrated.residue);
        let returned = self.sift(inverse, &outcome.target, &saved, arguments, keyring)?;
        let units = &outcome.units;
        let before: Vec<_> = returned.places.iter().map(|&place| units[place]).collect();
        let lost = losses(&returned).into_iter().map(|loss| Loss {
            unit: units[loss.unit],
            ..loss
        });
        outcome.losses.extend(lost);
        let source = &self.forward.source;
        let changed = differences(
            source,
            &batch.only(source, &before),
            &returned.batch,
            keyring,
        );
        outcome.losses.extend(changed.into_iter().map(|loss| Loss {
            unit: before[loss.unit],
            ..loss
        }));
        Ok(outcome)
    }

    /// Sifts units through the groups of a lens that have rows, or to which residue gives some
    /// back.
    fn sift(
        &self,
        lens: &Lens,
        batch: &UnitBatch,
        residue: &Residue,
        arguments: &Arguments,
        keyring: &Keyring,
    ) -> Result<Transformed, RowsError> {
        let has_rows = |name: &String| batch.tables.get(name).is_some_and(|rows| rows.count() > 0);
        let concerned =
            |group: &TableGroup| !group.restored.is_empty() || group.sources.iter().any(has_rows);
        let groups: Vec<_> = (0..lens.groups.len())
            .filter(|&number| concerned(&lens.groups[number]))
            .collect();
        Passage {
            lens,
            groups: &groups,
            arguments,
            keyring,
            writes_to: self.writes_to,
        }
        .sift(batch, residue)
    }
}

fn losses(transformed: &Transformed) -> Vec<Loss> {
    let refused = transformed.refused.iter();
    let loss = |(unit, fault): &(usize, RowsError)| Loss {
        unit: *unit,
        reason: reason(fault),
        detail: None,
    };
    refused.map(loss).collect()
}

/// Why a unit cannot be transformed.
pub(super) fn reason(fault: &RowsError) -> String {
    match fault {
        RowsError::Lens(fault) => match &**fault {
            LensError::Unit { step, reason, .. } => {
                format!("{} refuses it: {reason}", step.direction)
            }
            LensError::Counterpart { .. } | LensError::Step { .. } | LensError::Slow { .. } => {
                fault.to_string()
            }
        },
        RowsError::Unstorable(unstorable) => unstorable.flaw.clone(),
        RowsError::Sealed {
            table,
            column,
            source,
        } => format!("`{column}` of `{table}`: {source}"),
        fault => fault.to_string(),
    }
}

/// The first difference of each unit.
fn differences(
    layout: &Layout,
    before: &UnitBatch,
    after: &UnitBatch,
    keyring: &Keyring,
) -> Vec<Loss> {
    let mut losses = Vec::new();
    for unit in 0..before.units.len() {
        let found = layout.tables.values().find_map(|table| {
            let rows = [before, after].map(|batch| batch.tables.get(&table.name));
            difference(table, unit, rows, keyring)
        });
        losses.extend(found.map(|(reason, detail)| Loss {
            unit,
            reason,
            detail,
        }));
    }
    losses
}

/// The first difference of a unit's rows in one table. A table without rows may be absent from
/// either batch.
fn difference(
    table: &Table,
    unit: usize,
    [before, after]: [Option<&TableRows>; 2],
    keyring: &Keyring,
) -> Option<(String, Option<String>)> {
    let name = &table.name;
    let removed = || Some((format!("a row of `{name}` does not come back"), None));
    let added = || {
        Some((
            format!("a row of `{name}` comes back that was not there"),
            None,
        ))
    };
    let has_any = |rows: &&TableRows| !rows.of(unit).is_empty();
    let (before, after) = match (before.filter(has_any), after.filter(has_any)) {
        (None, None) => return None,
        (Some(_), None) => return removed(),
        (None, Some(_)) => return added(),
        (Some(before), Some(after)) => (before, after),
    };
    let matched = matched(table, (before, unit), (after, unit));
    if !matched.removed.is_empty() {
        return removed();
    }
    for (was, row) in matched.rows {
        let Some(was) = was else { return added() };
        // The host sets the record version again on each way, so another one is no loss.
        for column in table
            .columns
            .iter()
            .filter(|column| !column.is_record_version())
        {
            let then = &before.columns[&column.name];
            let now = &after.columns[&column.name];
            if !same(column, (then, was), (now, row), keyring, |then, now| {
                then == now
            }) {
                let detail = detail(
                    &plain(then, was, column, keyring),
                    &plain(now, row, column, keyring),
                );
                return Some((
                    format!("`{}` of `{name}` comes back changed", column.name),
                    Some(detail),
                ));
            }
        }
    }
    None
}

/// A value opened, or as it is stored if it does not open.
fn plain(values: &BatchColumn, row: usize, column: &Column, keyring: &Keyring) -> OwnedValue {
    let value = values.data.get(column.kind.into(), row);
    let text = match value {
        Value::Text(text) if values.sealing != Sealing::Plain => {
            keyring.open(values.sealing, text).ok()
        }
        _ => None,
    };
    text.map_or_else(|| value.into(), OwnedValue::Text)
}

fn detail(then: &OwnedValue, now: &OwnedValue) -> String {
    let detail = format!("{} became {}", kind(then), kind(now));
    match first_byte(then, now) {
        Some(at) => format!("{detail}, {at}"),
        None => detail,
    }
}

fn kind(value: &OwnedValue) -> String {
    match value {
        OwnedValue::Null => "NULL".to_owned(),
        OwnedValue::Boolean(_) => "a boolean".to_owned(),
        OwnedValue::Integer(_) => "an integer".to_owned(),
        OwnedValue::Text(bytes) => format!("{} bytes", bytes.len()),
    }
}

fn first_byte(then: &OwnedValue, now: &OwnedValue) -> Option<String> {
    let (OwnedValue::Text(then), OwnedValue::Text(now)) = (then, now) else {
        return None;
    };
    let same = then
        .iter()
        .zip(now)
        .take_while(|(then, now)| then == now)
        .count();
    Some(format!("other from byte {same} on"))
}
