//! Every error of an invalid manifest, and the layouts that valid ones produce.

use super::change::CHECKED_COLUMNS;
use super::*;
use crate::layout::manifest::Access;
use crate::layout::schema::{Column, ColumnType, Index, Literal, Sealing, Table};

fn column(name: &str) -> Column {
    Column {
        name: name.into(),
        kind: ColumnType::Varchar(255),
        nullable: false,
        default: None,
        sealing: Sealing::Plain,
    }
}

fn nullable(name: &str) -> Column {
    Column {
        nullable: true,
        ..column(name)
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn index(name: &str, columns: &[&str]) -> Index {
    Index {
        name: name.into(),
        columns: names(columns),
    }
}

fn table(name: &str, columns: Vec<Column>) -> Table {
    Table {
        name: name.into(),
        columns,
        primary_key: names(&["guid"]),
        indexes: Vec::new(),
        partition_key: Some("guid".into()),
    }
}

fn apps() -> Table {
    let sealed = Column {
        sealing: Sealing::Sealed,
        ..column("routes")
    };
    let columns = vec![column("guid"), column("domain"), sealed, nullable("note")];
    Table {
        indexes: vec![index("apps_domain_idx", &["domain"])],
        ..table("apps", columns)
    }
}

fn manifest(changes: Vec<Change>) -> Manifest {
    Manifest {
        version: 2,
        name: "step".into(),
        summary: "a step".into(),
        changes,
        up: Vec::new(),
        down: Vec::new(),
        reversible: true,
        leaves_residue: false,
        removes_rows: false,
    }
}

/// The tables `apps`, `plain` without a partition key, and `other` with the partition key of
/// `apps`.
fn before() -> Layout {
    let plain = Table {
        partition_key: None,
        ..table("plain", vec![column("guid"), nullable("text")])
    };
    let other = table("other", vec![column("guid"), nullable("extra")]);
    let changes = [apps(), plain, other].map(Change::CreateTable).to_vec();
    Layout::default().apply(&manifest(changes)).unwrap()
}

fn access(table: &str, reads: &[&str], writes: &[&str]) -> Access {
    Access {
        table: table.into(),
        reads: names(reads),
        writes: names(writes),
        encodings: Vec::new(),
        reshapes: false,
    }
}

#[track_caller]
fn rejected(changes: Vec<Change>) -> Problem {
    rejected_manifest(manifest(changes))
}

#[track_caller]
fn rejected_manifest(manifest: Manifest) -> Problem {
    let error = before()
        .apply(&manifest)
        .expect_err("the manifest is invalid");
    assert!(error.to_string().contains("migration 2-step"), "{error}");
    error.problem
}

fn add(column: Column) -> Change {
    Change::AddColumn {
        table: "apps".into(),
        column,
    }
}

fn alter(column: Column) -> Change {
    Change::AlterColumn {
        table: "apps".into(),
        column,
    }
}

#[test]
fn change_of_an_unknown_table_is_rejected() {
    let none = || "none".to_owned();
    for change in [
        Change::DropTable { table: none() },
        Change::RenameTable {
            from: none(),
            to: "some".into(),
        },
        Change::AddColumn {
            table: none(),
            column: nullable("x"),
        },
        Change::AlterColumn {
            table: none(),
            column: nullable("x"),
        },
        Change::DropColumn {
            table: none(),
            column: "x".into(),
        },
        Change::RenameColumn {
            table: none(),
            from: "x".into(),
            to: "y".into(),
        },
        Change::MoveColumn {
            column: "note".into(),
            from: none(),
            to: "apps".into(),
        },
        Change::MoveColumn {
            column: "note".into(),
            from: "apps".into(),
            to: none(),
        },
        Change::SetPrimaryKey {
            table: none(),
            columns: names(&["x"]),
        },
        Change::CreateIndex {
            table: none(),
            index: index("i", &["x"]),
        },
        Change::DropIndex {
            table: none(),
            index: "i".into(),
        },
    ] {
        assert_eq!(
            rejected(vec![change.clone()]),
            Problem::UnknownTable { table: none() },
            "{change:?}"
        );
    }
}

#[test]
fn change_of_an_unknown_column_is_rejected() {
    let (table, x) = (|| "apps".to_owned(), || "x".to_owned());
    for change in [
        alter(nullable("x")),
        Change::DropColumn {
            table: table(),
            column: x(),
        },
        Change::RenameColumn {
            table: table(),
            from: x(),
            to: "y".into(),
        },
        Change::MoveColumn {
            column: x(),
            from: table(),
            to: "other".into(),
        },
        Change::SetPrimaryKey {
            table: table(),
            columns: names(&["x"]),
        },
        Change::CreateIndex {
            table: table(),
            index: index("i", &["x"]),
        },
    ] {
        assert_eq!(
            rejected(vec![change.clone()]),
            Problem::UnknownColumn {
                table: table(),
                column: x()
            },
            "{change:?}"
        );
    }
}

#[test]
fn duplicate_tables_columns_and_indexes_are_rejected() {
    let duplicate = Problem::DuplicateTable {
        table: "apps".into(),
    };
    assert_eq!(rejected(vec![Change::CreateTable(apps())]), duplicate);
    assert_eq!(
        rejected(vec![Change::RenameTable {
            from: "other".into(),
            to: "apps".into()
        }]),
        duplicate
    );
    let column_twice = |table: &str, column: &str| Problem::DuplicateColumn {
        table: table.into(),
        column: column.into(),
    };
    assert_eq!(
        rejected(vec![add(nullable("note"))]),
        column_twice("apps", "note")
    );
    let rename = Change::RenameColumn {
        table: "apps".into(),
        from: "note".into(),
        to: "domain".into(),
    };
    assert_eq!(rejected(vec![rename]), column_twice("apps", "domain"));
    let into_other = Change::MoveColumn {
        column: "extra".into(),
        from: "apps".into(),
        to: "other".into(),
    };
    assert_eq!(
        rejected(vec![add(nullable("extra")), into_other]),
        column_twice("other", "extra")
    );
    let new = table("new", vec![column("guid"), column("guid")]);
    assert_eq!(
        rejected(vec![Change::CreateTable(new)]),
        column_twice("new", "guid")
    );
    let again = Change::CreateIndex {
        table: "other".into(),
        index: index("apps_domain_idx", &["extra"]),
    };
    assert_eq!(
        rejected(vec![again]),
        Problem::DuplicateIndex {
            index: "apps_domain_idx".into()
        }
    );
}

#[test]
fn reserved_and_malformed_names_are_rejected() {
    let long = "a".repeat(64);
    for name in [
        "Apps",
        "1apps",
        "apps__2",
        "",
        "bbs_mine",
        "configurations",
        "locks",
        "a-b",
        "_a",
        long.as_str(),
    ] {
        let problem = Problem::Name { name: name.into() };
        assert_eq!(
            rejected(vec![Change::CreateTable(table(name, vec![column("guid")]))]),
            problem
        );
        assert_eq!(
            rejected(vec![Change::RenameTable {
                from: "apps".into(),
                to: name.into()
            }]),
            problem
        );
    }
    for name in ["Note", "no te", "a__b"] {
        let problem = Problem::Name { name: name.into() };
        assert_eq!(rejected(vec![add(nullable(name))]), problem);
        let rename = Change::RenameColumn {
            table: "apps".into(),
            from: "note".into(),
            to: name.into(),
        };
        assert_eq!(rejected(vec![rename]), problem);
        assert_eq!(
            rejected(vec![Change::CreateIndex {
                table: "apps".into(),
                index: index(name, &["note"])
            }]),
            problem
        );
    }
    for name in ["bbs_health_check", "bbs_lrp_definitions", "bbs_lrp_updates"] {
        let of_the_catalog = table(name, vec![column("guid")]);
        before()
            .apply(&manifest(vec![Change::CreateTable(of_the_catalog)]))
            .expect("a name of the catalog");
    }
    let longest = table(&"a".repeat(63), vec![column("guid")]);
    before()
        .apply(&manifest(vec![Change::CreateTable(longest)]))
        .expect("63 characters fit");
}

#[test]
fn nullable_and_encrypted_columns_are_rejected_as_keys() {
    let set = |columns: &[&str]| Change::SetPrimaryKey {
        table: "apps".into(),
        columns: names(columns),
    };
    let unfit = |column: &str| Problem::UnfitKey {
        table: "apps".into(),
        column: column.into(),
    };
    assert_eq!(
        rejected(vec![set(&[])]),
        Problem::NoKey {
            table: "apps".into()
        }
    );
    assert_eq!(rejected(vec![set(&["note"])]), unfit("note"));
    assert_eq!(rejected(vec![set(&["routes"])]), unfit("routes"));
    let twice = Problem::RepeatedKey {
        table: "apps".into(),
        column: "guid".into(),
    };
    assert_eq!(rejected(vec![set(&["guid", "guid"])]), twice);
    assert_eq!(rejected(vec![alter(nullable("guid"))]), unfit("guid"));
    let key = |columns: &[&str]| Change::CreateIndex {
        table: "apps".into(),
        index: index("i", columns),
    };
    assert_eq!(rejected(vec![key(&["routes"])]), unfit("routes"));
    assert_eq!(
        rejected(vec![key(&[])]),
        Problem::EmptyIndex { index: "i".into() }
    );
    before()
        .apply(&manifest(vec![key(&["note"])]))
        .expect("an index may cover NULL");
    let no_columns = Table {
        primary_key: Vec::new(),
        partition_key: None,
        ..table("new", Vec::new())
    };
    assert_eq!(
        rejected(vec![Change::CreateTable(no_columns)]),
        Problem::NoColumns {
            table: "new".into()
        }
    );
}

#[test]
fn partition_key_must_be_first_in_the_primary_key_or_an_index() {
    let order = Problem::PartitionKeyOrder {
        table: "apps".into(),
        column: "guid".into(),
    };
    let swapped = Change::SetPrimaryKey {
        table: "apps".into(),
        columns: names(&["domain", "guid"]),
    };
    assert_eq!(rejected(vec![swapped.clone()]), order);
    let lead = Change::CreateIndex {
        table: "apps".into(),
        index: index("apps_guid_idx", &["guid"]),
    };
    before()
        .apply(&manifest(vec![swapped, lead]))
        .expect("an index leads with it");
}

#[test]
fn primary_key_of_a_table_without_units_cannot_change() {
    let rekeyed = Change::SetPrimaryKey {
        table: "plain".into(),
        columns: names(&["guid"]),
    };
    assert_eq!(
        rejected(vec![rekeyed]),
        Problem::RekeyWithoutUnits {
            table: "plain".into()
        }
    );
}

#[test]
fn columns_of_keys_and_indexes_cannot_be_dropped_or_moved() {
    for column in ["guid", "domain"] {
        let in_use = Problem::ColumnInUse {
            table: "apps".into(),
            column: column.into(),
        };
        assert_eq!(
            rejected(vec![Change::DropColumn {
                table: "apps".into(),
                column: column.into()
            }]),
            in_use
        );
        let moved = Change::MoveColumn {
            column: column.into(),
            from: "apps".into(),
            to: "other".into(),
        };
        if column == "domain" {
            assert_eq!(rejected(vec![moved]), in_use);
        }
    }
    let unknown = Problem::UnknownIndex {
        table: "apps".into(),
        index: "none".into(),
    };
    assert_eq!(
        rejected(vec![Change::DropIndex {
            table: "apps".into(),
            index: "none".into()
        }]),
        unknown
    );
}

#[test]
fn sealing_or_default_of_another_type_is_rejected() {
    let sealing = Problem::Sealing {
        table: "apps".into(),
        column: "x".into(),
    };
    let number = Column {
        kind: ColumnType::Integer,
        sealing: Sealing::Sealed,
        ..nullable("x")
    };
    assert_eq!(rejected(vec![add(number)]), sealing);
    let defaulted = Column {
        default: Some(Literal::Text(String::new())),
        sealing: Sealing::Enveloped,
        ..nullable("x")
    };
    assert_eq!(rejected(vec![add(defaulted)]), sealing);
    for (kind, default) in [
        (ColumnType::Integer, Literal::Text("1".into())),
        (ColumnType::Boolean, Literal::Integer(1)),
        (ColumnType::Text, Literal::Boolean(true)),
    ] {
        let wrong = Column {
            kind,
            default: Some(default),
            ..nullable("x")
        };
        assert_eq!(
            rejected(vec![add(wrong)]),
            Problem::DefaultType {
                table: "apps".into(),
                column: "x".into()
            }
        );
    }
}

#[test]
fn required_column_without_value_or_default_is_rejected() {
    let no_value = |column: &str| Problem::NoValue {
        table: "apps".into(),
        column: column.into(),
    };
    assert_eq!(rejected(vec![add(column("x"))]), no_value("x"));
    assert_eq!(rejected(vec![alter(column("note"))]), no_value("note"));
    let written = Manifest {
        up: vec![access("apps", &[], &["x"])],
        ..manifest(vec![add(column("x"))])
    };
    before()
        .apply(&written)
        .expect("the row function writes it");
    let default = Column {
        default: Some(Literal::Text("d".into())),
        ..column("x")
    };
    before()
        .apply(&manifest(vec![add(default)]))
        .expect("the default supplies it");
    let dropped = Change::DropColumn {
        table: "apps".into(),
        column: "routes".into(),
    };
    assert_eq!(
        rejected(vec![dropped.clone()]),
        no_value("routes"),
        "the way down has no value for it"
    );
    let one_way = Manifest {
        reversible: false,
        ..manifest(vec![dropped])
    };
    before().apply(&one_way).expect("there is no way down");
}

#[test]
fn change_of_a_columns_encoding_is_rejected() {
    let retyped = Problem::Retyped {
        table: "apps".into(),
        column: "note".into(),
    };
    for kind in [ColumnType::Integer, ColumnType::Boolean] {
        assert_eq!(
            rejected(vec![alter(Column {
                kind,
                ..nullable("note")
            })]),
            retyped
        );
    }
    let wider = alter(Column {
        kind: ColumnType::LongText,
        ..nullable("note")
    });
    let after = before().apply(&manifest(vec![wider])).unwrap();
    assert_eq!(
        after.tables["apps"].find_column("note").unwrap().kind,
        ColumnType::LongText
    );
}

#[test]
fn column_moves_only_between_tables_with_equal_keys() {
    let moved = |from: &str, to: &str| Change::MoveColumn {
        column: "note".into(),
        from: from.into(),
        to: to.into(),
    };
    let between = |from: &str, to: &str| Problem::MoveBetween {
        from: from.into(),
        to: to.into(),
    };
    assert_eq!(
        rejected(vec![moved("apps", "plain")]),
        between("apps", "plain")
    );
    let rekeyed = Change::SetPrimaryKey {
        table: "apps".into(),
        columns: names(&["guid", "domain"]),
    };
    assert_eq!(
        rejected(vec![rekeyed, moved("apps", "other")]),
        between("apps", "other")
    );
    let after = before()
        .apply(&manifest(vec![moved("apps", "other")]))
        .unwrap();
    assert!(after.tables["apps"].find_column("note").is_none());
    assert!(after.tables["other"].find_column("note").is_some());
}

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
        encodings: Vec::new(),
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
            encodings: Vec::new(),
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

#[test]
fn inverse_changes_restore_the_layout_before() {
    let changes = vec![
        Change::RenameTable {
            from: "apps".into(),
            to: "programs".into(),
        },
        Change::AddColumn {
            table: "programs".into(),
            column: nullable("new"),
        },
        Change::RenameColumn {
            table: "programs".into(),
            from: "domain".into(),
            to: "area".into(),
        },
        Change::AlterColumn {
            table: "programs".into(),
            column: Column {
                kind: ColumnType::LongText,
                ..nullable("note")
            },
        },
        Change::MoveColumn {
            column: "extra".into(),
            from: "other".into(),
            to: "programs".into(),
        },
        Change::DropIndex {
            table: "programs".into(),
            index: "apps_domain_idx".into(),
        },
        Change::CreateIndex {
            table: "programs".into(),
            index: index("new_idx", &["new"]),
        },
        Change::SetPrimaryKey {
            table: "other".into(),
            columns: names(&["guid"]),
        },
        Change::DropTable {
            table: "plain".into(),
        },
        Change::CreateTable(table("made", vec![column("guid")])),
    ];
    let manifest = manifest(changes);
    let after = before().apply(&manifest).unwrap();
    let renamed = &after.tables["programs"];
    assert!(renamed.find_column("area").is_some() && renamed.find_column("extra").is_some());
    let mut back = after;
    for change in directed_changes(&before(), &manifest, Direction::Down) {
        back.change(&change).unwrap();
    }
    let sorted = |mut layout: Layout| {
        layout.tables.values_mut().for_each(|table| {
            table
                .columns
                .sort_by(|one, other| one.name.cmp(&other.name))
        });
        layout
    };
    assert_eq!(sorted(back), sorted(before()));
    assert_eq!(
        directed_changes(&before(), &manifest, Direction::Up),
        manifest.changes
    );
}

#[test]
fn layout_history_has_the_layout_at_each_version_and_rejects_descending_versions() {
    let first = Manifest {
        version: 1,
        reversible: false,
        ..manifest(vec![Change::CreateTable(apps())])
    };
    let second = manifest(vec![add(nullable("new"))]);
    let history = LayoutHistory::new([&first, &second]).unwrap();
    assert_eq!(history.newest(), 2);
    assert!(history.at(0).unwrap().tables.is_empty());
    assert!(history.at(3).is_none());
    assert!(
        history.at(1).unwrap().tables["apps"]
            .find_column("new")
            .is_none()
    );
    assert!(
        history.at(2).unwrap().tables["apps"]
            .find_column("new")
            .is_some()
    );
    assert_eq!(history.before(2), history.at(1).unwrap());
    for wrong in [[&second, &first], [&second, &second]] {
        let error = LayoutHistory::new(wrong).unwrap_err();
        assert!(
            matches!(
                error.problem,
                Problem::NotAscending { .. } | Problem::UnknownTable { .. }
            ),
            "{error}"
        );
    }
    let same = Manifest {
        version: 1,
        ..manifest(vec![add(nullable("new"))])
    };
    assert_eq!(
        LayoutHistory::new([&first, &same]).unwrap_err().problem,
        Problem::NotAscending { before: 1 }
    );
}

/// Each of these leaves a sound layout behind, so only a check after each change finds it.
#[test]
fn layout_that_breaks_a_rule_between_two_changes_is_rejected() {
    let keyless = Table {
        primary_key: Vec::new(),
        ..table("new", vec![column("guid")])
    };
    let drop = || Change::DropTable {
        table: "new".into(),
    };
    let created = rejected(vec![Change::CreateTable(keyless), drop()]);
    assert_eq!(
        created,
        Problem::NoKey {
            table: "new".into()
        }
    );
    let unknown = Table {
        partition_key: Some("none".into()),
        ..table("new", vec![column("guid")])
    };
    let created = rejected(vec![Change::CreateTable(unknown), drop()]);
    assert_eq!(
        created,
        Problem::UnknownColumn {
            table: "new".into(),
            column: "none".into()
        }
    );
    let set = |columns: &[&str]| Change::SetPrimaryKey {
        table: "apps".into(),
        columns: names(columns),
    };
    let unfit = Problem::UnfitKey {
        table: "apps".into(),
        column: "note".into(),
    };
    assert_eq!(
        rejected(vec![set(&["guid", "note"]), set(&["guid"])]),
        unfit
    );
    let sealed = Column {
        sealing: Sealing::Sealed,
        ..column("guid")
    };
    let unfit = Problem::UnfitKey {
        table: "apps".into(),
        column: "guid".into(),
    };
    assert_eq!(rejected(vec![alter(sealed), alter(column("guid"))]), unfit);
}

#[test]
fn layout_and_manifest_are_bounded() {
    let note = |number: usize| add(nullable(&format!("note_{number}")));
    let index = || {
        [
            Change::CreateIndex {
                table: "other".into(),
                index: index("i", &["extra"]),
            },
            Change::DropIndex {
                table: "other".into(),
                index: "i".into(),
            },
        ]
    };
    let many: Vec<_> = (0..MOST_CHANGES).flat_map(|_| index()).collect();
    assert_eq!(
        rejected(many),
        Problem::TooManyChanges {
            changes: 2 * MOST_CHANGES
        }
    );
    assert_eq!(
        rejected((0..MOST_COLUMNS).map(note).collect()),
        Problem::TooManyColumns
    );
    let create = |number: usize| {
        Change::CreateTable(table(&format!("table_{number}"), vec![column("guid")]))
    };
    assert_eq!(
        rejected((0..MOST_TABLES).map(create).collect()),
        Problem::TooManyTables
    );
    let of = |length: usize| Column {
        default: Some(Literal::Text("d".repeat(length))),
        ..nullable("x")
    };
    let long = Problem::LongDefault {
        table: "apps".into(),
        column: "x".into(),
    };
    assert_eq!(rejected(vec![add(of(LONGEST_DEFAULT + 1))]), long);
    before()
        .apply(&manifest(vec![add(of(LONGEST_DEFAULT))]))
        .expect("it is as long as a default may be");
    before()
        .apply(&manifest((0..900).map(note).collect()))
        .expect("they are fewer than a layout may have");
}

/// Goal: the time of folding a manifest grows with its size, not with the square.
/// Method: counts the checks of columns.
#[test]
fn added_column_is_checked_when_it_is_added_and_in_the_final_layout() {
    let checks = |added: usize| {
        CHECKED_COLUMNS.set(0);
        before()
            .apply(&manifest(
                (0..added)
                    .map(|number| add(nullable(&format!("note_{number}"))))
                    .collect(),
            ))
            .unwrap();
        CHECKED_COLUMNS.get()
    };
    let of_the_layout_before = checks(0);
    for added in [1, 100, 900] {
        assert_eq!(checks(added), of_the_layout_before + 2 * added);
    }
}

#[test]
fn largest_manifest_of_many_versions_is_folded() {
    let changes = |version: u64| {
        (0..MOST_CHANGES / 2).flat_map(move |number| {
            let name = format!("note_{version}_{number}");
            [
                add(nullable(&name)),
                Change::DropColumn {
                    table: "apps".into(),
                    column: name,
                },
            ]
        })
    };
    let mut layout = before();
    for version in 3..23 {
        layout = layout
            .apply(&Manifest {
                version,
                ..manifest(changes(version).collect())
            })
            .unwrap();
    }
    assert_eq!(
        layout,
        before(),
        "each version drops the columns that it adds"
    );
    let error = layout
        .apply(&manifest(vec![Change::DropTable {
            table: "t".repeat(10_000),
        }]))
        .unwrap_err();
    assert!(error.to_string().len() < 1_000, "{error}");
}
