//! `bbs migrate plan --check`: every unit of the database there and back, one migration after another, in memory. Says
//! which would not go, or not come back as they were, and why. Writes nothing, and reports no value of a record.

mod trip;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::key::Key;
use super::look::check_ends;
use super::read::{Loaded, Measure, Range, Room, bounds, load};
use super::state::{self, current_of};
use super::transform::open_text;
use super::{Context, MigrateError, Work, line, residue};
use crate::database::Transaction;
use crate::layout::columns::RunArguments;
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Column, Sealing, Table};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
use crate::lens::{Arguments, Left, Source, SourceTable};
use crate::record::Keyring;
use trip::{Loss, Trip, only};

/// Units that are read before it is known how many fit.
const FIRST_BATCH: u64 = 100;
/// Units that are named for one reason; the others are counted.
const EXAMPLES: usize = 3;
/// Different reasons that are told apart for one migration.
const REASONS: usize = 20;
const OTHER_REASONS: &str = "other reasons";

/// What going to a version and back would do to the rows that are there now.
#[derive(Debug, Clone, Serialize)]
pub struct Checked {
    pub from: DataVersion,
    pub to: DataVersion,
    pub units: u64,
    /// Records that a migration needs and that do not open: they would stop it before any module runs.
    pub unreadable: Vec<Trouble>,
    /// In the order in which they run.
    pub migrations: Vec<CheckedMigration>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CheckedMigration {
    pub version: DataVersion,
    pub name: String,
    pub direction: Direction,
    pub reversible: bool,
    /// Units that have rows in tables that it changes, as far as the migrations before it let them through.
    pub units: u64,
    /// Of them, those that would not go or not come back.
    pub lost: u64,
    pub troubles: Vec<Trouble>,
}

/// Units that have the same trouble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    pub reason: String,
    pub units: u64,
    pub examples: Vec<Example>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    pub unit: String,
    /// Without a value of the record.
    pub detail: Option<String>,
}

impl Checked {
    pub fn lost(&self) -> u64 {
        let unreadable: u64 = self.unreadable.iter().map(|trouble| trouble.units).sum();
        unreadable + self.migrations.iter().map(|migration| migration.lost).sum::<u64>()
    }
}

#[derive(Debug, Default)]
struct Troubles(BTreeMap<String, Trouble>);

impl Troubles {
    fn note(&mut self, reason: &str, unit: &str, detail: Option<String>) {
        let full = self.0.len() >= REASONS && !self.0.contains_key(reason);
        let reason = if full { OTHER_REASONS } else { reason };
        let new = || Trouble { reason: reason.to_owned(), units: 0, examples: Vec::new() };
        let trouble = self.0.entry(reason.to_owned()).or_insert_with(new);
        trouble.units += 1;
        if trouble.examples.len() < EXAMPLES {
            trouble.examples.push(Example { unit: unit.to_owned(), detail });
        }
    }

    fn finish(self) -> Vec<Trouble> {
        let mut troubles: Vec<_> = self.0.into_values().collect();
        troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.units));
        troubles
    }
}

/// One migration of the walk, and what was found out about it so far.
struct Tally {
    trip: Arc<Trip>,
    units: u64,
    lost: u64,
    troubles: Troubles,
}

/// Takes every unit to a version and back.
pub async fn check(context: &Context, to: DataVersion) -> Result<Checked, MigrateError> {
    let line = line(&context.migrations)?;
    let mut reader = context.database.read().await?;
    let from = current_of(&state::found(&mut reader).await?);
    check_ends(context, &line, from, to)?;
    let direction = if to >= from { Direction::Up } else { Direction::Down };
    let restorable = residue::restorable(&mut reader, from, to).await?;
    let mut work = Work::new(context, &line, from, to, restorable.clone());
    for step in work.lens.steps() {
        let version = step.manifest().version;
        let new = || RunArguments { started_at_ns: context.now_ns, namespace: Uuid::new_v4() };
        let arguments = state::known_arguments(&mut reader, version).await?.unwrap_or_else(new);
        work.arguments.insert(version, arguments);
    }
    let steps = work.lens.steps().map(|step| {
        let version = step.manifest().version;
        let found = restorable.iter().filter(|(of, _)| *of == version).cloned();
        let trip = Trip::new(&line, &context.migrations, step, direction, found);
        Tally { trip: Arc::new(trip), units: 0, lost: 0, troubles: Troubles::default() }
    });
    let mut walk = Walk { tallies: steps.collect(), unreadable: Troubles::default(), units: 0 };
    let mut total = 0;
    for table in work.lens.near.tables.keys() {
        if state::exists(&mut reader, table).await? {
            total += state::count(&mut reader, table).await?.unsigned_abs();
        }
    }
    drop(reader);
    context.progress.enter("check", work.describe(), Some(total));
    let work = Arc::new(work);
    for group in 0..work.lens.groups.len() {
        walk.group(context, &work, group).await?;
    }
    Ok(walk.finish(from, to, direction))
}

struct Walk {
    tallies: Vec<Tally>,
    unreadable: Troubles,
    units: u64,
}

impl Walk {
    async fn group(&mut self, context: &Context, work: &Arc<Work>, group: usize) -> Result<(), MigrateError> {
        let mut after: Option<Key> = None;
        let mut fitting = FIRST_BATCH;
        let sources: Vec<&Table> =
            work.lens.groups[group].sources.iter().map(|name| &work.lens.near.tables[name]).collect();
        loop {
            let mut reader = context.database.read().await?;
            let mut units = bounds(&mut reader, &sources, after.as_ref(), fitting, Measure::Rows).await?.units;
            if units.is_empty() {
                return Ok(());
            }
            let mut room = Room::new(&context.tuning, units.len());
            let loaded = read(&mut reader, &sources, after.as_ref(), &mut units, &mut room).await?;
            let rows: usize = loaded.iter().map(Loaded::rows).sum();
            let full = context.tuning.batch_bytes.saturating_mul(units.len() as u64);
            fitting = (full / room.bytes(units.len()).max(1)).clamp(1, context.tuning.batch_units);
            let names: Vec<_> = units.iter().map(Key::name).collect();
            let from = work.lens.direction.opposite();
            let left = match work.lens.restorable().is_empty() {
                true => Left::default(),
                false => residue::load(&mut reader, &work.keyring, from, work.versions(), &names).await?,
            };
            drop(reader);
            self.units += units.len() as u64;
            let (names, source, left) = self.open(work, &sources, &loaded, names, left);
            self.take(work, names, source, left).await?;
            context.progress.advance(rows as u64);
            after = units.pop();
        }
    }

    /// The units plain. Those of which a needed record does not open are noted and left out.
    fn open(
        &mut self,
        work: &Work,
        tables: &[&Table],
        loaded: &[Loaded],
        names: Vec<String>,
        left: Left,
    ) -> (Vec<String>, Source, Left) {
        let mut source = Source { units: names.len(), ..Source::default() };
        let mut closed: BTreeMap<usize, String> = BTreeMap::new();
        for (table, loaded) in tables.iter().zip(loaded) {
            let needed = |column: &Column| work.lens.needed.get(&table.name).is_some_and(|n| n.contains(&column.name));
            let columns = table.columns.iter().map(|column| {
                let opened = open(&work.keyring, table, column, loaded, |unit, reason| {
                    if needed(column) {
                        closed.entry(unit).or_insert(reason);
                    }
                });
                (column.name.clone(), opened)
            });
            let columns = columns.collect();
            let unit_offsets = loaded.unit_offsets.clone();
            source.tables.insert(table.name.clone(), SourceTable { unit_offsets, columns });
        }
        if closed.is_empty() {
            return (names, source, left);
        }
        closed.iter().for_each(|(unit, reason)| self.unreadable.note(reason, &names[*unit], None));
        let kept: Vec<_> = (0..names.len()).filter(|unit| !closed.contains_key(unit)).collect();
        let names = kept.iter().map(|&unit| names[unit].clone()).collect();
        (names, only(&work.lens.near, &source, &kept), left.only(&kept))
    }

    /// Takes units over every migration; those that do not go over one are not shown to the next.
    async fn take(
        &mut self,
        work: &Arc<Work>,
        mut names: Vec<String>,
        mut source: Source,
        mut left: Left,
    ) -> Result<(), MigrateError> {
        for tally in &mut self.tallies {
            tally.units += tally.trip.concerns(&source);
            let (trip, work) = (Arc::clone(&tally.trip), Arc::clone(work));
            let (taken, unused) = tokio::task::spawn_blocking(move || {
                let arguments: &Arguments = &work.arguments;
                (trip.take(&source, &left, arguments), left)
            })
            .await
            .map_err(|_| MigrateError::Interrupted)?;
            for Loss { unit, reason, detail } in taken.losses {
                tally.lost += 1;
                tally.troubles.note(&reason, &names[unit], detail);
            }
            names = taken.went.iter().map(|&unit| names[unit].clone()).collect();
            left = unused.only(&taken.went);
            source = taken.far;
        }
        Ok(())
    }

    fn finish(self, from: DataVersion, to: DataVersion, direction: Direction) -> Checked {
        let migrations = self.tallies.into_iter().map(|tally| {
            let manifest = tally.trip.migration.manifest();
            CheckedMigration {
                version: manifest.version,
                name: manifest.name.clone(),
                direction,
                reversible: manifest.reversible,
                units: tally.units,
                lost: tally.lost,
                troubles: tally.troubles.finish(),
            }
        });
        let migrations = migrations.collect();
        Checked { from, to, units: self.units, unreadable: self.unreadable.finish(), migrations }
    }
}

/// Whole units as they rest, of which fewer are left if there is no room for all.
async fn read(
    reader: &mut Transaction,
    tables: &[&Table],
    after: Option<&Key>,
    units: &mut Vec<Key>,
    room: &mut Room<'_>,
) -> Result<Vec<Loaded>, MigrateError> {
    let mut all = Vec::with_capacity(tables.len());
    for table in tables {
        let columns = table.columns.iter().map(|column| column.name.clone()).collect();
        let range = Range { after, units: &*units, is_shared: true };
        let loaded = load(reader, table, &columns, range, room).await?;
        units.truncate(loaded.units());
        all.push(loaded);
    }
    all.iter_mut().zip(tables).for_each(|(loaded, table)| loaded.truncate(table, units.len()));
    Ok(all)
}

/// A column's plain values; what does not open stays as it rests, and is told.
fn open(
    keyring: &Keyring,
    table: &Table,
    column: &Column,
    loaded: &Loaded,
    mut tell: impl FnMut(usize, String),
) -> crate::layout::columns::ColumnData {
    let data = &loaded.columns[&column.name];
    if column.sealing == Sealing::Plain {
        return crate::layout::columns::ColumnData::clone(data);
    }
    let mut plain = ColumnBuilder::new(Encoding::Text);
    for row in 0..loaded.rows() {
        let Value::Text(text) = data.get(Encoding::Text, row) else {
            plain.push(Value::Null);
            continue;
        };
        match open_text(keyring, column.sealing, text) {
            Ok(bytes) => plain.push(Value::Text(&bytes)),
            Err(fault) => {
                let unit = loaded.unit_offsets.partition_point(|&start| start as usize <= row) - 1;
                tell(unit, format!("`{}` of `{}`: {fault}", column.name, table.name));
                plain.push(Value::Text(text));
            }
        }
    }
    plain.finish()
}
