//! One step over units held as maps, in place of the host: builds the batch, applies the layout
//! change to the rows, stores what the row function wrote, and saves the values of dropped columns.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::data::{Datum, RowData, UnitData};
use crate::columns::{Batch, NEW_ROW, Outcome, TableData, View, column_of};
use crate::manifest::{Access, Change, Direction, Manifest};
use crate::migration::{Migration, Refused, Run};
use crate::schema::Literal;
use crate::transform::transform;

/// The longest time for a batch. A host ends a call after 5 s; a build without optimisation on a
/// busy machine takes longer.
const LONGEST_CALL: Duration = Duration::from_secs(60);
/// The exit code of a test that panics.
const FAILED: i32 = 101;

/// A unit after a step, with the input of the opposite step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stepped {
    /// The unit's rows.
    pub unit: UnitData,
    /// The residue that the row function left.
    pub residue: Option<Vec<u8>>,
    /// The values that the host saves by itself: for each table, the columns that each row lost.
    saved: BTreeMap<String, Vec<RowData>>,
}

impl Stepped {
    /// A unit with this residue and no saved columns.
    #[must_use]
    pub fn of(unit: UnitData, residue: Option<Vec<u8>>) -> Self {
        Self {
            unit,
            residue,
            saved: BTreeMap::new(),
        }
    }
}

/// The run arguments of tests.
#[must_use]
pub fn run() -> Run {
    Run {
        started_at_ns: 1_700_000_000_000_000_000,
        namespace: "6f1d2c3b-0a49-4e58-b7a6-95f4e3d2c1b0".to_owned(),
    }
}

/// Runs one direction over units, all in one batch, as the host does. `left` are the results of the
/// opposite step for each unit, or empty.
///
/// # Panics
/// If the migration violates the contract with the host. A row function that has not returned after
/// a minute ends the process of the tests, since nothing else can end it.
pub fn step<M: Migration>(
    direction: Direction,
    run: &Run,
    units: &[UnitData],
    left: &[Stepped],
) -> Vec<Result<Stepped, Refused>> {
    let manifest = M::manifest();
    let edits = edits(&manifest, direction);
    let tables = manifest
        .accesses(direction)
        .iter()
        .map(|access| given(&edits, access, units))
        .collect();
    let mut batch = Batch {
        tables,
        residue: Vec::new(),
    };
    if left.iter().any(|left| left.residue.is_some()) {
        batch.residue = left.iter().map(|left| left.residue.clone()).collect();
    }
    let end = || {
        let name = &manifest.name;
        // Not with a macro, whose text the harness of the tests would keep.
        let _ = writeln!(
            io::stderr(),
            "{direction} of {name} has not returned after {LONGEST_CALL:?}; look for a loop that does not end: a host ends a call \
             after 5 s"
        );
        exit(FAILED)
    };
    let outcome = watched(LONGEST_CALL, end, || {
        transform::<M>(&manifest, direction, run, &batch)
    })
    .unwrap_or_else(|fault| {
        panic!(
            "{direction} of {} failed as a whole: {fault}",
            manifest.name
        )
    });
    let refused: BTreeMap<_, _> = outcome
        .refused
        .iter()
        .map(|refusal| (refusal.unit, &refusal.reason))
        .collect();
    let stepping = Stepping {
        manifest: &manifest,
        direction,
        edits,
        batch: &batch,
        outcome: &outcome,
    };
    let nothing = BTreeMap::new();
    let stepped =
        units
            .iter()
            .enumerate()
            .map(|(index, unit)| match refused.get(&(index as u32)) {
                Some(reason) => Err(Refused::new(*reason)),
                None => stepping.take(
                    index,
                    unit,
                    left.get(index).map_or(&nothing, |left| &left.saved),
                ),
            });
    stepped.collect()
}

/// Calls a function on this thread, and another one beside it if that takes longer. A row function
/// is not moved to a thread of its own: what it keeps for its thread from one call to the next has
/// to be found.
fn watched<T>(longest: Duration, late: impl FnOnce() + Send, call: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (returned, waiting) = channel::<()>();
        scope.spawn(move || {
            if waiting.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
                late();
            }
        });
        let outcome = call();
        drop(returned);
        outcome
    })
}

/// A layout change's effect on rows, in the given direction.
enum Edit<'a> {
    Create(&'a str),
    Drop(&'a str),
    Rename {
        from: &'a str,
        to: &'a str,
    },
    Gain {
        table: &'a str,
        column: &'a str,
        default: Option<&'a Literal>,
    },
    Lose {
        table: &'a str,
        column: &'a str,
    },
    RenameColumn {
        table: &'a str,
        from: &'a str,
        to: &'a str,
    },
    MoveColumn {
        column: &'a str,
        from: &'a str,
        to: &'a str,
    },
}

fn edits(manifest: &Manifest, direction: Direction) -> Vec<Edit<'_>> {
    let up = direction == Direction::Up;
    let edits = manifest.changes.iter().filter_map(|change| {
        Some(match change {
            Change::CreateTable(table) if up => Edit::Create(&table.name),
            Change::CreateTable(table) => Edit::Drop(&table.name),
            Change::DropTable { table } if up => Edit::Drop(table),
            Change::DropTable { table } => Edit::Create(table),
            Change::RenameTable { from, to } if up => Edit::Rename { from, to },
            Change::RenameTable { from, to } => Edit::Rename { from: to, to: from },
            Change::AddColumn { table, column } if up => Edit::Gain {
                table,
                column: &column.name,
                default: column.default.as_ref(),
            },
            Change::AddColumn { table, column } => Edit::Lose {
                table,
                column: &column.name,
            },
            Change::DropColumn { table, column } if up => Edit::Lose { table, column },
            Change::DropColumn { table, column } => Edit::Gain {
                table,
                column,
                default: None,
            },
            Change::RenameColumn { table, from, to } if up => {
                Edit::RenameColumn { table, from, to }
            }
            Change::RenameColumn { table, from, to } => Edit::RenameColumn {
                table,
                from: to,
                to: from,
            },
            Change::MoveColumn { column, from, to } if up => Edit::MoveColumn { column, from, to },
            Change::MoveColumn { column, from, to } => Edit::MoveColumn {
                column,
                from: to,
                to: from,
            },
            Change::AlterColumn { .. }
            | Change::SetPrimaryKey { .. }
            | Change::CreateIndex { .. }
            | Change::DropIndex { .. } => return None,
        })
    });
    let mut edits: Vec<_> = edits.collect();
    if !up {
        edits.reverse();
    }
    edits
}

/// The table's name in the source layout; `None` if the step creates the table.
fn name_before<'a>(edits: &[Edit<'a>], table: &'a str) -> Option<&'a str> {
    edits
        .iter()
        .rev()
        .try_fold(table, |name, change| match change {
            Edit::Rename { from, to } if *to == name => Some(*from),
            Edit::Create(created) if *created == name => None,
            _ => Some(name),
        })
}

/// The rows of one access, as the host passes them.
fn given(edits: &[Edit<'_>], access: &Access, units: &[UnitData]) -> TableData {
    let source = name_before(edits, &access.table);
    let rows_of = |unit: &UnitData| {
        source
            .and_then(|source| unit.tables.get(source))
            .map_or(0, Vec::len)
    };
    let mut unit_offsets = vec![0];
    let mut end = 0;
    for unit in units {
        end += rows_of(unit) as u32;
        unit_offsets.push(end);
    }
    let rows = || {
        units
            .iter()
            .filter_map(|unit| unit.tables.get(source?))
            .flatten()
    };
    let columns = access.reads.iter().map(|column| {
        let values = rows().map(|row| match row.get(column) {
            Some(value) => value.value(),
            None => panic!(
                "a row of `{}` has no column `{column}`, which the migration reads; add it to the layout of the test, or to the \
                 row in `input.json`: {row:?}",
                access.table
            ),
        });
        column_of(values)
    });
    TableData {
        columns: columns.collect(),
        unit_offsets,
    }
}

struct Stepping<'a> {
    manifest: &'a Manifest,
    direction: Direction,
    edits: Vec<Edit<'a>>,
    batch: &'a Batch,
    outcome: &'a Outcome,
}

impl Stepping<'_> {
    fn take(
        &self,
        index: usize,
        unit: &UnitData,
        found: &BTreeMap<String, Vec<RowData>>,
    ) -> Result<Stepped, Refused> {
        let mut tables = unit.tables.clone();
        let mut found = found.clone();
        let mut saved = tables
            .iter()
            .map(|(name, rows)| (name.clone(), vec![RowData::new(); rows.len()]))
            .collect();
        for change in &self.edits {
            self.change(change, &mut tables, &mut found, &mut saved)?;
        }
        for (at, access) in self.manifest.accesses(self.direction).iter().enumerate() {
            let rows = tables.remove(&access.table).unwrap_or_default();
            let lost = saved.remove(&access.table).unwrap_or_default();
            let (rows, lost) = self.written(at, index, &rows, &lost);
            tables.insert(access.table.clone(), rows);
            saved.insert(access.table.clone(), lost);
        }
        let residue = self.outcome.residue.get(index).cloned().flatten();
        Ok(Stepped {
            unit: UnitData { tables },
            residue,
            saved,
        })
    }

    fn change(
        &self,
        change: &Edit<'_>,
        tables: &mut BTreeMap<String, Vec<RowData>>,
        found: &mut BTreeMap<String, Vec<RowData>>,
        saved: &mut BTreeMap<String, Vec<RowData>>,
    ) -> Result<(), Refused> {
        let no_rows = Vec::new();
        match change {
            Edit::Create(table) => {
                let rows = found.remove(*table).unwrap_or_default();
                saved.insert((*table).to_owned(), vec![RowData::new(); rows.len()]);
                tables.insert((*table).to_owned(), rows);
            }
            Edit::Drop(table) => {
                saved.insert(
                    (*table).to_owned(),
                    tables.remove(*table).unwrap_or_default(),
                );
            }
            Edit::Rename { from, to } => {
                for side in [tables, found, saved] {
                    if let Some(rows) = side.remove(*from) {
                        side.insert((*to).to_owned(), rows);
                    }
                }
            }
            Edit::Gain {
                table,
                column,
                default,
            } => {
                let found = found.get(*table).unwrap_or(&no_rows);
                for (at, row) in tables
                    .entry((*table).to_owned())
                    .or_default()
                    .iter_mut()
                    .enumerate()
                {
                    let back = found.get(at).and_then(|row| row.get(*column)).cloned();
                    let plain = || default.map_or(Datum::Null, Datum::from);
                    row.insert((*column).to_owned(), back.unwrap_or_else(plain));
                }
            }
            Edit::Lose { table, column } => {
                let keeps = self.manifest.reversible && !self.comes_back(table, column);
                let lost = saved.entry((*table).to_owned()).or_default();
                for (row, lost) in tables
                    .entry((*table).to_owned())
                    .or_default()
                    .iter_mut()
                    .zip(lost)
                {
                    if let Some(value) = row.remove(*column).filter(|_| keeps) {
                        lost.insert((*column).to_owned(), value);
                    }
                }
            }
            Edit::RenameColumn { table, from, to } => {
                for row in tables.entry((*table).to_owned()).or_default() {
                    if let Some(value) = row.remove(*from) {
                        row.insert((*to).to_owned(), value);
                    }
                }
            }
            Edit::MoveColumn { column, from, to } => {
                self.move_column(column, (from, to), tables, saved)?
            }
        }
        Ok(())
    }

    /// Moves a column. A table that the step creates gets its rows from the table that the column
    /// leaves, by their keys; otherwise each row needs a counterpart, and the unit is refused
    /// without one, as by the host.
    fn move_column(
        &self,
        column: &str,
        (from, to): (&str, &str),
        tables: &mut BTreeMap<String, Vec<RowData>>,
        saved: &mut BTreeMap<String, Vec<RowData>>,
    ) -> Result<(), Refused> {
        let giver = tables.get(from).cloned().unwrap_or_default();
        let taker = tables.entry(to.to_owned()).or_default();
        if let (true, Some(key)) = (taker.is_empty(), self.key_of_created(to)) {
            let mut keyed = giver.clone();
            keyed
                .iter_mut()
                .for_each(|row| row.retain(|column, _| key.contains(column)));
            *taker = keyed;
            saved.insert(to.to_owned(), vec![RowData::new(); giver.len()]);
        }
        if taker.len() != giver.len() {
            return Err(Refused::new(format!(
                "a row of `{from}` or `{to}` has no counterpart in the other"
            )));
        }
        for (row, given) in taker.iter_mut().zip(&giver) {
            row.extend(
                given
                    .get(column)
                    .map(|value| (column.to_owned(), value.clone())),
            );
        }
        tables
            .entry(from.to_owned())
            .or_default()
            .iter_mut()
            .for_each(|row| drop(row.remove(column)));
        Ok(())
    }

    /// The key of a table that `up` creates.
    fn key_of_created(&self, table: &str) -> Option<&[String]> {
        if self.direction == Direction::Down {
            return None;
        }
        self.manifest
            .changes
            .iter()
            .find_map(|change| match change {
                Change::CreateTable(created) if created.name == table => {
                    Some(created.primary_key.as_slice())
                }
                _ => None,
            })
    }

    /// Whether the opposite direction computes the column, so that the host does not save it.
    fn comes_back(&self, table: &str, column: &str) -> bool {
        let opposite = match self.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        let accesses = self.manifest.accesses(opposite).iter();
        accesses
            .filter(|access| access.table == table)
            .any(|access| access.writes.iter().any(|write| write.column == column))
    }

    /// The rows of one access with the written values, and the values that each of them lost.
    fn written(
        &self,
        at: usize,
        unit: usize,
        rows: &[RowData],
        lost: &[RowData],
    ) -> (Vec<RowData>, Vec<RowData>) {
        let (access, written) = (
            &self.manifest.accesses(self.direction)[at],
            &self.outcome.tables[at],
        );
        let given = &self.batch.tables[at].unit_offsets;
        let offsets = written
            .shape
            .as_ref()
            .map_or(given, |shape| &shape.unit_offsets);
        let all = *offsets.last().expect("offsets of a batch") as usize;
        let views = written
            .columns
            .iter()
            .zip(&access.writes)
            .map(|(column, write)| {
                View::new(column, all).unwrap_or_else(|| {
                    panic!("`{}` was written in a malformed column", write.column)
                })
            });
        let views: Vec<_> = views.collect();
        let out = (offsets[unit]..offsets[unit + 1]).map(|row| {
            let origin = written
                .shape
                .as_ref()
                .map_or(row, |shape| shape.origins[row as usize]);
            let continues = (origin != NEW_ROW).then(|| (origin - given[unit]) as usize);
            let mut columns = continues.map_or_else(RowData::new, |origin| rows[origin].clone());
            for (view, write) in views.iter().zip(&access.writes) {
                columns.insert(write.column.clone(), view.value(row as usize).into());
            }
            (
                columns,
                continues.map_or_else(RowData::new, |origin| lost[origin].clone()),
            )
        });
        out.unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Manifest, Unit};

    struct ReadsText;

    impl Migration for ReadsText {
        fn manifest() -> Manifest {
            Manifest::new(2, "test").up(Access::to("t").reads(["x"]).writes(["x"]))
        }

        fn up(_: &Run, _: &mut Unit<'_>) -> Result<(), Refused> {
            Ok(())
        }

        fn down(_: &Run, _: &mut Unit<'_>) -> Result<(), Refused> {
            Ok(())
        }
    }

    #[test]
    fn call_that_takes_too_long_is_noticed_while_it_runs() {
        let (noticed, waiting) = channel();
        let late = move || noticed.send("late").expect("the call waits");
        assert_eq!(
            watched(Duration::from_millis(1), late, || waiting.recv()),
            Ok("late")
        );
        assert_eq!(
            watched(LONGEST_CALL, || panic!("it is not late"), || "in time"),
            "in time"
        );
    }

    #[test]
    #[should_panic(
        expected = "a row of `t` has no column `x`, which the migration reads; add it to the layout of the test"
    )]
    fn column_that_a_row_lacks_is_named_with_the_place_to_add_it() {
        let unit = UnitData {
            tables: [("t".to_owned(), vec![RowData::new()])].into(),
        };
        step::<ReadsText>(Direction::Up, &run(), &[unit], &[]);
    }
}
