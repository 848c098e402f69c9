//! One migration there and back, over units in memory: who does not go, who does not come back, and why. Pure: it
//! reads and writes no database, and its reasons hold no value of a record.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::layout::columns::ColumnData;
use crate::layout::fold::Line;
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Layout, Table};
use crate::layout::values::{Encoding, Value};
use crate::lens::transform::Transform;
use crate::lens::{Arguments, Kept, Left, Lens, LensError, Source, SourceTable};

/// One step of a lens, and the step that takes it back.
pub(super) struct Trip {
    pub(super) migration: Arc<dyn Transform>,
    there: Lens,
    /// Absent where there is none.
    back: Option<Lens>,
}

/// A unit that would not come back as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loss {
    /// Its place in the batch.
    pub(super) unit: usize,
    /// The same for all units that have this trouble.
    pub(super) reason: String,
    /// What is particular to this one, without a value of it.
    pub(super) detail: Option<String>,
}

/// A batch that was taken there and back.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) losses: Vec<Loss>,
    /// The units that went, by their places in the batch, and their rows at the far end.
    pub(super) went: Vec<usize>,
    pub(super) far: Source,
}

impl Trip {
    /// `restorable` is what earlier steps in the other direction have left in the database.
    pub(super) fn new(
        line: &Line,
        migrations: &[Arc<dyn Transform>],
        migration: &Arc<dyn Transform>,
        direction: Direction,
        restorable: impl IntoIterator<Item = (DataVersion, String)>,
    ) -> Self {
        let version = migration.manifest().version;
        let below = migrations.iter().map(|known| known.manifest().version).rfind(|known| *known < version);
        let (near, far) = match direction {
            Direction::Up => (below.unwrap_or(0), version),
            Direction::Down => (version, below.unwrap_or(0)),
        };
        let there = Lens::new(line, migrations, near, far, restorable.into_iter().collect());
        // Whatever the step there may keep, the step back may be given.
        let tables = there.near.tables.keys().map(String::as_str).chain([""]);
        let anything = tables.map(|table| (version, table.to_owned())).collect();
        let reversible = migration.manifest().reversible;
        let back = reversible.then(|| Lens::new(line, migrations, far, near, anything));
        Self { migration: Arc::clone(migration), there, back }
    }

    /// How many units have rows in tables that the migration changes.
    pub(super) fn concerns(&self, source: &Source) -> u64 {
        let is_changed = |name: &String| {
            let near = &self.there.near.tables[name];
            self.there.far.tables.get(name) != Some(near)
                || self.there.groups.iter().any(|group| group.visits_units && group.sources.contains(name))
        };
        let changed: Vec<_> = source.tables.iter().filter(|(name, _)| is_changed(name)).map(|(_, t)| t).collect();
        let has_rows =
            |unit: usize| changed.iter().any(|table| table.unit_offsets[unit] < table.unit_offsets[unit + 1]);
        (0..source.units).filter(|unit| has_rows(*unit)).count() as u64
    }

    pub(super) fn take(&self, source: &Source, left: &Left, arguments: &Arguments) -> Taken {
        let went = sift(&self.there, source, left, arguments);
        let Some(back) = &self.back else {
            return Taken { losses: went.losses, went: went.units, far: went.far };
        };
        let found = Left::from(went.kept);
        let returned = sift(back, &went.far, &found, arguments);
        let before: Vec<_> = returned.units.iter().map(|&place| went.units[place]).collect();
        let mut losses = went.losses;
        losses.extend(returned.losses.into_iter().map(|loss| Loss { unit: went.units[loss.unit], ..loss }));
        let changed = differences(&self.there.near, &only(&self.there.near, source, &before), &returned.far);
        losses.extend(changed.into_iter().map(|loss| Loss { unit: before[loss.unit], ..loss }));
        Taken { losses, went: went.units, far: went.far }
    }
}

/// The units that a lens takes, at its far end, and those that it does not.
struct Sifted {
    units: Vec<usize>,
    far: Source,
    kept: Vec<Kept>,
    losses: Vec<Loss>,
}

fn sift(lens: &Lens, source: &Source, left: &Left, arguments: &Arguments) -> Sifted {
    let mut units: Vec<_> = (0..source.units).collect();
    let mut losses = Vec::new();
    loop {
        let fault = match apply(lens, &only(&lens.near, source, &units), &left.only(&units), arguments) {
            Ok((far, kept)) => return Sifted { units, far, kept, losses },
            Err(fault) => fault,
        };
        let mut failing = match fault.refused() {
            Some(refused) => refused.iter().map(|fault| loss(lens, units[fault.unit()], fault)).collect(),
            None => failing(lens, source, left, arguments, &units),
        };
        if failing.is_empty() {
            // It fails among others and not alone: a module that keeps something between calls.
            failing.push(loss(lens, units[fault.unit()], &fault));
        }
        units.retain(|unit| failing.iter().all(|loss| loss.unit != *unit));
        losses.extend(failing);
    }
}

fn loss(lens: &Lens, unit: usize, fault: &LensError) -> Loss {
    let reason = match fault {
        LensError::Unit { reason, .. } => format!("{} refuses it: {reason}", lens.direction),
        LensError::Counterpart { .. } => fault.to_string(),
    };
    Loss { unit, reason, detail: None }
}

pub(super) fn only(layout: &Layout, source: &Source, units: &[usize]) -> Source {
    let kind = |table: &str, column: &str| layout.tables[table].column(column).expect("a column of the layout").kind;
    source.only(units, |table, column| kind(table, column).into())
}

/// All tables of the far end.
fn apply(lens: &Lens, source: &Source, left: &Left, arguments: &Arguments) -> Result<(Source, Vec<Kept>), LensError> {
    let mut far = Source { units: source.units, ..Source::default() };
    let mut kept = Vec::new();
    for (number, group) in lens.groups.iter().enumerate() {
        let rows = |name| source.tables.get(name).map_or(0, |table: &SourceTable| rows_of(table));
        if group.restored.is_empty() && group.sources.iter().all(|name| rows(name) == 0) {
            continue;
        }
        let applied = lens.apply(number, source, left, arguments)?;
        far.tables.extend(lens.whole(number, source, &applied).tables);
        kept.extend(applied.kept);
    }
    Ok((far, kept))
}

fn rows_of(table: &SourceTable) -> usize {
    table.unit_offsets.last().map_or(0, |&rows| rows as usize)
}

/// The units at which the lens fails, found by halving.
fn failing(lens: &Lens, source: &Source, left: &Left, arguments: &Arguments, units: &[usize]) -> Vec<Loss> {
    if units.is_empty() {
        return Vec::new();
    }
    let fault = match apply(lens, &only(&lens.near, source, units), &left.only(units), arguments) {
        Ok(_) => return Vec::new(),
        Err(fault) => fault,
    };
    if let [unit] = units {
        return vec![loss(lens, *unit, &fault)];
    }
    let (front, back) = units.split_at(units.len() / 2);
    let mut losses = failing(lens, source, left, arguments, front);
    losses.extend(failing(lens, source, left, arguments, back));
    losses
}

/// The first difference of each unit.
fn differences(layout: &Layout, before: &Source, after: &Source) -> Vec<Loss> {
    let mut losses = Vec::new();
    for unit in 0..before.units {
        let found = layout
            .tables
            .values()
            .find_map(|table| difference(table, unit, before.tables.get(&table.name), after.tables.get(&table.name)));
        losses.extend(found.map(|(reason, detail)| Loss { unit, reason, detail }));
    }
    losses
}

fn difference(
    table: &Table,
    unit: usize,
    before: Option<&SourceTable>,
    after: Option<&SourceTable>,
) -> Option<(String, Option<String>)> {
    let (before, after) = (keyed(table, unit, before), keyed(table, unit, after));
    let name = &table.name;
    if before.keys().any(|key| !after.contains_key(key)) {
        return Some((format!("a row of `{name}` does not come back"), None));
    }
    if after.keys().any(|key| !before.contains_key(key)) {
        return Some((format!("a row of `{name}` comes back that was not there"), None));
    }
    for (key, then) in &before {
        let now = &after[key];
        for (at, column) in table.columns.iter().enumerate() {
            if then[at] != now[at] {
                let detail = format!("{} became {}", kind(then[at]), kind(now[at]));
                let detail = first_byte(then[at], now[at]).map_or(detail.clone(), |at| format!("{detail}, {at}"));
                return Some((format!("`{}` of `{name}` comes back changed", column.name), Some(detail)));
            }
        }
    }
    None
}

/// The rows of a unit by their encoded primary keys.
fn keyed<'a>(table: &Table, unit: usize, source: Option<&'a SourceTable>) -> BTreeMap<Vec<u8>, Vec<Value<'a>>> {
    let Some(source) = source else { return BTreeMap::new() };
    let columns: Vec<(&ColumnData, Encoding)> =
        table.columns.iter().map(|column| (&source.columns[&column.name], column.kind.into())).collect();
    let rows = source.unit_offsets[unit] as usize..source.unit_offsets[unit + 1] as usize;
    let row = |row: usize| {
        let values: Vec<_> = columns.iter().map(|(data, encoding)| data.get(*encoding, row)).collect();
        let mut key = Vec::new();
        let keys = table.columns.iter().zip(&values).filter(|(column, _)| table.primary_key.contains(&column.name));
        keys.for_each(|(_, value)| value.encode(&mut key));
        (key, values)
    };
    rows.map(row).collect()
}

fn kind(value: Value<'_>) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Boolean(_) => "a boolean".to_owned(),
        Value::Integer(_) => "an integer".to_owned(),
        Value::Text(bytes) => format!("{} bytes", bytes.len()),
    }
}

fn first_byte(then: Value<'_>, now: Value<'_>) -> Option<String> {
    let (Value::Text(then), Value::Text(now)) = (then, now) else { return None };
    let same = then.iter().zip(now).take_while(|(then, now)| then == now).count();
    Some(format!("other from byte {same} on"))
}
