//! The lens: the migrations between two data versions, applied to units in memory.
//! Owns composition and the bisection of failing batches; reads and writes no database.
//!
//! One walk over the steps serves both for planning and for rows: planning walks with no rows at all and notes
//! which columns were asked for, so a plan cannot differ from what is then done.

mod bisect;
mod frame;
mod keep;
mod step;
pub mod transform;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::layout::columns::{Batch, ColumnData, RunArguments};
use crate::layout::fold::{Line, travel};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Column, Layout, Literal, Table};

use frame::{Content, Frame};
pub use keep::{Entry, Kept, Left};
use step::{Scope, Step};
use transform::Transform;

/// Units at the near end: the plain values of every column that [`Lens::needed`] names.
#[derive(Debug, Clone, Default)]
pub struct Source {
    pub units: usize,
    pub tables: BTreeMap<String, SourceTable>,
}

#[derive(Debug, Clone, Default)]
pub struct SourceTable {
    pub unit_offsets: Vec<u32>,
    pub columns: BTreeMap<String, ColumnData>,
}

/// Units at the far end, and what the steps lost on the way.
#[derive(Debug, Default)]
pub struct Applied {
    pub tables: BTreeMap<String, AppliedTable>,
    pub kept: Vec<Kept>,
    /// How many entries of [`Left`] were for records that have changed since.
    pub stale: u64,
}

#[derive(Debug, Default)]
pub struct AppliedTable {
    pub unit_offsets: Vec<u32>,
    /// In the order of [`Composed::sources`]: the row of it that each row continues.
    pub origins: Vec<Vec<u32>>,
    /// By name, plain.
    pub computed: BTreeMap<String, ColumnData>,
}

/// Where a column of the far end gets its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// It travels as it is, unopened.
    Raw { table: String, column: String },
    /// The same in every row.
    Fill(Option<Literal>),
    /// The lens gives it, plain.
    Computed,
}

/// What the lens makes one table of the far end of.
#[derive(Debug, Clone)]
pub struct Composed {
    pub table: Table,
    pub group: usize,
    /// The tables of the near end whose rows its rows continue.
    pub sources: Vec<String>,
    pub columns: Vec<(Column, Provenance)>,
    /// Whether a row function may have removed, added or reordered rows.
    pub reshaped: bool,
    /// The last step that ran a row function over it.
    pub transformed: Option<DataVersion>,
}

/// Tables that the lens takes together, unit by unit.
#[derive(Debug, Clone, Default)]
pub struct Group {
    pub sources: Vec<String>,
    pub targets: Vec<String>,
    /// Tables that a step makes and for which rows were kept; by the version of the step.
    pub restored: Vec<(DataVersion, String)>,
    /// Whether units have to be read: something is computed, or would otherwise be lost.
    pub visits_units: bool,
    /// Where the steps may keep something of the units: versions and tables; no table for row functions.
    pub keeps: BTreeSet<(DataVersion, String)>,
    scopes: Vec<Scope>,
}

#[derive(Debug, thiserror::Error)]
pub enum LensError {
    /// `unit` is its place in the batch; the caller knows its key.
    #[error("{direction} of migration {version} ({module}, sha256 {digest}) cannot transform a unit: {reason}")]
    Unit {
        unit: usize,
        module: String,
        version: DataVersion,
        digest: String,
        direction: Direction,
        reason: String,
        /// What the module was given, for a replay.
        batch: Box<Batch>,
        /// Where the module came back and named the units that it refuses: the others that it named in the same call.
        others: Option<Vec<RefusedUnit>>,
    },
    #[error(
        "{direction} of migration {version} moves columns from {from} to {to}, but a row has no counterpart there; \
         add or remove the row, then start again"
    )]
    Counterpart { unit: usize, version: DataVersion, direction: Direction, from: String, to: String },
}

/// A unit that a module refuses by name.
#[derive(Debug)]
pub struct RefusedUnit {
    /// Its place in the batch.
    pub unit: usize,
    pub reason: String,
    /// What the module was given of it.
    pub batch: Box<Batch>,
}

impl LensError {
    /// Each unit that was refused by name, with an error of its own. None if no unit was: then others, too, may fail.
    pub fn refused(&self) -> Option<Vec<Self>> {
        let Self::Unit { module, version, digest, direction, unit, reason, batch, others: Some(others) } = self else {
            return None;
        };
        let alone = |unit: usize, reason: &str, batch: &Batch| Self::Unit {
            unit,
            module: module.clone(),
            version: *version,
            digest: digest.clone(),
            direction: *direction,
            reason: reason.to_owned(),
            batch: Box::new(batch.clone()),
            others: Some(Vec::new()),
        };
        let first = std::iter::once(alone(*unit, reason, batch));
        Some(first.chain(others.iter().map(|other| alone(other.unit, &other.reason, &other.batch))).collect())
    }

    pub fn unit(&self) -> usize {
        match self {
            Self::Unit { unit, .. } | Self::Counterpart { unit, .. } => *unit,
        }
    }
}

/// The arguments of each migration of the lens, by version.
pub type Arguments = BTreeMap<DataVersion, RunArguments>;

pub struct Lens {
    steps: Vec<Step>,
    pub direction: Direction,
    pub near: Layout,
    pub far: Layout,
    pub tables: BTreeMap<String, Composed>,
    pub groups: Vec<Group>,
    /// By source table, the columns that have to be opened and handed over.
    pub needed: BTreeMap<String, BTreeSet<String>>,
    restorable: BTreeSet<(DataVersion, String)>,
}

impl std::fmt::Debug for Lens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let versions: Vec<_> = self.steps.iter().map(Step::version).collect();
        f.debug_struct("Lens").field("direction", &self.direction).field("versions", &versions).finish_non_exhaustive()
    }
}

impl Lens {
    /// Composes the migrations above the lower end up to the upper one. Both ends are versions of the line.
    /// `restorable` names what earlier steps in the other direction have left, by version and table.
    pub fn new(
        line: &Line,
        migrations: &[Arc<dyn Transform>],
        near: DataVersion,
        far: DataVersion,
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Self {
        let steps = steps_between(line, migrations, near, far);
        Self::of_steps(steps, line, near, far, restorable)
    }

    /// The same for a lens that gives back whatever the other direction could have kept, so that one lens serves
    /// however much of it there will be.
    pub fn restoring(line: &Line, migrations: &[Arc<dyn Transform>], near: DataVersion, far: DataVersion) -> Self {
        let steps = steps_between(line, migrations, near, far);
        let restorable = steps.iter().flat_map(|step| step.restorable().map(|table| (step.version(), table)));
        let restorable = restorable.collect();
        Self::of_steps(steps, line, near, far, restorable)
    }

    fn of_steps(
        steps: Vec<Step>,
        line: &Line,
        near: DataVersion,
        far: DataVersion,
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Self {
        let mut lens = Self {
            steps,
            direction: direction(near, far),
            near: line_at(line, near).clone(),
            far: line_at(line, far).clone(),
            tables: BTreeMap::new(),
            groups: Vec::new(),
            needed: BTreeMap::new(),
            restorable,
        };
        lens.compose();
        lens
    }

    /// The versions of the steps in the order in which they run.
    pub fn steps(&self) -> impl Iterator<Item = &Arc<dyn Transform>> {
        self.steps.iter().map(|step| &step.transform)
    }

    /// What earlier steps in the other direction left and this lens gives back.
    pub fn restorable(&self) -> &BTreeSet<(DataVersion, String)> {
        &self.restorable
    }

    /// Takes one batch of a group's units to the other end.
    pub fn apply(
        &self,
        group: usize,
        source: &Source,
        left: &Left,
        arguments: &Arguments,
    ) -> Result<Applied, LensError> {
        let group = &self.groups[group];
        let mut frame = Frame::new(&self.near, Some(&group.sources), source);
        let mut applied = Applied::default();
        for (step, scope) in self.steps.iter().zip(&group.scopes) {
            step.take(&mut frame, scope, Some((left, arguments)), &self.restorable, &mut applied)?;
        }
        for target in &group.targets {
            let composed = &self.tables[target];
            let table = frame.table(target);
            let origins = composed.sources.iter().map(|source| table.origins[source].clone()).collect();
            let computed = composed
                .columns
                .iter()
                .filter(|(_, provenance)| *provenance == Provenance::Computed)
                .map(|(column, _)| (column.name.clone(), frame.read(target, &column.name).into_owned()))
                .collect();
            applied
                .tables
                .insert(target.clone(), AppliedTable { unit_offsets: table.unit_offsets.clone(), origins, computed });
        }
        Ok(applied)
    }

    /// Walks the steps without a row and notes what happens to every table and column.
    fn compose(&mut self) {
        let nothing = Source::default();
        let mut frame = Frame::new(&self.near, None, &nothing);
        let mut scopes = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let scope = Scope::everything(step);
            let walked = step.take(&mut frame, &scope, None, &self.restorable, &mut Applied::default());
            walked.expect("no row, so none can fail");
            scopes.push(scope);
        }
        let mut classes: BTreeMap<usize, usize> = BTreeMap::new();
        let sources: Vec<_> = self.near.tables.keys().map(|name| (name.clone(), frame.source_class(name))).collect();
        for &(_, class) in &sources {
            let next = classes.len();
            classes.entry(class).or_insert(next);
        }
        for target in self.far.tables.keys() {
            let next = classes.len();
            classes.entry(frame.find(frame.table(target).class)).or_insert(next);
        }
        self.groups = vec![Group::default(); classes.len()];
        for (name, class) in sources {
            self.groups[classes[&class]].sources.push(name);
        }
        for (name, table) in &self.far.tables {
            let group = classes[&frame.find(frame.table(name).class)];
            let columns: Vec<_> =
                table.columns.iter().map(|column| (column.clone(), provenance(&frame, name, column))).collect();
            let traced = frame.table(name);
            self.groups[group].targets.push(name.clone());
            self.groups[group].visits_units |=
                traced.reshaped || columns.iter().any(|(_, provenance)| *provenance == Provenance::Computed);
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
        // A table that is made and dropped on the way is in no group, and never has a row.
        for group in frame.losing().iter().filter_map(|class| classes.get(class)) {
            self.groups[*group].visits_units = true;
        }
        for (step, scope) in self.steps.iter().zip(scopes) {
            for (&class, &group) in &classes {
                let tables = frame.noted_as(step.version(), class).cloned();
                self.groups[group].keeps.extend(tables.map(|table| (step.version(), table)));
                let narrowed = scope.narrowed(step, |table| frame.noted(step.version(), table) == class);
                for table in &narrowed.creates {
                    if self.restorable.contains(&(step.version(), table.clone())) {
                        self.groups[group].restored.push((step.version(), table.clone()));
                        self.groups[group].visits_units = true;
                    }
                }
                if narrowed.calls {
                    self.groups[group].keeps.insert((step.version(), String::new()));
                }
                self.groups[group].scopes.push(narrowed);
            }
        }
        self.needed = frame.needed();
    }
}

fn direction(near: DataVersion, far: DataVersion) -> Direction {
    if far >= near { Direction::Up } else { Direction::Down }
}

/// The steps from one end to the other, in the order in which they run.
fn steps_between(line: &Line, migrations: &[Arc<dyn Transform>], near: DataVersion, far: DataVersion) -> Vec<Step> {
    let direction = direction(near, far);
    let between = near.min(far) + 1..=near.max(far);
    let mut steps: Vec<Step> = migrations
        .iter()
        .filter(|migration| between.contains(&migration.manifest().version))
        .map(|migration| {
            let manifest = migration.manifest();
            let (lower, upper) = (line.before(manifest.version), &line_at(line, manifest.version));
            let [changes, back] = [direction, direction.opposite()].map(|way| travel(lower, manifest, way));
            let (near, far) = match direction {
                Direction::Up => (lower, *upper),
                Direction::Down => (*upper, lower),
            };
            Step::new(Arc::clone(migration), direction, changes, &back, (near.clone(), far.clone()))
        })
        .collect();
    if direction == Direction::Down {
        steps.reverse();
    }
    steps
}

fn line_at(line: &Line, version: DataVersion) -> &Layout {
    line.at(version).expect("both ends of a lens are versions of the line")
}

/// Reading a column here is what makes its source one of the needed.
fn provenance(frame: &Frame<'_>, table: &str, column: &Column) -> Provenance {
    match &frame.column(table, &column.name).content {
        Content::Source { table, column: name, sealing } if *sealing == column.sealing => {
            Provenance::Raw { table: table.clone(), column: name.clone() }
        }
        Content::Fill(literal) => Provenance::Fill(literal.clone()),
        Content::Source { .. } | Content::Given(_) => {
            frame.read(table, &column.name);
            Provenance::Computed
        }
    }
}

#[cfg(test)]
mod tests;
