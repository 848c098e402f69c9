//! What a migration does to each table: nothing, a change in place, or a copy. A pure reading of
//! the lens; the steps that follow do what it says.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::database::Dialect;
use crate::database::schema::{self, ColumnChange};
use crate::layout::fold::Line;
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Column, Index, Literal, RECORD_VERSION, Table};
use crate::layout::values::Encoding;
use crate::lens::transform::Transform;
use crate::lens::{Composed, Lens, Provenance};

/// How a table gets to the far end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    Untouched,
    /// Additive or widening only: older hosts are not disturbed.
    InPlace,
    /// New and without rows.
    Create,
    /// Into a table beside it, which takes its name at cut-over.
    Copy,
}

/// One table of the far end.
#[derive(Debug, Clone)]
pub(super) struct TablePlan {
    pub table: Table,
    pub strategy: Strategy,
    pub group: usize,
    pub sources: Vec<String>,
    pub columns: Vec<(Column, Provenance)>,
    /// Rows are not those of the source, or cannot be told by the source's key: then everything they hold
    /// goes into the digest that `verify` compares. Otherwise the database compares what travelled unopened.
    pub digests_all: bool,
    /// Rows are taken out of the database even where nothing is computed: clients write to it meanwhile, so that not
    /// every row of a range is the copier's.
    pub is_shared: bool,
}

impl TablePlan {
    /// Whether rows go from table to table inside the database, with nothing computed.
    pub(super) fn by_range(&self) -> bool {
        !self.digests_all
            && !self.is_shared
            && self.sources.len() == 1
            && self.columns.iter().all(|(_, provenance)| *provenance != Provenance::Computed)
    }

    pub(super) fn computed(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|(_, provenance)| *provenance == Provenance::Computed).map(|(column, _)| column)
    }

    /// Columns that are part of a row's digest, in order.
    pub(super) fn digested(&self) -> Vec<&(Column, Provenance)> {
        let digested = |(column, provenance): &&(Column, Provenance)| match provenance {
            Provenance::Computed => true,
            Provenance::Raw { .. } => self.digests_all || self.table.primary_key.contains(&column.name),
            Provenance::Fill(_) => false,
        };
        self.columns.iter().filter(digested).collect()
    }

    /// Source columns that go along unopened, by table.
    pub(super) fn kept_columns(&self) -> impl Iterator<Item = (&String, &String)> {
        self.columns.iter().filter_map(|(_, provenance)| match provenance {
            Provenance::Raw { table, column } => Some((table, column)),
            Provenance::Computed | Provenance::Fill(_) => None,
        })
    }

    /// The columns that get more room where they are.
    pub(super) fn widened<'a>(&'a self, near: Option<&'a Table>, dialect: Dialect) -> impl Iterator<Item = &'a Column> {
        self.table.columns.iter().filter(move |column| {
            let before = near.and_then(|near| near.column(&column.name));
            before.is_some_and(|before| schema::column_change(dialect, before, column) == ColumnChange::Widening)
        })
    }

    /// What has to be added to the table where it is.
    pub(super) fn additions(&self, near: Option<&Table>) -> (Vec<Column>, Vec<Index>, Vec<Index>) {
        let Some(near) = near else { return Default::default() };
        let columns = self.table.columns.iter().filter(|column| near.column(&column.name).is_none());
        let new = self.table.indexes.iter().filter(|index| !near.indexes.contains(index));
        let old = near.indexes.iter().filter(|index| !self.table.indexes.contains(index));
        (columns.cloned().collect(), new.cloned().collect(), old.cloned().collect())
    }

    /// The name of the table under way.
    pub(super) fn staged(&self, to: DataVersion) -> String {
        format!("{}__{to}", self.table.name)
    }
}

/// The plans of all tables of the far end, by name.
pub(super) fn tables(
    lens: &Lens,
    line: &Line,
    migrations: &[std::sync::Arc<dyn Transform>],
    to: DataVersion,
    dialect: Dialect,
) -> Vec<TablePlan> {
    lens.tables
        .values()
        .map(|composed| {
            let strategy = strategy(lens, composed, dialect);
            let mut columns = composed.columns.clone();
            if strategy == Strategy::Copy
                && let Some(stamp) = stamp(lens, composed, line, migrations, to)
            {
                let stamped = columns.iter_mut().find(|(column, _)| column.name == RECORD_VERSION);
                stamped.expect("only a table with the column is stamped").1 = Provenance::Fill(stamp);
            }
            TablePlan {
                table: composed.table.clone(),
                strategy,
                group: composed.group,
                sources: composed.sources.clone(),
                digests_all: composed.reshaped || !keyed_by_source(composed),
                is_shared: false,
                columns,
            }
        })
        .collect()
}

fn strategy(lens: &Lens, composed: &Composed, dialect: Dialect) -> Strategy {
    let name = &composed.table.name;
    if composed.sources.is_empty() {
        let restored = lens.groups[composed.group].restored.iter().any(|(_, table)| table == name);
        let empty = !composed.reshaped && !restored;
        return if empty { Strategy::Create } else { Strategy::Copy };
    }
    let Some(near) = lens.near.tables.get(name).filter(|_| composed.sources == [name.clone()]) else {
        return Strategy::Copy;
    };
    let kept = near.columns.iter().all(|column| {
        composed.columns.iter().any(|(far, provenance)| {
            *provenance == Provenance::Raw { table: name.clone(), column: column.name.clone() }
                && far.name == column.name
                && schema::column_change(dialect, column, far) != ColumnChange::Other
        })
    });
    let widened = composed
        .columns
        .iter()
        .any(|(far, _)| near.column(&far.name).is_some_and(|column| !schema::same_column(dialect, column, far)));
    let added = composed.columns.iter().filter(|(column, _)| near.column(&column.name).is_none());
    let additive = kept
        && !composed.reshaped
        && near.primary_key == composed.table.primary_key
        && added.clone().all(|(column, provenance)| {
            *provenance == Provenance::Fill(column.default.clone()) && (column.nullable || column.default.is_some())
        });
    if !additive {
        return Strategy::Copy;
    }
    let same_indexes = near.indexes.iter().collect::<Vec<_>>() == composed.table.indexes.iter().collect::<Vec<_>>();
    if added.count() == 0 && !widened && same_indexes { Strategy::Untouched } else { Strategy::InPlace }
}

/// Whether rows can be told by what of their primary key came unopened from the one table that they continue. A part
/// of the key that is the same in every row tells nothing, and costs nothing.
fn keyed_by_source(composed: &Composed) -> bool {
    let provenance =
        |key: &String| composed.columns.iter().find(|(column, _)| column.name == *key).map(|(_, from)| from);
    let keys: Vec<_> = composed.table.primary_key.iter().filter_map(provenance).collect();
    composed.sources.len() == 1
        && keys.iter().any(|from| matches!(from, Provenance::Raw { .. }))
        && keys.iter().all(|from| !matches!(from, Provenance::Computed))
}

/// What a copied row gets as its record version, if a row function ran over it. On the way down that is
/// the last one it still has been through since there is such a column.
fn stamp(
    lens: &Lens,
    composed: &Composed,
    line: &Line,
    migrations: &[std::sync::Arc<dyn Transform>],
    to: DataVersion,
) -> Option<Option<Literal>> {
    let column = composed.table.column(RECORD_VERSION)?;
    if Encoding::from(column.kind) != Encoding::Integer {
        return None;
    }
    let version = composed.transformed?;
    if lens.direction == Direction::Up {
        return Some(Some(integer(version)));
    }
    let table = &composed.table.name;
    let newest = migrations.iter().rev().map(|migration| migration.manifest()).find(|manifest| {
        manifest.version <= to
            && manifest.up.iter().any(|access| access.table == *table && !access.writes.is_empty())
            && line
                .before(manifest.version)
                .tables
                .get(table)
                .is_some_and(|table| table.column(RECORD_VERSION).is_some())
    });
    Some(newest.map(|manifest| integer(manifest.version)).or_else(|| column.default.clone()))
}

fn integer(version: DataVersion) -> Literal {
    Literal::Integer(super::state::signed(version))
}

/// Source tables that are gone or replaced after cut-over.
pub(super) fn replaced(lens: &Lens, plans: &[TablePlan]) -> BTreeSet<String> {
    let copied = plans.iter().filter(|plan| plan.strategy == Strategy::Copy);
    let same_name = copied.map(|plan| &plan.table.name).filter(|name| lens.near.tables.contains_key(*name));
    let gone = lens.near.tables.keys().filter(|name| !lens.far.tables.contains_key(*name));
    same_name.chain(gone).cloned().collect()
}
