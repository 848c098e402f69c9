//! The lens: the migrations between two data versions, applied to units in memory.
//! Owns composition and the bisection of failing batches; reads and writes no database.
//!
//! One walk over the steps serves planning and transforming alike: planning walks without rows and records which columns
//! are read, so a plan cannot differ from what is done later.

mod bisect;
mod frame;
mod residue;
mod step;
pub mod transform;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::layout::columns::{Batch, ColumnData, RunArguments};
use crate::layout::history::{LayoutHistory, directed_changes};
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Column, Layout, Literal, Table};

use frame::{Content, Frame};
pub use residue::{Residue, ResidueEntry, ResidueValue};
use step::{Step, StepScope};
use transform::Transform;

/// Units at the source of a lens: the plain values of every column that [`Lens::needed`] names.
#[derive(Debug, Clone, Default)]
pub struct LensInput {
    pub units: usize,
    pub tables: BTreeMap<String, InputTable>,
}

#[derive(Debug, Clone, Default)]
pub struct InputTable {
    pub unit_offsets: Vec<u32>,
    pub columns: BTreeMap<String, ColumnData>,
}

/// Units at the target of a lens, and what the steps would lose of them.
#[derive(Debug, Default)]
pub struct Applied {
    pub tables: BTreeMap<String, AppliedTable>,
    pub residue: Vec<ResidueEntry>,
    /// The number of entries of [`Residue`] whose records have changed since.
    pub stale: u64,
}

#[derive(Debug, Default)]
pub struct AppliedTable {
    pub unit_offsets: Vec<u32>,
    /// For each of [`Composed::sources`], in that order: the source row that each row continues.
    pub origins: Vec<Vec<u32>>,
    /// By name, plain.
    pub computed: BTreeMap<String, ColumnData>,
}

/// The origin of a target column's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// A source column that no step reads: it passes as it is stored.
    Raw { table: String, column: String },
    /// The same in every row.
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
    pub transformed: Option<DataVersion>,
}

/// Tables that the lens transforms together, unit by unit.
#[derive(Debug, Clone, Default)]
pub struct TableGroup {
    pub sources: Vec<String>,
    pub targets: Vec<String>,
    /// Tables that a step creates and for which the other direction left rows, with the version of the step.
    pub restored: Vec<(DataVersion, String)>,
    /// Whether units have to be read: a step computes something, or saves what it would lose.
    pub visits_units: bool,
    /// Where the steps may leave residue: versions and tables; an empty table name for that of a row function.
    pub keeps: BTreeSet<(DataVersion, String)>,
    scopes: Vec<StepScope>,
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
        /// The module's input for this unit, for a replay.
        batch: Box<Batch>,
    },
    #[error(
        "{direction} of migration {version} moves columns from {from} to {to}, but a row has no counterpart there; \
         add or remove the row, then start again"
    )]
    Counterpart { unit: usize, version: DataVersion, direction: Direction, from: String, to: String },
}

impl LensError {
    pub fn unit(&self) -> usize {
        match self {
            Self::Unit { unit, .. } | Self::Counterpart { unit, .. } => *unit,
        }
    }
}

/// Which of the units that cannot be transformed are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// One, with the fewest calls. Others that a module named in the same call are returned with it.
    First,
    /// Every unit that fails at the first step at which one fails.
    Every,
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
}

impl std::fmt::Debug for Lens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let versions: Vec<_> = self.steps.iter().map(Step::version).collect();
        f.debug_struct("Lens").field("direction", &self.direction).field("versions", &versions).finish_non_exhaustive()
    }
}

impl Lens {
    /// Composes the migrations above the lower version up to the upper one. The history has both versions. `restorable`
    /// names the residue that earlier steps in the other direction have left, by version and table.
    pub fn new(
        layouts: &LayoutHistory,
        migrations: &[Arc<dyn Transform>],
        source: DataVersion,
        target: DataVersion,
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Self {
        let steps = steps_between(layouts, migrations, source, target);
        Self::of_steps(steps, layouts, source, target, restorable)
    }

    /// The same for a lens that gives back whatever residue the other direction could have left, so that one lens serves
    /// a database in which residue comes and goes.
    pub fn restoring(
        layouts: &LayoutHistory,
        migrations: &[Arc<dyn Transform>],
        source: DataVersion,
        target: DataVersion,
    ) -> Self {
        let steps = steps_between(layouts, migrations, source, target);
        let restorable = steps.iter().flat_map(|step| step.restorable().map(|table| (step.version(), table)));
        let restorable = restorable.collect();
        Self::of_steps(steps, layouts, source, target, restorable)
    }

    fn of_steps(
        steps: Vec<Step>,
        layouts: &LayoutHistory,
        source: DataVersion,
        target: DataVersion,
        restorable: BTreeSet<(DataVersion, String)>,
    ) -> Self {
        let mut lens = Self {
            steps,
            direction: direction(source, target),
            source: layout_at(layouts, source).clone(),
            target: layout_at(layouts, target).clone(),
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

    /// The residue of the other direction that this lens gives back.
    pub fn restorable(&self) -> &BTreeSet<(DataVersion, String)> {
        &self.restorable
    }

    /// Transforms one batch of a group's units.
    ///
    /// # Errors
    /// The units that cannot be transformed: at least one, and as many as `search` asks for. Any other unit may still be
    /// refused by a later step.
    pub fn apply(
        &self,
        group: usize,
        input: &LensInput,
        left: &Residue,
        arguments: &Arguments,
        search: Search,
    ) -> Result<Applied, Vec<LensError>> {
        let group = &self.groups[group];
        let mut frame = Frame::new(&self.source, Some(&group.sources), input);
        let mut applied = Applied::default();
        for (step, scope) in self.steps.iter().zip(&group.scopes) {
            step.take(&mut frame, scope, Some((left, arguments, search)), &self.restorable, &mut applied)?;
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

    /// Walks the steps without rows and records what happens to every table and column.
    fn compose(&mut self) {
        let nothing = LensInput::default();
        let mut frame = Frame::new(&self.source, None, &nothing);
        let mut scopes = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let scope = StepScope::everything(step);
            let walked = step.take(&mut frame, &scope, None, &self.restorable, &mut Applied::default());
            walked.expect("no row, so none can fail");
            scopes.push(scope);
        }
        let mut classes: BTreeMap<usize, usize> = BTreeMap::new();
        let sources: Vec<_> = self.source.tables.keys().map(|name| (name.clone(), frame.source_class(name))).collect();
        for &(_, class) in &sources {
            let next = classes.len();
            classes.entry(class).or_insert(next);
        }
        for target in self.target.tables.keys() {
            let next = classes.len();
            classes.entry(frame.find(frame.table(target).class)).or_insert(next);
        }
        self.groups = vec![TableGroup::default(); classes.len()];
        for (name, class) in sources {
            self.groups[classes[&class]].sources.push(name);
        }
        for (name, table) in &self.target.tables {
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
        // A table that one step creates and a later one drops is in no group and never has a row.
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

fn direction(source: DataVersion, target: DataVersion) -> Direction {
    if target >= source { Direction::Up } else { Direction::Down }
}

/// The steps between two versions, in the order in which they run.
fn steps_between(
    layouts: &LayoutHistory,
    migrations: &[Arc<dyn Transform>],
    source: DataVersion,
    target: DataVersion,
) -> Vec<Step> {
    let direction = direction(source, target);
    let between = source.min(target) + 1..=source.max(target);
    let mut steps: Vec<Step> = migrations
        .iter()
        .filter(|migration| between.contains(&migration.manifest().version))
        .map(|migration| {
            let manifest = migration.manifest();
            let (lower, upper) = (layouts.before(manifest.version), &layout_at(layouts, manifest.version));
            let [changes, back] = [direction, direction.opposite()].map(|way| directed_changes(lower, manifest, way));
            let (source, target) = match direction {
                Direction::Up => (lower, *upper),
                Direction::Down => (*upper, lower),
            };
            Step::new(Arc::clone(migration), direction, changes, &back, (source.clone(), target.clone()))
        })
        .collect();
    if direction == Direction::Down {
        steps.reverse();
    }
    steps
}

fn layout_at(layouts: &LayoutHistory, version: DataVersion) -> &Layout {
    layouts.at(version).expect("both ends of a lens are versions of the layout history")
}

/// Reading a column here adds its source column to [`Lens::needed`].
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
