//! Rows that a database would refuse, found in a transformed batch.

use bbs_lens::layout::columns::Shape;
use bbs_lens::layout::manifest::Access;
use bbs_lens::{Residue, ResidueValue};

use super::*;

/// Creates the tables.
const FIRST: DataVersion = 1;
/// Copies each app's note into a shorter column.
const LABELS: DataVersion = 2;
/// Returns each row of `instances` twice.
const TWICE: DataVersion = 3;
/// Makes the column of notes shorter, without a row function.
const SHORTER: DataVersion = 4;
/// Adds a column to another table.
const UNRELATED: DataVersion = 5;
/// Makes the column of numbers wider.
const WIDER: DataVersion = 6;
/// Drops `instances`.
const DROPPED: DataVersion = 7;

fn label() -> Column {
    Column::varchar("label", 5).nullable()
}

/// The lens of one migration.
fn lens(version: DataVersion) -> Lens {
    lens_between(version - 1, version)
}

fn lens_between(from: DataVersion, to: DataVersion) -> Lens {
    let labels = Access::to("apps").reads(["note"]).writes(["label"]);
    let labels = manifest(LABELS).add_column("apps", label()).up(labels);
    let twice = manifest(TWICE).up(Access::to("instances").reshapes());
    let note = Column::varchar("note", 5).nullable();
    let more = Column::integer("more").nullable();
    let number = Column::big_integer("number").nullable();
    let steps = [
        migration(labels, |table| Written {
            shape: None,
            columns: table.columns.clone(),
        }),
        migration(twice, doubled),
        layout_migration(manifest(SHORTER).alter_column("apps", note)),
        layout_migration(manifest(UNRELATED).add_column("apps", more)),
        layout_migration(manifest(WIDER).alter_column("apps", number)),
        layout_migration(manifest(DROPPED).drop_table("instances")),
    ];
    lens_of(steps, from, to)
}

fn doubled(table: &TableData) -> Written {
    let rows = *table.unit_offsets.last().unwrap();
    let unit_offsets = table.unit_offsets.iter().map(|end| end * 2).collect();
    let origins = (0..rows).flat_map(|row| [row, row]).collect();
    Written {
        shape: Some(Shape {
            unit_offsets,
            origins,
        }),
        columns: Vec::new(),
    }
}

/// The places of the refused units, and their errors.
fn refused(lens: &Lens, batch: &UnitBatch, writes_to: Option<Dialect>) -> Vec<(usize, String)> {
    refused_with(lens, batch, &Residue::default(), writes_to)
}

/// As [`refused`], with residue of the units.
fn refused_with(
    lens: &Lens,
    batch: &UnitBatch,
    left: &Residue,
    writes_to: Option<Dialect>,
) -> Vec<(usize, String)> {
    let sifted = pass(lens, writes_to, |passage| passage.sift(batch, left)).unwrap();
    assert_eq!(
        sifted.places.len() + sifted.refused.len(),
        batch.units.len()
    );
    sifted
        .refused
        .into_iter()
        .map(|(unit, fault)| (unit, fault.to_string()))
        .collect()
}

#[test]
fn text_that_a_database_cannot_store_is_refused_by_unit_and_module() {
    let notes = ["fine", "a\0b", "äöüäö", "äöüäöü", "longer\0"];
    let batch = apps(&notes.map(|note| (note, Some((note, 1, "")))));
    let of = |dialect| {
        let units: Vec<_> = refused(&lens(LABELS), &batch, dialect)
            .into_iter()
            .map(|(unit, _)| unit)
            .collect();
        units
    };
    assert_eq!(of(None), [] as [usize; 0]);
    assert_eq!(of(Some(Dialect::Sqlite)), [3, 4]);
    assert_eq!(of(Some(Dialect::Mysql)), [3, 4]);
    assert_eq!(of(Some(Dialect::Postgres)), [1, 3, 4]);
    let errors = refused(&lens(LABELS), &batch, Some(Dialect::Postgres));
    for (at, words) in [
        (0, "`label` of `apps` has a NUL character"),
        (1, "longer than the column holds"),
    ] {
        let error = &errors[at].1;
        assert!(
            error.contains(words) && error.contains("up of migration 2 (step-2, sha256 d1935)"),
            "{error}"
        );
    }
}

/// Whatever migrations ran over the table before, and change it after it.
#[test]
fn text_that_a_shorter_column_cannot_store_is_refused_by_the_migration_that_shortens_it() {
    for from in [FIRST, LABELS, TWICE] {
        let mut batch = apps(&[
            ("a", Some(("short", 1, ""))),
            ("b", Some(("longer", 1, ""))),
        ]);
        if from >= LABELS {
            let label = BatchColumn::repeated(&label(), None, 2);
            let apps = batch.tables.get_mut("apps").expect("it has apps");
            apps.columns.insert("label".into(), label);
        }
        let errors = refused(
            &lens_between(from, UNRELATED),
            &batch,
            Some(Dialect::Sqlite),
        );
        let [(1, error)] = errors.as_slice() else {
            panic!("{from}: {errors:?}")
        };
        assert!(
            error.contains("up of migration 4 (step-4, sha256 d1935)"),
            "{from}: {error}"
        );
        assert!(
            error.contains("`note` of `apps` has a text that is longer"),
            "{from}: {error}"
        );
    }
}

#[test]
fn number_that_the_column_below_cannot_store_is_refused_by_the_migration_that_widened_it() {
    let batch = apps(&[
        ("a", Some(("fine", i64::from(i32::MAX), ""))),
        ("b", Some(("fine", 1 << 31, ""))),
    ]);
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
        let errors = refused(&lens_between(WIDER, UNRELATED), &batch, Some(dialect));
        let [(1, error)] = errors.as_slice() else {
            panic!("{dialect}: {errors:?}")
        };
        assert!(
            error.contains("down of migration 6 (step-6, sha256 d1935)")
                && error.contains("`number` of `apps` has a number that does not fit 32 bits"),
            "{error}"
        );
    }
}

/// SQLite holds any number in a column of 32 bits.
#[test]
fn number_in_a_column_that_no_migration_changes_is_not_looked_at() {
    let batch = apps(&[("a", Some(("fine", i64::MAX, "")))]);
    let errors = refused(&lens(LABELS), &batch, Some(Dialect::Sqlite));
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn null_in_a_required_column_of_a_restored_row_is_refused() {
    let batch = apps(&[("a", Some(("fine", 1, ""))), ("b", Some(("fine", 1, "")))]);
    let mut left = Residue::default();
    for (unit, app, number) in [(0, "a", Value::Integer(1)), (1, "b", Value::Null)] {
        let mut bytes = Vec::new();
        for value in [
            Value::Text(b"app"),
            Value::Text(app.as_bytes()),
            Value::Text(b"number"),
            number,
        ] {
            value.encode(&mut bytes);
        }
        let value = ResidueValue {
            bytes,
            ..ResidueValue::default()
        };
        left.add(DROPPED, "instances", unit, value);
    }
    let errors = refused_with(
        &lens_between(DROPPED, WIDER),
        &batch,
        &left,
        Some(Dialect::Sqlite),
    );
    let [(1, error)] = errors.as_slice() else {
        panic!("{errors:?}")
    };
    assert!(
        error.contains("down of migration 7 (step-7, sha256 d1935)")
            && error.contains("`number` of `instances` has NULL, and the column takes none"),
        "{error}"
    );
}

#[test]
fn key_that_a_module_returns_twice_is_refused() {
    let table = &layout().tables["instances"];
    let mut instances = TableRows::empty(
        table,
        &table
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect(),
        1,
    );
    let row = |number| {
        let values = [
            ("app", OwnedValue::Text(b"b".to_vec())),
            ("number", OwnedValue::Integer(number)),
        ];
        let values = values.into_iter().chain([("note", OwnedValue::Null)]);
        values
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    };
    instances.extend(table, &[row(1), row(2)]);
    let mut batch = apps(&[("a", Some(("note", 1, ""))), ("b", Some(("note", 1, "")))]);
    instances.unit_offsets = vec![0, 0, 2];
    batch.tables.insert("instances".into(), instances);
    let errors = refused(&lens(TWICE), &batch, Some(Dialect::Sqlite));
    let [(1, error)] = errors.as_slice() else {
        panic!("{errors:?}")
    };
    assert!(
        error.contains("two rows of `instances` have the same primary key"),
        "{error}"
    );
}
