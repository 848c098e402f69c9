//! A unit kept whole: every row of it in every table that it was in, under the columns that it had. Owns its encoding.
//! Sealed columns are opened when it is kept, so that one key protects all of it; what does not open is kept as it is.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::columns::ColumnData;
use crate::layout::schema::{Column, Layout, Sealing, Table};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
use crate::lens::{Source, SourceTable};
use crate::migrate::read::Loaded;
use crate::record::Keyring;

/// Values of sealed columns that stand here as they rest, by table, column and row: they do not open, or are empty text,
/// which is not the same as a record of nothing.
pub(super) type Closed = BTreeSet<(String, String, usize)>;

/// The rows of one unit.
#[derive(Debug, Default)]
pub(super) struct WholeUnit {
    pub(super) source: Source,
    pub(super) closed: Closed,
}

impl WholeUnit {
    pub(super) fn new() -> Self {
        Self { source: Source { units: 1, ..Source::default() }, closed: Closed::new() }
    }

    /// Takes the rows of one table as they rest.
    pub(super) fn add(&mut self, keyring: &Keyring, table: &Table, loaded: &Loaded) {
        let mut columns = BTreeMap::new();
        for column in &table.columns {
            let data = opened(keyring, column, loaded, |row| {
                self.closed.insert((table.name.clone(), column.name.clone(), row));
            });
            columns.insert(column.name.clone(), data);
        }
        let unit_offsets = loaded.unit_offsets.clone();
        self.source.tables.insert(table.name.clone(), SourceTable { unit_offsets, columns });
    }

    /// A value that has something in it and does not open, in a column that `needed` names.
    pub(super) fn unreadable(&self, needed: impl Fn(&str, &str) -> bool) -> Option<(&str, &str)> {
        let is_empty = |table: &str, column: &str, row: usize| {
            self.source.tables[table].columns[column].get(Encoding::Text, row) == Value::Text(b"")
        };
        let closed = self.closed.iter().map(|(table, column, row)| (table.as_str(), column.as_str(), *row));
        let mut closed = closed.filter(|&(table, column, row)| needed(table, column) && !is_empty(table, column, row));
        closed.next().map(|(table, column, _)| (table, column))
    }

    /// How many rows there are, by table.
    pub(super) fn rows(&self) -> BTreeMap<String, u64> {
        let rows = |table: &SourceTable| table.unit_offsets.last().map_or(0, |&rows| u64::from(rows));
        self.source.tables.iter().map(|(name, table)| (name.clone(), rows(table))).collect()
    }

    /// Tables, each with its columns and then its rows; each value with whether it is open.
    pub(super) fn encode(&self, layout: &Layout) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, table) in &self.source.tables {
            let rows = table.unit_offsets.last().map_or(0, |&rows| rows as usize);
            Value::Text(name.as_bytes()).encode(&mut bytes);
            Value::Integer(rows as i64).encode(&mut bytes);
            Value::Integer(table.columns.len() as i64).encode(&mut bytes);
            for (column, data) in &table.columns {
                Value::Text(column.as_bytes()).encode(&mut bytes);
                let kind = layout.tables[name].column(column).expect("a column of the layout").kind;
                for row in 0..rows {
                    let is_open = !self.closed.contains(&(name.clone(), column.clone(), row));
                    Value::Boolean(is_open).encode(&mut bytes);
                    data.get(kind.into(), row).encode(&mut bytes);
                }
            }
        }
        bytes
    }

    /// What [`WholeUnit::encode`] gave, if it was for this layout. What did not open may open now.
    pub(super) fn decode(bytes: &[u8], layout: &Layout, keyring: &Keyring) -> Option<Self> {
        let mut unit = Self::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let name = text(&mut rest)?;
            let table = layout.tables.get(&name)?;
            let (rows, columns) = (integer(&mut rest)?, integer(&mut rest)?);
            let mut found = BTreeMap::new();
            for _ in 0..columns {
                let column = table.column(&text(&mut rest)?)?;
                found.insert(column.name.clone(), unit.column(&mut rest, table, column, rows, keyring)?);
            }
            if found.len() != table.columns.len() {
                return None;
            }
            let unit_offsets = vec![0, u32::try_from(rows).ok()?];
            unit.source.tables.insert(name, SourceTable { unit_offsets, columns: found });
        }
        Some(unit)
    }

    fn column(
        &mut self,
        rest: &mut &[u8],
        table: &Table,
        column: &Column,
        rows: usize,
        keyring: &Keyring,
    ) -> Option<ColumnData> {
        let encoding = Encoding::from(column.kind);
        let mut builder = ColumnBuilder::new(encoding);
        for row in 0..rows {
            let Value::Boolean(is_open) = next(rest)? else { return None };
            let value = next(rest)?;
            let fits = matches!(
                (encoding, value),
                (_, Value::Null)
                    | (Encoding::Boolean, Value::Boolean(_))
                    | (Encoding::Integer, Value::Integer(_))
                    | (Encoding::Text, Value::Text(_))
            );
            match value {
                _ if !fits => return None,
                Value::Text(text) if !is_open => match keyring.open(column.sealing, text) {
                    Ok(plain) => builder.push(Value::Text(&plain)),
                    Err(_) => {
                        self.closed.insert((table.name.clone(), column.name.clone(), row));
                        builder.push(value);
                    }
                },
                value => builder.push(value),
            }
        }
        Some(builder.finish())
    }
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

fn opened(keyring: &Keyring, column: &Column, loaded: &Loaded, mut closed: impl FnMut(usize)) -> ColumnData {
    let data = &loaded.columns[&column.name];
    if column.sealing == Sealing::Plain {
        return ColumnData::clone(data);
    }
    let mut plain = ColumnBuilder::new(Encoding::Text);
    for row in 0..loaded.rows() {
        match data.get(Encoding::Text, row) {
            Value::Text(text) => match keyring.open(column.sealing, text) {
                Ok(bytes) => plain.push(Value::Text(&bytes)),
                Err(_) => {
                    closed(row);
                    plain.push(Value::Text(text));
                }
            },
            value => plain.push(value),
        }
    }
    plain.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layout::schema::ColumnType;

    fn table() -> Table {
        let column =
            |name: &str, kind, sealing| Column { name: name.to_owned(), kind, nullable: true, default: None, sealing };
        Table {
            name: "things".to_owned(),
            columns: vec![
                column("guid", ColumnType::Varchar(9), Sealing::Plain),
                column("number", ColumnType::BigInteger, Sealing::Plain),
                column("flag", ColumnType::Boolean, Sealing::Plain),
                column("secret", ColumnType::LongText, Sealing::Sealed),
            ],
            primary_key: vec!["guid".to_owned()],
            indexes: Vec::new(),
            partition_key: None,
        }
    }

    fn column(encoding: Encoding, values: &[Value<'_>]) -> Arc<ColumnData> {
        let mut builder = ColumnBuilder::new(encoding);
        values.iter().for_each(|value| builder.push(*value));
        Arc::new(builder.finish())
    }

    #[test]
    fn a_unit_comes_back_from_its_bytes_and_opens_what_it_can() {
        let old = Keyring::new([("old", "one passphrase")], "old").unwrap();
        let new = Keyring::new([("new", "another")], "new").unwrap();
        let sealed = [old.seal(Sealing::Sealed, b"first"), new.seal(Sealing::Sealed, b"second")];
        let columns = [
            ("guid", column(Encoding::Text, &[Value::Text(b"a"), Value::Text(b"b")])),
            ("number", column(Encoding::Integer, &[Value::Null, Value::Integer(-7)])),
            ("flag", column(Encoding::Boolean, &[Value::Boolean(true), Value::Null])),
            ("secret", column(Encoding::Text, &[Value::Text(&sealed[0]), Value::Text(&sealed[1])])),
        ];
        let columns = columns.into_iter().map(|(name, data)| (name.to_owned(), data)).collect();
        let loaded = Loaded { unit_offsets: vec![0, 2], columns };
        let layout = Layout { tables: [("things".to_owned(), table())].into() };
        let mut unit = WholeUnit::new();
        unit.add(&new, &table(), &loaded);
        assert_eq!(unit.closed, [("things".to_owned(), "secret".to_owned(), 0)].into());
        assert_eq!(unit.rows(), [("things".to_owned(), 2)].into());
        let bytes = unit.encode(&layout);

        let again = WholeUnit::decode(&bytes, &layout, &new).unwrap();
        assert_eq!(again.closed, unit.closed);
        assert_eq!(again.source.tables["things"].columns, unit.source.tables["things"].columns);
        let both = Keyring::new([("old", "one passphrase"), ("new", "another")], "new").unwrap();
        let opened = WholeUnit::decode(&bytes, &layout, &both).unwrap();
        assert!(opened.closed.is_empty());
        assert_eq!(opened.source.tables["things"].columns["secret"].get(Encoding::Text, 0), Value::Text(b"first"));

        assert!(WholeUnit::decode(&bytes[..bytes.len() - 1], &layout, &new).is_none(), "cut short");
        assert!(WholeUnit::decode(&bytes, &Layout::default(), &new).is_none(), "another layout");
    }
}
