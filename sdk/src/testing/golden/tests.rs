//! Golden cases that pass, that differ and that cannot be read.

use tempfile::TempDir;

use super::*;
use crate::schema::{Column, Table};
use crate::{Access, Manifest, Run, Unit};

/// `up` doubles numbers; `down` halves them and leaves residue.
struct Doubles;

impl Migration for Doubles {
    fn manifest() -> Manifest {
        let note = Column::text("note").nullable().enveloped();
        let manifest = Manifest::new(2, "doubles").add_column("t", note);
        let up = Access::to("t").reads(["n"]).writes(["n"]).writes(["note"]);
        manifest
            .up(up)
            .down(Access::to("t").reads(["n"]).writes(["n"]))
            .leaves_residue()
    }

    fn up(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("t")? {
            row.set_integer("n", row.integer("n")? * 2)?;
            row.set_bytes("note", unit.residue().unwrap_or(b"\xff"))?;
        }
        Ok(())
    }

    fn down(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        unit.set_residue(b"left".to_vec())?;
        unit.rows("t")?
            .try_for_each(|row| row.set_integer("n", row.integer("n")? / 2))
    }
}

fn layout() -> Layout {
    let table = Table::new("t")
        .column(Column::varchar("k", 32))
        .column(Column::integer("n").nullable());
    Layout::of([table.primary_key(["k"]).partition_key("k")])
}

fn case(input: &str, expected: &str) -> Result<(), GoldenError> {
    let folder = TempDir::new().expect("a folder");
    let case = folder.path().join("a-case");
    std::fs::create_dir(&case).expect("a case");
    std::fs::write(case.join("input.json"), input).expect("input");
    std::fs::write(case.join("expected.json"), expected).expect("expected");
    check_golden::<Doubles>(&layout(), folder.path())
}

#[test]
fn matching_cases_pass() {
    let up = r#"{"direction": "up", "unit": {"t": [{"k": "é", "n": 2}]}}"#;
    case(
        up,
        r#"{"unit": {"t": [{"k": "é", "n": 4, "note": {"hex": "ff"}}]}}"#,
    )
    .expect("the golden case");
    let given = r#"{"direction": "up", "unit": {"t": [{"n": 2}]}, "residue": {"json": {"b": 1, "a": "<"}}}"#;
    case(
        given,
        r#"{"unit": {"t": [{"n": 4, "note": "{\"a\":\"\\u003c\",\"b\":1}"}]}}"#,
    )
    .expect("residue goes in");
    let down = r#"{"direction": "down", "unit": {"t": [{"n": 4, "note": null}]}}"#;
    case(down, r#"{"unit": {"t": [{"n": 2}]}, "residue": "left"}"#).expect("residue comes out");
    let null = r#"{"direction": "up", "unit": {"t": [{"n": null}]}}"#;
    case(null, r#"{"refused": "`n` of `t` is NULL"}"#).expect("a refusal");
}

#[test]
fn differing_cases_fail() {
    let up = r#"{"direction": "up", "unit": {"t": [{"n": 2}]}}"#;
    for expected in [
        r#"{"unit": {"t": [{"n": 5, "note": {"hex": "ff"}}]}}"#,
        r#"{"unit": {"t": [{"n": 4, "note": ""}]}}"#,
        r#"{"unit": {"t": [{"n": 4, "note": {"hex": "ff"}}]}, "residue": ""}"#,
        r#"{"unit": {"t": []}}"#,
        r#"{"refused": "no"}"#,
    ] {
        assert!(
            matches!(case(up, expected), Err(GoldenError::Differs { .. })),
            "{expected}"
        );
    }
}

#[test]
fn malformed_case_is_an_error_with_the_reason() {
    let message = |input: &str| {
        let error = case(input, r#"{"unit": {}}"#)
            .expect_err("a malformed case")
            .to_string();
        error
            .split_once(": ")
            .expect("a path, then the reason")
            .1
            .to_owned()
    };
    assert_eq!(message("[]"), "not a JSON object");
    assert_eq!(message("{"), "not JSON: the error is at line 1, column 2");
    assert_eq!(
        message(r#"{"unit": {}}"#),
        "`direction` is neither \"up\" nor \"down\""
    );
    assert_eq!(
        message(r#"{"direction": "up"}"#),
        "`unit` is not an object of tables"
    );
    assert_eq!(
        message(r#"{"direction": "up", "unit": {"t": 1}}"#),
        "`t` is not a list of rows"
    );
    assert_eq!(
        message(r#"{"direction": "up", "unit": {"t": [1]}}"#),
        "a row is 1, not an object"
    );
    let row = |value: &str| {
        message(&format!(
            r#"{{"direction": "up", "unit": {{"t": [{{"n": {value}}}]}}}}"#
        ))
    };
    assert_eq!(row("[]"), "[] has no place in a row");
    assert_eq!(row("1.5"), "1.5 is not an integer of 64 bits");
    assert_eq!(
        row(r#"{"base64": "AA=="}"#),
        r#"{"base64":"AA=="} is neither {"hex": …} nor {"json": …}"#
    );
    assert_eq!(row(r#"{"hex": "0"}"#), "\"0\" is not hexadecimal");
    assert_eq!(row(r#"{"hex": "0g"}"#), "\"0g\" is not hexadecimal");
    assert_eq!(
        message(r#"{"direction": "up", "unit": {}, "residue": 1}"#),
        "`residue` is 1, not bytes"
    );
}

#[test]
#[should_panic(expected = "a unit has rows of `u`, and the layout before up has no such table")]
fn table_that_the_layout_before_the_step_lacks_is_named() {
    let _ = case(
        r#"{"direction": "up", "unit": {"t": [{"n": 2}], "u": [{"n": 2}]}}"#,
        r#"{"unit": {"t": [{"n": 4, "note": {"hex": "ff"}}]}}"#,
    );
}

#[test]
fn folder_without_cases_is_an_error() {
    let folder = TempDir::new().expect("a folder");
    assert!(matches!(
        check_golden::<Doubles>(&layout(), folder.path()),
        Err(GoldenError::Empty { .. })
    ));
    assert!(matches!(
        check_golden::<Doubles>(&layout(), folder.path().join("none")),
        Err(GoldenError::Unreadable { .. })
    ));
}
