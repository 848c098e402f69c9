//! Each rule of an outcome, satisfied and violated. The batch has three units: two rows, none, one
//! row.

use proptest::prelude::*;

use super::*;
use crate::layout::columns::Refusal;

fn given() -> TableData {
    TableData {
        unit_offsets: vec![0, 2, 2, 3],
        columns: vec![],
    }
}

fn plain_text() -> Column {
    Column::long_text("c")
}

fn text(offsets: &[u32], values: &[u8]) -> ColumnData {
    ColumnData {
        validity: vec![],
        offsets: offsets.to_vec(),
        values: values.to_vec(),
    }
}

fn integers(values: &[i64]) -> ColumnData {
    ColumnData {
        validity: vec![],
        offsets: vec![],
        values: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    }
}

fn with_validity(validity: &[u8], column: ColumnData) -> ColumnData {
    ColumnData {
        validity: validity.to_vec(),
        ..column
    }
}

fn access() -> Access {
    Access::to("t").writes(["c"])
}

fn shape(unit_offsets: &[u32], origins: &[u32]) -> Shape {
    Shape {
        unit_offsets: unit_offsets.to_vec(),
        origins: origins.to_vec(),
    }
}

fn refusal(unit: u32) -> Refusal {
    Refusal {
        unit,
        reason: String::new(),
    }
}

fn outcome(shape: Option<Shape>, column: ColumnData) -> Outcome {
    Outcome {
        tables: vec![Written {
            shape,
            columns: vec![column],
        }],
        ..Outcome::default()
    }
}

fn batch() -> Batch {
    Batch {
        tables: vec![given()],
        residue: vec![],
    }
}

/// [`super::check`] for a manifest that declares that it removes rows.
fn check(
    accesses: &[Access],
    columns: Option<&WrittenColumns>,
    leaves_residue: bool,
    batch: &Batch,
    outcome: &Outcome,
) -> Result<(), String> {
    super::check(
        accesses,
        columns,
        Declared {
            leaves_residue,
            removes_rows: true,
        },
        batch,
        outcome,
    )
}

fn defined(column: &Column, missing: Option<&str>) -> Definitions {
    Definitions {
        columns: vec![column.clone()],
        missing: missing.map(str::to_owned),
    }
}

/// Validates an outcome against the definition of its column.
fn check_defined(definition: &Column, batch: &Batch, outcome: &Outcome) -> Result<(), String> {
    let columns = vec![defined(definition, None)];
    check(&[access()], Some(&columns), false, batch, outcome)
}

/// Validates one written column against its definition.
fn written(definition: &Column, column: ColumnData) -> Result<(), String> {
    check_defined(definition, &batch(), &outcome(None, column))
}

/// Validates an outcome without the definition of its column.
fn check_unknown(access: Access, outcome: &Outcome) -> Result<(), String> {
    check(&[access], None, false, &batch(), outcome)
}

/// Validates one written column without its definition.
fn unknown(column: ColumnData) -> Result<(), String> {
    check_unknown(access(), &outcome(None, column))
}

/// Rows of this shape, with a number in each.
fn numbered(unit_offsets: &[u32], origins: &[u32]) -> Outcome {
    let column = integers(&vec![1; origins.len()]);
    outcome(Some(shape(unit_offsets, origins)), column)
}

fn shaped(unit_offsets: &[u32], origins: &[u32]) -> Result<(), String> {
    check_unknown(access().reshapes(), &numbered(unit_offsets, origins))
}

#[track_caller]
fn assert_flaw(result: Result<(), String>, words: &str) {
    let flaw = result.expect_err("it is refused");
    assert!(flaw.contains(words), "{words:?} is not in {flaw:?}");
}

#[test]
fn integers_are_eight_bytes_each() {
    let wide = Column::big_integer("c");
    assert_eq!(written(&wide, integers(&[1, i64::MIN, i64::MAX])), Ok(()));
    assert_flaw(
        written(&wide, integers(&[1, 2])),
        "table `t`: column `c`: 16 bytes for 3 rows, which take 24",
    );
    assert_flaw(
        written(&wide, text(&[0, 8, 16, 24], &[0; 24])),
        "offsets, which only text has",
    );
}

#[test]
fn narrow_integers_fit_32_bits() {
    let narrow = Column::integer("c");
    assert_eq!(
        written(&narrow, integers(&[0, i32::MIN.into(), i32::MAX.into()])),
        Ok(())
    );
    assert_flaw(
        written(&narrow, integers(&[0, 1 << 31, 0])),
        "2147483648 does not fit an integer of 32 bits",
    );
    assert_flaw(written(&narrow, integers(&[0, 0])), "16 bytes for 3 rows");
}

#[test]
fn booleans_are_one_bit_each() {
    let boolean = Column::boolean("c");
    let bits = |values: &[u8]| ColumnData {
        values: values.to_vec(),
        ..ColumnData::default()
    };
    assert_eq!(written(&boolean, bits(&[0b101])), Ok(()));
    assert_flaw(
        written(&boolean, bits(&[])),
        "0 bytes for 3 rows, which take 1",
    );
    assert_flaw(
        written(&boolean, bits(&[1, 1, 1])),
        "3 bytes for 3 rows, which take 1",
    );
}

#[test]
fn text_offsets_cover_all_bytes() {
    assert_eq!(written(&plain_text(), text(&[0, 1, 1, 3], b"abc")), Ok(()));
    for (offsets, words) in [
        (&[0, 1, 3][..], "3 offsets for 3 rows, which take 4"),
        (&[0, 1, 1, 3, 3], "5 offsets for 3 rows, which take 4"),
        (&[], "0 offsets for 3 rows"),
        (&[1, 1, 1, 3], "offsets begin at 1"),
        (&[0, 2, 1, 3], "offsets go back from 2 to 1"),
        (&[0, 1, 1, 2], "offsets end at 2, the values at 3"),
        (&[0, 1, 1, 4], "offsets end at 4, the values at 3"),
    ] {
        assert_flaw(written(&plain_text(), text(offsets, b"abc")), words);
    }
}

#[test]
fn column_without_rows_may_omit_its_offset() {
    let batch = Batch {
        tables: vec![TableData {
            unit_offsets: vec![0, 0],
            columns: vec![],
        }],
        residue: vec![],
    };
    for offsets in [&[][..], &[0]] {
        let outcome = outcome(None, text(offsets, b""));
        assert_eq!(check_defined(&plain_text(), &batch, &outcome), Ok(()));
    }
}

#[test]
fn text_is_utf8_except_in_enveloped_columns() {
    let wrong = || text(&[0, 1, 2, 3], b"a\xffb");
    let enveloped = plain_text().enveloped();
    assert_flaw(written(&plain_text(), wrong()), "not UTF-8");
    assert_flaw(written(&plain_text().sealed(), wrong()), "not UTF-8");
    assert_eq!(written(&enveloped, wrong()), Ok(()));
    assert_eq!(
        written(&plain_text(), text(&[0, 2, 4, 4], "äö".as_bytes())),
        Ok(())
    );
    assert_flaw(
        written(&plain_text(), text(&[0, 1, 4, 4], "äö".as_bytes())),
        "inside a character, at byte 1",
    );
    assert_flaw(
        written(&enveloped, text(&[0, 1, 2], b"abc")),
        "3 offsets for 3 rows",
    );
}

#[test]
fn validity_is_absent_or_one_bit_a_row() {
    let nullable = Column::big_integer("c").nullable();
    assert_eq!(
        written(&nullable, with_validity(&[0], integers(&[0; 3]))),
        Ok(())
    );
    assert_flaw(
        written(&nullable, with_validity(&[0, 0], integers(&[0; 3]))),
        "2 bytes of validity for 3 rows",
    );
}

#[test]
fn null_in_a_required_column_is_rejected() {
    let definition = Column::big_integer("c");
    assert_eq!(
        written(&definition, with_validity(&[0b111], integers(&[0; 3]))),
        Ok(())
    );
    let null = |bits| with_validity(&[bits], integers(&[0; 3]));
    assert_flaw(
        written(&definition, null(0b011)),
        "NULL in row 2 (unit 2), and the column takes none",
    );
    assert_flaw(written(&definition, null(0b101)), "NULL in row 1 (unit 0)");
    // The rows of a refused unit are dropped, so their values are not checked.
    let mut outcome = outcome(None, null(0b011));
    outcome.refused = vec![refusal(2)];
    assert_eq!(check_defined(&definition, &batch(), &outcome), Ok(()));
    outcome.refused[0].unit = 0;
    assert_flaw(
        check_defined(&definition, &batch(), &outcome),
        "NULL in row 2",
    );
}

#[test]
fn column_without_definition_is_consistent_with_some_type() {
    assert_eq!(unknown(integers(&[1, 2, 3])), Ok(()));
    assert_eq!(
        unknown(ColumnData {
            values: vec![0],
            ..ColumnData::default()
        }),
        Ok(())
    );
    assert_eq!(unknown(text(&[0, 1, 2, 3], b"a\xffb")), Ok(()));
    assert_flaw(
        unknown(ColumnData {
            values: vec![0; 2],
            ..ColumnData::default()
        }),
        "2 bytes for 3 rows",
    );
    assert_flaw(unknown(text(&[0, 1, 2, 2], b"abc")), "offsets end at 2");
}

#[test]
fn shape_is_present_exactly_if_declared() {
    let given_shape = numbered(&[0, 2, 2, 3], &[0, 1, 2]);
    assert_eq!(check_unknown(access().reshapes(), &given_shape), Ok(()));
    assert_flaw(
        check_unknown(access(), &given_shape),
        "a new shape, which the manifest",
    );
    let none = outcome(None, integers(&[0; 3]));
    assert_flaw(
        check_unknown(access().reshapes(), &none),
        "no shape, though the manifest",
    );
}

#[test]
fn rows_stay_in_their_unit() {
    assert_eq!(shaped(&[0, 1, 2, 4], &[1, NEW_ROW, 2, 2]), Ok(()));
    assert_eq!(shaped(&[0, 0, 0, 0], &[]), Ok(()));
    for (unit_offsets, origins, words) in [
        (&[0, 1, 1][..], &[0][..], "2 units for 3 given"),
        (&[0, 1, 1, 1, 1], &[0], "4 units for 3 given"),
        (&[0, 1, 1, 1], &[2], "a row of unit 0 continues row 2"),
        (&[0, 0, 1, 1], &[0], "a row of unit 1 continues row 0"),
        (&[0, 0, 0, 1], &[1], "a row of unit 2 continues row 1"),
        (&[0, 0, 0, 1], &[3], "a row of unit 2 continues row 3"),
        (&[1, 1, 1, 1], &[0], "unit offsets begin at 1"),
        (&[0, 1, 0, 1], &[0], "unit offsets go back from 1 to 0"),
        (
            &[0, 1, 1, 1],
            &[0, 1],
            "unit offsets end at 1, the values at 2",
        ),
        (
            &[0, 1, 1, 2],
            &[0],
            "unit offsets end at 2, the values at 1",
        ),
    ] {
        assert_flaw(shaped(unit_offsets, origins), words);
    }
}

#[test]
fn reshaped_column_has_the_new_number_of_rows() {
    let with = |rows: usize| {
        let shape = shape(&[0, 2, 2, 2], &[0, 1]);
        let outcome = outcome(Some(shape), integers(&vec![0; rows]));
        check_unknown(access().reshapes(), &outcome)
    };
    assert_eq!(with(2), Ok(()));
    assert_flaw(with(3), "24 bytes for 2 rows");
}

#[test]
fn numbers_of_tables_and_columns_are_as_declared() {
    let mut outcome = outcome(None, integers(&[0; 3]));
    outcome.tables.push(Written::default());
    assert_flaw(check_unknown(access(), &outcome), "2 tables for 1 declared");
    outcome.tables = vec![Written {
        shape: None,
        columns: vec![],
    }];
    assert_flaw(
        check_unknown(access(), &outcome),
        "0 columns for 1 declared",
    );
}

#[test]
fn refused_units_exist_and_are_unique() {
    let refusing = |units: &[u32]| {
        let mut outcome = outcome(None, integers(&[0; 3]));
        outcome.refused = units.iter().copied().map(refusal).collect();
        check_unknown(access(), &outcome)
    };
    assert_eq!(refusing(&[0, 2]), Ok(()));
    assert_flaw(refusing(&[3]), "refuses unit 3 of 3");
    assert_flaw(refusing(&[1, 1]), "refuses unit 1 twice");
}

#[test]
fn residue_is_declared_and_one_per_unit() {
    let leaving = |declared: bool, residue: Vec<Option<Vec<u8>>>| {
        let outcome = Outcome {
            residue,
            ..outcome(None, integers(&[0; 3]))
        };
        check(&[access()], None, declared, &batch(), &outcome)
    };
    assert_eq!(leaving(true, vec![None, Some(vec![1]), None]), Ok(()));
    assert_eq!(leaving(true, vec![]), Ok(()));
    assert_eq!(leaving(false, vec![None, None, None]), Ok(()));
    assert_flaw(leaving(true, vec![None]), "residue for 1 units of 3");
    assert_flaw(
        leaving(false, vec![None, Some(vec![]), None]),
        "residue, which the manifest does not declare",
    );
}

#[test]
fn added_row_needs_every_required_column() {
    let added = |unit_offsets: &[u32], origins: &[u32], missing| {
        let mut outcome = numbered(unit_offsets, origins);
        outcome.refused = vec![refusal(2)];
        let columns = vec![defined(&Column::big_integer("c"), missing)];
        let access = access().reshapes();
        check(&[access], Some(&columns), false, &batch(), &outcome)
    };
    assert_eq!(added(&[0, 1, 2, 2], &[0, NEW_ROW], None), Ok(()));
    assert_eq!(
        added(&[0, 2, 2, 2], &[1, 0], Some("guid")),
        Ok(()),
        "rows are only reordered and removed"
    );
    assert_eq!(
        added(&[0, 0, 0, 1], &[NEW_ROW], Some("guid")),
        Ok(()),
        "the unit is refused"
    );
    let words = "table `t`: a row is added to unit 1, but its column `guid`";
    assert_flaw(added(&[0, 1, 2, 2], &[0, NEW_ROW], Some("guid")), words);
}

#[test]
fn removed_rows_are_declared() {
    let shaped =
        |removes_rows: bool, unit_offsets: &[u32], origins: &[u32], refused: Vec<Refusal>| {
            let outcome = Outcome {
                refused,
                ..numbered(unit_offsets, origins)
            };
            let declared = Declared {
                leaves_residue: false,
                removes_rows,
            };
            let access = access().reshapes();
            super::check(&[access], None, declared, &batch(), &outcome)
        };
    assert_eq!(
        shaped(false, &[0, 3, 3, 4], &[1, 0, NEW_ROW, 2], vec![]),
        Ok(()),
        "each is continued"
    );
    let without_one = |removes_rows| shaped(removes_rows, &[0, 2, 2, 3], &[1, 1, 2], vec![]);
    assert_flaw(
        without_one(false),
        "table `t`: 1 of the rows of unit 0 are removed, which the manifest does not declare",
    );
    assert_eq!(without_one(true), Ok(()));
    assert_eq!(
        shaped(false, &[0, 2, 2, 2], &[0, 1], vec![refusal(2)]),
        Ok(()),
        "rows of a refused unit are dropped"
    );
    assert_flaw(
        shaped(false, &[0, 2, 2, 2], &[0, 1], vec![]),
        "1 of the rows of unit 2",
    );
}

/// Column data of any form; most are of one that some column has.
fn any_data() -> impl Strategy<Value = ColumnData> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..4);
    let some = prop_oneof![
        Just(text(&[0, 1, 2, 3], b"abc")),
        Just(integers(&[1, 2, 3])),
        Just(integers(&[1, i64::MAX, 3])),
        Just(ColumnData {
            values: vec![5],
            ..ColumnData::default()
        }),
    ];
    let any_form = (bytes(), prop::collection::vec(0..5_u32, 0..5), bytes()).prop_map(
        |(validity, offsets, values)| ColumnData {
            validity,
            offsets,
            values,
        },
    );
    prop_oneof![
        (some, bytes()).prop_map(|(data, validity)| with_validity(&validity, data)),
        any_form
    ]
}

proptest! {
    #[test]
    fn arbitrary_answers_are_refused_or_every_value_can_be_read(
        data in any_data(),
        kind in prop::sample::select(&[
            ColumnType::Boolean, ColumnType::Integer, ColumnType::BigInteger, ColumnType::LongText,
        ][..]),
        nullable in any::<bool>(),
        shape in prop::option::of((prop::collection::vec(0..5_u32, 0..5), prop::collection::vec(0..4_u32, 0..5))),
        refused in prop::collection::vec(0..4_u32, 0..2),
        residue in prop::collection::vec(any::<Option<Vec<u8>>>(), 0..4),
    ) {
        let column = Column { nullable, ..Column::new("c", kind) };
        let shape = shape.map(|(unit_offsets, origins)| Shape { unit_offsets, origins });
        let access = Access { reshapes: shape.is_some(), ..access() };
        let rows = shape.as_ref().map_or(3, |shape| shape.unit_offsets.last().copied().unwrap_or_default());
        let refused = refused.into_iter().map(refusal).collect();
        let outcome = Outcome { refused, residue, ..outcome(shape, data.clone()) };
        let written = vec![defined(&column, Some("other"))];
        let _ = check(std::slice::from_ref(&access), None, true, &batch(), &outcome);
        if check(&[access], Some(&written), true, &batch(), &outcome).is_ok() {
            for row in 0..rows as usize {
                let _ = data.get(kind.into(), row);
            }
        }
    }
}
