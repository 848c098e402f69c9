//! Columns that a step moves to another table of the unit.

use super::*;

fn moving() -> Arc<NativeStep> {
    step(manifest(2).move_column("x", "others", "apps"), nothing)
}

/// The lens down over a migration that moves `x` out of `others`, and one that drops `others`.
fn lens_down() -> Lens {
    let dropped = step(manifest(4).drop_table("others"), nothing);
    restoring_to_first([first(), moving(), dropped])
}

/// The lens from the version of the last step down to 1, which restores what was saved.
fn restoring_to_first(steps: [Arc<NativeStep>; 3]) -> Lens {
    let from = steps[2].manifest().version;
    let steps = steps.map(|step| step as Arc<dyn Transform>);
    let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest())).unwrap();
    Lens::restoring(Way::within(&layouts, from, 1), &steps).unwrap()
}

/// The residue of a row: its guid, and names and values of other columns in turn.
fn saved_row(guid: &str, others: &[&str]) -> ResidueValue {
    let encoded = |text: &&str| {
        let mut bytes = Vec::new();
        Value::Text(text.as_bytes()).encode(&mut bytes);
        bytes
    };
    ResidueValue {
        row_key: encoded(&guid),
        digest: Vec::new(),
        bytes: ["guid", guid]
            .iter()
            .chain(others)
            .flat_map(encoded)
            .collect(),
    }
}

/// Applies a lens to the units of a table.
fn applied_to(table: &str, lens: &Lens, units: &LensInput, residue: &Residue) -> Applied {
    let applied = lens.apply(
        lens.tables[table].group,
        units,
        residue,
        &arguments(),
        Search::First,
        &BatchBudget::default(),
    );
    applied.unwrap()
}

/// Units of one app each through [`lens_down`], with the rows of `others` that were saved of some.
fn taken_down(lens: &Lens, x: &[&str], saved: &[usize]) -> Applied {
    let mut units = source(x);
    let columns = &mut units.tables.get_mut("apps").unwrap().columns;
    columns.insert("x".into(), plain(x));
    let mut left = Residue::default();
    for &unit in saved {
        left.add(4, "others", unit, saved_row(&format!("g{unit}"), &[]));
    }
    applied_to("others", lens, &units, &left)
}

/// Goal: a table that a step down creates again with the rows that were kept gets the moved column
/// by their keys, in one lens over both steps.
#[test]
fn restored_table_gets_a_moved_column_by_its_keys() {
    let down = lens_down();
    let applied = taken_down(&down, &["x0", "x1"], &[0, 1]);
    let others = &applied.tables["others"];
    assert_eq!(others.unit_offsets, [0, 1, 2]);
    assert_eq!(*others.columns["guid"].data, texts(&["g0", "g1"]));
    assert_eq!(down.tables["others"].sources, ["apps"]);
    assert_eq!(applied.origins["others"]["apps"], [0, 1]);
}

/// Apps that were made since the table was dropped, with and without saved rows of others.
#[test]
fn restored_table_adopts_the_rows_of_units_that_it_has_none_of() {
    let down = lens_down();
    for saved in [&[0, 2][..], &[1], &[]] {
        let applied = taken_down(&down, &["x0", "x1", "x2"], saved);
        let others = &applied.tables["others"];
        assert_eq!(others.unit_offsets, [0, 1, 2, 3], "{saved:?}");
        assert_eq!(
            *others.columns["guid"].data,
            texts(&["g0", "g1", "g2"]),
            "{saved:?}"
        );
        assert_eq!(
            *others.columns["x"].data,
            texts(&["x0", "x1", "x2"]),
            "{saved:?}"
        );
        assert_eq!(applied.origins["others"]["apps"], [0, 1, 2], "{saved:?}");
    }
}

/// Goal: values that one step down restores from residue stay when a later step moves them to a
/// table that it creates, and that has residue of its own. Method: of three units, rows of `parts`
/// were kept of the first and the last, and rows of `others` of the first and the second.
#[test]
fn restored_values_move_to_a_table_that_has_residue_of_its_own() {
    let nullable = |name: &str| Column::long_text(name).nullable();
    let others = table("others")
        .column(nullable("x"))
        .column(nullable("zone"));
    let created = manifest(1)
        .create_table(table("parts"))
        .create_table(others);
    let merged = manifest(3)
        .move_column("x", "others", "parts")
        .drop_table("others");
    let dropped = manifest(5).drop_table("parts");
    let down =
        restoring_to_first([created, merged, dropped].map(|manifest| step(manifest, nothing)));
    let mut left = Residue::default();
    left.add(5, "parts", 0, saved_row("g0", &["x", "x0"]));
    left.add(5, "parts", 2, saved_row("g2", &["x", "x2"]));
    left.add(3, "others", 0, saved_row("g0", &["zone", "z0"]));
    left.add(3, "others", 1, saved_row("g1", &["zone", "z1"]));
    let units = LensInput {
        units: 3,
        ..LensInput::default()
    };
    let applied = applied_to("others", &down, &units, &left);
    let others = &applied.tables["others"];
    for rows in [&applied.tables["parts"], others] {
        assert_eq!(rows.unit_offsets, [0, 1, 1, 2]);
        assert_eq!(*rows.columns["guid"].data, texts(&["g0", "g2"]));
    }
    assert_eq!(*others.columns["x"].data, texts(&["x0", "x2"]));
    let zone = |row| others.columns["zone"].data.get(Encoding::Text, row);
    assert_eq!([zone(0), zone(1)], [Value::Text(b"z0"), Value::Null]);
    assert_eq!(applied.stale, 1, "a row that `parts` does not have");
}

#[test]
fn moved_column_without_a_counterpart_names_the_unit() {
    let lens = lens(&[first(), moving()], 1, 2);
    assert_eq!(
        lens.tables["apps"].group, lens.tables["others"].group,
        "one unit now"
    );
    let moved = lens.tables["apps"]
        .columns
        .iter()
        .find(|(known, _)| *known == Column::long_text("x").nullable())
        .unwrap();
    assert_eq!(
        moved.1,
        Provenance::Raw {
            table: "others".into(),
            column: "x".into()
        },
        "it passes sealed"
    );
    let mut units = source(&["a", "b", "c"]);
    let columns = [("guid".to_owned(), plain(&["g0", "g2"]))].into();
    units.tables.insert(
        "others".into(),
        TableRows {
            unit_offsets: vec![0, 1, 1, 2],
            columns,
        },
    );
    let errors = apply(&lens, &units, Search::First).unwrap_err();
    assert!(
        matches!(
            &errors[..],
            [LensError::Counterpart {
                unit: 1,
                version: 2,
                ..
            }]
        ),
        "{errors:?}"
    );
    let columns = [("guid".to_owned(), plain(&["g0", "g1", "g2"]))].into();
    units.tables.insert(
        "others".into(),
        TableRows {
            unit_offsets: vec![0, 1, 2, 3],
            columns,
        },
    );
    let applied = apply(&lens, &units, Search::First).unwrap();
    for source in ["apps", "others"] {
        assert_eq!(applied.origins["apps"][source], [0, 1, 2]);
    }
}

/// A unit may have several rows of these tables, each with an id of its own.
#[test]
fn created_table_adopts_a_partition_key_that_is_not_in_the_primary_key() {
    let keyed_by_id = |name: &str| {
        Table::new(name)
            .column(Column::varchar("id", 9))
            .column(Column::varchar("guid", 9))
            .primary_key(["id"])
            .index(&format!("{name}_guid_idx"), ["guid"])
            .partition_key("guid")
    };
    let parts = keyed_by_id("parts").column(Column::long_text("x").nullable());
    let split = manifest(2)
        .create_table(keyed_by_id("extras"))
        .move_column("x", "parts", "extras");
    let steps = [manifest(1).create_table(parts), split].map(|manifest| step(manifest, nothing));
    let lens = lens(&steps, 1, 2);
    let columns = [
        ("id", ["p0", "p1", "p2"]),
        ("guid", ["g0", "g0", "g1"]),
        ("x", ["x0", "x1", "x2"]),
    ];
    let rows = TableRows {
        unit_offsets: vec![0, 2, 3],
        columns: columns
            .map(|(name, values)| (name.to_owned(), plain(&values)))
            .into(),
    };
    let units = LensInput {
        units: 2,
        tables: [("parts".to_owned(), rows)].into(),
        ..LensInput::default()
    };
    let applied = applied_to("extras", &lens, &units, &Residue::default());
    let extras = &applied.tables["extras"];
    assert_eq!(extras.unit_offsets, [0, 2, 3]);
    for (name, values) in columns {
        assert_eq!(*extras.columns[name].data, texts(&values), "{name}");
    }
}
