//! The row engine: what is written where, what is refused and how it is told.

use super::*;
use crate::columns::{Cell, ColumnData, NEW_ROW, TableData, column_of};
use crate::schema::{Column, Kind};
use crate::{Unit, Write};

fn column(cells: &[Cell<'_>]) -> ColumnData {
    column_of(cells.iter().copied())
}

fn texts(values: &[&str]) -> ColumnData {
    column(&values.iter().map(|value| Cell::Text(value.as_bytes())).collect::<Vec<_>>())
}

fn cells(column: &ColumnData, rows: usize) -> Vec<Cell<'_>> {
    let view = View::new(column, rows).expect("a column in form");
    (0..rows).map(|row| view.cell(row)).collect()
}

fn run() -> Run {
    Run { started_at_ns: 5, namespace: "n".into() }
}

/// A migration of table `t` with this access upwards.
macro_rules! upwards {
    ($name:ident, $access:expr, $up:expr) => {
        struct $name;

        impl Migration for $name {
            fn manifest() -> Manifest {
                Manifest::new(1, "test").add_column("t", Column::integer("size")).up($access).leaves_residue()
            }

            fn up(run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
                let up: fn(&Run, &Unit<'_>) -> Result<(), Refused> = $up;
                up(run, unit)
            }
        }
    };
}

fn up<M: Migration>(batch: &Batch) -> Result<Outcome, Fault> {
    transform::<M>(&M::manifest(), Direction::Up, &run(), batch)
}

fn batch(unit_offsets: &[u32], columns: Vec<ColumnData>) -> Batch {
    Batch { tables: vec![TableData { unit_offsets: unit_offsets.to_vec(), columns }], residue: vec![] }
}

#[test]
fn each_row_is_written_in_its_place() {
    upwards!(Sizes, Access::to("t").reads(["x"]).writes(["size"]), |_, unit| {
        let rows: Vec<_> = unit.rows("t")?.collect();
        // Backwards, so that the order of writing is not the order of rows.
        rows.into_iter().rev().try_for_each(|row| row.set_integer("size", row.text("x")?.len() as i64))
    });
    let given = batch(&[0, 2, 2, 3], vec![texts(&["a", "bcd", ""])]);
    let outcome = up::<Sizes>(&given).expect("an outcome");
    let sizes = &outcome.tables[0].columns[0];
    assert_eq!(cells(sizes, 3), [Cell::Integer(1), Cell::Integer(3), Cell::Integer(0)]);
    assert_eq!((outcome.refused, outcome.residue, &outcome.tables[0].shape), (vec![], vec![], &None));
}

#[test]
fn a_column_that_is_read_passes_through_where_it_is_not_written() {
    upwards!(Half, Access::to("t").reads(["x"]).writes(["x"]), |_, unit| {
        let first = unit.rows("t")?.next();
        first.map_or(Ok(()), |row| row.set_null("x"))
    });
    let given = batch(&[0, 2, 3], vec![column(&[Cell::Text(b"a"), Cell::Null, Cell::Text(b"c")])]);
    let outcome = up::<Half>(&given).expect("an outcome");
    assert_eq!(cells(&outcome.tables[0].columns[0], 3), [Cell::Null, Cell::Null, Cell::Null]);
    let given = batch(&[0, 3], vec![column(&[Cell::Text(b"a"), Cell::Text(b""), Cell::Text(b"c")])]);
    let outcome = up::<Half>(&given).expect("an outcome");
    assert_eq!(cells(&outcome.tables[0].columns[0], 3), [Cell::Null, Cell::Text(b""), Cell::Text(b"c")]);
}

#[test]
fn a_refused_unit_keeps_its_rows_and_none_of_its_writes() {
    upwards!(Picky, Access::to("t").reads(["x"]).writes(["size"]), |_, unit| {
        unit.set_residue(vec![1])?;
        for row in unit.rows("t")? {
            row.set_integer("size", 7)?;
            if row.text("x")? == "bad" {
                return Err(Refused::new("it is bad"));
            }
        }
        Ok(())
    });
    let outcome = up::<Picky>(&batch(&[0, 1, 3, 4], vec![texts(&["a", "b", "bad", "c"])])).expect("an outcome");
    assert_eq!(outcome.refused, [Refusal { unit: 1, reason: "it is bad".into() }]);
    let sizes = [Cell::Integer(7), Cell::Integer(0), Cell::Integer(0), Cell::Integer(7)];
    assert_eq!(cells(&outcome.tables[0].columns[0], 4), sizes);
    assert_eq!(outcome.residue, [Some(vec![1]), None, Some(vec![1])]);
}

#[test]
fn residue_goes_in_and_comes_out_by_unit() {
    upwards!(Passes, Access::to("t").reads(["x"]).writes(["x"]), |run, unit| {
        assert_eq!((run.started_at_ns, run.namespace.as_str()), (5, "n"));
        unit.residue().map_or(Ok(()), |residue| unit.set_residue([residue, b"!"].concat()))
    });
    let mut given = batch(&[0, 1, 2, 3], vec![texts(&["a", "b", "c"])]);
    assert_eq!(up::<Passes>(&given).expect("an outcome").residue, []);
    given.residue = vec![None, Some(b"r".to_vec()), None];
    assert_eq!(up::<Passes>(&given).expect("an outcome").residue, [None, Some(b"r!".to_vec()), None]);
}

#[test]
fn rows_are_removed_and_added_where_that_is_declared() {
    upwards!(Reshapes, Access::to("t").reads(["x"]).writes(["x"]).reshapes(), |_, unit| {
        for row in unit.rows("t")? {
            match row.text("x")? {
                "drop" => row.remove()?,
                "twice" => unit.add_row("t")?.set_text("x", "new")?,
                "unread" => drop(unit.add_row("t")?.text("x")?),
                "unset" => drop(unit.add_row("t")?),
                _ => {}
            }
        }
        Ok(())
    });
    let rows = texts(&["a", "drop", "twice", "unread", "drop", "unset", "z"]);
    let outcome = up::<Reshapes>(&batch(&[0, 3, 4, 5, 6, 7], vec![rows])).expect("an outcome");
    let shape = outcome.tables[0].shape.clone().expect("a shape");
    assert_eq!(shape.unit_offsets, [0, 3, 3, 3, 3, 4]);
    assert_eq!(shape.origins, [0, 2, NEW_ROW, 6]);
    let written = cells(&outcome.tables[0].columns[0], 4);
    assert_eq!(written, [Cell::Text(b"a"), Cell::Text(b"twice"), Cell::Text(b"new"), Cell::Text(b"z")]);
    let reasons: Vec<_> = outcome.refused.iter().map(|refusal| (refusal.unit, refusal.reason.as_str())).collect();
    assert_eq!(
        reasons,
        [(1, "`x` of `t` cannot be read: the row is new"), (3, "`x` of `t` was declared and not written"),]
    );
}

#[test]
fn a_row_added_while_rows_are_walked_is_seen_by_the_next_walk() {
    upwards!(Walks, Access::to("t").reads(["x"]).writes(["x"]).reshapes(), |_, unit| {
        let rows = unit.rows("t")?;
        unit.rows("t")?.next().map_or(Ok(()), |row| row.remove())?;
        unit.add_row("t")?.set_text("x", "new")?;
        assert_eq!((rows.count(), unit.rows("t")?.count()), (1, 2));
        Ok(())
    });
    let outcome = up::<Walks>(&batch(&[0, 2], vec![texts(&["a", "b"])])).expect("an outcome");
    assert_eq!(outcome.refused, []);
    assert_eq!(outcome.tables[0].shape.clone().expect("a shape").origins, [1, NEW_ROW]);
}

/// What a row function does.
type Act = fn(&Unit<'_>) -> Result<(), Refused>;

/// What a row function that does this is told.
fn told(access: Access, leaves_residue: bool, act: Act) -> String {
    thread_local!(static ACT: std::cell::Cell<Act> = const { std::cell::Cell::new(|_| Ok(())) });
    struct Acts;

    impl Migration for Acts {
        fn manifest() -> Manifest {
            unreachable!("the test passes its own")
        }

        fn up(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
            ACT.get()(unit)
        }
    }

    ACT.set(act);
    let given = batch(&[0, 2], vec![column(&[Cell::Text(b"\xff"), Cell::Null]), column(&[Cell::Integer(1); 2])]);
    let mut manifest = Manifest::new(1, "test").up(access.reads(["x", "n"]));
    manifest.leaves_residue = leaves_residue;
    let outcome = transform::<Acts>(&manifest, Direction::Up, &run(), &given).expect("an outcome");
    outcome.refused.into_iter().map(|refusal| refusal.reason).collect()
}

fn first<'u>(unit: &'u Unit<'_>) -> crate::Row<'u> {
    unit.rows("t").expect("the table").next().expect("a row")
}

fn second<'u>(unit: &'u Unit<'_>) -> crate::Row<'u> {
    unit.rows("t").expect("the table").nth(1).expect("a row")
}

#[test]
fn everything_undeclared_is_refused_with_what_to_declare() {
    let t = || Access::to("t").writes([Write::text("w")]);
    let cases: [(Act, &str); 16] = [
        (|unit| unit.rows("u").map(drop), "table `u` is not declared: add `.up(Access::to(\"u\")…)`"),
        (|unit| unit.row("t").map(drop), "`t` has several rows for this key, one was expected"),
        (|unit| first(unit).text("y").map(drop), "`y` of `t` is not declared: add it to `.reads([…])`"),
        (|unit| first(unit).set_text("x", ""), "`x` of `t` is not declared: add it to `.writes([…])`"),
        (|unit| first(unit).set_null("x"), "`x` of `t` is not declared: add it to `.writes([…])`"),
        (|unit| first(unit).set_integer("w", 1), "`w` of `t` is text, not integer"),
        (|unit| first(unit).set_boolean("w", true), "`w` of `t` is text, not boolean"),
        (|unit| first(unit).text("x").map(drop), "`x` of `t` is not UTF-8"),
        (|unit| second(unit).text("x").map(drop), "`x` of `t` is NULL"),
        (|unit| second(unit).bytes("x").map(drop), "`x` of `t` is NULL"),
        (|unit| second(unit).integer("x").map(drop), "`x` of `t` is NULL"),
        (|unit| first(unit).integer("x").map(drop), "`x` of `t` is text, not integer"),
        (|unit| first(unit).text("n").map(drop), "`n` of `t` is integer, not text"),
        (|unit| first(unit).boolean("n").map(drop), "`n` of `t` is integer, not boolean"),
        (|unit| unit.add_row("t").map(drop), "rows of `t` may not be added or removed: declare `.reshapes()`"),
        (|unit| first(unit).remove(), "rows of `t` may not be added or removed: declare `.reshapes()`"),
    ];
    for (act, reason) in cases {
        assert_eq!(told(t(), true, act), reason);
    }
    let leaves = |unit: &Unit<'_>| unit.set_residue(vec![]);
    assert_eq!(told(t(), false, leaves), "the manifest declares no residue: add `.leaves_residue()`");
    assert_eq!(told(t(), true, |_| Ok(())), "`w` of `t` was declared and not written");
    let mixed = |unit: &Unit<'_>| {
        first(unit).set_text("w", "")?;
        second(unit).set_integer("w", 1)
    };
    let untyped = Access::to("t").writes(["w"]);
    // Nothing declares the kind: the first value settles it.
    assert_eq!(told(untyped, true, mixed), "`w` of `t` is text, not integer");
}

#[test]
fn a_missing_row_is_not_the_same_as_several() {
    upwards!(One, Access::to("t").reads(["x"]).writes(["size"]), |_, unit| unit.row("t")?.set_integer("size", 1));
    let outcome = up::<One>(&batch(&[0, 0, 1], vec![texts(&["a"])])).expect("an outcome");
    let reason = "`t` has no row for this key, one was expected".to_owned();
    assert_eq!(outcome.refused, [Refusal { unit: 0, reason }]);
}

#[test]
fn a_batch_that_is_not_as_declared_is_a_fault() {
    upwards!(Plain, Access::to("t").reads(["x"]).writes(["x"]), |_, _| Ok(()));
    let fault = |batch: &Batch| up::<Plain>(batch).expect_err("a malformed batch").reason;
    assert_eq!(fault(&Batch::default()), "the batch has 0 tables, the manifest declares 1 for up");
    assert_eq!(fault(&batch(&[], vec![texts(&[])])), "the batch has no unit offsets");
    assert_eq!(fault(&batch(&[0, 1], vec![])), "the batch's `t` is not the one that the manifest declares");
    let falls = batch(&[0, 2, 1], vec![texts(&["a"])]);
    assert_eq!(fault(&falls), "the batch's `t` is not the one that the manifest declares");
    assert_eq!(fault(&batch(&[0, 2], vec![texts(&["a"])])), "column `x` of `t` is malformed");
    let mut residue = batch(&[0, 1], vec![texts(&["a"])]);
    residue.residue = vec![None, None];
    assert_eq!(fault(&residue), "the batch has residue for another number of units");
}

#[test]
fn a_column_of_no_rows_or_of_nulls_has_the_form_of_its_type() {
    upwards!(Nulls, Access::to("t").writes(["size"]), |_, unit| {
        unit.rows("t")?.try_for_each(|row| row.set_null("size"))
    });
    let sizes = |offsets| up::<Nulls>(&batch(offsets, vec![])).expect("an outcome").tables.remove(0).columns.remove(0);
    assert_eq!(View::new(&sizes(&[0, 2]), 2).map(|view| view.kind), Some(Kind::Integer));
    assert_eq!(sizes(&[0, 0]), ColumnData::default());
}

#[test]
fn a_refused_unit_does_not_settle_the_kind_of_a_column() {
    upwards!(Mixed, Access::to("t").reads(["x"]).writes(["w"]), |_, unit| {
        for row in unit.rows("t")? {
            if row.text("x")? == "bad" {
                row.set_text("w", "text")?;
                return Err(Refused::new("it is bad"));
            }
            row.set_integer("w", 3)?;
        }
        Ok(())
    });
    let outcome = up::<Mixed>(&batch(&[0, 1, 2], vec![texts(&["bad", "a"])])).expect("an outcome");
    assert_eq!(outcome.refused.len(), 1);
    assert_eq!(cells(&outcome.tables[0].columns[0], 2), [Cell::Integer(0), Cell::Integer(3)]);
}

#[test]
fn a_cell_that_is_written_twice_has_what_was_written_last() {
    upwards!(Twice, Access::to("t").reads(["x"]).writes(["w", "v"]), |_, unit| {
        unit.rows("t")?.try_for_each(|row| {
            row.set_text("w", "first")?;
            row.set_null("w")?;
            row.set_text("w", row.text("x")?)
        })
    });
    let outcome = up::<Twice>(&batch(&[0, 1], vec![texts(&["a"])])).expect("an outcome");
    assert_eq!(outcome.refused[0].reason, "`v` of `t` was declared and not written");
    upwards!(Once, Access::to("t").reads(["x"]).writes(["w"]), |_, unit| {
        unit.rows("t")?.try_for_each(|row| {
            row.set_text("w", "first")?;
            row.set_text("w", row.text("x")?)
        })
    });
    let outcome = up::<Once>(&batch(&[0, 1, 2], vec![texts(&["a", "b"])])).expect("an outcome");
    assert_eq!(cells(&outcome.tables[0].columns[0], 2), [Cell::Text(b"a"), Cell::Text(b"b")]);
}

#[test]
fn a_row_removed_twice_is_gone_once() {
    upwards!(Removes, Access::to("t").reads(["x"]).writes(["x"]).reshapes(), |_, unit| {
        let rows: Vec<_> = unit.rows("t")?.collect();
        rows[0].remove()?;
        rows[0].remove()
    });
    let outcome = up::<Removes>(&batch(&[0, 2, 3], vec![texts(&["a", "b", "c"])])).expect("an outcome");
    let shape = outcome.tables[0].shape.clone().expect("a shape");
    assert_eq!((shape.unit_offsets, shape.origins), (vec![0, 1, 1], vec![1]));
}
