//! Batches of one table with a plain key and a sealed secret, three units of two, no and one row.

use std::collections::BTreeSet;

use bbs_lens::layout::columns::ColumnData;
use bbs_lens::layout::schema::Table;

use super::*;
use crate::diff::{differences, same};

fn keyring() -> Keyring {
    Keyring::new([("key", "passphrase")], "key").unwrap()
}

fn layout() -> Layout {
    let apps = Table::new("apps")
        .column(Column::long_text("id").nullable())
        .column(Column::long_text("secret").nullable().sealed())
        .primary_key(["id"])
        .partition_key("id");
    Layout {
        tables: BTreeMap::from([("apps".into(), apps)]),
    }
}

fn data(values: &[&[u8]]) -> ColumnData {
    let mut builder = ColumnBuilder::new(Encoding::Text);
    values
        .iter()
        .for_each(|value| builder.push(Value::Text(value)));
    builder.finish()
}

fn rows(unit_offsets: Vec<u32>, ids: &[&[u8]], secrets: &[&[u8]]) -> TableRows {
    let columns = [
        ("id".to_owned(), BatchColumn::new(data(ids), Sealing::Plain)),
        (
            "secret".to_owned(),
            BatchColumn::new(data(secrets), Sealing::Sealed),
        ),
    ];
    TableRows {
        unit_offsets,
        columns: columns.into(),
    }
}

fn batch(rows: TableRows) -> UnitBatch {
    let units = (0..rows.units())
        .map(|unit| UnitKey::text(format!("unit-{unit}")))
        .collect();
    UnitBatch {
        units,
        tables: BTreeMap::from([("apps".to_owned(), rows)]),
    }
}

fn three_units() -> TableRows {
    let sealed = [b"1", b"2", b"3"].map(|plain| keyring().seal(Sealing::Sealed, plain));
    rows(
        vec![0, 2, 2, 3],
        &[b"a", b"b", b"c"],
        &[&sealed[0], &sealed[1], &sealed[2]],
    )
}

#[test]
fn names_of_a_batch_are_those_of_its_units() {
    assert_eq!(batch(three_units()).names(), ["unit-0", "unit-1", "unit-2"]);
}

#[test]
fn emptied_batch_has_its_units_and_no_row() {
    let full = batch(three_units());
    assert_eq!((full.rows(), full.is_empty()), (3, false));
    let empty = full.emptied(&layout());
    assert_eq!(
        (empty.rows(), empty.is_empty(), empty.names()),
        (0, true, full.names())
    );
    assert_eq!(empty.tables["apps"].units(), 3);
}

#[test]
fn opening_reports_each_unit_with_a_value_that_does_not_open_and_leaves_empty_ones() {
    let mut rows = three_units();
    let good = keyring().seal(Sealing::Sealed, b"good");
    rows.columns.insert(
        "secret".into(),
        BatchColumn::new(data(&[&good, b"02damaged", b""]), Sealing::Sealed),
    );
    let mut batch = batch(rows);
    let wanted = BTreeMap::from([("apps".to_owned(), BTreeSet::from(["secret".to_owned()]))]);
    let failed = batch.open(&wanted, &keyring());
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&0]);
    let secrets = &batch.tables["apps"].columns["secret"];
    assert_eq!(secrets.sealing, Sealing::Plain);
    let text = |row| secrets.data.get(Encoding::Text, row);
    assert_eq!(
        [text(0), text(1), text(2)],
        [b"good".as_slice(), b"02damaged", b""].map(Value::Text)
    );
}

#[test]
fn value_is_sealed_once() {
    let (layout, keyring) = (layout(), keyring());
    let column = layout.tables["apps"].find_column("secret").unwrap();
    let sealed = keyring.seal(Sealing::Sealed, b"secret");
    let stored = |value: &[u8], sealing| {
        let values = BatchColumn::new(data(&[value]), sealing);
        match stored(&values, 0, column, &keyring) {
            OwnedValue::Text(text) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(stored(&sealed, Sealing::Sealed), sealed);
    assert_eq!(
        keyring
            .open(Sealing::Sealed, &stored(b"secret", Sealing::Plain))
            .unwrap(),
        b"secret"
    );
}

#[test]
fn sealed_values_are_compared_by_their_plain_text_and_damaged_ones_by_their_bytes() {
    let (layout, keyring) = (layout(), keyring());
    let column = layout.tables["apps"].find_column("secret").unwrap();
    let of = |value: &[u8]| BatchColumn::new(data(&[value]), Sealing::Sealed);
    let alike = |one: &[u8], other: &[u8]| {
        same(column, (&of(one), 0), (&of(other), 0), &keyring, |a, b| {
            a == b
        })
    };
    let [one, again, other] = [b"1", b"1", b"2"].map(|plain| keyring.seal(Sealing::Sealed, plain));
    assert!(alike(&one, &again) && !alike(&one, &other));
    assert!(
        alike(b"02damaged", b"02damaged")
            && !alike(b"02damaged", &one)
            && !alike(b"02damaged", b"02other")
    );
}

#[test]
fn difference_names_the_row_and_the_column_or_the_row_alone() {
    let (layout, keyring) = (layout(), keyring());
    let [one, again, other] = [b"1", b"1", b"2"].map(|plain| keyring.seal(Sealing::Sealed, plain));
    let before = batch(rows(vec![0, 3], &[b"a", b"b", b"c"], &[&one, &one, &one]));
    let after = batch(rows(
        vec![0, 3],
        &[b"a", b"b", b"d"],
        &[&again, &other, &one],
    ));
    let found = differences(&layout, &before, &after, &keyring, |a, b| a == b);
    let key = |id: &[u8]| {
        let mut key = Vec::new();
        Value::Text(id).encode(&mut key);
        key
    };
    let expected = [(b"b", "secret"), (b"c", ""), (b"d", "")]
        .map(|(id, column)| ("apps".into(), key(id), column.into()));
    assert_eq!(found, expected.into());
    assert_eq!(
        differences(&layout, &before, &before, &keyring, |a, b| a == b),
        BTreeSet::new()
    );
}
