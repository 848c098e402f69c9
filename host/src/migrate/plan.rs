//! The plan of a migration for each table: nothing, a change in place, or a copy. A pure function
//! of the lens; the steps that follow execute it. Only the options of a table that is created are
//! those that the database has.

use std::collections::BTreeSet;

use bbs_database::schema::{self, ColumnChange, ColumnOrigin, Replacement, TableOptions};
use bbs_database::{Dialect, ServerKind, SqlError, Transaction, signed};
use bbs_encryption::Keyring;
use bbs_lens::layout::history::{Leg, Way};
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::schema::{Column, Index, Literal, RECORD_VERSION, Table};
use bbs_lens::transform::Transform;
use bbs_lens::{Composed, Lens, Provenance};
use bbs_units::{BatchColumn, RecordVersions, TableRows};
use serde::Serialize;

use super::MigrateError;

/// How a table gets to the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Definition and rows stay as they are.
    Untouched,
    /// Additive or widening only: older hosts are not disturbed.
    InPlace,
    /// New and without rows.
    Create,
    /// Into a table beside it, which gets its name at the cut-over.
    Copy,
}

/// One table of the target.
#[derive(Debug, Clone)]
pub(super) struct TablePlan {
    pub table: Table,
    pub strategy: Strategy,
    pub group: usize,
    pub sources: Vec<String>,
    pub columns: Vec<(Column, Provenance)>,
    /// Rows are not those of the source, or cannot be matched by the source's key: then all their
    /// values go into the checksum that `verify` compares. Otherwise the database compares the
    /// columns that no step has read.
    pub digests_all: bool,
    /// Clients write meanwhile, so their units are copied again, one by one: the rows are read even
    /// where nothing is computed.
    pub is_shared: bool,
}

impl TablePlan {
    pub(super) fn is_copied(&self) -> bool {
        self.strategy == Strategy::Copy
    }

    /// Whether rows go from table to table inside the database, with nothing computed.
    pub(super) fn by_range(&self) -> bool {
        !self.digests_all
            && !self.is_shared
            && self.sources.len() == 1
            && self
                .columns
                .iter()
                .all(|(_, provenance)| *provenance != Provenance::Computed)
    }

    pub(super) fn computed(&self) -> impl Iterator<Item = &Column> {
        self.columns
            .iter()
            .filter(|(_, provenance)| *provenance == Provenance::Computed)
            .map(|(column, _)| column)
    }

    /// The columns that are part of a row's checksum, in order.
    pub(super) fn digested(&self) -> Vec<&(Column, Provenance)> {
        let digested = |(column, provenance): &&(Column, Provenance)| match provenance {
            Provenance::Computed => true,
            Provenance::Raw { .. } => {
                self.digests_all || self.table.primary_key.contains(&column.name)
            }
            Provenance::Fill(_) => false,
        };
        self.columns.iter().filter(digested).collect()
    }

    /// Source columns that pass the lens unread, by table.
    pub(super) fn unread_columns(&self) -> impl Iterator<Item = (&String, &String)> {
        self.columns
            .iter()
            .filter_map(|(_, provenance)| match provenance {
                Provenance::Raw { table, column } => Some((table, column)),
                Provenance::Computed | Provenance::Fill(_) => None,
            })
    }

    /// The columns that are widened in place.
    pub(super) fn widened<'a>(
        &'a self,
        source: Option<&'a Table>,
        dialect: Dialect,
    ) -> impl Iterator<Item = &'a Column> {
        self.table.columns.iter().filter(move |column| {
            let before = source.and_then(|source| source.find_column(&column.name));
            before.is_some_and(|before| {
                schema::column_change(dialect, before, column) == ColumnChange::Widening
            })
        })
    }

    /// The additions to the table in place: columns, indexes to create, indexes to drop.
    pub(super) fn additions(
        &self,
        source: Option<&Table>,
    ) -> (Vec<Column>, Vec<Index>, Vec<Index>) {
        let Some(source) = source else {
            return Default::default();
        };
        let columns = self
            .table
            .columns
            .iter()
            .filter(|column| source.find_column(&column.name).is_none());
        let new = self
            .table
            .indexes
            .iter()
            .filter(|index| !source.indexes.contains(index));
        let old = source
            .indexes
            .iter()
            .filter(|index| !self.table.indexes.contains(index));
        (
            columns.cloned().collect(),
            new.cloned().collect(),
            old.cloned().collect(),
        )
    }

    /// The names of indexes that are built over its rows within the cut-over, where that is one
    /// transaction. Those of copies are built before, and so are all on MySQL and MariaDB.
    pub(super) fn awaited_indexes(&self, source: Option<&Table>, dialect: Dialect) -> Vec<String> {
        if self.strategy != Strategy::InPlace || dialect == Dialect::Mysql {
            return Vec::new();
        }
        let (_, new, _) = self.additions(source);
        new.into_iter().map(|index| index.name).collect()
    }

    /// Rows as the table stores them: sealed, and with the plan's record version.
    pub(super) fn stored(&self, mut rows: TableRows, keyring: &Keyring) -> TableRows {
        let count = rows.count();
        for (column, provenance) in &self.columns {
            let values = match provenance {
                Provenance::Fill(value) => BatchColumn::repeated(column, value.as_ref(), count),
                Provenance::Raw { .. } | Provenance::Computed => rows.columns[&column.name].clone(),
            };
            rows.columns.insert(
                column.name.clone(),
                bbs_units::sealed(values, count, column, keyring),
            );
        }
        rows
    }

    /// The error of a statement that writes rows of the copy.
    pub(super) fn failed(&self) -> impl FnOnce(SqlError) -> MigrateError + use<> {
        let table = self.table.name.clone();
        move |source| MigrateError::of_row(&table, format!("copied rows of {table}"), source)
    }

    /// Whether it has the name of a table of the source, or rows of it.
    pub(super) fn succeeds(&self, table: &str) -> bool {
        self.table.name == table || self.sources.iter().any(|name| name == table)
    }

    /// Whether it has a column of a table that it succeeds, under the same name or another.
    pub(super) fn continues(&self, table: &str, column: &str) -> bool {
        self.columns.iter().any(|(known, provenance)| {
            let is_raw = matches!(
                provenance,
                Provenance::Raw { table: of, column: name } if of == table && name == column
            );
            is_raw || known.name == column
        })
    }

    /// The table that this one replaces, under the same name or another.
    pub(super) fn replaces<'a>(&'a self, lens: &Lens) -> Option<&'a str> {
        let is_gone = |name: &&String| !lens.target.tables.contains_key(*name);
        let renamed = || {
            self.sources
                .first()
                .filter(|_| self.sources.len() == 1)
                .filter(is_gone)
        };
        let same = Some(&self.table.name).filter(|name| lens.source.tables.contains_key(*name));
        same.or_else(renamed).map(String::as_str)
    }

    /// The replacement of another table by this one in a migration to this version, if it is
    /// copied.
    pub(super) fn replacement<'a>(
        &'a self,
        lens: &Lens,
        to: DataVersion,
    ) -> Option<Replacement<'a>> {
        Some(Replacement {
            replaced: self.replaces(lens).filter(|_| self.is_copied())?,
            table: &self.table,
            staged: self.staged(to),
        })
    }

    /// The tables of the source beside which it is created, those that its rows come from first.
    fn beside<'a>(&'a self, lens: &'a Lens) -> Vec<&'a str> {
        self.sources
            .iter()
            .chain(lens.source.tables.keys())
            .map(String::as_str)
            .collect()
    }

    /// The columns whose collations its columns of text get: those that their values come from. A
    /// key is compared with the columns of its name in any table, and other computed values with
    /// that in the tables that its rows come from.
    fn origins<'a>(&'a self, lens: &'a Lens) -> Vec<ColumnOrigin<'a>> {
        let namesake = |name: &'a str| {
            let is_key = bbs_units::key_columns(&self.table)
                .iter()
                .any(|key| key == name)
                || self.table.primary_key.iter().any(|key| key == name);
            let most = if is_key {
                usize::MAX
            } else {
                self.sources.len()
            };
            let mut tables = self.beside(lens).into_iter().take(most);
            let has = |table: &&str| lens.source.tables[*table].find_column(name).is_some();
            tables.find(has).map(|table| (table, name))
        };
        let texts = self
            .columns
            .iter()
            .filter(|(column, _)| column.kind.is_text());
        let origins = texts.filter_map(|(column, provenance)| {
            let (of_table, of_column) = match provenance {
                Provenance::Raw { table, column } => (table.as_str(), column.as_str()),
                Provenance::Computed | Provenance::Fill(_) => namesake(column.name.as_str())?,
            };
            Some(ColumnOrigin {
                column: &column.name,
                of_table,
                of_column,
            })
        });
        origins.collect()
    }

    /// The options of its table, which is created under a name: those of the table that it
    /// replaces, if it is copied, or of one that its rows come from or beside which it is created.
    pub(super) async fn options(
        &self,
        tx: &mut Transaction,
        lens: &Lens,
        name: &str,
    ) -> Result<TableOptions, SqlError> {
        let origins = self.origins(lens);
        match self.replaces(lens).filter(|_| self.is_copied()) {
            Some(replaced) => schema::options(tx, replaced, name, &origins).await,
            None => schema::options_beside(tx, &self.beside(lens), &origins).await,
        }
    }

    /// The names that no other table with rows may have while the table is made: that of the copy,
    /// and its own where the source has no such table. An empty database has its tables cleared
    /// otherwise.
    pub(super) fn new_names(&self, lens: &Lens, from: DataVersion, to: DataVersion) -> Vec<String> {
        let is_new = match self.strategy {
            Strategy::Copy => !lens.source.tables.contains_key(&self.table.name),
            Strategy::Create => true,
            Strategy::Untouched | Strategy::InPlace => false,
        };
        let copy = self.is_copied().then(|| self.staged(to));
        let own = (is_new && from > 0).then(|| self.table.name.clone());
        copy.into_iter().chain(own).collect()
    }

    /// The name of the copy until the cut-over.
    pub(super) fn staged(&self, to: DataVersion) -> String {
        side_table(&self.table.name, to)
    }
}

/// The name of a table beside the real one: until the cut-over that of its copy, with the version
/// of the target; from then to its removal that of the replaced table, with the version of the
/// source.
pub(super) fn side_table(table: &str, version: DataVersion) -> String {
    format!("{table}__{version}")
}

/// The plans of all tables of the target, by name.
pub(super) fn tables(
    lens: &Lens,
    way: Way<'_>,
    migrations: &[std::sync::Arc<dyn Transform>],
    server: ServerKind,
) -> Vec<TablePlan> {
    lens.tables
        .values()
        .map(|composed| {
            let stamp = stamp(composed, way, migrations);
            let strategy = match (strategy(lens, composed, server), &stamp) {
                // Rows that stay where they are would keep the version of a row function that is
                // undone.
                (Strategy::Untouched | Strategy::InPlace, Some(_)) => Strategy::Copy,
                (strategy, _) => strategy,
            };
            let mut columns = composed.columns.clone();
            if strategy == Strategy::Copy
                && let Some(stamp) = stamp
            {
                let stamped = columns
                    .iter_mut()
                    .find(|(column, _)| column.name == RECORD_VERSION);
                stamped.expect("only a table with the column is stamped").1 =
                    Provenance::Fill(stamp);
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

fn strategy(lens: &Lens, composed: &Composed, server: ServerKind) -> Strategy {
    let dialect = server.dialect;
    let name = &composed.table.name;
    if composed.sources.is_empty() {
        // A table of the source that has the name keeps it until the cut-over.
        let is_free = !lens.source.tables.contains_key(name);
        return if is_free && !gets_rows(composed) {
            Strategy::Create
        } else {
            Strategy::Copy
        };
    }
    let Some(source) = lens
        .source
        .tables
        .get(name)
        .filter(|_| composed.sources == [name.clone()])
    else {
        return Strategy::Copy;
    };
    let kept = source.columns.iter().all(|column| {
        composed.columns.iter().any(|(target, provenance)| {
            *provenance
                == Provenance::Raw {
                    table: name.clone(),
                    column: column.name.clone(),
                }
                && target.name == column.name
                && schema::column_change(dialect, column, target) != ColumnChange::Other
        })
    });
    let widened = composed.columns.iter().any(|(target, _)| {
        source
            .find_column(&target.name)
            .is_some_and(|column| !schema::same_column(dialect, column, target))
    });
    let added = composed
        .columns
        .iter()
        .filter(|(column, _)| source.find_column(&column.name).is_none());
    let new_indexes = composed
        .table
        .indexes
        .iter()
        .filter(|index| !source.indexes.contains(index));
    let additive = kept
        // The units of rows that an index does not hold are left out of a copy before the index is
        // part of the table.
        && new_indexes.clone().all(|index| schema::holds_all_rows(dialect, &composed.table, index))
        && !composed.reshaped
        && source.primary_key == composed.table.primary_key
        && added.clone().all(|(column, provenance)| {
            *provenance == Provenance::Fill(column.default.clone()) && (column.nullable || column.default.is_some())
        });
    let takes_time = new_indexes.count() > 0
        || schema::rewrites_to_add(server, added.clone().map(|(column, _)| column));
    if !additive || (server.is_in_cluster && takes_time) {
        return Strategy::Copy;
    }
    if added.count() == 0 && !widened && source.indexes == composed.table.indexes {
        Strategy::Untouched
    } else {
        Strategy::InPlace
    }
}

/// Whether a table without rows of the source may have others: those that a row function makes, or
/// that residue restores. Their keys are computed, whatever name the table has got since.
fn gets_rows(composed: &Composed) -> bool {
    let is_key = |column: &Column| composed.table.primary_key.contains(&column.name);
    let mut columns = composed.columns.iter();
    composed.reshaped
        || columns.any(|(column, provenance)| *provenance == Provenance::Computed && is_key(column))
}

/// Whether rows can be matched by those columns of their primary key that come unread from their
/// only source table. A key column with the same value in every row does not matter.
fn keyed_by_source(composed: &Composed) -> bool {
    let is_key = |column: &Column| composed.table.primary_key.contains(&column.name);
    let mut keys = composed
        .columns
        .iter()
        .filter(|(column, _)| is_key(column))
        .map(|(_, from)| from);
    composed.sources.len() == 1
        && keys
            .clone()
            .any(|from| matches!(from, Provenance::Raw { .. }))
        && keys.all(|from| !matches!(from, Provenance::Computed))
}

/// The record version of copied rows, if a row function runs over them, or if theirs may be above
/// the target: then it is the last version which they have been through since the column exists.
fn stamp(
    composed: &Composed,
    way: Way<'_>,
    migrations: &[std::sync::Arc<dyn Transform>],
) -> Option<Option<Literal>> {
    let column = composed
        .table
        .columns
        .iter()
        .find(|column| column.is_record_version())?;
    if let Some(Leg {
        version,
        direction: Direction::Up,
    }) = composed.transformed
    {
        return Some(Some(integer(version)));
    }
    let record_versions = |direction, at| {
        let ran = way.layouts(direction).migrations();
        let manifests = migrations.iter().map(|migration| migration.manifest());
        RecordVersions::at(manifests.filter(|manifest| ran.has(manifest.version)), at)
    };
    let before = record_versions(Direction::Down, way.from);
    let is_above = |source: &String| before.of(source).is_some_and(|newest| newest > way.to);
    // Saved rows may be of any version at which the database has been.
    if !composed.sources.is_empty() && !composed.sources.iter().any(is_above) {
        return None;
    }
    let table = &composed.table.name;
    let had_column = |version: &DataVersion| {
        let layout = way.layouts(Direction::Up).before(*version);
        let table = layout.tables.get(table);
        table.is_some_and(|table| table.find_column(RECORD_VERSION).is_some())
    };
    let newest = record_versions(Direction::Up, way.to).of(table);
    let newest = newest.filter(had_column).map(integer);
    Some(newest.or_else(|| column.default.clone()))
}

fn integer(version: DataVersion) -> Literal {
    Literal::Integer(signed(version))
}

/// Source tables that are dropped or replaced at the cut-over.
pub(super) fn replaced(lens: &Lens, plans: &[TablePlan]) -> BTreeSet<String> {
    let copied = plans.iter().filter(|plan| plan.is_copied());
    let same_name = copied
        .map(|plan| &plan.table.name)
        .filter(|name| lens.source.tables.contains_key(*name));
    let gone = lens
        .source
        .tables
        .keys()
        .filter(|name| !lens.target.tables.contains_key(*name));
    same_name.chain(gone).cloned().collect()
}
