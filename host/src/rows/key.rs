//! The key of a unit: the value of the partition key, or the primary key of a table that has none.
//! Owns its name in messages and in the residue table, its form in a cursor, and the SQL conditions
//! that select units.
//!
//! The order of keys and their equality are the database's (a collation need not compare bytes):
//! `index` has the latter.

use bbs_lens::UnitKeys;
use bbs_lens::layout::schema::Table;
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use sea_query::{Alias, Expr, ExprTrait, SelectStatement};

use super::digest::{from_hex, to_hex};
use crate::database::{Dialect, Row, SqlError, of_few_lengths};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPart {
    Integer(i64),
    Text(Vec<u8>),
}

/// One part for each of [`key_columns`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitKey(Vec<KeyPart>);

impl UnitKey {
    /// The key of tables whose units are keyed by one text, such as a process guid.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        Self(vec![KeyPart::Text(text.into())])
    }

    /// The text, if the key is that alone.
    pub fn into_text(self) -> Option<Vec<u8>> {
        match <[KeyPart; 1]>::try_from(self.0) {
            Ok([KeyPart::Text(text)]) => Some(text),
            _ => None,
        }
    }

    /// The same key with each text changed.
    #[must_use]
    fn map_text(&self, change: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let change = |part: &KeyPart| match part {
            KeyPart::Integer(number) => KeyPart::Integer(*number),
            KeyPart::Text(text) => KeyPart::Text(change(text)),
        };
        Self(self.0.iter().map(change).collect())
    }

    /// The same for any two keys of ASCII text that a collation may treat as equal: collations
    /// ignore case, accents, widths and much else, but distinguish ASCII digits, of which guids
    /// have many. None if a text is not ASCII, which a collation may treat as equal to any other.
    pub fn collation_class(&self) -> Option<Self> {
        let is_ascii = |part: &KeyPart| {
            matches!(part, KeyPart::Integer(_))
                || matches!(part, KeyPart::Text(text) if text.is_ascii())
        };
        self.0
            .iter()
            .all(is_ascii)
            .then(|| self.map_text(collation_class))
    }

    /// The first columns of a row, one for each encoding.
    pub(super) fn read(row: &Row, encodings: &[Encoding]) -> Result<Self, SqlError> {
        let part = |(at, encoding): (usize, &Encoding)| {
            if let Some(class) = row.foreign_class(at, *encoding)? {
                return Err(SqlError::Decode(
                    format!("a key of the storage class {class}").into(),
                ));
            }
            match row.value(at, *encoding)? {
                Value::Integer(number) => Ok(KeyPart::Integer(number)),
                Value::Boolean(value) => Ok(KeyPart::Integer(i64::from(value))),
                Value::Text(text) => Ok(KeyPart::Text(text.to_vec())),
                Value::Null => Err(SqlError::Decode("a key that is NULL".into())),
            }
        };
        encodings
            .iter()
            .enumerate()
            .map(part)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether it may come after a key in the order of the database. Only SQLite's is known, which
    /// compares bytes; in any other order no key comes after itself.
    pub(super) fn comes_after(&self, before: &Self, dialect: Dialect) -> bool {
        match dialect {
            Dialect::Sqlite => self > before,
            Dialect::Postgres | Dialect::Mysql => self != before,
        }
    }

    /// The unit in messages and in the residue table. Unique within a table.
    pub fn name(&self) -> String {
        let name = |part: &KeyPart| match part {
            KeyPart::Integer(number) => number.to_string(),
            KeyPart::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => text.to_owned(),
                Err(_) => format!("x'{}'", to_hex(bytes)),
            },
        };
        match self.0.as_slice() {
            [part] => name(part),
            parts => serde_json::to_string(&parts.iter().map(name).collect::<Vec<_>>())
                .expect("a list of text"),
        }
    }

    /// The key as a cursor stores it.
    pub fn to_text(&self) -> String {
        let mut bytes = Vec::new();
        for part in &self.0 {
            match part {
                KeyPart::Integer(number) => Value::Integer(*number).encode(&mut bytes),
                KeyPart::Text(text) => Value::Text(text).encode(&mut bytes),
            }
        }
        to_hex(&bytes)
    }

    /// Reads what [`UnitKey::to_text`] returned. None if the text is damaged.
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = from_hex(text)?;
        let mut rest = bytes.as_slice();
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (value, after) = Value::decode(rest)?;
            parts.push(match value {
                Value::Integer(number) => KeyPart::Integer(number),
                Value::Text(text) => KeyPart::Text(text.to_vec()),
                Value::Null | Value::Boolean(_) => return None,
            });
            rest = after;
        }
        Some(Self(parts))
    }

    /// None where the database can hold no such key.
    fn operand(&self, dialect: Dialect) -> Option<Expr> {
        let part = |part: &KeyPart| match part {
            KeyPart::Integer(number) => Some(Expr::val(*number)),
            KeyPart::Text(text) => operand(text, dialect),
        };
        self.0.iter().map(part).collect::<Option<_>>().map(tuple)
    }

    /// Of a key that was read from the database.
    fn held(&self, dialect: Dialect) -> Expr {
        let part = |part: &KeyPart| match part {
            KeyPart::Integer(number) => Expr::val(*number),
            KeyPart::Text(text) => {
                operand(text, dialect).unwrap_or_else(|| Expr::val(text.as_slice()))
            }
        };
        tuple(self.0.iter().map(part).collect())
    }
}

/// The same for any two ASCII texts that a collation may treat as equal: the digits alone.
pub fn collation_class(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(u8::is_ascii_digit).collect()
}

/// The keys of units that have one part, as values; a unit with another kind of key than the first
/// is NULL. None without such a unit.
pub(super) fn values(units: &[UnitKey]) -> Option<UnitKeys> {
    let encoding = match units.first()?.0.as_slice() {
        [KeyPart::Text(_)] => Encoding::Text,
        [KeyPart::Integer(_)] => Encoding::Integer,
        _ => return None,
    };
    let mut values = ColumnBuilder::new(encoding);
    for unit in units {
        values.push(match (unit.0.as_slice(), encoding) {
            ([KeyPart::Text(text)], Encoding::Text) => Value::Text(text),
            ([KeyPart::Integer(number)], Encoding::Integer) => Value::Integer(*number),
            _ => Value::Null,
        });
    }
    Some(UnitKeys {
        encoding,
        values: values.finish(),
    })
}

/// The columns by which the rows of a table are grouped into units: the partition key, or the whole
/// primary key.
pub fn key_columns(table: &Table) -> Vec<String> {
    table
        .partition_key
        .as_ref()
        .map_or_else(|| table.primary_key.clone(), |key| vec![key.clone()])
}

/// The column by which the rows of a table are grouped into units. None if that takes several
/// columns: such a table has no partition key, so no row function reads it and no unit has rows of
/// another table.
pub fn unit_column(table: &Table) -> Option<&str> {
    match (&table.partition_key, table.primary_key.as_slice()) {
        (Some(key), _) => Some(key),
        (None, [key]) => Some(key),
        (None, _) => None,
    }
}

pub(super) fn encodings(table: &Table, key: &[String]) -> Vec<Encoding> {
    key.iter()
        .map(|name| {
            table
                .find_column(name)
                .expect("a key is of columns of the table")
                .kind
                .into()
        })
        .collect()
}

/// A text, which need not be UTF-8, as a value of a statement. None where the database can hold no
/// such text.
pub fn operand(text: &[u8], dialect: Dialect) -> Option<Expr> {
    match (std::str::from_utf8(text), dialect) {
        (Ok(text), Dialect::Postgres) if text.contains('\0') => None,
        (Ok(text), _) => Some(Expr::val(text)),
        (Err(_), Dialect::Sqlite) => Some(Expr::val(text).cast_as(Alias::new("TEXT"))),
        (Err(_), Dialect::Postgres | Dialect::Mysql) => None,
    }
}

fn columns(names: &[String]) -> Expr {
    tuple(
        names
            .iter()
            .map(|name| Expr::col(Alias::new(name)))
            .collect(),
    )
}

fn tuple(mut parts: Vec<Expr>) -> Expr {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        Expr::tuple(parts)
    }
}

/// The rows of these units. Each key is a value of the statement, so callers bound their number.
pub fn among(key: &[String], units: &[UnitKey], dialect: Dialect) -> Expr {
    let mut operands: Vec<_> = units
        .iter()
        .filter_map(|unit| unit.operand(dialect))
        .collect();
    match operands.len() {
        0 => Expr::cust("1 = 0"),
        1 => columns(key).eq(operands.remove(0)),
        _ => columns(key).is_in(of_few_lengths(operands)),
    }
}

/// The rows of one unit.
pub fn is_unit(table: &Table, unit: &UnitKey, dialect: Dialect) -> Expr {
    among(&key_columns(table), std::slice::from_ref(unit), dialect)
}

/// Restricts a query to `key > after AND key <= last`, each where given. Both keys were read from
/// this database.
pub fn within(
    query: &mut SelectStatement,
    key: &[String],
    after: Option<&UnitKey>,
    last: Option<&UnitKey>,
    dialect: Dialect,
) {
    if let Some(after) = after {
        query.and_where(columns(key).gt(after.held(dialect)));
    }
    if let Some(last) = last {
        query.and_where(columns(key).lte(last.held(dialect)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips_through_its_text() {
        let parts = [
            KeyPart::Text("größe/\"".into()),
            KeyPart::Integer(-3),
            KeyPart::Text(vec![0xff]),
        ];
        let read = UnitKey::from_text(&UnitKey(parts.to_vec()).to_text()).unwrap();
        assert_eq!(read.0, parts);
        assert_eq!(UnitKey::from_text("0"), None);
        assert_eq!(UnitKey::from_text("zz"), None);
        assert_eq!(UnitKey::from_text("00"), None, "no key is NULL");
    }

    #[test]
    fn names_of_different_keys_differ() {
        let text = |text: &str| KeyPart::Text(text.into());
        let keys = [
            UnitKey(vec![text("a/b"), text("c")]),
            UnitKey(vec![text("a"), text("b/c")]),
            UnitKey::text([0xfe]),
            UnitKey::text([0xff]),
        ];
        let names: std::collections::BTreeSet<_> = keys.iter().map(UnitKey::name).collect();
        assert_eq!(names.len(), keys.len());
        assert_eq!(UnitKey::text("größe").name(), "größe");
    }

    #[test]
    fn text_that_a_database_cannot_hold_is_no_operand() {
        let is_operand = |text: &[u8]| {
            [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql]
                .map(|dialect| operand(text, dialect).is_some())
        };
        assert_eq!(is_operand(b"text"), [true, true, true]);
        assert_eq!(is_operand(b"with\0nul"), [true, false, true]);
        assert_eq!(is_operand(b"\xff"), [true, false, false]);
    }

    #[test]
    fn units_are_those_of_the_partition_key_or_of_a_primary_key_of_one_column() {
        let table = |primary_key: &[&str], partition_key: Option<&str>| Table {
            name: "things".into(),
            columns: Vec::new(),
            primary_key: primary_key.iter().map(|&name| name.to_owned()).collect(),
            indexes: Vec::new(),
            partition_key: partition_key.map(str::to_owned),
        };
        assert_eq!(unit_column(&table(&["a", "b"], Some("b"))), Some("b"));
        assert_eq!(unit_column(&table(&["a"], None)), Some("a"));
        assert_eq!(unit_column(&table(&["a", "b"], None)), None);
    }
}
