//! Every error of an invalid manifest, and the layouts that valid ones produce.

mod accesses;
mod bounds;
mod keys;

use super::*;
use crate::layout::manifest::Access;
use crate::layout::schema::{Column, ColumnType, Table};

fn column(name: &str) -> Column {
    Column::varchar(name, 255)
}

fn nullable(name: &str) -> Column {
    column(name).nullable()
}

/// A table of units with one column, which is their key.
fn table(name: &str) -> Table {
    Table::new(name)
        .column(column("guid"))
        .primary_key(["guid"])
        .partition_key("guid")
}

fn apps() -> Table {
    table("apps")
        .column(column("domain"))
        .column(column("routes").sealed())
        .column(nullable("note"))
        .index("apps_domain_idx", ["domain"])
}

fn step() -> Manifest {
    Manifest::new(2, "step").summary("a step")
}

/// The tables `apps`, `plain` without a partition key, and `other` with the partition key of
/// `apps`.
fn before() -> Layout {
    let plain = Table {
        partition_key: None,
        ..table("plain").column(nullable("text"))
    };
    let other = table("other").column(nullable("extra"));
    let tables = [apps(), plain, other];
    let created = tables.into_iter().fold(step(), Manifest::create_table);
    Layout::default().apply(&created).unwrap()
}

#[track_caller]
fn rejected(manifest: Manifest) -> Problem {
    let error = before()
        .apply(&manifest)
        .expect_err("the manifest is invalid");
    assert!(error.to_string().contains("migration 2-step"), "{error}");
    error.problem
}

fn add(column: Column) -> Manifest {
    step().add_column("apps", column)
}

fn alter(column: Column) -> Manifest {
    step().alter_column("apps", column)
}

#[test]
fn change_of_an_unknown_table_is_rejected() {
    for manifest in [
        step().drop_table("none"),
        step().rename_table("none", "some"),
        step().add_column("none", nullable("x")),
        step().alter_column("none", nullable("x")),
        step().drop_column("none", "x"),
        step().rename_column("none", "x", "y"),
        step().move_column("note", "none", "apps"),
        step().move_column("note", "apps", "none"),
        step().set_primary_key("none", ["x"]),
        step().create_index("none", "i", ["x"]),
        step().drop_index("none", "i"),
    ] {
        let changes = manifest.changes.clone();
        let table = "none".to_owned();
        assert_eq!(
            rejected(manifest),
            Problem::UnknownTable { table },
            "{changes:?}"
        );
    }
}

#[test]
fn change_of_an_unknown_column_is_rejected() {
    for manifest in [
        alter(nullable("x")),
        step().drop_column("apps", "x"),
        step().rename_column("apps", "x", "y"),
        step().move_column("x", "apps", "other"),
        step().set_primary_key("apps", ["x"]),
        step().create_index("apps", "i", ["x"]),
    ] {
        let changes = manifest.changes.clone();
        assert_eq!(
            rejected(manifest),
            Problem::UnknownColumn {
                table: "apps".into(),
                column: "x".into()
            },
            "{changes:?}"
        );
    }
}

#[test]
fn duplicate_tables_columns_and_indexes_are_rejected() {
    let duplicate = Problem::DuplicateTable {
        table: "apps".into(),
    };
    assert_eq!(rejected(step().create_table(apps())), duplicate);
    assert_eq!(rejected(step().rename_table("other", "apps")), duplicate);
    let column_twice = |table: &str, column: &str| Problem::DuplicateColumn {
        table: table.into(),
        column: column.into(),
    };
    assert_eq!(
        rejected(add(nullable("note"))),
        column_twice("apps", "note")
    );
    assert_eq!(
        rejected(step().rename_column("apps", "note", "domain")),
        column_twice("apps", "domain")
    );
    assert_eq!(
        rejected(add(nullable("extra")).move_column("extra", "apps", "other")),
        column_twice("other", "extra")
    );
    assert_eq!(
        rejected(step().create_table(table("new").column(column("guid")))),
        column_twice("new", "guid")
    );
    assert_eq!(
        rejected(step().create_index("other", "apps_domain_idx", ["extra"])),
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
        assert_eq!(rejected(step().create_table(table(name))), problem);
        assert_eq!(rejected(step().rename_table("apps", name)), problem);
    }
    for name in ["Note", "no te", "a__b"] {
        let problem = Problem::Name { name: name.into() };
        assert_eq!(rejected(add(nullable(name))), problem);
        assert_eq!(
            rejected(step().rename_column("apps", "note", name)),
            problem
        );
        assert_eq!(
            rejected(step().create_index("apps", name, ["note"])),
            problem
        );
    }
    for name in ["bbs_health_check", "bbs_lrp_definitions", "bbs_lrp_updates"] {
        before()
            .apply(&step().create_table(table(name)))
            .expect("a name of the catalog");
    }
    before()
        .apply(&step().create_table(table(&"a".repeat(51))))
        .expect("51 characters fit, with a version 63");
}

#[test]
fn sealing_or_default_of_another_type_is_rejected() {
    let sealing = Problem::Sealing {
        table: "apps".into(),
        column: "x".into(),
    };
    let number = Column::integer("x").nullable().sealed();
    assert_eq!(rejected(add(number)), sealing);
    let defaulted = nullable("x").default("").enveloped();
    assert_eq!(rejected(add(defaulted)), sealing);
    for wrong in [
        Column::integer("x").default("1"),
        Column::boolean("x").default(1),
        Column::text("x").default(true),
    ] {
        assert_eq!(
            rejected(add(wrong.nullable())),
            Problem::DefaultType {
                table: "apps".into(),
                column: "x".into()
            }
        );
    }
}

#[test]
fn column_that_a_database_does_not_create_is_rejected() {
    let length = Problem::VarcharLength {
        table: "apps".into(),
        column: "x".into(),
    };
    let varchar = |length: u32| Column::varchar("x", length).nullable();
    for wrong in [0, 16_384, u32::MAX] {
        assert_eq!(rejected(add(varchar(wrong))), length, "{wrong}");
    }
    let too_large = Problem::DefaultTooLarge {
        table: "apps".into(),
        column: "x".into(),
    };
    let integer = |default: i64| Column::integer("x").default(default);
    for wrong in [
        varchar(3).default("äöüß"),
        varchar(3).default("a\0b"),
        Column::text("x").default("\0"),
        integer(i64::from(i32::MAX) + 1),
        integer(i64::from(i32::MIN) - 1),
    ] {
        assert_eq!(rejected(add(wrong)), too_large);
    }
    for fitting in [
        varchar(1),
        varchar(16_383),
        varchar(3).default("äöü"),
        integer(i32::MAX.into()),
        integer(i32::MIN.into()),
        Column::big_integer("x").default(i64::MIN),
    ] {
        before()
            .apply(&add(fitting))
            .expect("it is within the bounds");
    }
}

#[test]
fn required_column_without_value_or_default_is_rejected() {
    let no_value = |column: &str| Problem::NoValue {
        table: "apps".into(),
        column: column.into(),
    };
    assert_eq!(rejected(add(column("x"))), no_value("x"));
    assert_eq!(rejected(alter(column("note"))), no_value("note"));
    before()
        .apply(&add(column("x")).up(Access::to("apps").writes(["x"])))
        .expect("the row function writes it");
    before()
        .apply(&add(column("x").default("d")))
        .expect("the default supplies it");
    let dropped = || step().drop_column("apps", "routes");
    assert_eq!(
        rejected(dropped()),
        no_value("routes"),
        "the way down has no value for it"
    );
    before()
        .apply(&dropped().irreversible())
        .expect("there is no way down");
    // Under other names before the last change.
    assert_eq!(
        rejected(add(column("x")).rename_column("apps", "x", "y")),
        no_value("y")
    );
    let renamed = step().rename_column("apps", "note", "text");
    assert_eq!(
        rejected(renamed.alter_column("apps", column("text"))),
        no_value("text")
    );
    let renamed = step().rename_column("apps", "routes", "ways");
    assert_eq!(
        rejected(renamed.drop_column("apps", "ways")),
        no_value("routes"),
        "the way down has no value for it"
    );
    let created = step().create_table(table("made"));
    before()
        .apply(&created.add_column("made", column("x")))
        .expect("the table has no rows");
}

#[test]
fn change_of_a_columns_encoding_is_rejected() {
    let retyped = Problem::Retyped {
        table: "apps".into(),
        column: "note".into(),
    };
    for other in [Column::integer("note"), Column::boolean("note")] {
        assert_eq!(rejected(alter(other.nullable())), retyped);
    }
    let wider = alter(Column::long_text("note").nullable());
    let after = before().apply(&wider).unwrap();
    assert_eq!(
        after.tables["apps"].find_column("note").unwrap().kind,
        ColumnType::LongText
    );
}

/// Goal: a column whose values could not be restored is refused. Method: in each manifest, a table
/// has a name of a column before and after it, and the columns are different ones.
#[test]
fn column_under_the_name_of_another_one_is_rejected() {
    let again = |table: &str, column: &str| Problem::AddedAgain {
        table: table.into(),
        column: column.into(),
    };
    let dropped = || step().drop_column("apps", "note");
    assert_eq!(
        rejected(dropped().add_column("apps", Column::integer("note").nullable())),
        again("apps", "note")
    );
    let renamed = dropped().rename_table("apps", "programs");
    assert_eq!(
        rejected(renamed.add_column("programs", nullable("note"))),
        again("programs", "note")
    );
    let away = step().rename_column("apps", "note", "text");
    assert_eq!(
        rejected(away.add_column("apps", nullable("note"))),
        again("apps", "note")
    );
    let moved = step().move_column("note", "apps", "other");
    assert_eq!(
        rejected(moved.add_column("apps", nullable("note"))),
        again("apps", "note")
    );
    // The way down adds the dropped column.
    let replaced = || {
        step()
            .drop_column("apps", "routes")
            .rename_column("apps", "note", "routes")
    };
    assert_eq!(rejected(replaced()), again("apps", "routes"));
    before()
        .apply(&replaced().irreversible())
        .expect("there is no way down");
    let text = rejected(dropped().add_column("apps", nullable("note"))).to_string();
    assert!(text.contains("give the new column another name") && text.contains("`rename_column`"));
}

#[test]
fn column_that_is_added_and_dropped_or_of_a_new_table_may_have_any_name() {
    let passing = add(nullable("new")).drop_column("apps", "new");
    before().apply(&passing).expect("it is a new name");
    let table_of_that_name = step()
        .drop_table("other")
        .create_table(table("other"))
        .add_column("other", nullable("extra"));
    before()
        .apply(&table_of_that_name)
        .expect("another table has that name");
}

/// The values of a dropped column are restored to the table that it was dropped from.
#[test]
fn column_that_moves_in_the_migration_that_adds_or_drops_it_is_rejected() {
    let moved = |table: &str, column: &str| Problem::MovedWithin {
        table: table.into(),
        column: column.into(),
    };
    let added = || add(nullable("new")).move_column("new", "apps", "other");
    assert_eq!(rejected(added()), moved("apps", "new"));
    let created = step().create_table(table("made").column(nullable("new")));
    assert_eq!(
        rejected(created.move_column("new", "made", "other")),
        moved("made", "new")
    );
    // The way down adds the dropped column, and creates the dropped table.
    let dropped = || step().move_column("note", "apps", "other");
    assert_eq!(
        rejected(dropped().drop_column("other", "note")),
        moved("other", "note")
    );
    assert_eq!(
        rejected(dropped().drop_table("other")),
        moved("other", "note")
    );
    for irreversible in [added(), dropped().drop_table("other")] {
        before()
            .apply(&irreversible.irreversible())
            .expect("nothing is restored");
    }
    let renamed = step().rename_column("apps", "note", "text");
    before()
        .apply(&renamed.move_column("text", "apps", "other"))
        .expect("it is the same column");
}

#[test]
fn column_moves_only_between_tables_with_equal_keys() {
    let between = |from: &str, to: &str| Problem::MoveBetween {
        from: from.into(),
        to: to.into(),
    };
    assert_eq!(
        rejected(step().move_column("note", "apps", "plain")),
        between("apps", "plain")
    );
    let rekeyed = step().set_primary_key("apps", ["guid", "domain"]);
    assert_eq!(
        rejected(rekeyed.move_column("note", "apps", "other")),
        between("apps", "other")
    );
    let after = before()
        .apply(&step().move_column("note", "apps", "other"))
        .unwrap();
    assert!(after.tables["apps"].find_column("note").is_none());
    assert!(after.tables["other"].find_column("note").is_some());
}

#[test]
fn inverse_changes_restore_the_layout_before() {
    let manifest = step()
        .rename_table("apps", "programs")
        .add_column("programs", nullable("new"))
        .rename_column("programs", "domain", "area")
        .alter_column("programs", Column::long_text("note").nullable())
        .move_column("extra", "other", "programs")
        .drop_index("programs", "apps_domain_idx")
        .create_index("programs", "new_idx", ["new"])
        .set_primary_key("other", ["guid"])
        .drop_table("plain")
        .create_table(table("made"));
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
        ..step().create_table(apps()).irreversible()
    };
    let second = add(nullable("new"));
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
        ..add(nullable("new"))
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
        ..table("new")
    };
    assert_eq!(
        rejected(step().create_table(keyless).drop_table("new")),
        Problem::NoKey {
            table: "new".into()
        }
    );
    let unknown = table("new").partition_key("none");
    assert_eq!(
        rejected(step().create_table(unknown).drop_table("new")),
        Problem::UnknownColumn {
            table: "new".into(),
            column: "none".into()
        }
    );
    let unfit = |column: &str| Problem::UnfitKey {
        table: "apps".into(),
        column: column.into(),
    };
    let with_note = step().set_primary_key("apps", ["guid", "note"]);
    assert_eq!(
        rejected(with_note.set_primary_key("apps", ["guid"])),
        unfit("note")
    );
    let sealed = alter(column("guid").sealed());
    assert_eq!(
        rejected(sealed.alter_column("apps", column("guid"))),
        unfit("guid")
    );
}
