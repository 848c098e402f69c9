//! Errors of the declared access to tables and columns.

use super::*;

#[test]
fn access_to_an_unknown_table_or_column_is_rejected() {
    let direction = Direction::Up;
    let up = |access: Access| {
        rejected_manifest(Manifest {
            up: vec![access],
            ..manifest(vec![add(nullable("new"))])
        })
    };
    assert_eq!(
        up(access("none", &[], &[])),
        Problem::UnknownTable {
            table: "none".into()
        }
    );
    assert_eq!(
        up(access("plain", &[], &["text"])),
        Problem::AccessWithoutUnits {
            direction,
            table: "plain".into()
        }
    );
    let table = || "apps".to_owned();
    assert_eq!(
        up(access("apps", &["new"], &[])),
        Problem::UnknownRead {
            direction,
            table: table(),
            column: "new".into()
        }
    );
    assert_eq!(
        up(access("apps", &[], &["no"])),
        Problem::UnknownWrite {
            direction,
            table: table(),
            column: "no".into()
        }
    );
    let guid = || "guid".to_owned();
    assert_eq!(
        up(access("apps", &[], &["guid"])),
        Problem::WritesPartitionKey {
            direction,
            table: table(),
            column: guid()
        }
    );
    let repeated = Problem::RepeatedAccessColumn {
        direction,
        table: table(),
        column: guid(),
    };
    assert_eq!(up(access("apps", &["guid", "guid"], &[])), repeated);
    let twice = Manifest {
        up: vec![access("apps", &[], &[]), access("apps", &[], &[])],
        ..manifest(Vec::new())
    };
    assert_eq!(
        rejected_manifest(twice),
        Problem::RepeatedAccess {
            direction,
            table: table()
        }
    );
    let down = Manifest {
        down: vec![access("apps", &[], &["new"])],
        ..manifest(vec![add(nullable("new"))])
    };
    let problem = Problem::UnknownWrite {
        direction: Direction::Down,
        table: table(),
        column: "new".into(),
    };
    assert_eq!(
        rejected_manifest(down),
        problem,
        "the column does not exist below the step"
    );
}

#[test]
fn reshaping_a_new_table_must_write_keys_and_required_columns() {
    let made = || {
        let mut made = table(
            "made",
            vec![
                column("guid"),
                column("place"),
                column("word"),
                nullable("note"),
            ],
        );
        made.primary_key = names(&["guid", "place"]);
        made
    };
    let adding = |writes: &[&str]| Access {
        reshapes: true,
        ..access("made", &[], writes)
    };
    let with = |access: Access| Manifest {
        up: vec![access],
        ..manifest(vec![Change::CreateTable(made())])
    };
    let without_key = |direction, column: &str| Problem::ReshapeWithoutKey {
        direction,
        table: "made".into(),
        column: column.into(),
    };
    assert_eq!(
        rejected_manifest(with(adding(&["place", "word"]))),
        without_key(Direction::Up, "guid")
    );
    assert_eq!(
        rejected_manifest(with(adding(&["guid", "word"]))),
        without_key(Direction::Up, "place")
    );
    let no_value = Problem::NoValue {
        table: "made".into(),
        column: "word".into(),
    };
    assert_eq!(
        rejected_manifest(with(adding(&["guid", "place"]))),
        no_value
    );
    before()
        .apply(&with(adding(&["guid", "place", "word"])))
        .expect("every row has a key and a word");
    before()
        .apply(&with(access("made", &[], &["word"])))
        .expect("without reshaping the table stays empty");
    // The way down of a step that drops the table.
    let layout = before()
        .apply(&manifest(vec![Change::CreateTable(made())]))
        .unwrap();
    let back = |access: Access| {
        let drop = Change::DropTable {
            table: "made".into(),
        };
        layout.apply(&Manifest {
            version: 3,
            down: vec![access],
            ..manifest(vec![drop])
        })
    };
    assert_eq!(
        back(adding(&["guid", "word"])).unwrap_err().problem,
        without_key(Direction::Down, "place")
    );
    back(adding(&["guid", "place", "word"])).expect("every row has a key and a word");
    // A key column with a default need not be written.
    let mut kinds = made();
    kinds.columns[1].default = Some(Literal::Text("app".into()));
    let manifest = Manifest {
        up: vec![adding(&["guid", "word"])],
        ..manifest(vec![Change::CreateTable(kinds)])
    };
    before()
        .apply(&manifest)
        .expect("the default is part of the key");
}

#[test]
fn down_access_of_an_irreversible_step_and_residue_without_a_row_function_are_rejected() {
    let down = Manifest {
        reversible: false,
        down: vec![access("apps", &["note"], &[])],
        ..manifest(Vec::new())
    };
    assert_eq!(rejected_manifest(down), Problem::DownOfIrreversible);
    let residue = Manifest {
        leaves_residue: true,
        ..manifest(Vec::new())
    };
    assert_eq!(rejected_manifest(residue), Problem::ResidueOfNothing);
    let removes = |access: Access| Manifest {
        removes_rows: true,
        up: vec![access],
        ..manifest(Vec::new())
    };
    assert_eq!(
        rejected_manifest(removes(access("apps", &[], &[]))),
        Problem::RemovesWithoutReshaping
    );
    before()
        .apply(&removes(Access {
            reshapes: true,
            ..access("apps", &[], &[])
        }))
        .expect("it reshapes");
}

#[test]
fn access_to_a_table_created_by_moved_columns_is_rejected() {
    let changes = vec![
        Change::CreateTable(table("new", vec![column("guid")])),
        Change::MoveColumn {
            column: "note".into(),
            from: "apps".into(),
            to: "new".into(),
        },
    ];
    let manifest = Manifest {
        up: vec![access("new", &[], &["note"])],
        ..manifest(changes)
    };
    let problem = Problem::AccessToMoved {
        direction: Direction::Up,
        table: "new".into(),
    };
    assert_eq!(rejected_manifest(manifest), problem);
}
