//! Rows of one table with a plain key and a sealed secret, in three units of two, no and one row.

use super::*;

fn apps() -> Table {
    Table::new("apps")
        .column(Column::long_text("id").nullable())
        .column(Column::long_text("secret").nullable().sealed())
        .primary_key(["id"])
        .partition_key("id")
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

fn three_units() -> TableRows {
    rows(
        vec![0, 2, 2, 3],
        &[b"a", b"b", b"c"],
        &[b"sealed 1", b"sealed 2", b"sealed 3"],
    )
}

fn ids(rows: &TableRows) -> Vec<Vec<u8>> {
    let id = |row| match rows.value(&apps(), "id", row) {
        Some(Value::Text(text)) => text.to_vec(),
        other => panic!("{other:?}"),
    };
    (0..rows.count()).map(id).collect()
}

#[test]
fn empty_rows_have_their_units_and_the_columns_named() {
    let empty = TableRows::empty(&apps(), &["secret".to_owned()].into(), 2);
    assert_eq!((empty.units(), empty.count()), (2, 0));
    assert_eq!(empty.columns.keys().collect::<Vec<_>>(), ["secret"]);
    assert_eq!(empty.columns["secret"].sealing, Sealing::Sealed);
}

#[test]
fn truncated_batch_has_the_rows_of_its_first_units() {
    let table = &apps();
    for (units, left) in [(0, 0), (1, 2), (2, 2), (3, 3), (4, 3)] {
        let mut rows = three_units();
        rows.truncate(table, units);
        assert_eq!((rows.units(), rows.count()), (units.min(3), left));
        assert_eq!(ids(&rows), [b"a", b"b", b"c"][..left]);
        assert_eq!(
            rows.columns["id"].data.offsets.len(),
            left + 1,
            "values of other units are removed too"
        );
    }
}

#[test]
fn rows_of_a_unit_are_kept_added_and_set() {
    let table = &apps();
    let mut rows = rows(vec![0, 2], &[b"a", b"b"], &[b"sealed 1", b"sealed 2"]);
    rows.retain(table, |row| row == 1);
    assert_eq!((rows.units(), ids(&rows)), (1, vec![b"b".to_vec()]));
    let added = BTreeMap::from([
        ("id".to_owned(), OwnedValue::Text(b"c".to_vec())),
        ("secret".to_owned(), OwnedValue::Text(b"sealed 3".to_vec())),
    ]);
    rows.extend(table, &[added]);
    assert_eq!(
        (rows.of(0), ids(&rows)),
        (0..2, vec![b"b".to_vec(), b"c".to_vec()])
    );
    rows.set(table, "id", &[1], Value::Text(b"d"));
    assert_eq!(ids(&rows), [b"b", b"d"]);
}
