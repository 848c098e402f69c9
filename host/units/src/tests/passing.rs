//! Units through a lens: opened, refused one by one, and with the columns that no step reads.

use std::collections::BTreeSet;

use bbs_lens::layout::columns::{ColumnData, Shape};
use bbs_lens::layout::manifest::Access;
use bbs_lens::layout::values::Encoding;
use bbs_lens::{Residue, ResidueValue};

use super::*;

/// The rows of a unit with so many that stay, in their new order.
type Order = fn(u32) -> Vec<u32>;

/// Reorders the rows of each unit.
fn reordered(table: &TableData, order: Order) -> Written {
    let mut shape = Shape {
        unit_offsets: vec![0],
        origins: Vec::new(),
    };
    for bounds in table.unit_offsets.windows(2) {
        let rows = order(bounds[1] - bounds[0]);
        shape.origins.extend(rows.iter().map(|row| bounds[0] + row));
        shape
            .unit_offsets
            .push(u32::try_from(shape.origins.len()).unwrap());
    }
    Written {
        shape: Some(shape),
        columns: Vec::new(),
    }
}

/// The lens of a migration that stores the secrets unencrypted.
fn opening_lens() -> Lens {
    let secret = Column::long_text("secret").nullable();
    lens_of(
        [layout_migration(manifest(2).alter_column("apps", secret))],
        1,
        2,
    )
}

/// Apps whose secrets are sealed, those in `closed` with a key that the host does not have.
fn sealed_apps(closed: &[&str]) -> UnitBatch {
    let names = ["a", "b", "c", "d"];
    let mut batch = apps(&names.map(|name| (name, Some((name, 1, "")))));
    let other = Keyring::new([("other", "passphrase")], "other").unwrap();
    let rows = batch.tables.get_mut("apps").unwrap();
    for (row, name) in names.iter().enumerate() {
        let keyring = if closed.contains(name) {
            &other
        } else {
            &keyring()
        };
        let secret = keyring.seal(Sealing::Sealed, name.as_bytes());
        rows.set(
            &layout().tables["apps"],
            "secret",
            &[row],
            Value::Text(&secret),
        );
    }
    rows.columns.get_mut("secret").unwrap().sealing = Sealing::Sealed;
    batch
}

#[test]
fn units_that_do_not_open_are_refused_and_the_others_transformed() {
    let lens = opening_lens();
    let batch = sealed_apps(&["b", "d"]);
    let sifted = pass(&lens, None, |passage| {
        passage.sift(&batch, &Residue::default())
    })
    .unwrap();
    assert_eq!(sifted.places, [0, 2]);
    assert_eq!(sifted.batch.units, units(["a", "c"]));
    assert_eq!(
        values(&sifted.batch.tables["apps"], "apps", "secret"),
        ["a", "c"]
    );
    assert_eq!(
        values(&sifted.batch.tables["apps"], "apps", "note"),
        ["a", "c"],
        "read by no step"
    );
    assert_eq!(
        sifted
            .refused
            .iter()
            .map(|(unit, _)| *unit)
            .collect::<Vec<_>>(),
        [1, 3]
    );
    let (unit, error) = pass(&lens, None, |passage| {
        passage.all(&batch, &Residue::default())
    })
    .unwrap_err();
    assert_eq!(unit, 1);
    assert!(
        matches!(&error, RowsError::Sealed { table, column, .. } if table == "apps" && column == "secret"),
        "{error}"
    );
}

#[test]
fn batch_without_a_fault_is_transformed_whole() {
    let lens = opening_lens();
    let batch = sealed_apps(&[]);
    let all = pass(&lens, None, |passage| {
        passage.all(&batch, &Residue::default())
    })
    .unwrap();
    assert_eq!(all.batch.units, batch.units);
    assert_eq!(
        values(&all.batch.tables["apps"], "apps", "secret"),
        ["a", "b", "c", "d"]
    );
    assert_eq!(
        all.batch.tables["apps"].columns["secret"].sealing,
        Sealing::Plain
    );
    assert_eq!(
        pass(&lens, None, |passage| passage
            .sift(&batch, &Residue::default()))
        .unwrap()
        .places,
        [0, 1, 2, 3]
    );
}

#[test]
fn column_that_no_step_reads_follows_its_rows() {
    let orders: [(Order, &[u32], &[i64]); 4] = [
        (|rows| (0..rows).collect(), &[0, 2, 4], &[0, 1, 2, 3]),
        (|rows| (0..rows).rev().collect(), &[0, 2, 4], &[1, 0, 3, 2]),
        (|rows| (0..rows - 1).collect(), &[0, 2, 4], &[0, 2]),
        (|rows| (0..rows - 1).collect(), &[0, 4], &[0, 1, 2]),
    ];
    for (order, unit_offsets, expected) in orders {
        let reshaping = manifest(3).up(Access::to("instances").reshapes());
        let step = migration(reshaping, move |table| reordered(table, order));
        let lens = lens_of([step], 1, 3);
        let columns = BTreeMap::from([(
            "number".to_owned(),
            BatchColumn::new(numbers(&[0, 1, 2, 3]), Sealing::Plain),
        )]);
        let rows = TableRows {
            unit_offsets: unit_offsets.to_vec(),
            columns,
        };
        let units = (1..unit_offsets.len())
            .map(|number| unit(&number.to_string()))
            .collect();
        let batch = UnitBatch {
            units,
            tables: BTreeMap::from([("instances".to_owned(), rows)]),
        };
        let passed = pass(&lens, None, |passage| {
            passage.all(&batch, &Residue::default())
        })
        .unwrap()
        .batch;
        let rows = &passed.tables["instances"];
        assert_eq!(*rows.columns["number"].data, numbers(expected));
        assert_eq!(
            (rows.count(), rows.units()),
            (expected.len(), unit_offsets.len() - 1)
        );
        assert!(!rows.columns.contains_key("note"), "it was not loaded");
        assert_eq!(
            passed.tables["apps"].count(),
            0,
            "a table that was not loaded has no rows"
        );
    }
}

fn numbers(values: &[i64]) -> ColumnData {
    let mut numbers = ColumnBuilder::new(Encoding::Integer);
    values
        .iter()
        .for_each(|value| numbers.push(Value::Integer(*value)));
    numbers.finish()
}

#[test]
fn residue_of_rows_that_changed_since_is_counted_and_not_given_back() {
    let dropped = || [layout_migration(manifest(2).drop_column("apps", "note"))];
    let lens_up = lens_of(dropped(), 1, 2);
    let before = sealed_apps(&[]);
    let up = pass(&lens_up, None, |passage| {
        passage.all(&before, &Residue::default())
    })
    .unwrap();
    assert_eq!(
        up.residue
            .iter()
            .map(|entry| entry.unit)
            .collect::<BTreeSet<_>>(),
        [0, 1, 2, 3].into()
    );
    let lens_down = lens_of(dropped(), 2, 1);
    let mut left = Residue::from(up.residue);
    let down = pass(&lens_down, None, |passage| passage.all(&up.batch, &left)).unwrap();
    assert_eq!(
        (
            values(&down.batch.tables["apps"], "apps", "note"),
            down.stale
        ),
        (values(&before.tables["apps"], "apps", "app"), 0)
    );
    let strange = |row_key: &[u8]| ResidueValue {
        row_key: row_key.to_vec(),
        digest: Vec::new(),
        bytes: Vec::new(),
    };
    left.add(2, "apps", 0, strange(b"gone"));
    left.add(2, "apps", 3, strange(b"gone too"));
    let down = pass(&lens_down, None, |passage| passage.all(&up.batch, &left)).unwrap();
    assert_eq!(down.stale, 2);
}
