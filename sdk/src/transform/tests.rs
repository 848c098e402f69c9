//! The row engine: written values, refusals and their reasons.

use super::*;
use crate::columns::{ColumnBuilder, ColumnData, ColumnValue, Encoding, NEW_ROW, TableData};
use crate::schema::Column;
use crate::{Unit, Write};

/// Without any value except NULL it has the form of text.
fn column(values: &[ColumnValue<'_>]) -> ColumnData {
    let encoding = values.iter().find_map(|value| value.encoding());
    let mut builder = ColumnBuilder::new(encoding.unwrap_or(Encoding::Text));
    values.iter().for_each(|&value| builder.push(value));
    builder.finish()
}

fn texts(values: &[&str]) -> ColumnData {
    column(
        &values
            .iter()
            .map(|value| ColumnValue::Text(value.as_bytes()))
            .collect::<Vec<_>>(),
    )
}

fn values(column: &ColumnData, rows: usize) -> Vec<ColumnValue<'_>> {
    let view = View::new(column, rows).expect("a column in form");
    (0..rows).map(|row| view.value(row)).collect()
}

fn run() -> Run {
    Run {
        started_at_ns: 5,
        namespace: "n".into(),
    }
}

/// Defines a migration of table `t` with this access for `up`.
macro_rules! upwards {
    ($name:ident, $access:expr, $up:expr) => {
        struct $name;

        impl Migration for $name {
            fn manifest() -> Manifest {
                Manifest::new(1, "test")
                    .add_column("t", Column::integer("size"))
                    .up($access)
                    .leaves_residue()
                    .removes_rows()
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
    Batch {
        tables: vec![TableData {
            unit_offsets: unit_offsets.to_vec(),
            columns,
        }],
        residue: vec![],
    }
}

#[test]
fn values_are_written_to_their_rows() {
    upwards!(
        Sizes,
        Access::to("t").reads(["x"]).writes(["size"]),
        |_, unit| {
            let rows: Vec<_> = unit.rows("t")?.collect();
            // In reverse, so that the order of writing differs from the order of rows.
            rows.into_iter()
                .rev()
                .try_for_each(|row| row.set_integer("size", row.text("x")?.len() as i64))
        }
    );
    let given = batch(&[0, 2, 2, 3], vec![texts(&["a", "bcd", ""])]);
    let outcome = up::<Sizes>(&given).expect("an outcome");
    let sizes = &outcome.tables[0].columns[0];
    assert_eq!(
        values(sizes, 3),
        [
            ColumnValue::Integer(1),
            ColumnValue::Integer(3),
            ColumnValue::Integer(0)
        ]
    );
    assert_eq!(
        (outcome.refused, outcome.residue, &outcome.tables[0].shape),
        (vec![], vec![], &None)
    );
}

#[test]
fn read_column_passes_through_unless_written() {
    upwards!(
        Half,
        Access::to("t").reads(["x"]).writes(["x"]),
        |_, unit| {
            let first = unit.rows("t")?.next();
            first.map_or(Ok(()), |row| row.set_null("x"))
        }
    );
    let given = batch(
        &[0, 2, 3],
        vec![column(&[
            ColumnValue::Text(b"a"),
            ColumnValue::Null,
            ColumnValue::Text(b"c"),
        ])],
    );
    let outcome = up::<Half>(&given).expect("an outcome");
    assert_eq!(
        values(&outcome.tables[0].columns[0], 3),
        [ColumnValue::Null, ColumnValue::Null, ColumnValue::Null]
    );
    let given = batch(
        &[0, 3],
        vec![column(&[
            ColumnValue::Text(b"a"),
            ColumnValue::Text(b""),
            ColumnValue::Text(b"c"),
        ])],
    );
    let outcome = up::<Half>(&given).expect("an outcome");
    assert_eq!(
        values(&outcome.tables[0].columns[0], 3),
        [
            ColumnValue::Null,
            ColumnValue::Text(b""),
            ColumnValue::Text(b"c")
        ]
    );
}

#[test]
fn refused_unit_keeps_its_rows_without_its_writes() {
    upwards!(
        Picky,
        Access::to("t").reads(["x"]).writes(["size"]),
        |_, unit| {
            unit.set_residue(vec![1])?;
            for row in unit.rows("t")? {
                row.set_integer("size", 7)?;
                if row.text("x")? == "bad" {
                    return Err(Refused::new("it is bad"));
                }
            }
            Ok(())
        }
    );
    let outcome = up::<Picky>(&batch(&[0, 1, 3, 4], vec![texts(&["a", "b", "bad", "c"])]))
        .expect("an outcome");
    assert_eq!(
        outcome.refused,
        [Refusal {
            unit: 1,
            reason: "it is bad".into()
        }]
    );
    let sizes = [
        ColumnValue::Integer(7),
        ColumnValue::Integer(0),
        ColumnValue::Integer(0),
        ColumnValue::Integer(7),
    ];
    assert_eq!(values(&outcome.tables[0].columns[0], 4), sizes);
    assert_eq!(outcome.residue, [Some(vec![1]), None, Some(vec![1])]);
}

#[test]
fn residue_is_passed_per_unit() {
    upwards!(
        Passes,
        Access::to("t").reads(["x"]).writes(["x"]),
        |run, unit| {
            assert_eq!((run.started_at_ns, run.namespace.as_str()), (5, "n"));
            unit.residue()
                .map_or(Ok(()), |residue| unit.set_residue([residue, b"!"].concat()))
        }
    );
    let mut given = batch(&[0, 1, 2, 3], vec![texts(&["a", "b", "c"])]);
    assert_eq!(up::<Passes>(&given).expect("an outcome").residue, []);
    given.residue = vec![None, Some(b"r".to_vec()), None];
    assert_eq!(
        up::<Passes>(&given).expect("an outcome").residue,
        [None, Some(b"r!".to_vec()), None]
    );
}

#[test]
fn residue_is_a_message() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Count {
        #[prost(uint64, required, tag = "1")]
        count: u64,
    }
    upwards!(
        Counts,
        Access::to("t").reads(["x"]).writes(["x"]),
        |_, unit| {
            let Count { count } = unit.decode_residue()?.unwrap_or_default();
            unit.encode_residue(&Count { count: count + 1 })
        }
    );
    let mut given = batch(&[0, 1, 2, 3], vec![texts(&["a", "b", "c"])]);
    given.residue = vec![
        None,
        Some(b"\x08\x04\x10\x05".to_vec()),
        Some(b"\x08".to_vec()),
    ];
    let outcome = up::<Counts>(&given).expect("an outcome");
    assert_eq!(
        outcome.residue,
        [Some(b"\x08\x01".to_vec()), Some(b"\x08\x05".to_vec()), None]
    );
    let truncated =
        "the residue cannot be read: the protobuf message ends inside a field, at byte 1";
    assert_eq!(outcome.refused[0].reason, truncated);
    given.residue[2] = Some(b"\x0a\x00".to_vec());
    let refused = up::<Counts>(&given).expect("an outcome").refused;
    assert!(
        refused[0]
            .reason
            .starts_with("the residue cannot be read: "),
        "{refused:?}"
    );
}

#[test]
fn optional_values_are_written_or_null() {
    upwards!(
        Optional,
        Access::to("t").reads(["x"]).writes([
            Write::text("a"),
            Write::integer("b"),
            Write::boolean("c")
        ]),
        |_, unit| {
            for row in unit.rows("t")? {
                let value = row.bytes_or_null("x")?;
                row.set_bytes_or_null("a", value)?;
                row.set_integer_or_null("b", value.map(|_| 2))?;
                row.set_boolean_or_null("c", value.map(|_| true))?;
            }
            Ok(())
        }
    );
    let given = column(&[ColumnValue::Text(b""), ColumnValue::Null]);
    let outcome = up::<Optional>(&batch(&[0, 2], vec![given])).expect("an outcome");
    let columns = &outcome.tables[0].columns;
    let written = [
        ColumnValue::Text(b""),
        ColumnValue::Integer(2),
        ColumnValue::Boolean(true),
    ];
    for (column, value) in columns.iter().zip(written) {
        assert_eq!(values(column, 2), [value, ColumnValue::Null]);
    }
}

#[test]
fn reshaping_access_removes_and_adds_rows() {
    upwards!(
        Reshapes,
        Access::to("t").reads(["x"]).writes(["x"]).reshapes(),
        |_, unit| {
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
        }
    );
    let rows = texts(&["a", "drop", "twice", "unread", "drop", "unset", "z"]);
    let outcome = up::<Reshapes>(&batch(&[0, 3, 4, 5, 6, 7], vec![rows])).expect("an outcome");
    let shape = outcome.tables[0].shape.clone().expect("a shape");
    assert_eq!(shape.unit_offsets, [0, 3, 3, 3, 3, 4]);
    assert_eq!(shape.origins, [0, 2, NEW_ROW, 6]);
    let written = values(&outcome.tables[0].columns[0], 4);
    assert_eq!(
        written,
        [
            ColumnValue::Text(b"a"),
            ColumnValue::Text(b"twice"),
            ColumnValue::Text(b"new"),
            ColumnValue::Text(b"z")
        ]
    );
    let reasons: Vec<_> = outcome
        .refused
        .iter()
        .map(|refusal| (refusal.unit, refusal.reason.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            (1, "`x` of `t` cannot be read: the row is new"),
            (3, "`x` of `t` was declared and not written"),
        ]
    );
}

#[test]
fn row_added_during_iteration_is_in_the_next_one() {
    upwards!(
        Walks,
        Access::to("t").reads(["x"]).writes(["x"]).reshapes(),
        |_, unit| {
            let rows = unit.rows("t")?;
            unit.rows("t")?.next().map_or(Ok(()), |row| row.remove())?;
            unit.add_row("t")?.set_text("x", "new")?;
            assert_eq!((rows.count(), unit.rows("t")?.count()), (1, 2));
            Ok(())
        }
    );
    let outcome = up::<Walks>(&batch(&[0, 2], vec![texts(&["a", "b"])])).expect("an outcome");
    assert_eq!(outcome.refused, []);
    assert_eq!(
        outcome.tables[0].shape.clone().expect("a shape").origins,
        [1, NEW_ROW]
    );
}

/// A row function.
type Act = fn(&Unit<'_>) -> Result<(), Refused>;

/// Returns the refusals of a row function.
fn refusals(access: Access, leaves_residue: bool, act: Act) -> String {
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
    let given = batch(
        &[0, 2],
        vec![
            column(&[ColumnValue::Text(b"\xff"), ColumnValue::Null]),
            column(&[ColumnValue::Integer(1); 2]),
        ],
    );
    let mut manifest = Manifest::new(1, "test").up(access.reads(["x", "n"]));
    manifest.leaves_residue = leaves_residue;
    let outcome = transform::<Acts>(&manifest, Direction::Up, &run(), &given).expect("an outcome");
    outcome
        .refused
        .into_iter()
        .map(|refusal| refusal.reason)
        .collect()
}

fn first<'u>(unit: &'u Unit<'_>) -> crate::Row<'u> {
    unit.rows("t").expect("the table").next().expect("a row")
}

fn second<'u>(unit: &'u Unit<'_>) -> crate::Row<'u> {
    unit.rows("t").expect("the table").nth(1).expect("a row")
}

#[test]
fn undeclared_access_is_refused_with_the_missing_declaration() {
    let t = || Access::to("t").writes([Write::text("w")]);
    let cases: [(Act, &str); 16] = [
        (
            |unit| unit.rows("u").map(drop),
            "table `u` is not declared: add `.up(Access::to(\"u\")…)`",
        ),
        (
            |unit| unit.row("t").map(drop),
            "`t` has several rows for this key, one was expected",
        ),
        (
            |unit| first(unit).text("y").map(drop),
            "`y` of `t` is not declared: add it to `.reads([…])`",
        ),
        (
            |unit| first(unit).set_text("x", ""),
            "`x` of `t` is not declared: add it to `.writes([…])`",
        ),
        (
            |unit| first(unit).set_null("x"),
            "`x` of `t` is not declared: add it to `.writes([…])`",
        ),
        (
            |unit| first(unit).set_integer("w", 1),
            "`w` of `t` is text, not integer",
        ),
        (
            |unit| first(unit).set_boolean("w", true),
            "`w` of `t` is text, not boolean",
        ),
        (
            |unit| first(unit).text("x").map(drop),
            "`x` of `t` is not UTF-8",
        ),
        (
            |unit| second(unit).text("x").map(drop),
            "`x` of `t` is NULL",
        ),
        (
            |unit| second(unit).bytes("x").map(drop),
            "`x` of `t` is NULL",
        ),
        (
            |unit| second(unit).integer("x").map(drop),
            "`x` of `t` is NULL",
        ),
        (
            |unit| first(unit).integer("x").map(drop),
            "`x` of `t` is text, not integer",
        ),
        (
            |unit| first(unit).text("n").map(drop),
            "`n` of `t` is integer, not text",
        ),
        (
            |unit| first(unit).boolean("n").map(drop),
            "`n` of `t` is integer, not boolean",
        ),
        (
            |unit| unit.add_row("t").map(drop),
            "rows of `t` may not be added or removed: declare `.reshapes()`",
        ),
        (
            |unit| first(unit).remove(),
            "rows of `t` may not be added or removed: declare `.reshapes()`",
        ),
    ];
    for (act, reason) in cases {
        assert_eq!(refusals(t(), true, act), reason);
    }
    let leaves = |unit: &Unit<'_>| unit.set_residue(vec![]);
    assert_eq!(
        refusals(t(), false, leaves),
        "the manifest declares no residue: add `.leaves_residue()`"
    );
    assert_eq!(
        refusals(t(), true, |_| Ok(())),
        "`w` of `t` was declared and not written"
    );
    let mixed = |unit: &Unit<'_>| {
        first(unit).set_text("w", "")?;
        second(unit).set_integer("w", 1)
    };
    let untyped = Access::to("t").writes(["w"]);
    // The kind is not declared: the first value determines it.
    assert_eq!(
        refusals(untyped, true, mixed),
        "`w` of `t` is text, not integer"
    );
}

#[test]
fn missing_row_is_refused_with_its_own_reason() {
    upwards!(
        One,
        Access::to("t").reads(["x"]).writes(["size"]),
        |_, unit| unit.row("t")?.set_integer("size", 1)
    );
    let outcome = up::<One>(&batch(&[0, 0, 1], vec![texts(&["a"])])).expect("an outcome");
    let reason = "`t` has no row for this key, one was expected".to_owned();
    assert_eq!(outcome.refused, [Refusal { unit: 0, reason }]);
}

#[test]
fn batch_that_differs_from_the_manifest_is_a_fault() {
    upwards!(
        Plain,
        Access::to("t").reads(["x"]).writes(["x"]),
        |_, _| Ok(())
    );
    let fault = |batch: &Batch| up::<Plain>(batch).expect_err("a malformed batch").reason;
    assert_eq!(
        fault(&Batch::default()),
        "the batch has 0 tables, the manifest declares 1 for up"
    );
    assert_eq!(
        fault(&batch(&[], vec![texts(&[])])),
        "the batch has no unit offsets"
    );
    assert_eq!(
        fault(&batch(&[0, 1], vec![])),
        "the batch's `t` is not the one that the manifest declares"
    );
    let falls = batch(&[0, 2, 1], vec![texts(&["a"])]);
    assert_eq!(
        fault(&falls),
        "the batch's `t` is not the one that the manifest declares"
    );
    assert_eq!(
        fault(&batch(&[0, 2], vec![texts(&["a"])])),
        "column `x` of `t` is malformed"
    );
    let mut residue = batch(&[0, 1], vec![texts(&["a"])]);
    residue.residue = vec![None, None];
    assert_eq!(
        fault(&residue),
        "the batch has residue for another number of units"
    );
}

#[test]
fn column_without_values_has_the_form_of_its_type() {
    upwards!(Nulls, Access::to("t").writes(["size"]), |_, unit| {
        unit.rows("t")?.try_for_each(|row| row.set_null("size"))
    });
    let sizes = |offsets| {
        up::<Nulls>(&batch(offsets, vec![]))
            .expect("an outcome")
            .tables
            .remove(0)
            .columns
            .remove(0)
    };
    assert_eq!(
        View::new(&sizes(&[0, 2]), 2).map(|view| view.encoding),
        Some(Encoding::Integer)
    );
    assert_eq!(sizes(&[0, 0]), ColumnData::default());
}

#[test]
fn refused_unit_does_not_determine_the_kind_of_a_column() {
    upwards!(
        Mixed,
        Access::to("t").reads(["x"]).writes(["w"]),
        |_, unit| {
            for row in unit.rows("t")? {
                if row.text("x")? == "bad" {
                    row.set_text("w", "text")?;
                    return Err(Refused::new("it is bad"));
                }
                row.set_integer("w", 3)?;
            }
            Ok(())
        }
    );
    let outcome = up::<Mixed>(&batch(&[0, 1, 2], vec![texts(&["bad", "a"])])).expect("an outcome");
    assert_eq!(outcome.refused.len(), 1);
    assert_eq!(
        values(&outcome.tables[0].columns[0], 2),
        [ColumnValue::Integer(0), ColumnValue::Integer(3)]
    );
}

#[test]
fn last_write_of_a_value_counts() {
    upwards!(
        Twice,
        Access::to("t").reads(["x"]).writes(["w", "v"]),
        |_, unit| {
            unit.rows("t")?.try_for_each(|row| {
                row.set_text("w", "first")?;
                row.set_null("w")?;
                row.set_text("w", row.text("x")?)
            })
        }
    );
    let outcome = up::<Twice>(&batch(&[0, 1], vec![texts(&["a"])])).expect("an outcome");
    assert_eq!(
        outcome.refused[0].reason,
        "`v` of `t` was declared and not written"
    );
    upwards!(
        Once,
        Access::to("t").reads(["x"]).writes(["w"]),
        |_, unit| {
            unit.rows("t")?.try_for_each(|row| {
                row.set_text("w", "first")?;
                row.set_text("w", row.text("x")?)
            })
        }
    );
    let outcome = up::<Once>(&batch(&[0, 1, 2], vec![texts(&["a", "b"])])).expect("an outcome");
    assert_eq!(
        values(&outcome.tables[0].columns[0], 2),
        [ColumnValue::Text(b"a"), ColumnValue::Text(b"b")]
    );
}

#[test]
fn removing_a_row_twice_counts_once() {
    upwards!(
        Removes,
        Access::to("t").reads(["x"]).writes(["x"]).reshapes(),
        |_, unit| {
            let rows: Vec<_> = unit.rows("t")?.collect();
            rows[0].remove()?;
            rows[0].remove()
        }
    );
    let outcome =
        up::<Removes>(&batch(&[0, 2, 3], vec![texts(&["a", "b", "c"])])).expect("an outcome");
    let shape = outcome.tables[0].shape.clone().expect("a shape");
    assert_eq!(
        (shape.unit_offsets, shape.origins),
        (vec![0, 1, 1], vec![1])
    );
}

#[test]
fn removing_a_given_row_is_declared() {
    let reshaping = || Access::to("t").reshapes();
    let undeclared = refusals(reshaping(), false, |unit| first(unit).remove());
    assert_eq!(
        undeclared,
        "rows of `t` may not be removed: declare `.removes_rows()` in the manifest"
    );
    assert_eq!(
        refusals(reshaping(), false, |unit| unit.add_row("t")?.remove()),
        "",
        "an added row was not given"
    );
}
