//! Runs a migration again over a unit that it failed on, as quarantine has it, and records the
//! input of the module: for the author of the module. Reads only.

use std::sync::Arc;

use bbs_database::Transaction;
use bbs_lens::layout::columns::{Batch, ColumnData, Outcome};
use bbs_lens::layout::history::{directed_changes, name_before};
use bbs_lens::layout::manifest::{Change, Direction, Manifest};
use bbs_lens::transform::{RunArguments, Transform, TransformError};
use bbs_units::residue;
use parking_lot::Mutex;

use super::quarantine::{self, QuarantineEntry};
use super::state::history_pair::HistoryPair;
use super::{Context, MigrateError, Work};

/// The result of a replay.
#[derive(Debug)]
pub struct Replay {
    /// The entry of the unit in quarantine.
    pub entry: QuarantineEntry,
    /// Whether the module that ran is the one that failed.
    pub is_same_module: bool,
    /// The module's input; absent if a step before it fails now.
    pub input: Option<ReplayInput>,
    /// Why the unit still cannot be transformed, if it cannot.
    pub reason: Option<String>,
}

/// The input of a module for one unit.
#[derive(Debug)]
pub struct ReplayInput {
    /// In the order of the module's accesses, without those that the step creates.
    pub tables: Vec<ReplayTable>,
    pub residue: Option<Vec<u8>>,
}

/// The module's input rows of one table.
#[derive(Debug)]
pub struct ReplayTable {
    /// Its name before the step, as in a golden case.
    pub name: String,
    pub rows: u32,
    pub columns: Vec<(String, ColumnData)>,
}

/// Runs the migration over a unit: with the catalog's module, or with `instead`.
///
/// # Errors
/// The unit is not in quarantine, or no module failed on it; `instead` is of another migration; the
/// catalog lacks one of the versions; or the entry or the database cannot be read.
pub async fn replay(
    context: &Context,
    unit: &str,
    instead: Option<Arc<dyn Transform>>,
) -> Result<Replay, MigrateError> {
    let mut tx = context.database.read().await?;
    let entry = newest_entry(&mut tx, unit).await?;
    let module = match (instead, context.migration(entry.version)) {
        (Some(instead), _) if instead.manifest().version != entry.version => {
            return Err(MigrateError::OtherMigration {
                given: instead.manifest().version,
                version: entry.version,
                module: entry.module,
            });
        }
        (Some(instead), _) => instead,
        (None, Some(known)) => Arc::clone(known),
        (None, None) => {
            return Err(MigrateError::UnknownTarget {
                version: entry.version,
            });
        }
    };
    let recorded = Arc::new(RecordedInput {
        module,
        direction: entry.direction,
        input: Mutex::default(),
    });
    let context = quarantine::with(context, Arc::clone(&recorded) as Arc<dyn Transform>)?;
    let reason = try_unit(&context, &mut tx, &entry).await?;
    let layouts = context.layouts()?;
    let before = layouts.before(entry.version);
    let changes = directed_changes(before, recorded.module.manifest(), entry.direction);
    Ok(Replay {
        is_same_module: recorded.module.digest() == entry.digest,
        input: recorded.input(&changes),
        reason,
        entry,
    })
}

/// The newest entry of a unit on which a module failed.
async fn newest_entry(tx: &mut Transaction, unit: &str) -> Result<QuarantineEntry, MigrateError> {
    let unit = unit.to_owned();
    let entries = quarantine::entries(tx).await?.into_iter();
    let (failed, others): (Vec<_>, Vec<_>) = entries
        .filter(|entry| entry.unit == unit)
        .partition(|entry| !entry.module.is_empty());
    match (
        failed.into_iter().next_back(),
        others.into_iter().next_back(),
    ) {
        (Some(entry), _) => Ok(entry),
        (None, Some(QuarantineEntry { reason, .. })) => {
            Err(MigrateError::NoModuleFailed { unit, reason })
        }
        (None, None) => Err(MigrateError::NotInQuarantine { unit }),
    }
}

/// Takes the unit through the lens that it failed on. Returns the reason if it fails.
async fn try_unit(
    context: &Context,
    tx: &mut Transaction,
    entry: &QuarantineEntry,
) -> Result<Option<String>, MigrateError> {
    let histories = HistoryPair {
        ran: HistoryPair::since(context, tx, entry.from, entry.at_ns)
            .await?
            .ran,
        catalog: HistoryPair::here(context, tx).await?.catalog,
    };
    for (layouts, version) in [(&histories.ran, entry.from), (&histories.catalog, entry.to)] {
        if layouts.at(version).is_none() {
            return Err(MigrateError::UnknownVersion { version });
        }
    }
    let way = histories.way(entry.from, entry.to);
    let work = Work::restoring(context, tx, way).await?;
    let unit = quarantine::unit_of(tx, context, entry, &work.lens.source).await?;
    let groups = quarantine::groups_of(&work, &unit, entry)?;
    let names = [entry.unit.clone()];
    let left = residue::load(tx, &work.keyring, &work.lens.returning, &names).await?;
    let arguments = work.stored_arguments(tx, context.now_ns).await?;
    let transformed = work.passage(&groups, &arguments).all(&unit, &left.into());
    Ok(transformed
        .err()
        .map(|(_, fault)| quarantine::reason_of_unit(&fault)))
}

/// A migration that records its last input in one direction.
struct RecordedInput {
    module: Arc<dyn Transform>,
    direction: Direction,
    input: Mutex<Option<Batch>>,
}

impl RecordedInput {
    /// The input, with the tables named as before these changes of the step.
    fn input(&self, changes: &[Change]) -> Option<ReplayInput> {
        let batch = self.input.lock().take()?;
        let accesses = self.module.manifest().accesses(self.direction);
        let tables = accesses.iter().zip(batch.tables);
        let tables = tables.filter_map(|(access, table)| {
            Some(ReplayTable {
                name: name_before(changes, &access.table)?,
                rows: table.unit_offsets.last().copied().unwrap_or(0),
                columns: access.reads.iter().cloned().zip(table.columns).collect(),
            })
        });
        Some(ReplayInput {
            tables: tables.collect(),
            residue: batch.residue.into_iter().next().flatten(),
        })
    }
}

impl Transform for RecordedInput {
    fn manifest(&self) -> &Manifest {
        self.module.manifest()
    }

    fn digest(&self) -> &str {
        self.module.digest()
    }

    fn apply(
        &self,
        direction: Direction,
        run: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        if direction == self.direction {
            *self.input.lock() = Some(batch.clone());
        }
        self.module.apply(direction, run, batch)
    }
}

#[cfg(test)]
mod tests {
    use bbs_lens::layout::columns::TableData;
    use bbs_lens::layout::manifest::Access;
    use bbs_lens::layout::schema::{Column, Table};

    use super::*;

    struct RenamingModule(Manifest);

    impl Transform for RenamingModule {
        fn manifest(&self) -> &Manifest {
            &self.0
        }

        fn digest(&self) -> &str {
            "d1935"
        }

        fn apply(
            &self,
            _: Direction,
            _: &RunArguments,
            _: &Batch,
        ) -> Result<Outcome, TransformError> {
            Ok(Outcome::default())
        }
    }

    #[test]
    fn input_has_the_names_of_tables_before_the_step() {
        let made = Table::new("made")
            .column(Column::varchar("guid", 255))
            .primary_key(["guid"])
            .partition_key("guid");
        let manifest = Manifest::new(2, "renames")
            .rename_table("apps", "programs")
            .create_table(made)
            .up(Access::to("programs"))
            .up(Access::to("made"));
        let changes = manifest.changes.clone();
        let table = |end| TableData {
            unit_offsets: vec![0, end],
            columns: Vec::new(),
        };
        let batch = Batch {
            tables: vec![table(3), table(0)],
            residue: Vec::new(),
        };
        let recorded = RecordedInput {
            module: Arc::new(RenamingModule(manifest)),
            direction: Direction::Up,
            input: Mutex::new(Some(batch)),
        };
        let input = recorded.input(&changes).unwrap();
        let tables = input.tables.iter();
        let tables: Vec<_> = tables.map(|table| (&*table.name, table.rows)).collect();
        assert_eq!(tables, [("apps", 3)]);
    }
}
