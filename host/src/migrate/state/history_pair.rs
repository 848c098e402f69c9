//! The two layout histories that a migration connects: what ran on this database, and what the
//! catalog has, with the layouts of both and what the owner of the database has added to its
//! tables. Reads only.

use std::collections::BTreeMap;
use std::sync::Arc;

use bbs_database::Transaction;
use bbs_database::schema::{self, PhysicalTable};
use bbs_lens::layout::history::{Additions, LayoutHistory, Way};
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::migration_set::MigrationSet;

use super::{MigrationRan, found};
use crate::migrate::{Context, MigrateError, state};

/// The layouts of what ran on a database, and those of the catalog. They are the same unless the
/// catalog has inserted migrations.
#[derive(Debug, Clone)]
pub(crate) struct HistoryPair {
    pub(crate) ran: Arc<LayoutHistory>,
    pub(crate) catalog: Arc<LayoutHistory>,
}

impl HistoryPair {
    /// The layouts that the migrations declare, whatever else the tables of the database have.
    pub(crate) async fn declared(
        context: &Context,
        tx: &mut Transaction,
    ) -> Result<Self, MigrateError> {
        let ran = ran(context, tx).await?;
        Self::after(context, &ran)
    }

    /// The declared layouts for a database on which these migrations ran.
    pub(crate) fn after(context: &Context, ran: &MigrationSet) -> Result<Self, MigrateError> {
        let catalog = context.layouts()?;
        // Without insertions they are the same.
        let ran = if ran.inserted(&catalog.migrations()).next().is_some() {
            Arc::new(LayoutHistory::that_ran(context.manifests(), ran)?)
        } else {
            Arc::clone(&catalog)
        };
        Ok(Self { ran, catalog })
    }

    /// The layouts with what the owner of the database has added to its tables.
    pub(crate) async fn here(
        context: &Context,
        tx: &mut Transaction,
    ) -> Result<Self, MigrateError> {
        let at = state::current_of(&found::read(tx).await?);
        let declared = Self::declared(context, tx).await?;
        let tables = declared.ran.at(at).map(|layout| layout.tables.keys());
        let tables: Vec<_> = tables.into_iter().flatten().map(String::as_str).collect();
        let found = schema::read_back_all(tx, &tables).await?.into_iter();
        let mut additions: BTreeMap<_, _> = found
            .map(|(name, found)| {
                let added = declared.additions(tx, &name, &found);
                (name, added)
            })
            .collect();
        additions.retain(|_, added| *added != Additions::default());
        if additions.is_empty() {
            return Ok(declared);
        }
        let ran = declared
            .ran
            .with_additions(at, &additions, context.manifests())?;
        let ran = Arc::new(ran);
        let catalog = if ran.migrations() == declared.catalog.migrations() {
            // Also with additions to what a migration above drops, which a way need not pass.
            Arc::clone(&ran)
        } else {
            with_additions_of(&ran, declared.catalog, context)?
        };
        Ok(Self { ran, catalog })
    }

    fn additions(&self, tx: &Transaction, table: &str, found: &PhysicalTable) -> Additions {
        let columns = found
            .columns
            .iter()
            .filter(|column| !self.declares_column(table, &column.name));
        let indexes = found
            .indexes
            .iter()
            .filter(|index| !self.declares_index(table, &index.name));
        Additions {
            columns: columns
                .filter_map(|column| column.portable(tx.dialect()))
                .collect(),
            indexes: indexes.filter_map(|index| index.portable(found)).collect(),
        }
    }

    /// Whether a layout has a table with this name and column.
    fn declares_column(&self, table: &str, column: &str) -> bool {
        [&self.ran, &self.catalog]
            .iter()
            .any(|layouts| layouts.declares_column(table, column))
    }

    /// Whether a layout has a table with this name and index.
    pub(crate) fn declares_index(&self, table: &str, index: &str) -> bool {
        [&self.ran, &self.catalog]
            .iter()
            .any(|layouts| layouts.declares_index(table, index))
    }

    /// The way from a version that the database has, or had, to one of the catalog.
    pub(crate) fn way(&self, from: DataVersion, to: DataVersion) -> Way<'_> {
        Way::between(&self.ran, &self.catalog, from, to)
    }

    /// Whether there are layouts for both ends of a way.
    pub(crate) fn have(&self, from: DataVersion, to: DataVersion) -> bool {
        self.ran.at(from).is_some() && self.catalog.at(to).is_some()
    }
}

/// A declared history with what the owner of the database has added to the tables of another, as of
/// the last migration that both have.
fn with_additions_of(
    other: &LayoutHistory,
    declared: Arc<LayoutHistory>,
    context: &Context,
) -> Result<Arc<LayoutHistory>, MigrateError> {
    let turn = other.migrations().last_in_common(&declared.migrations());
    Ok(match other.at(turn) {
        Some(layout) => {
            Arc::new(declared.with_layout(turn, layout.clone(), context.manifests())?)
        }
        None => declared,
    })
}

/// The versions of the catalog.
pub(crate) fn catalog_migrations(context: &Context) -> MigrationSet {
    context
        .manifests()
        .map(|manifest| manifest.version)
        .collect()
}

/// The migrations of the catalog that ran on this database.
pub(crate) async fn ran(
    context: &Context,
    tx: &mut Transaction,
) -> Result<MigrationSet, MigrateError> {
    let current = state::current_of(&found::read(tx).await?);
    Ok(MigrationSet::that_ran(
        &catalog_migrations(context),
        current,
        &state::recorded_migrations(tx).await?,
    ))
}

/// As [`ran`], with the recorded migrations that this catalog lacks. Another one may have them, and
/// would take them for inserted without the record.
pub(crate) async fn ran_of_any_catalog(
    context: &Context,
    tx: &mut Transaction,
) -> Result<MigrationSet, MigrateError> {
    let current = state::current_of(&found::read(tx).await?);
    let recorded = state::recorded_migrations(tx).await?.up_to(current);
    Ok(ran(context, tx).await?.union(&recorded))
}

/// The migrations of the catalog that had run on this database before a time, when it was at a
/// version. One without an entry of the history had run if it is among those of `now`: another BBS
/// keeps none, and an inserted one that has not run yet has none either.
fn ran_before(
    catalog: &MigrationSet,
    now: &MigrationSet,
    version: DataVersion,
    history: &[MigrationRan],
    at_ns: i64,
) -> MigrationSet {
    let had_run = |version: &DataVersion| {
        let entries = || history.iter().filter(|entry| entry.version == *version);
        let last_before = entries()
            .rfind(|entry| entry.at_ns < at_ns)
            .map(|entry| entry.direction);
        let first_after = entries()
            .find(|entry| entry.at_ns >= at_ns)
            .map(|entry| entry.direction.opposite());
        last_before
            .or(first_after)
            .map_or(now.has(*version), |direction| direction == Direction::Up)
    };
    catalog.up_to(version).versions().filter(had_run).collect()
}

impl HistoryPair {
    /// The layout history of the database before a time, when it was at a version, and the one that
    /// it has now.
    pub(crate) async fn since(
        context: &Context,
        tx: &mut Transaction,
        version: DataVersion,
        at_ns: i64,
    ) -> Result<Self, MigrateError> {
        let Self { ran: now, .. } = Self::here(context, tx).await?;
        let then = ran_before(
            &catalog_migrations(context),
            &ran(context, tx).await?,
            version,
            &state::history(tx).await?,
            at_ns,
        );
        if then == now.migrations().up_to(version) {
            return Ok(Self {
                ran: Arc::clone(&now),
                catalog: now,
            });
        }
        let declared = Self::after(context, &then)?.ran;
        Ok(Self {
            ran: with_additions_of(&now, declared, context)?,
            catalog: now,
        })
    }

    /// The layout history of the database before the last migration that was completed, which began
    /// at a version, and the one that it has now.
    pub(crate) async fn since_last(
        context: &Context,
        tx: &mut Transaction,
        version: DataVersion,
    ) -> Result<Self, MigrateError> {
        let last = state::history(tx)
            .await?
            .last()
            .map_or(i64::MAX, |entry| entry.at_ns);
        Self::since(context, tx, version, last).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_says_what_had_run_before_a_time() {
        let [catalog, now]: [MigrationSet; 2] =
            [&[1, 2, 3, 4, 5, 9][..], &[1, 2, 3, 5, 9]].map(|set| set.iter().copied().collect());
        let entry = |direction, version, at_ns| MigrationRan {
            version,
            direction,
            name: String::new(),
            digest: String::new(),
            at_ns,
        };
        let up = Direction::Up;
        let down = Direction::Down;
        // 1 and 2 were another BBS's; 3 was inserted at 20 with 9 above; 4 is inserted, and has not
        // run.
        let history = [
            entry(up, 5, 10),
            entry(down, 5, 20),
            entry(up, 3, 20),
            entry(up, 5, 20),
            entry(up, 9, 20),
            entry(down, 9, 30),
        ];
        for (version, at_ns, ran) in [
            (5, 15, &[1, 2, 5][..]),
            (5, 20, &[1, 2, 5]),
            (9, 21, &[1, 2, 3, 5, 9]),
            (9, 30, &[1, 2, 3, 5, 9]),
            (5, 31, &[1, 2, 3, 5]),
            (2, 5, &[1, 2]),
        ] {
            let found = ran_before(&catalog, &now, version, &history, at_ns);
            assert_eq!(found, ran.iter().copied().collect(), "{version} {at_ns}");
        }
    }
}
