//! A unit in quarantine as bytes: every row of it in every table that it was in, under the columns
//! that it had. Sealed values are opened when it is stored, so that one key protects all of it; a
//! value that does not open is stored sealed.

use std::collections::BTreeMap;

use bbs_encryption::Keyring;
use bbs_lens::layout::schema::{Column, Layout, Sealing, Table};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};

use bbs_units::{BatchColumn, TableRows, UnitBatch, UnitKey};

/// Encodes a batch of one unit as the database stores it: tables, each with its columns and then
/// its rows; each value with whether it is open. Empty text in a sealed column is not open: it is
/// not the same as a sealed empty value.
pub(super) fn encode(unit: &UnitBatch, layout: &Layout, keyring: &Keyring) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, rows) in &unit.tables {
        Value::Text(name.as_bytes()).encode(&mut bytes);
        Value::Integer(rows.count() as i64).encode(&mut bytes);
        Value::Integer(rows.columns.len() as i64).encode(&mut bytes);
        for (column, values) in &rows.columns {
            Value::Text(column.as_bytes()).encode(&mut bytes);
            let kind = layout.tables[name]
                .find_column(column)
                .expect("a column of the layout")
                .kind;
            for row in 0..rows.count() {
                let value = values.data.get(kind.into(), row);
                let opened = match value {
                    Value::Text(text) if values.sealing != Sealing::Plain => {
                        Some(keyring.open(values.sealing, text))
                    }
                    _ => None,
                };
                let (is_open, plain) = match &opened {
                    None => (true, value),
                    Some(Ok(plain)) => (true, Value::Text(plain)),
                    Some(Err(_)) => (false, value),
                };
                Value::Boolean(is_open).encode(&mut bytes);
                plain.encode(&mut bytes);
            }
        }
    }
    bytes
}

/// Why an encoded unit is no unit of a layout.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnitFlaw {
    Damaged,
    /// A column of the layout for which it has no value.
    NoValue {
        table: String,
        column: String,
    },
}

/// Decodes what [`encode`] returned, if it was for this layout. Open values are sealed with the
/// active key, as are others that open now; the rest are what they were. Since then, the owner of
/// the database may have removed columns of their own, whose values are left out, or added some,
/// which have their default.
pub(super) fn decode(
    bytes: &[u8],
    key: UnitKey,
    layout: &Layout,
    keyring: &Keyring,
) -> Result<UnitBatch, UnitFlaw> {
    let mut unit = decode_stored(bytes, key, layout, keyring).ok_or(UnitFlaw::Damaged)?;
    for (name, rows) in &mut unit.tables {
        let count = rows.count();
        for column in &layout.tables[name].columns {
            if rows.columns.contains_key(&column.name) {
                continue;
            }
            if !column.nullable && column.default.is_none() {
                return Err(UnitFlaw::NoValue {
                    table: name.clone(),
                    column: column.name.clone(),
                });
            }
            let filled = BatchColumn::repeated(column, column.default.as_ref(), count);
            rows.columns.insert(column.name.clone(), filled);
        }
    }
    Ok(unit)
}

/// The unit with those of its columns that the layout still has.
fn decode_stored(
    bytes: &[u8],
    key: UnitKey,
    layout: &Layout,
    keyring: &Keyring,
) -> Option<UnitBatch> {
    let mut unit = UnitBatch {
        units: vec![key],
        tables: BTreeMap::new(),
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let name = text(&mut rest)?;
        let table: &Table = layout.tables.get(&name)?;
        let rows = integer(&mut rest)?;
        let columns = integer(&mut rest)?;
        let mut found = BTreeMap::new();
        for _ in 0..columns {
            let column_name = text(&mut rest)?;
            if let Some(column) = table.find_column(&column_name) {
                found.insert(
                    column_name,
                    decode_column(&mut rest, column, rows, keyring)?,
                );
            } else {
                skip_column(&mut rest, rows)?;
                tracing::warn!(
                    table = name,
                    column = column_name,
                    "a unit in quarantine has a value for a column that the table does not have any more; it is left out"
                );
            }
        }
        let unit_offsets = vec![0, u32::try_from(rows).ok()?];
        unit.tables.insert(
            name,
            TableRows {
                unit_offsets,
                columns: found,
            },
        );
    }
    Some(unit)
}

fn decode_column(
    rest: &mut &[u8],
    column: &Column,
    rows: usize,
    keyring: &Keyring,
) -> Option<BatchColumn> {
    let encoding = Encoding::from(column.kind);
    let mut builder = ColumnBuilder::new(encoding);
    for _ in 0..rows {
        let Value::Boolean(is_open) = next(rest)? else {
            return None;
        };
        let value = next(rest)?;
        match value {
            _ if !value.fits(encoding) => return None,
            Value::Text(text) if column.sealing != Sealing::Plain => {
                let seal = |plain: &[u8]| keyring.seal(column.sealing, plain);
                let stored = if is_open {
                    seal(text)
                } else {
                    // The rows may return through a lens that reads none of their columns, and
                    // hosts that serve have the active key alone.
                    keyring
                        .open(column.sealing, text)
                        .map_or_else(|_| text.to_vec(), |plain| seal(&plain))
                };
                builder.push(Value::Text(&stored));
            }
            value => builder.push(value),
        }
    }
    Some(BatchColumn::new(builder.finish(), column.sealing))
}

fn skip_column(rest: &mut &[u8], rows: usize) -> Option<()> {
    for _ in 0..rows {
        // Whether it is open, and the value.
        next(rest)?;
        next(rest)?;
    }
    Some(())
}

/// Encodes a unit again. `other` is given each text that is sealed inside, as it did not open when
/// the unit was encoded, and returns the text for its place, or none if it stays. None if the bytes
/// are no encoded unit.
pub(super) fn with_other_texts(
    bytes: &[u8],
    mut other: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let mut encoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        Value::Text(text(&mut rest)?.as_bytes()).encode(&mut encoded);
        let rows = integer(&mut rest)?;
        let columns = integer(&mut rest)?;
        Value::Integer(rows as i64).encode(&mut encoded);
        Value::Integer(columns as i64).encode(&mut encoded);
        for _ in 0..columns {
            Value::Text(text(&mut rest)?.as_bytes()).encode(&mut encoded);
            for _ in 0..rows {
                let is_open = next(&mut rest)?;
                let value = next(&mut rest)?;
                is_open.encode(&mut encoded);
                match value {
                    Value::Text(sealed)
                        if is_open == Value::Boolean(false) && !sealed.is_empty() =>
                    {
                        let changed = other(sealed);
                        Value::Text(changed.as_deref().unwrap_or(sealed)).encode(&mut encoded);
                    }
                    value => value.encode(&mut encoded),
                }
            }
        }
    }
    Some(encoded)
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<Value<'a>> {
    let (value, after) = Value::decode(rest)?;
    *rest = after;
    Some(value)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    match next(rest)? {
        Value::Text(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

fn integer(rest: &mut &[u8]) -> Option<usize> {
    match next(rest)? {
        Value::Integer(number) => usize::try_from(number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Table {
        Table::new("things")
            .column(Column::varchar("guid", 9).nullable())
            .column(Column::big_integer("number").nullable())
            .column(Column::boolean("flag").nullable())
            .column(Column::long_text("secret").nullable().sealed())
            .primary_key(["guid"])
    }

    fn values(column: &str, values: &[Value<'_>]) -> (String, BatchColumn) {
        let table = table();
        let column = table.find_column(column).unwrap();
        let mut builder = ColumnBuilder::new(column.kind.into());
        values.iter().for_each(|value| builder.push(*value));
        (
            column.name.clone(),
            BatchColumn::new(builder.finish(), column.sealing),
        )
    }

    /// A unit with rows in one table, and its layout.
    fn unit_of<const N: usize>(
        rows: u32,
        columns: [(String, BatchColumn); N],
    ) -> (UnitBatch, Layout) {
        let rows = TableRows {
            unit_offsets: vec![0, rows],
            columns: columns.into(),
        };
        let layout = Layout {
            tables: [("things".to_owned(), table())].into(),
        };
        let unit = UnitBatch {
            units: vec![UnitKey::text("u")],
            tables: [("things".to_owned(), rows)].into(),
        };
        (unit, layout)
    }

    #[test]
    fn value_whose_key_is_back_is_sealed_with_the_active_key() {
        let old = Keyring::new([("old", "one passphrase")], "old").unwrap();
        let new = Keyring::new([("new", "another")], "new").unwrap();
        let both = Keyring::new([("old", "one passphrase"), ("new", "another")], "new").unwrap();
        let sealed = old.seal(Sealing::Sealed, b"first");
        let columns = [values("secret", &[Value::Text(&sealed)])];
        let (unit, layout) = unit_of(1, columns);
        let bytes = encode(&unit, &layout, &new);
        let again = decode(&bytes, UnitKey::text("u"), &layout, &both).unwrap();
        let secret = &again.tables["things"].columns["secret"];
        let Value::Text(text) = secret.data.get(Encoding::Text, 0) else {
            panic!("it is a text");
        };
        assert_eq!(new.open(Sealing::Sealed, text).unwrap(), b"first");
    }

    #[test]
    fn unit_round_trips_and_what_did_not_open_stays_as_it_was() {
        let old = Keyring::new([("old", "one passphrase")], "old").unwrap();
        let new = Keyring::new([("new", "another")], "new").unwrap();
        let sealed = [
            old.seal(Sealing::Sealed, b"first"),
            new.seal(Sealing::Sealed, b"second"),
        ];
        let columns = [
            values(
                "guid",
                &[Value::Text(b"a"), Value::Text(b"b"), Value::Text(b"c")],
            ),
            values(
                "number",
                &[Value::Null, Value::Integer(-7), Value::Integer(0)],
            ),
            values(
                "flag",
                &[Value::Boolean(true), Value::Null, Value::Boolean(false)],
            ),
            values(
                "secret",
                &[
                    Value::Text(&sealed[0]),
                    Value::Text(&sealed[1]),
                    Value::Text(b""),
                ],
            ),
        ];
        let (unit, layout) = unit_of(3, columns);
        let bytes = encode(&unit, &layout, &new);
        let decode =
            |bytes: &[u8], layout: &Layout| super::decode(bytes, UnitKey::text("u"), layout, &new);

        let again = decode(&bytes, &layout).unwrap();
        let was = &unit.tables["things"];
        let is = &again.tables["things"];
        for column in ["guid", "number", "flag"] {
            assert_eq!(
                was.columns[column].data, is.columns[column].data,
                "{column}"
            );
        }
        let secret = |row| match is.columns["secret"].data.get(Encoding::Text, row) {
            Value::Text(text) => text,
            value => panic!("{value:?}"),
        };
        assert_eq!(
            secret(0),
            sealed[0],
            "it does not open, so it stays sealed with its own key"
        );
        assert_eq!(new.open(Sealing::Sealed, secret(1)).unwrap(), b"second");
        assert_eq!(secret(2), b"", "empty text stays empty");

        let mut changed = table().column(Column::integer("added").default(7));
        changed.columns.retain(|column| column.name != "flag");
        let of_changed = [("things".to_owned(), changed.clone())].into();
        let again = decode(&bytes, &Layout { tables: of_changed }).unwrap();
        let is = &again.tables["things"];
        let names: Vec<_> = is.columns.keys().map(String::as_str).collect();
        assert_eq!(names, ["added", "guid", "number", "secret"]);
        let added = is.columns["added"].data.get(Encoding::Integer, 2);
        assert_eq!(added, Value::Integer(7));
        assert_eq!(is.columns["number"].data, was.columns["number"].data);
        let required = changed.column(Column::integer("required"));
        let of_required = [("things".to_owned(), required)].into();
        let no_value = UnitFlaw::NoValue {
            table: "things".into(),
            column: "required".into(),
        };
        let flaw = decode(
            &bytes,
            &Layout {
                tables: of_required,
            },
        )
        .unwrap_err();
        assert_eq!(flaw, no_value);

        let damaged = |bytes: &[u8], layout: &Layout| decode(bytes, layout).unwrap_err();
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(damaged(cut, &layout), UnitFlaw::Damaged);
        let other = Layout::default();
        assert_eq!(damaged(&bytes, &other), UnitFlaw::Damaged);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_in_a_unit(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            values in any::<[Option<u8>; 6]>(),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let keyring = Keyring::new([("a", "one")], "a").unwrap();
            let layout = Layout { tables: [("things".to_owned(), table())].into() };
            let decode = |bytes: &[u8]| super::decode(bytes, UnitKey::text("u"), &layout, &keyring);
            let _ = decode(&bytes);
            let column = |at: usize, name: &str, value: fn(&u8) -> Value<'_>| {
                super::tests::values(name, &[&values[at], &values[at + 1]].map(|of| of.as_ref().map_or(Value::Null, value)))
            };
            let columns = [
                super::tests::values("guid", &[Value::Text(b"a"), Value::Text(&bytes)]),
                column(0, "number", |value| Value::Integer(i64::from(*value))),
                column(2, "flag", |value| Value::Boolean(*value > 9)),
                column(4, "secret", |value| Value::Text(std::slice::from_ref(value))),
            ];
            let rows = TableRows { unit_offsets: vec![0, 2], columns: columns.into() };
            let unit = UnitBatch { units: vec![UnitKey::text("u")], tables: [("things".to_owned(), rows)].into() };
            let mut encoded = encode(&unit, &layout, &keyring);
            let decoded = decode(&encoded).expect("what was encoded decodes");
            prop_assert_eq!(&decoded.tables["things"].columns["number"].data, &unit.tables["things"].columns["number"].data);
            *place.get_mut(&mut encoded) = byte;
            let _ = decode(&encoded);
        }
    }
}
