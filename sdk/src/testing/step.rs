//! One step over units held as maps, on the engine of the host: rows become columns, the lens calls
//! the row function, and columns become rows. Stores and encrypts nothing: columns are plain on
//! both sides.

use std::sync::Arc;

use bbs_lens::answer::{self, WrittenColumns};
use bbs_lens::budget::BatchBudget;
use bbs_lens::layout::history::{LayoutHistory, Way};
use bbs_lens::layout::schema::Layout;
use bbs_lens::transform::{RunArguments, Transform, TransformError};
use bbs_lens::{
    Applied, Arguments, Composed, Lens, LensError, Provenance, Residue, ResidueEntry, ResidueValue,
    Search,
};

use super::data::{Datum, RowData, UnitData};
use super::input::GivenRows;
use super::storable;
use super::watch::{LONGEST_CALL, watched};
use crate::columns::{Batch, ColumnValue, NEW_ROW, Outcome};
use crate::manifest::{Direction, Manifest};
use crate::migration::{Migration, Run};
use crate::refused::Refused;
use crate::transform::transform;
use crate::translator::Fault;

/// The version of the layout before the migration, whatever it is in a catalog.
const BEFORE: u64 = 0;

/// A unit after a step, with the input of the opposite step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stepped {
    /// The unit's rows.
    pub unit: UnitData,
    /// The residue that the row function left.
    pub residue: Option<Vec<u8>>,
    /// The digest by which the host recognises the unit that the residue belongs to; empty if it is
    /// that of the unit whatever its rows are.
    digest: Vec<u8>,
    /// The rows and values that the host saves by itself.
    saved: Vec<ResidueEntry>,
}

impl Stepped {
    /// A unit with this residue and no saved columns.
    #[must_use]
    pub fn of(unit: UnitData, residue: Option<Vec<u8>>) -> Self {
        Self {
            unit,
            residue,
            ..Self::default()
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

/// Runs one direction over units, all in one batch, on the engine of the host. `before` is the
/// layout before the migration, reduced to the tables and columns that it needs; rows need not have
/// the columns that it does not read. `left` are the results of the opposite step for each unit, or
/// empty. A unit is also refused if a host refuses the rows that the step makes of it.
///
/// # Panics
/// If the migration does not fit the layout, or violates the contract with the host. A row function
/// that has not returned after a minute ends the process of the tests, since nothing else can end
/// it.
pub fn step<M: Migration>(
    before: &Layout,
    direction: Direction,
    run: &Run,
    units: &[UnitData],
    left: &[Stepped],
) -> Vec<Result<Stepped, Refused>> {
    let stepper = Stepper::new::<M>(before, direction, run)
        .unwrap_or_else(|reason| panic!("the layout or the manifest: {reason}"));
    stepper.step(units, left)
}

/// A migration in one direction over the layout before it.
pub(super) struct Stepper {
    lens: Lens,
    manifest: Manifest,
    arguments: Arguments,
}

impl Stepper {
    /// # Errors
    /// The manifest breaks a rule of the host over this layout.
    pub(super) fn new<M: Migration>(
        before: &Layout,
        direction: Direction,
        run: &Run,
    ) -> Result<Self, String> {
        let manifest = M::manifest();
        let layouts =
            LayoutHistory::over(before, &manifest).map_err(|error| error.problem.to_string())?;
        super::manifest::check(&manifest, before, &layouts)?;
        let way = match direction {
            Direction::Up => Way::within(&layouts, BEFORE, manifest.version),
            Direction::Down => Way::within(&layouts, manifest.version, BEFORE),
        };
        let migration: Arc<dyn Transform> = Arc::new(NativeMigration {
            written: answer::written_columns(way.target(), manifest.accesses(direction)),
            manifest: manifest.clone(),
            run: run.clone(),
            transform: transform::<M>,
        });
        let lens = Lens::restoring(way, &[migration]).map_err(|error| error.to_string())?;
        Ok(Self {
            lens,
            arguments: [(manifest.version, RunArguments::default())].into(),
            manifest,
        })
    }

    pub(super) fn step(
        &self,
        units: &[UnitData],
        left: &[Stepped],
    ) -> Vec<Result<Stepped, Refused>> {
        let mut results: Vec<Option<Result<Stepped, Refused>>> = vec![None; units.len()];
        let mut taken: Vec<usize> = (0..units.len()).collect();
        // The units that are refused are left out, and the others taken again, as by the host.
        loop {
            let given: Vec<_> = taken.iter().map(|&unit| &units[unit]).collect();
            let nothing = Stepped::default();
            let left: Vec<_> = taken
                .iter()
                .map(|&unit| left.get(unit).unwrap_or(&nothing))
                .collect();
            match self.take(&given, &left) {
                Ok(stepped) => {
                    for (unit, stepped) in taken.into_iter().zip(stepped) {
                        results[unit] = Some(Ok(stepped));
                    }
                    break;
                }
                Err(refused) => {
                    for (place, refused) in refused {
                        results[taken[place]] = Some(Err(refused));
                    }
                    taken.retain(|&unit| results[unit].is_none());
                }
            }
        }
        results
            .into_iter()
            .map(|result| result.expect("each unit is taken or refused"))
            .collect()
    }

    /// Takes all units to the target.
    ///
    /// # Errors
    /// The places of units that are refused, at least one.
    fn take(
        &self,
        units: &[&UnitData],
        left: &[&Stepped],
    ) -> Result<Vec<Stepped>, Vec<(usize, Refused)>> {
        let mut stepped = vec![Stepped::default(); units.len()];
        let rows = GivenRows::new(&self.lens, &self.manifest, units);
        for group in 0..self.lens.groups.len() {
            let input = rows.input(group);
            // Memory is that of the tests, and not bounded.
            let budget = BatchBudget::of(usize::MAX);
            let residue = self.residue(left, || self.lens.residue_digests(group, &input));
            let applied = self.lens.apply(
                group,
                &input,
                &residue,
                &self.arguments,
                Search::Every,
                &budget,
            );
            let applied =
                applied.map_err(|faults| faults.into_iter().map(refused).collect::<Vec<_>>())?;
            self.add(applied, &rows, &mut stepped);
        }
        let refused: Vec<_> = stepped
            .iter()
            .enumerate()
            .filter_map(|(unit, stepped)| Some((unit, self.unstorable(&stepped.unit)?)))
            .collect();
        if refused.is_empty() {
            Ok(stepped)
        } else {
            Err(refused)
        }
    }

    fn unstorable(&self, unit: &UnitData) -> Option<Refused> {
        let direction = self.lens.direction;
        storable::flaw(&self.lens, unit).map(|flaw| {
            Refused::new(format!(
                "{direction} makes a row that no database can store: {flaw}"
            ))
        })
    }

    /// The residue that the opposite step left of the units. `digests` are those by which the
    /// residue of its row function is recognised.
    fn residue(&self, left: &[&Stepped], digests: impl FnOnce() -> Vec<Vec<u8>>) -> Residue {
        let version = self.manifest.version;
        let digests = left
            .iter()
            .any(|left| left.residue.is_some() && left.digest.is_empty())
            .then(digests)
            .unwrap_or_default();
        let mut residue = Residue::default();
        for (unit, left) in left.iter().enumerate() {
            for entry in &left.saved {
                residue.add(version, &entry.table, unit, entry.value.clone());
            }
            if let Some(bytes) = &left.residue {
                let digest = if left.digest.is_empty() {
                    &digests[unit]
                } else {
                    &left.digest
                };
                let value = ResidueValue {
                    row_key: Vec::new(),
                    digest: digest.clone(),
                    bytes: bytes.clone(),
                };
                residue.add(version, "", unit, value);
            }
        }
        residue
    }

    /// Adds the tables of a group, and what the step would lose of them, to the units.
    fn add(&self, applied: Applied, given: &GivenRows<'_>, stepped: &mut [Stepped]) {
        for (name, table) in &applied.tables {
            let composed = &self.lens.tables[name];
            for (unit, stepped) in stepped.iter_mut().enumerate() {
                let rows = table
                    .of(unit)
                    .map(|row| target_row(composed, &applied, row, given));
                stepped.unit.tables.insert(name.clone(), rows.collect());
            }
        }
        for entry in applied.residue {
            let stepped = &mut stepped[entry.unit];
            if entry.table.is_empty() {
                stepped.residue = Some(entry.value.bytes);
                stepped.digest = entry.value.digest;
            } else {
                stepped.saved.push(ResidueEntry { unit: 0, ..entry });
            }
        }
    }
}

/// One row of a table at the target: what the lens computes, and the values of the source row that
/// it continues. A column that the source row does not have is absent here, too.
fn target_row(
    composed: &Composed,
    applied: &Applied,
    row: usize,
    given: &GivenRows<'_>,
) -> RowData {
    let target = &composed.table.name;
    let mut columns = RowData::new();
    for (column, provenance) in &composed.columns {
        let default = || Some(Datum::from(ColumnValue::of(column.default.as_ref())));
        let value = match provenance {
            Provenance::Computed => {
                let value = applied.tables[target].value(&composed.table, &column.name, row);
                value.map(Datum::from)
            }
            Provenance::Fill(literal) => Some(ColumnValue::of(literal.as_ref()).into()),
            Provenance::Raw {
                table: from,
                column: name,
            } => match applied.origins[target][from][row] {
                NEW_ROW => default(),
                origin => given.row(from, origin as usize).get(name).cloned(),
            },
        };
        columns.extend(value.map(|value| (column.name.clone(), value)));
    }
    columns
}

/// The unit that a step refuses, and why.
///
/// # Panics
/// If the migration is at fault, and not the unit.
fn refused(fault: LensError) -> (usize, Refused) {
    match &fault {
        LensError::Unit { unit, reason, .. } => (*unit, Refused::new(reason.clone())),
        LensError::Counterpart { unit, .. } => (*unit, Refused::new(fault.to_string())),
        LensError::Step { .. } | LensError::Slow { .. } => panic!("{fault}"),
    }
}

/// [`transform()`] for one migration.
type RowFunctions = fn(&Manifest, Direction, &Run, &Batch) -> Result<Outcome, Fault>;

/// A migration whose row functions run natively, in one direction.
struct NativeMigration {
    /// The definitions of the columns that it writes.
    written: WrittenColumns,
    manifest: Manifest,
    run: Run,
    transform: RowFunctions,
}

impl Transform for NativeMigration {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        "none: it runs natively"
    }

    fn apply(
        &self,
        direction: Direction,
        _: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        let name = &self.manifest.name;
        let late = format!(
            "{direction} of {name} has not returned after {LONGEST_CALL:?}; look for a loop that does not end: a host ends a call \
             after 5 s"
        );
        let outcome = watched(LONGEST_CALL, &late, || {
            (self.transform)(&self.manifest, direction, &self.run, batch)
        });
        let outcome = outcome
            .unwrap_or_else(|fault| panic!("{direction} of {name} failed as a whole: {fault}"));
        let checked = answer::check(
            self.manifest.accesses(direction),
            Some(&self.written),
            (&self.manifest).into(),
            batch,
            &outcome,
        );
        match checked {
            Ok(()) => Ok(outcome),
            Err(flaw) => Err(TransformError {
                reason: format!("a host refuses the result of {direction}: {flaw}"),
                is_slow: false,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Column, Table, Unit};

    /// Tables of one unit with the same keys.
    fn layout() -> Layout {
        let table = |name| {
            Table::new(name)
                .column(Column::varchar("k", 32))
                .column(Column::integer("i"))
                .primary_key(["k", "i"])
                .partition_key("k")
        };
        Layout::of([
            table("t").column(Column::text("x").nullable()),
            table("u").column(Column::varchar("created_at", 32)),
        ])
    }

    fn row(number: i64) -> [(&'static str, Datum); 2] {
        [("k", "a".into()), ("i", number.into())]
    }

    fn with<const N: usize>(number: i64, more: [(&'static str, Datum); N]) -> RowData {
        let columns = row(number).into_iter().chain(more);
        columns
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn unit<const N: usize>(tables: [(&str, Vec<RowData>); N]) -> UnitData {
        UnitData {
            tables: tables
                .into_iter()
                .map(|(name, rows)| (name.to_owned(), rows))
                .collect(),
        }
    }

    struct Moves;

    impl Migration for Moves {
        fn manifest() -> Manifest {
            Manifest::new(2, "moves").move_column("x", "t", "u")
        }
    }

    #[test]
    fn moved_column_goes_to_the_row_with_the_same_key() {
        let moved = |t: [i64; 2]| {
            let t = t.map(|number| with(number, [("x", number.to_string().as_str().into())]));
            let unit = unit([("t", t.to_vec()), ("u", vec![with(1, []), with(2, [])])]);
            step::<Moves>(&layout(), Direction::Up, &run(), &[unit], &[]).remove(0)
        };
        let x = |stepped: Result<Stepped, Refused>| {
            let rows = stepped.expect("it is not refused").unit.tables["u"].clone();
            rows.iter().map(|row| row["x"].clone()).collect::<Vec<_>>()
        };
        let expected = [Datum::from("1"), Datum::from("2")];
        assert_eq!(x(moved([1, 2])), expected);
        assert_eq!(x(moved([2, 1])), expected, "whatever the order of the rows");
        let refused = moved([1, 3]).expect_err("a row without a counterpart");
        assert!(
            refused.reason.contains("a row has no counterpart there"),
            "{refused}"
        );
    }

    struct DoublesText;

    impl Migration for DoublesText {
        fn manifest() -> Manifest {
            let accesses = [Access::to("t").reads(["x"]).writes(["x"]), Access::to("u")];
            let [t, u] = accesses;
            Manifest::new(2, "doubles")
                .up(t.clone())
                .up(u.clone())
                .down(t)
                .down(u)
                .leaves_residue()
        }

        fn up(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
            unit.set_residue(b"left".to_vec())?;
            let row = unit.row("t")?;
            row.set_text("x", &row.text("x")?.repeat(2))
        }

        fn down(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
            let text = unit.residue().map_or("none", |_| "some");
            unit.row("t")?.set_text("x", text)
        }
    }

    #[test]
    fn residue_is_given_back_to_the_rows_that_the_step_wrote() {
        let before = unit([
            ("t", vec![with(1, [("x", "a".into())])]),
            ("u", vec![with(1, [("created_at", "1".into())])]),
        ]);
        let up = step::<DoublesText>(&layout(), Direction::Up, &run(), &[before], &[]).remove(0);
        let up = up.expect("it is not refused");
        let x = |edited: &str| {
            let mut unit = up.unit.clone();
            let rows = unit.tables.get_mut("t").expect("the table");
            rows[0].insert("x".to_owned(), edited.into());
            let left = std::slice::from_ref(&up);
            let down =
                step::<DoublesText>(&layout(), Direction::Down, &run(), &[unit], left).remove(0);
            down.expect("it is not refused").unit.tables["t"][0]["x"].clone()
        };
        assert_eq!(x("aa"), "some".into());
        assert_eq!(x("ab"), "none".into());
    }

    fn with_names() -> Layout {
        let table = Table::new("v")
            .column(Column::varchar("k", 32))
            .column(Column::integer("i"))
            .column(Column::varchar("name", 4))
            .column(Column::text("note").nullable());
        Layout::of([table.primary_key(["k", "i"]).partition_key("k")])
    }

    /// Writes what the note of a row says.
    struct WritesAnything;

    impl Migration for WritesAnything {
        fn manifest() -> Manifest {
            let columns = ["i", "name"];
            let access = Access::to("v").reads(columns).reads(["note"]);
            Manifest::new(2, "writes-anything").up(access.writes(columns).reshapes())
        }

        fn up(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
            for row in unit.rows("v")? {
                match row.text("note")? {
                    "null" => row.set_null("name")?,
                    "wide" => row.set_integer("i", 1 << 31)?,
                    "bytes" => row.set_bytes("name", b"\xff")?,
                    "long" => row.set_text("name", "größe")?,
                    "same" => row.set_integer("i", 0)?,
                    "more" => {
                        let added = unit.add_row("v")?;
                        added.set_integer("i", 3)?;
                        added.set_text("name", "")?;
                    }
                    _ => row.set_text("name", "größ")?,
                }
            }
            Ok(())
        }
    }

    #[test]
    fn rows_that_every_host_refuses_are_refused_and_other_units_of_the_batch_are_not() {
        let noted = |note: &str| {
            let rows =
                [1, 2].map(|number| with(number, [("name", "n".into()), ("note", note.into())]));
            unit([("v", rows.to_vec())])
        };
        for (note, words) in [
            (
                "null",
                "column `name`: NULL in row 0 (unit 0), and the column takes none",
            ),
            ("wide", "2147483648 does not fit an integer of 32 bits"),
            ("bytes", "column `name`: not UTF-8"),
            ("more", "its column `k`, which has no value otherwise"),
            (
                "long",
                "`name` of `v` has a text that is longer than the column holds",
            ),
            ("same", "two rows of `v` have the same primary key"),
        ] {
            let units = [noted("fits"), noted(note)];
            let stepped = step::<WritesAnything>(&with_names(), Direction::Up, &run(), &units, &[]);
            let [Ok(_), Err(refused)] = &stepped[..] else {
                panic!("{note}: {stepped:?}")
            };
            assert!(refused.reason.contains(words), "{note}: {refused}");
        }
    }

    #[test]
    #[should_panic(
        expected = "a row of `t` has no column `x`, which the migration reads; add it to the layout of the test"
    )]
    fn column_that_a_row_lacks_is_named_with_the_place_to_add_it() {
        let unit = unit([("t", vec![with(1, [])])]);
        step::<DoublesText>(&layout(), Direction::Up, &run(), &[unit], &[]);
    }
}
