//! The layout history: the layout after each migration of a catalog, and the inverse changes for
//! the way down. Owns the rules that a manifest must satisfy before a row is read; executes
//! nothing.

mod access;
mod additions;
mod binding;
mod change;
mod way;

use std::collections::{BTreeMap, BTreeSet};

use super::manifest::{Change, DataVersion, Direction, Manifest};
use super::migration_set::MigrationSet;
use super::schema::Layout;

pub use access::{column_before, name_before, needed_by_new_rows, share_units};
pub use additions::Additions;
pub use binding::Unbound;
pub use way::{Leg, Way};

/// A manifest that is not valid for the layout before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "migration {version}-{name} does not fit the layout before it: {}; correct its manifest and build it again",
    cut(.problem)
)]
pub struct LayoutError {
    pub version: DataVersion,
    pub name: String,
    pub problem: Problem,
}

/// The text of a problem, which quotes names that a module made.
fn cut(problem: &Problem) -> String {
    const LONGEST: usize = 500;
    let text = problem.to_string();
    if text.len() <= LONGEST {
        text
    } else {
        text.chars().take(LONGEST).chain("...".chars()).collect()
    }
}

/// The rule that a manifest breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("its version is not above {before}, that of the migration before it")]
    NotAscending { before: DataVersion },
    #[error("there is no table {table:?}")]
    UnknownTable { table: String },
    #[error("table {table:?} already exists")]
    DuplicateTable { table: String },
    #[error("table {table:?} has no column {column:?}")]
    UnknownColumn { table: String, column: String },
    #[error("table {table:?} has two columns {column:?}")]
    DuplicateColumn { table: String, column: String },
    #[error(
        "{name:?} cannot be a name: names are lower-case letters, digits and single underscores, \
         begin with a letter, have at most 63 characters, those of tables 51, and leave the host's own tables alone"
    )]
    Name { name: String },
    #[error("table {table:?} has no columns")]
    NoColumns { table: String },
    #[error(
        "table {table:?} has no partition key, so its primary key cannot change; create a new table instead"
    )]
    RekeyWithoutUnits { table: String },
    #[error("table {table:?} has no primary key")]
    NoKey { table: String },
    #[error("the key of table {table:?} names column {column:?} twice")]
    RepeatedKey { table: String, column: String },
    #[error(
        "column {column:?} of table {table:?} is part of a key or index, so it cannot be nullable or encrypted"
    )]
    UnfitKey { table: String, column: String },
    #[error(
        "column {column:?} of table {table:?} is part of a key or index, so a text there has to be a varchar: MySQL indexes no \
         other texts"
    )]
    TextInKey { table: String, column: String },
    #[error(
        "a key or index of table {table:?} has {bytes} bytes, and MySQL has at most {LONGEST_KEY}: four for each character of a \
         varchar"
    )]
    LongKey { table: String, bytes: u64 },
    #[error(
        "column {column:?} of table {table:?} has to have a length from 1 to {LONGEST_VARCHAR} characters"
    )]
    VarcharLength { table: String, column: String },
    #[error("column {column:?} of table {table:?} is part of a key or index; change that first")]
    ColumnInUse { table: String, column: String },
    #[error(
        "the partition key {column:?} of table {table:?} has to be the first column of the primary key or of an index"
    )]
    PartitionKeyOrder { table: String, column: String },
    #[error("index {index:?} already exists in the layout")]
    DuplicateIndex { index: String },
    #[error("table {table:?} has no index {index:?}")]
    UnknownIndex { table: String, index: String },
    #[error("index {index:?} names no column")]
    EmptyIndex { index: String },
    #[error(
        "column {column:?} of table {table:?} is encrypted, so it has to be text and can have no default"
    )]
    Sealing { table: String, column: String },
    #[error("the default of column {column:?} of table {table:?} is not of the column's type")]
    DefaultType { table: String, column: String },
    #[error("the default of column {column:?} of table {table:?} does not fit into it")]
    DefaultTooLarge { table: String, column: String },
    #[error(
        "column {column:?} of table {table:?} needs a value in every row: make it nullable, give it a default, \
         or list it in the writes of both the table and the direction that adds it"
    )]
    NoValue { table: String, column: String },
    #[error(
        "column {column:?} of table {table:?} cannot change between text, integer and boolean; add a column under another \
         name, and rename it with `rename_column` in a later migration"
    )]
    Retyped { table: String, column: String },
    #[error(
        "table {table:?} has a column {column:?} before the migration and gets another one of that name, and a migration \
         identifies columns by their names; give the new column another name, and rename it with `rename_column` in a later \
         migration"
    )]
    AddedAgain { table: String, column: String },
    #[error(
        "a column moves only between tables of one unit with equal primary and partition keys: {from:?} and {to:?} differ"
    )]
    MoveBetween { from: String, to: String },
    #[error(
        "column {column:?} of table {table:?} moves in the migration that adds or drops it, after which its values could not be \
         restored; move it in another migration"
    )]
    MovedWithin { table: String, column: String },
    #[error("{direction} names table {table:?}, which has no partition key and so no units")]
    AccessWithoutUnits { direction: Direction, table: String },
    #[error(
        "{direction} names tables {table:?} and {other:?}, whose partition keys have different types, so they have no units in \
         common"
    )]
    UnlikeKeys {
        direction: Direction,
        table: String,
        other: String,
    },
    #[error("{direction} names table {table:?} twice")]
    RepeatedAccess { direction: Direction, table: String },
    #[error("{direction} names column {column:?} of table {table:?} twice")]
    RepeatedAccessColumn {
        direction: Direction,
        table: String,
        column: String,
    },
    #[error(
        "{direction} reads column {column:?}, which table {table:?} does not have before the step"
    )]
    UnknownRead {
        direction: Direction,
        table: String,
        column: String,
    },
    #[error(
        "{direction} writes column {column:?}, which table {table:?} does not have after the step"
    )]
    UnknownWrite {
        direction: Direction,
        table: String,
        column: String,
    },
    #[error(
        "{direction} writes {column:?}, the partition key of table {table:?}: a row cannot change its unit"
    )]
    WritesPartitionKey {
        direction: Direction,
        table: String,
        column: String,
    },
    #[error(
        "{direction} reads or writes table {table:?}, whose rows a moved column makes in the same step"
    )]
    AccessToMoved { direction: Direction, table: String },
    #[error(
        "{direction} adds rows to table {table:?} but does not write its key column {column:?}"
    )]
    ReshapeWithoutKey {
        direction: Direction,
        table: String,
        column: String,
    },
    #[error(
        "it has {changes} changes, and a manifest has at most {MOST_CHANGES}; split it into several migrations"
    )]
    TooManyChanges { changes: usize },
    #[error("the layout has more than {MOST_TABLES} tables")]
    TooManyTables,
    #[error("the layout has more than {MOST_COLUMNS} columns over all tables")]
    TooManyColumns,
    #[error("the layout has more than {MOST_INDEXES} indexes over all tables")]
    TooManyIndexes,
    #[error(
        "the default of column {column:?} of table {table:?} is longer than {LONGEST_DEFAULT} bytes; the host holds it \
         once for each row of a batch, so let a row function write it"
    )]
    LongDefault { table: String, column: String },
    #[error("it is not reversible, so it can have nothing to run downwards")]
    DownOfIrreversible,
    #[error("it leaves residue but has no row function")]
    ResidueOfNothing,
    #[error("it removes rows but has no access that reshapes")]
    RemovesWithoutReshaping,
}

/// Bounds of a manifest and of a layout. They keep the time of folding and the memory of the
/// layouts small whatever a manifest declares; the layout that Diego's and this project's
/// migrations lead to has some 10 tables and 100 columns.
const MOST_CHANGES: usize = 1_000;
const MOST_TABLES: usize = 100;
const MOST_COLUMNS: usize = 1_000;
const MOST_INDEXES: usize = 500;
/// In bytes.
const LONGEST_DEFAULT: usize = 1 << 10;
/// In bytes; the limit of MySQL and MariaDB.
const LONGEST_KEY: u64 = 3_072;
/// In characters. MySQL's rows have at most 65,535 bytes, and a character takes up to four.
const LONGEST_VARCHAR: u32 = 16_383;

impl Layout {
    /// The layout after these migrations, beginning with the empty one.
    ///
    /// # Errors
    /// As [`LayoutHistory::new`].
    pub fn after<'a>(
        manifests: impl IntoIterator<Item = &'a Manifest>,
    ) -> Result<Self, LayoutError> {
        let mut history = LayoutHistory::new(manifests)?;
        let (_, newest) = history
            .layouts
            .pop_last()
            .expect("the empty layout is there");
        Ok(newest)
    }

    /// The layout after one migration. Each change leaves a layout whose tables are sound, so that
    /// what works with the layouts in between can rely on their columns and keys.
    ///
    /// # Errors
    /// If the manifest is not valid for this layout.
    pub fn apply(&self, manifest: &Manifest) -> Result<Self, LayoutError> {
        let fail = |problem| LayoutError {
            version: manifest.version,
            name: manifest.name.clone(),
            problem,
        };
        let changes = manifest.changes.len();
        if changes > MOST_CHANGES {
            return Err(fail(Problem::TooManyChanges { changes }));
        }
        let mut after = self.clone();
        for change in &manifest.changes {
            after
                .change(change)
                .and_then(|()| after.check_changed(change))
                .map_err(fail)?;
        }
        after.check().map_err(fail)?;
        change::check_added(self, &manifest.changes).map_err(fail)?;
        if manifest.reversible {
            let back = directed_changes(self, manifest, Direction::Down);
            change::check_added(&after, &back).map_err(fail)?;
            change::check_moved(&manifest.changes).map_err(fail)?;
            change::check_moved(&back).map_err(fail)?;
        }
        access::check(self, &after, manifest).map_err(fail)?;
        Ok(after)
    }
}

/// The changes of a step in a direction. Downwards these are the inverses in reverse order;
/// `before`, the layout below the step, supplies the definitions that the step drops.
///
/// # Panics
/// If the manifest is not valid for `before`.
pub fn directed_changes(before: &Layout, manifest: &Manifest, direction: Direction) -> Vec<Change> {
    if direction == Direction::Up {
        return manifest.changes.clone();
    }
    let mut layout = before.clone();
    let mut inverses = Vec::with_capacity(manifest.changes.len());
    for change in &manifest.changes {
        inverses.push(layout.inverse(change));
        layout
            .change(change)
            .expect("the layout history has validated the changes");
    }
    inverses.reverse();
    inverses
}

/// The layout after each migration of a set, oldest first.
#[derive(Debug, Clone, Default)]
pub struct LayoutHistory {
    layouts: BTreeMap<DataVersion, Layout>,
    /// The additions of [`LayoutHistory::with_additions`], by table.
    additions: BTreeMap<String, Additions>,
}

impl LayoutHistory {
    /// Applies the manifests in order, beginning with the empty layout.
    ///
    /// # Errors
    /// If a version is not above the one before it, or a manifest is not valid for the layout
    /// before it.
    pub fn new<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Result<Self, LayoutError> {
        let mut layouts = BTreeMap::from([(0, Layout::default())]);
        for manifest in manifests {
            let (&before, layout) = layouts.last_key_value().expect("the empty layout is there");
            if manifest.version <= before {
                let problem = Problem::NotAscending { before };
                return Err(LayoutError {
                    version: manifest.version,
                    name: manifest.name.clone(),
                    problem,
                });
            }
            let after = layout.apply(manifest)?;
            layouts.insert(manifest.version, after);
        }
        Ok(Self::from_layouts(layouts))
    }

    /// The history of one migration over the layout before it, which takes the place of version 0:
    /// for tests of that migration alone.
    ///
    /// # Errors
    /// If the manifest is not valid for the layout.
    pub fn over(before: &Layout, manifest: &Manifest) -> Result<Self, LayoutError> {
        let after = before.apply(manifest)?;
        let layouts = [(0, before.clone()), (manifest.version, after)];
        Ok(Self::from_layouts(layouts.into()))
    }

    fn from_layouts(layouts: BTreeMap<DataVersion, Layout>) -> Self {
        Self {
            layouts,
            additions: BTreeMap::new(),
        }
    }

    /// The layout at a version of the catalog; none for a version that the catalog does not have.
    /// Version 0 is the empty database.
    pub fn at(&self, version: DataVersion) -> Option<&Layout> {
        self.layouts.get(&version)
    }

    /// The history of those migrations that ran on a database, and of the catalog's later ones as
    /// far as they fit without others.
    ///
    /// # Errors
    /// One that ran does not fit the layout before it.
    pub fn that_ran<'a>(
        manifests: impl IntoIterator<Item = &'a Manifest>,
        ran: &MigrationSet,
    ) -> Result<Self, LayoutError> {
        let (those, others): (Vec<_>, Vec<_>) = manifests
            .into_iter()
            .partition(|manifest| ran.has(manifest.version));
        let mut history = Self::new(those)?;
        for manifest in others
            .into_iter()
            .filter(|manifest| manifest.version > ran.newest())
        {
            let Ok(after) = history.layouts[&history.newest()].apply(manifest) else {
                break;
            };
            history.layouts.insert(manifest.version, after);
        }
        Ok(history)
    }

    /// The layout at the highest version below `version`.
    ///
    /// # Panics
    /// If `version` is 0.
    pub fn before(&self, version: DataVersion) -> &Layout {
        self.layouts
            .range(..version)
            .next_back()
            .expect("the empty layout is there")
            .1
    }

    /// The migrations.
    pub fn migrations(&self) -> MigrationSet {
        self.layouts
            .keys()
            .copied()
            .filter(|version| *version > 0)
            .collect()
    }

    /// The names of all tables of all versions.
    pub fn table_names(&self) -> BTreeSet<&str> {
        self.layouts
            .values()
            .flat_map(|layout| layout.tables.keys().map(String::as_str))
            .collect()
    }

    /// The highest version; 0 without migrations.
    pub fn newest(&self) -> DataVersion {
        *self
            .layouts
            .last_key_value()
            .expect("the empty layout is there")
            .0
    }
}

#[cfg(test)]
mod tests;
