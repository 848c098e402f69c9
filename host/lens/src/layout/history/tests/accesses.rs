//! Errors of the declared access to tables and columns.

use super::*;

#[test]
fn access_to_an_unknown_table_or_column_is_rejected() {
    let direction = Direction::Up;
    let up = |access: Access| rejected(add(nullable("new")).up(access));
    let apps = || Access::to("apps");
    assert_eq!(
        up(Access::to("none")),
        Problem::UnknownTable {
            table: "none".into()
        }
    );
    assert_eq!(
        up(Access::to("plain").writes(["text"])),
        Problem::AccessWithoutUnits {
            direction,
            table: "plain".into()
        }
    );
    let table = || "apps".to_owned();
    assert_eq!(
        up(apps().reads(["new"])),
        Problem::UnknownRead {
            direction,
            table: table(),
            column: "new".into()
        }
    );
    assert_eq!(
        up(apps().writes(["no"])),
        Problem::UnknownWrite {
            direction,
            table: table(),
            column: "no".into()
        }
    );
    let guid = || "guid".to_owned();
    assert_eq!(
        up(apps().writes(["guid"])),
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
    assert_eq!(up(apps().reads(["guid", "guid"])), repeated);
    assert_eq!(
        rejected(step().up(apps()).up(apps())),
        Problem::RepeatedAccess {
            direction,
            table: table()
        }
    );
    let problem = Problem::UnknownWrite {
        direction: Direction::Down,
        table: table(),
        column: "new".into(),
    };
    assert_eq!(
        rejected(add(nullable("new")).down(apps().writes(["new"]))),
        problem,
        "the column does not exist below the step"
    );
}

#[test]
fn reshaping_a_new_table_must_write_keys_and_required_columns() {
    let made = || {
        table("made")
            .column(column("place"))
            .column(column("word"))
            .column(nullable("note"))
            .primary_key(["guid", "place"])
    };
    let adding = |writes: &[&'static str]| {
        let access = Access::to("made").writes(writes.iter().copied());
        access.reshapes()
    };
    let with = |access: Access| step().create_table(made()).up(access);
    let without_key = |direction, column: &str| Problem::ReshapeWithoutKey {
        direction,
        table: "made".into(),
        column: column.into(),
    };
    assert_eq!(
        rejected(with(adding(&["place", "word"]))),
        without_key(Direction::Up, "guid")
    );
    assert_eq!(
        rejected(with(adding(&["guid", "word"]))),
        without_key(Direction::Up, "place")
    );
    let no_value = Problem::NoValue {
        table: "made".into(),
        column: "word".into(),
    };
    assert_eq!(rejected(with(adding(&["guid", "place"]))), no_value);
    before()
        .apply(&with(adding(&["guid", "place", "word"])))
        .expect("every row has a key and a word");
    before()
        .apply(&with(Access::to("made").writes(["word"])))
        .expect("without reshaping the table stays empty");
    // The way down of a step that drops the table.
    let layout = before().apply(&step().create_table(made())).unwrap();
    let back = |access: Access| {
        layout.apply(&Manifest {
            version: 3,
            ..step().drop_table("made").down(access)
        })
    };
    assert_eq!(
        back(adding(&["guid", "word"])).unwrap_err().problem,
        without_key(Direction::Down, "place")
    );
    back(adding(&["guid", "place", "word"])).expect("every row has a key and a word");
    // A key column with a default need not be written.
    let mut kinds = made();
    kinds.columns[1].default = Some("app".into());
    before()
        .apply(&step().create_table(kinds).up(adding(&["guid", "word"])))
        .expect("the default is part of the key");
}

#[test]
fn down_access_of_an_irreversible_step_and_residue_without_a_row_function_are_rejected() {
    let down = step()
        .irreversible()
        .down(Access::to("apps").reads(["note"]));
    assert_eq!(rejected(down), Problem::DownOfIrreversible);
    assert_eq!(rejected(step().leaves_residue()), Problem::ResidueOfNothing);
    let removes = |access: Access| step().removes_rows().up(access);
    assert_eq!(
        rejected(removes(Access::to("apps"))),
        Problem::RemovesWithoutReshaping
    );
    before()
        .apply(&removes(Access::to("apps").reshapes()))
        .expect("it reshapes");
}

#[test]
fn tables_whose_keys_have_different_types_have_no_units_in_common() {
    let numbers = Table::new("numbers")
        .column(Column::big_integer("guid"))
        .column(nullable("text"))
        .primary_key(["guid"])
        .partition_key("guid");
    let layout = before().apply(&step().create_table(numbers)).unwrap();
    let problem = |manifest: Manifest| {
        let manifest = Manifest {
            version: 3,
            ..manifest
        };
        layout.apply(&manifest).unwrap_err().problem
    };
    let accesses = ["apps", "numbers"].map(|table| Access::to(table).reads(["guid"]));
    let unlike = |direction| Problem::UnlikeKeys {
        direction,
        table: "apps".into(),
        other: "numbers".into(),
    };
    let [apps, numbers] = accesses.clone();
    let up = step().up(apps).up(numbers);
    assert_eq!(problem(up), unlike(Direction::Up));
    let [apps, numbers] = accesses;
    let down = step().down(apps).down(numbers);
    assert_eq!(problem(down), unlike(Direction::Down));
    let moved = Problem::MoveBetween {
        from: "numbers".into(),
        to: "other".into(),
    };
    assert_eq!(
        problem(step().move_column("text", "numbers", "other")),
        moved
    );
}

#[test]
fn access_to_a_table_created_by_moved_columns_is_rejected() {
    let manifest = step()
        .create_table(table("new"))
        .move_column("note", "apps", "new")
        .up(Access::to("new").writes(["note"]));
    let problem = Problem::AccessToMoved {
        direction: Direction::Up,
        table: "new".into(),
    };
    assert_eq!(rejected(manifest), problem);
}

fn no_value(table: &str, column: &str) -> Problem {
    Problem::NoValue {
        table: table.into(),
        column: column.into(),
    }
}

#[test]
fn required_column_of_a_table_created_by_moved_columns_has_a_default() {
    let split = |zone: Column| {
        step()
            .create_table(table("details").column(zone))
            .move_column("note", "apps", "details")
    };
    assert_eq!(rejected(split(column("zone"))), no_value("details", "zone"));
    for zone in [nullable("zone"), column("zone").default("")] {
        before().apply(&split(zone)).expect("every row has a value");
    }
    let added = split(nullable("zone")).add_column("details", column("area"));
    assert_eq!(rejected(added), no_value("details", "area"));
    let renamed = split(column("zone"))
        .rename_table("details", "facts")
        .rename_column("facts", "zone", "area");
    assert_eq!(rejected(renamed), no_value("facts", "area"));
    before()
        .apply(&step().create_table(table("details").column(column("zone"))))
        .expect("it has no rows");
}

#[test]
fn required_column_of_a_table_dropped_after_its_columns_moved_has_a_default_on_the_way_down() {
    let details = table("details")
        .column(column("zone"))
        .column(nullable("text"));
    let layout = before().apply(&step().create_table(details)).unwrap();
    let merge = |manifest: Manifest| {
        let manifest = manifest
            .move_column("text", "details", "apps")
            .drop_table("details");
        layout.apply(&Manifest {
            version: 3,
            ..manifest
        })
    };
    assert_eq!(
        merge(step()).unwrap_err().problem,
        no_value("details", "zone")
    );
    merge(step().irreversible()).expect("there is no way down");
    merge(step().alter_column("details", column("zone").default("")))
        .expect("the way down creates the table with the default");
}

/// The partition key of these tables is not in their primary key.
#[test]
fn keys_of_a_table_created_by_moved_columns_need_no_default() {
    let keyed_by_id = |name: &str| {
        table(name)
            .column(column("id"))
            .primary_key(["id"])
            .index(&format!("{name}_guid_idx"), ["guid"])
    };
    let parts = keyed_by_id("parts").column(nullable("text"));
    let layout = before().apply(&step().create_table(parts)).unwrap();
    let split = step()
        .create_table(keyed_by_id("extras"))
        .move_column("text", "parts", "extras");
    layout
        .apply(&Manifest {
            version: 3,
            ..split
        })
        .expect("the rows bring their keys");
}
