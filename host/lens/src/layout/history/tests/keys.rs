//! Columns that may be part of a key, and those that are.

use super::*;

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
