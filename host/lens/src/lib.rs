//! The engine of migrations: layouts of a database, and the migrations between two of them applied
//! to units of rows in memory. The host uses it for migrations, and for reads and writes through a
//! lens; the SDK's test kit, for the laws and golden cases of a module under test.
//!
//! Owns:
//!
//! - [`layout`]: the layout at each data version, and the rules for manifests; the records
//!   themselves are those of `bbs-contract`;
//! - [`Lens`]: the migrations on the way between two data versions, composed, applied to batches of
//!   units in either direction, with residue for what a step would lose, and the search for the
//!   units at fault in a batch that fails;
//! - [`transform`]: the interface to a migration's row function;
//! - [`answer`]: the rules for what a row function returns.
//!
//! Performs no input or output: databases, WebAssembly, encryption and the storage of residue are
//! the host's.
//!
//! One walk over the steps serves planning and transforming alike: planning walks without rows and
//! records which columns are read, so a plan cannot differ from what is done later.

pub mod answer;
mod bisect;
pub mod budget;
mod column;
mod contained;
mod digests;
mod error;
mod frame;
mod last_change;
pub mod layout;
mod made;
mod owners;
mod residue;
mod step;
mod table;
pub mod transform;
mod unit_keys;
mod walk;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::layout::columns::ColumnData;
use crate::layout::history::{LayoutHistory, Leg, Way, directed_changes};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Column, Layout, Literal, Table};
use crate::layout::values::Encoding;
use crate::transform::RunArguments;

use budget::BatchBudget;
use column::Content;
use contained::contained;
use error::StepError;
pub use error::{ComposeError, FailedStep, LensError};
use frame::{ChangePlace, Frame};
pub use last_change::TablePart;
pub use residue::{Residue, ResidueEntry, ResidueValue};
use step::{Step, StepScope};
pub use table::{BatchColumn, OpenedColumns, OwnedValue, TableBuilder, TableRows};
use transform::Transform;

/// Units at the source of a lens, with every column that [`Lens::needed`] names.
#[derive(Debug, Clone, Default)]
pub struct LensInput {
    pub units: usize,
    /// The key of each unit, for a lens that [`Lens::writes_keys`]; absent if it is not known.
    pub keys: Option<UnitKeys>,
    /// As they are stored.
    pub tables: BTreeMap<String, TableRows>,
    /// The needed columns that are stored sealed.
    pub opened: OpenedColumns,
}

/// The keys of units: one value each.
#[derive(Debug, Clone)]
pub struct UnitKeys {
    pub encoding: Encoding,
    pub values: ColumnData,
}

/// Units at the target of a lens, and what the steps would lose of them.
#[derive(Debug, Default)]
pub struct Applied {
    /// With each column that a step has computed or whose source was loaded.
    pub tables: BTreeMap<String, TableRows>,
    /// By table and by source table: the source row that each row continues.
    pub origins: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
    pub residue: Vec<ResidueEntry>,
    /// The number of entries of [`Residue`] whose records have changed since.
    pub stale: u64,
    /// The number of rows that row functions removed.
    pub removed: u64,
}

/// The origin of a target column's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// A source column that no step reads: it passes as it is stored.
    Raw { table: String, column: String },
    /// One value, in every row.
    Fill(Option<Literal>),
    /// The lens computes it, plain.
    Computed,
}

/// How one table of the target is composed.
#[derive(Debug, Clone)]
pub struct Composed {
    pub table: Table,
    pub group: usize,
    /// The source tables whose rows its rows continue.
    pub sources: Vec<String>,
    pub columns: Vec<(Column, Provenance)>,
    /// Whether a row function may have removed, added or reordered rows.
    pub reshaped: bool,
    /// The last step that ran a row function over it.
    pub transformed: Option<Leg>,
}

/// Tables that the lens transforms together, unit by unit.
#[derive(Debug, Clone, Default)]
pub struct TableGroup {
    pub sources: Vec<String>,
    pub targets: Vec<String>,
    /// Tables that a step creates and for which the other direction left rows.
    pub restored: Vec<LeftTable>,
    /// Whether units have to be read: a step computes something, or saves what it would lose.
    pub visits_units: bool,
    /// Where the steps may leave residue: versions and tables; an empty table name for that of a
    /// row function.
    pub keeps: BTreeSet<(DataVersion, String)>,
    scopes: Vec<StepScope>,
}

impl TableGroup {
    /// Adds what a step does to tables of the group, which is `root` in the frame.
    fn add_step(
        &mut self,
        frame: &Frame<'_>,
        step: &Step,
        scope: &StepScope,
        root: usize,
        restorable: &BTreeSet<(DataVersion, String)>,
    ) {
        let tables = frame.tables_of_group(step.place, root).cloned();
        self.keeps
            .extend(tables.map(|table| (step.version(), table)));
        let created_in = |change: &usize| {
            frame.created_group(ChangePlace {
                step: step.place,
                change: *change,
            })
        };
        let narrowed = scope.narrowed(
            step,
            |table| frame.group_of(step.place, table) == root,
            |change| created_in(change) == root,
        );
        for (change, table) in step
            .created()
            .filter(|(change, _)| narrowed.creates.contains(change))
        {
            let table = step.name_after(change, table);
            let is_restored =
                step.went_down().is_none() && restorable.contains(&(step.version(), table.clone()));
            if is_restored {
                self.restored.push(LeftTable {
                    left_by: step.leg().back(),
                    table,
                });
                self.visits_units = true;
            }
        }
        if narrowed.calls {
            self.keeps.insert((step.version(), String::new()));
        }
        self.scopes.push(narrowed);
    }
}

/// A table of which rows may be in residue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftTable {
    pub left_by: Leg,
    pub table: String,
}

/// Which of the units that cannot be transformed are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// One, with the fewest calls. Others that a module named in the same call are returned with
    /// it.
    First,
    /// Every unit that fails at the first step at which one fails.
    Every,
}

/// Composes what a host composes of a catalog: each migration with the layouts beside it, in both
/// directions, and all of them.
///
/// # Errors
/// The first lens that cannot be composed.
pub fn check_composition(
    layouts: &LayoutHistory,
    migrations: &[Arc<dyn Transform>],
) -> Result<(), ComposeError> {
    let mut before = 0;
    for version in migrations
        .iter()
        .map(|migration| migration.manifest().version)
    {
        Lens::restoring(Way::within(layouts, before, version), migrations)?;
        Lens::restoring(Way::within(layouts, version, before), migrations)?;
        before = version;
    }
    Lens::restoring(Way::within(layouts, 0, before), migrations)?;
    // Also across migrations that are not reversible: a host composes it to find where residue may
    // be.
    Lens::restoring(Way::within(layouts, before, 0), migrations).map(drop)
}

/// The arguments of each migration of the lens, by version.
pub type Arguments = BTreeMap<DataVersion, RunArguments>;

pub struct Lens {
    steps: Vec<Step>,
    pub direction: Direction,
    pub source: Layout,
    pub target: Layout,
    pub tables: BTreeMap<String, Composed>,
    pub groups: Vec<TableGroup>,
    /// By source table, the columns that the steps read, and which therefore have to be opened.
    pub needed: BTreeMap<String, BTreeSet<String>>,
    restorable: BTreeSet<(DataVersion, String)>,
    /// Migrations of which residue stays when the lens has been applied.
    pub leaving: Vec<Leg>,
    /// Migrations whose residue the lens gives back.
    pub returning: Vec<Leg>,
}

impl std::fmt::Debug for Lens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let versions: Vec<_> = self.steps.iter().map(Step::version).collect();
        f.debug_struct("Lens")
            .field("direction", &self.direction)
            .field("versions", &versions)
            .finish_non_exhaustive()
    }
}

impl Lens {
    /// Composes the migrations on a way. `restorable` names the residue that earlier steps in the
    /// other direction have left, by version and table.
    ///
    /// # Errors
    /// The manifests break a rule that no check of the layout history has, or what a migration
    /// saves of records on its way up would have to be saved anew.
    ///
    /// # Panics
    /// If the histories of the way do not have both versions.
    pub fn new(
        way: Way<'_>,
        migrations: &[Arc<dyn Transform>],
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Result<Self, ComposeError> {
        Self::composed(way, migrations, |_| restorable)
    }

    /// Composes a lens that restores any residue which the other direction could have left, so that
    /// one lens serves a database in which residue comes and goes.
    ///
    /// # Errors
    /// As [`Lens::new`].
    ///
    /// # Panics
    /// As [`Lens::new`].
    pub fn restoring(
        way: Way<'_>,
        migrations: &[Arc<dyn Transform>],
    ) -> Result<Self, ComposeError> {
        Self::composed(way, migrations, |steps| {
            let others = steps.iter().filter(|step| step.went_down().is_none());
            others
                .flat_map(|step| step.restorable().map(|table| (step.version(), table)))
                .collect()
        })
    }

    fn composed(
        way: Way<'_>,
        migrations: &[Arc<dyn Transform>],
        restorable: impl FnOnce(&[Step]) -> BTreeSet<(DataVersion, String)>,
    ) -> Result<Self, ComposeError> {
        let direction = way.direction();
        let at = Cell::new(0);
        let source = way.source();
        let target = way.target();
        let composed = contained(|| {
            let steps = steps_on(way, migrations, &at);
            let restorable = restorable(&steps);
            let mut lens = Self {
                steps,
                direction,
                source: source.clone(),
                target: target.clone(),
                tables: BTreeMap::new(),
                groups: Vec::new(),
                needed: BTreeMap::new(),
                restorable,
                leaving: way.leaving(),
                returning: way.returning(),
            };
            let renewed = lens
                .compose(&at)
                .map(|version| (version, error::SAVES_ANEW));
            let refused = renewed.or_else(|| {
                lens.changes_what_was_saved()
                    .map(|version| (version, error::CHANGES_SAVED))
            });
            refused.map_or(Ok(lens), |(version, reason)| {
                at.set(version);
                Err(reason.to_owned())
            })
        });
        let composed = composed.map_err(|fault| format!("{fault}; {}", error::BREAKS_A_RULE));
        composed.and_then(|composed| composed).map_err(|reason| {
            let version = at.get();
            let known = migrations
                .iter()
                .map(|migration| migration.manifest())
                .find(|known| known.version == version);
            let name = known
                .map(|manifest| manifest.name.clone())
                .unwrap_or_default();
            ComposeError {
                version,
                name,
                direction,
                source_version: way.from,
                target: way.to,
                reason,
            }
        })
    }

    /// The inserted migration that would change rows for which those above have saved values on the
    /// way down, if that is where the way ends: the values could not be given back to the rows any
    /// more.
    fn changes_what_was_saved(&self) -> Option<DataVersion> {
        let leaves_saved = self
            .leaving
            .iter()
            .any(|leg| leg.direction == Direction::Down);
        let mut inserted = self
            .steps
            .iter()
            .filter(|step| step.direction == Direction::Up && step.counterpart.is_none());
        inserted
            .find(|step| leaves_saved && !step.only_adds())
            .map(Step::version)
    }

    /// The migrations in the order in which they run.
    pub fn steps(&self) -> impl Iterator<Item = &Arc<dyn Transform>> {
        self.steps.iter().map(|step| &step.transform)
    }

    /// The migrations with their directions in the order in which they run.
    pub fn legs(&self) -> impl Iterator<Item = Leg> {
        self.steps.iter().map(Step::leg)
    }

    /// Whether a row function writes a partition key, which has to be that of the row's unit.
    pub fn writes_keys(&self) -> bool {
        self.steps.iter().any(Step::writes_keys)
    }

    /// The residue of the other direction that this lens gives back.
    pub fn restorable(&self) -> &BTreeSet<(DataVersion, String)> {
        &self.restorable
    }

    /// For each unit at the source, the digest by which the first step recognises the residue that
    /// the row function of its opposite left of the unit.
    ///
    /// # Panics
    /// If the columns of the units that the lens needs are not there.
    pub fn residue_digests(&self, group: usize, input: &LensInput) -> Vec<Vec<u8>> {
        let budget = BatchBudget::of(usize::MAX);
        let frame = Frame::new(
            &self.source,
            Some(&self.groups[group].sources),
            input,
            &budget,
        );
        let step = self.steps.first().filter(|_| self.calls_first(group));
        step.map(|step| digests::unit_digests(&frame, step.opposite(), &step.source))
            .unwrap_or_else(|| Ok(vec![Vec::new(); input.units]))
            .expect("the budget has no limit")
    }

    /// Whether the first step calls its row function for units of a group.
    fn calls_first(&self, group: usize) -> bool {
        self.groups[group]
            .scopes
            .first()
            .is_some_and(|scope| scope.calls)
    }

    /// Transforms one batch of a group's units.
    ///
    /// # Errors
    /// The units that cannot be transformed: at least one, and as many as `search` requests. Any
    /// other unit may still be refused by a later step.
    pub fn apply(
        &self,
        group: usize,
        input: &LensInput,
        residue: &Residue,
        arguments: &Arguments,
        search: Search,
        budget: &BatchBudget,
    ) -> Result<Applied, Vec<LensError>> {
        let at = Cell::new(0);
        let applied =
            contained(|| self.applied(group, input, (residue, arguments, search), budget, &at));
        applied
            .unwrap_or_else(|panic| Err(StepError::Batch(panic)))
            .map_err(|fault| match fault {
                StepError::Units(faults) => faults,
                StepError::Module(fault) => vec![fault],
                StepError::Batch(reason) => vec![self.at_fault(at.get(), input.units, reason)],
            })
    }

    /// `at` is the step that is being applied.
    fn applied(
        &self,
        group: usize,
        input: &LensInput,
        rows: (&Residue, &Arguments, Search),
        budget: &BatchBudget,
        at: &Cell<usize>,
    ) -> Result<Applied, StepError> {
        let group = &self.groups[group];
        let mut frame = Frame::new(&self.source, Some(&group.sources), input, budget);
        let mut applied = Applied::default();
        // What earlier groups of the batch have made, and the residue of its units.
        let mut others = budget.spent();
        let (residue, arguments, search) = rows;
        for (number, (step, scope)) in self.steps.iter().zip(&group.scopes).enumerate() {
            at.set(number);
            let saved_below = step
                .went_down()
                .map(|_| saved_below(step, &mut applied.residue));
            others -= saved_below
                .iter()
                .flatten()
                .map(ResidueEntry::bytes)
                .sum::<usize>();
            // What has changed in between, a migration below has changed, and no client.
            let saved_below = saved_below.map(|entries| Residue::from(entries).of_edited());
            let rows = (saved_below.as_ref().unwrap_or(residue), arguments, search);
            let entries = applied.residue.len();
            step.apply_to(
                &mut frame,
                scope,
                Some(rows),
                &self.restorable,
                &mut applied,
            )?;
            others += applied.residue[entries..]
                .iter()
                .map(ResidueEntry::bytes)
                .sum::<usize>();
            budget.settle(others + frame.bytes())?;
        }
        for target in &group.targets {
            let held = frame.take_table(target);
            let rows = frame
                .target_rows(&held, &self.tables[target].columns)
                .inspect_err(|_| at.set(self.last_step_of(target)))?;
            applied.tables.insert(target.clone(), rows);
            applied.origins.insert(target.clone(), held.origins);
        }
        Ok(applied)
    }

    /// The place of the step to name if the rows of a table of the target cannot be made.
    fn last_step_of(&self, table: &str) -> usize {
        let leg = self.last_change(table, TablePart::Rows);
        let place = self.legs().position(|of_step| of_step == leg);
        place.expect("a step of the lens")
    }

    /// An error of a step that is not one of the module's answer.
    fn at_fault(&self, step: usize, units: usize, reason: String) -> LensError {
        let Some(step) = self.steps.get(step) else {
            panic!("a lens without steps failed: {reason}")
        };
        step.refused((0, units), reason)
    }

    /// Walks the steps without rows and records what happens to every table and column. `at` is set
    /// to the version of each. Returns the migration that the way comes up through again, if it
    /// saves values on the way up: those that it saved before are still needed until the copies are
    /// the tables.
    fn compose(&mut self, at: &Cell<DataVersion>) -> Option<DataVersion> {
        let nothing = LensInput::default();
        let budget = BatchBudget::default();
        let mut frame = Frame::new(&self.source, None, &nothing, &budget);
        let mut scopes = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            at.set(step.version());
            let scope = StepScope::everything(step);
            let walked = step.apply_to(
                &mut frame,
                &scope,
                None,
                &self.restorable,
                &mut Applied::default(),
            );
            walked.expect("no row, so none can fail");
            scopes.push(scope);
        }
        let mut places = self.group_tables(&frame);
        for root in frame.losing_groups() {
            let next = places.len();
            let group = *places.entry(root).or_insert(next);
            if group == next {
                // Of tables that one step creates and a later one drops: residue may restore rows.
                self.groups.push(TableGroup::default());
            } else {
                self.groups[group].visits_units = true;
            }
        }
        for (step, scope) in self.steps.iter().zip(scopes) {
            for (&root, &group) in &places {
                let group = &mut self.groups[group];
                group.add_step(&frame, step, &scope, root, &self.restorable);
            }
        }
        self.needed = frame.needed();
        let mut comes_up = self.steps.iter().filter(|step| step.went_down().is_some());
        // Of a row function it is known only once it has run.
        comes_up
            .find(|step| frame.saved(step.place).any(|name| !name.is_empty()))
            .map(Step::version)
    }

    /// Makes the groups of tables that share units, and what the steps do to each table at the
    /// target. Returns the place of the group of each root in the frame.
    fn group_tables(&mut self, frame: &Frame<'_>) -> BTreeMap<usize, usize> {
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        let sources: Vec<_> = self
            .source
            .tables
            .keys()
            .map(|name| (name.clone(), frame.source_group(name)))
            .collect();
        for &(_, root) in &sources {
            let next = places.len();
            places.entry(root).or_insert(next);
        }
        for target in self.target.tables.keys() {
            let next = places.len();
            places
                .entry(frame.union_find_root(frame.table(target).group))
                .or_insert(next);
        }
        self.groups = vec![TableGroup::default(); places.len()];
        for (name, root) in sources {
            self.groups[places[&root]].sources.push(name);
        }
        for (name, table) in &self.target.tables {
            let group = places[&frame.union_find_root(frame.table(name).group)];
            let columns: Vec<_> = table
                .columns
                .iter()
                .map(|column| (column.clone(), provenance(frame, name, column)))
                .collect();
            let traced = frame.table(name);
            self.groups[group].targets.push(name.clone());
            self.groups[group].visits_units |= traced.reshaped
                || columns
                    .iter()
                    .any(|(_, provenance)| *provenance == Provenance::Computed);
            let composed = Composed {
                table: table.clone(),
                group,
                sources: traced.origins.keys().cloned().collect(),
                columns,
                reshaped: traced.reshaped,
                transformed: traced.transformed,
            };
            self.tables.insert(name.clone(), composed);
        }
        places
    }
}

/// Takes out what the way saved as it went down through the migration of a step.
fn saved_below(step: &Step, saved: &mut Vec<ResidueEntry>) -> Vec<ResidueEntry> {
    saved
        .extract_if(.., |entry| entry.left_by == step.leg().back())
        .collect()
}

/// The steps of a way, in the order in which they run. `at` is set to the version of each.
fn steps_on(way: Way<'_>, migrations: &[Arc<dyn Transform>], at: &Cell<DataVersion>) -> Vec<Step> {
    let legs = way.legs();
    let step = |(place, leg): (usize, &Leg)| {
        at.set(leg.version);
        let migration = migrations
            .iter()
            .find(|migration| migration.manifest().version == leg.version);
        let migration = migration.expect("the histories of a way are of these migrations");
        let (lower, upper) = way.sides(*leg);
        let [changes, back] = [leg.direction, leg.direction.opposite()]
            .map(|direction| directed_changes(lower, migration.manifest(), direction));
        let (source, target) = match leg.direction {
            Direction::Up => (lower, upper),
            Direction::Down => (upper, lower),
        };
        let ends = (source.clone(), target.clone());
        let mut step = Step::new(
            Arc::clone(migration),
            (leg.direction, place),
            changes,
            &back,
            ends,
        );
        step.counterpart = legs.iter().position(|other| *other == leg.back());
        step
    };
    legs.iter().enumerate().map(step).collect()
}

/// Reading a column here adds its source column to [`Lens::needed`].
fn provenance(frame: &Frame<'_>, table: &str, column: &Column) -> Provenance {
    match &frame.column(table, &column.name).content {
        Content::Source {
            table,
            column: name,
            sealing,
        } if *sealing == column.sealing => Provenance::Raw {
            table: table.clone(),
            column: name.clone(),
        },
        Content::Fill(literal) => Provenance::Fill(literal.clone()),
        Content::Source { .. } | Content::Given(_) => {
            frame.read(table, &column.name).expect("it has no row");
            Provenance::Computed
        }
    }
}

#[cfg(test)]
mod tests;
