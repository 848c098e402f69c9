//! Columns that may be part of a key, and those that are.

use super::*;

#[test]
fn nullable_and_encrypted_columns_are_rejected_as_keys() {
    let unfit = |column: &str| Problem::UnfitKey {
        table: "apps".into(),
        column: column.into(),
    };
    assert_eq!(
        rejected(step().set_primary_key("apps", [])),
        Problem::NoKey {
            table: "apps".into()
        }
    );
    for column in ["note", "routes"] {
        assert_eq!(
            rejected(step().set_primary_key("apps", [column])),
            unfit(column)
        );
    }
    let twice = Problem::RepeatedKey {
        table: "apps".into(),
        column: "guid".into(),
    };
    assert_eq!(
        rejected(step().set_primary_key("apps", ["guid", "guid"])),
        twice
    );
    assert_eq!(rejected(alter(nullable("guid"))), unfit("guid"));
    assert_eq!(
        rejected(step().create_index("apps", "i", ["routes"])),
        unfit("routes")
    );
    assert_eq!(
        rejected(step().create_index("apps", "i", [])),
        Problem::EmptyIndex { index: "i".into() }
    );
    before()
        .apply(&step().create_index("apps", "i", ["note"]))
        .expect("an index may cover NULL");
    assert_eq!(
        rejected(step().create_table(Table::new("new"))),
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
    let swapped = || step().set_primary_key("apps", ["domain", "guid"]);
    assert_eq!(rejected(swapped()), order);
    before()
        .apply(&swapped().create_index("apps", "apps_guid_idx", ["guid"]))
        .expect("an index leads with it");
}

#[test]
fn primary_key_of_a_table_without_units_cannot_change() {
    assert_eq!(
        rejected(step().set_primary_key("plain", ["guid"])),
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
        assert_eq!(rejected(step().drop_column("apps", column)), in_use);
        if column == "domain" {
            assert_eq!(
                rejected(step().move_column(column, "apps", "other")),
                in_use
            );
        }
    }
    let unknown = Problem::UnknownIndex {
        table: "apps".into(),
        index: "none".into(),
    };
    assert_eq!(rejected(step().drop_index("apps", "none")), unknown);
}

#[test]
fn key_or_index_that_mysql_does_not_create_is_rejected() {
    let text = || Problem::TextInKey {
        table: "apps".into(),
        column: "x".into(),
    };
    for kind in [
        ColumnType::Text,
        ColumnType::MediumText,
        ColumnType::LongText,
    ] {
        let added = || add(Column::new("x", kind).default(""));
        assert_eq!(
            rejected(added().set_primary_key("apps", ["guid", "x"])),
            text()
        );
        assert_eq!(
            rejected(added().create_index("apps", "i", ["domain", "x"])),
            text()
        );
    }
    let altered = alter(Column::text("domain"));
    assert!(matches!(rejected(altered), Problem::TextInKey { .. }));

    let of = |length: u32| {
        let varchar = Column::varchar("x", length).nullable();
        let numbers = add(varchar)
            .add_column("apps", Column::boolean("flag").nullable())
            .add_column("apps", Column::integer("place").nullable())
            .add_column("apps", Column::big_integer("time").nullable());
        numbers.create_index("apps", "i", ["x", "flag", "place", "time"])
    };
    let long = rejected(of(765));
    let table = "apps".into();
    assert_eq!(long, Problem::LongKey { table, bytes: 3073 });
    before().apply(&of(764)).expect("it has 3069 bytes");
    let longest = add(Column::varchar("x", 768).nullable());
    before()
        .apply(&longest.create_index("apps", "i", ["x"]))
        .expect("it is as long as a key may be");
}
