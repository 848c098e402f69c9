//! Every error of an invalid manifest, and the layouts that valid ones produce.

mod accesses;
mod bounds;
mod keys;

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
