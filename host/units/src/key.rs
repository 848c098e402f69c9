//! The key of a unit: the value of the partition key, or the primary key of a table that has none.
//! Owns its name in messages and in the residue table, its forms in cursors, and the SQL conditions
//! that select units. Key rotation addresses rows by the same keys, with the whole primary key.
//!
//! The order of keys and their equality are the database's (a collation need not compare bytes):
//! `index` has the latter.

use bbs_database::{Dialect, Row, SqlError, of_few_lengths};
use bbs_files::digest::{from_hex, to_hex};
use bbs_lens::UnitKeys;
use bbs_lens::layout::schema::Table;
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use sea_query::{Alias, BinOper, Cond, Expr, ExprTrait, Value as SqlValue};

/// A column of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    /// The name in the database.
    pub name: String,
    /// The encoding of its values.
    pub encoding: Encoding,
}

impl KeyColumn {
    /// A column of text, such as a process guid.
    pub fn text(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            encoding: Encoding::Text,
        }
    }

    /// Columns of a table, by their names.
    ///
    /// # Panics
    /// If the table lacks one of them.
    pub fn named(table: &Table, names: &[String]) -> Vec<Self> {
        let column = |name: &String| Self {
            name: name.clone(),
            encoding: table
                .find_column(name)
                .expect("a key is of columns of the table")
                .kind
                .into(),
        };
        names.iter().map(column).collect()
    }

    pub(super) fn alias(&self) -> Alias {
        Alias::new(&self.name)
    }

    fn expr(&self) -> Expr {
        Expr::col(self.alias())
    }
}

/// A value of a key column. Booleans are the integers 0 and 1, as in the cursors and names that
/// databases have: [`UnitKey::values`] has them as their column has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KeyPart {
    Integer(i64),
    Text(Vec<u8>),
}

impl KeyPart {
    /// None for NULL.
    fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Integer(number) => Some(Self::Integer(number)),
            Value::Boolean(flag) => Some(Self::Integer(i64::from(flag))),
            Value::Text(text) => Some(Self::Text(text.to_vec())),
            Value::Null => None,
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Integer(number) => Value::Integer(*number),
            Self::Text(text) => Value::Text(text),
        }
    }
}

/// One part for each column of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitKey(Vec<KeyPart>);

impl UnitKey {
    /// The key of tables whose units are keyed by one text, such as a process guid.
    pub fn text(text: impl Into<Vec<u8>>) -> Self {
        Self(vec![KeyPart::Text(text.into())])
    }

    /// The key of a unit by its name, for a key of one column, such as a partition key. A name that
    /// the column cannot have, and any without such a column, is taken for text.
    pub fn from_name(name: String, key: &[KeyColumn]) -> Self {
        let is_number = matches!(key, [column] if column.encoding != Encoding::Text);
        let number = name.parse::<i64>().ok().filter(|_| is_number);
        // Another spelling of a number is another name.
        match number.filter(|number| number.to_string() == name) {
            Some(number) => Self(vec![KeyPart::Integer(number)]),
            None => Self::text(name),
        }
    }

    /// The key of the unit of this name in other columns: its text for a number, or the reverse, as
    /// of a unit of which only residue was left. None if they cannot have it.
    pub fn fitted(&self, columns: &[KeyColumn]) -> Option<Self> {
        if self.fits(columns) {
            return Some(self.clone());
        }
        let named = Self::from_name(self.name(), columns);
        named.fits(columns).then_some(named)
    }

    /// Whether columns of a key may have these values.
    fn fits(&self, columns: &[KeyColumn]) -> bool {
        let fits = |(part, column): (&KeyPart, &KeyColumn)| {
            matches!(part, KeyPart::Text(_)) == (column.encoding == Encoding::Text)
        };
        self.0.len() == columns.len() && self.0.iter().zip(columns).all(fits)
    }

    /// The text, if the key is that alone.
    pub fn into_text(self) -> Option<Vec<u8>> {
        match <[KeyPart; 1]>::try_from(self.0) {
            Ok([KeyPart::Text(text)]) => Some(text),
            _ => None,
        }
    }

    /// The class of keys that a collation may treat as equal to this one, if it is of ASCII text:
    /// collations ignore case, accents, widths and much else, but distinguish ASCII digits, of
    /// which guids have many. None if a text is not ASCII, which a collation may treat as equal to
    /// any other.
    pub fn collation_class(&self) -> Option<Self> {
        let class = |part: &KeyPart| match part {
            KeyPart::Integer(_) => Some(part.clone()),
            KeyPart::Text(text) => text
                .is_ascii()
                .then(|| KeyPart::Text(collation_class(text))),
        };
        self.0.iter().map(class).collect::<Option<_>>().map(Self)
    }

    /// The first columns of a row.
    pub(super) fn read(row: &Row, key: &[KeyColumn]) -> Result<Self, SqlError> {
        let part = |(at, column): (usize, &KeyColumn)| {
            if let Some(class) = row.foreign_class(at, column.encoding)? {
                return Err(SqlError::Decode(
                    format!("a key of the storage class {class}").into(),
                ));
            }
            KeyPart::of(row.value(at, column.encoding)?)
                .ok_or_else(|| SqlError::Decode("a key that is NULL".into()))
        };
        key.iter()
            .enumerate()
            .map(part)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The first columns of a row that may have any key that SQLite permits: also of another
    /// storage class than its column, and NULL, which is read as an empty text. No statement finds
    /// a row by NULL, so none changes it.
    pub fn read_any(row: &Row, key: &[KeyColumn]) -> Result<Self, SqlError> {
        let part = |(at, column): (usize, &KeyColumn)| {
            let part = KeyPart::of(row.value(at, column.encoding)?);
            Ok(part.unwrap_or(KeyPart::Text(Vec::new())))
        };
        key.iter()
            .enumerate()
            .map(part)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The values of the key's columns.
    pub fn values<'a>(&'a self, key: &'a [KeyColumn]) -> impl Iterator<Item = Value<'a>> {
        self.0.iter().zip(key).map(|(part, column)| match part {
            KeyPart::Integer(number) if column.encoding == Encoding::Boolean => {
                Value::Boolean(*number != 0)
            }
            part => part.value(),
        })
    }

    /// The values of the key's columns, as statements bind them. Text that is not UTF-8 is bound as
    /// bytes.
    pub fn bound<'a>(&'a self, key: &'a [KeyColumn]) -> impl Iterator<Item = SqlValue> {
        self.values(key).map(|value| match value {
            Value::Boolean(flag) => flag.into(),
            Value::Integer(number) => number.into(),
            Value::Text(text) => {
                std::str::from_utf8(text).map_or_else(|_| text.into(), SqlValue::from)
            }
            Value::Null => unreachable!("no part of a key is NULL"),
        })
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
            part.value().encode(&mut bytes);
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
            parts.push(KeyPart::of(value)?);
            rest = after;
        }
        Some(Self(parts))
    }

    /// The key as the cursor of a key rotation stores it, which operators read: a JSON array; text
    /// that is not UTF-8 is an array of bytes.
    pub fn to_json(&self, key: &[KeyColumn]) -> String {
        let part = |value: Value<'_>| match value {
            Value::Boolean(flag) => serde_json::json!(flag),
            Value::Integer(number) => serde_json::json!(number),
            Value::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serde_json::json!(text),
                Err(_) => serde_json::json!(bytes),
            },
            Value::Null => serde_json::Value::Null,
        };
        serde_json::Value::Array(self.values(key).map(part).collect()).to_string()
    }

    /// Reads what [`UnitKey::to_json`] returned. None if it does not match the columns: the cursor
    /// was written for another key.
    pub fn from_json(text: &str, key: &[KeyColumn]) -> Option<Self> {
        let parts: Vec<serde_json::Value> = serde_json::from_str(text).ok()?;
        let part = |(part, column): (serde_json::Value, &KeyColumn)| match column.encoding {
            Encoding::Boolean => part.as_bool().map(|flag| KeyPart::Integer(i64::from(flag))),
            Encoding::Integer => part.as_i64().map(KeyPart::Integer),
            Encoding::Text => match part {
                serde_json::Value::String(text) => Some(KeyPart::Text(text.into_bytes())),
                bytes => serde_json::from_value(bytes).ok().map(KeyPart::Text),
            },
        };
        if parts.len() != key.len() {
            return None;
        }
        let parts: Option<_> = parts.into_iter().zip(key).map(part).collect();
        parts.map(Self)
    }

    /// The operands of conditions on a key that was read from the database.
    fn operands(&self, key: &[KeyColumn], dialect: Dialect) -> Vec<Expr> {
        debug_assert_eq!(self.0.len(), key.len(), "one part for each column");
        let operand = |value| match value {
            // Only SQLite stores text that is not UTF-8; bound as a blob it would equal no text.
            SqlValue::Bytes(_) if dialect == Dialect::Sqlite => {
                Expr::val(value).cast_as(Alias::new("TEXT"))
            }
            value => Expr::val(value),
        };
        self.bound(key).map(operand).collect()
    }

    /// None where the database can hold no such key.
    fn operand(&self, key: &[KeyColumn], dialect: Dialect) -> Option<Expr> {
        let is_storable = |part: &KeyPart| match part {
            KeyPart::Integer(_) => true,
            KeyPart::Text(text) => operand(text, dialect).is_some(),
        };
        self.0
            .iter()
            .all(is_storable)
            .then(|| tuple(self.operands(key, dialect)))
    }
}

/// The class of ASCII texts that a collation may treat as equal to this one: the digits alone.
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

/// The columns by which the rows of a table are grouped into units, with their encodings.
pub fn unit_key(table: &Table) -> Vec<KeyColumn> {
    KeyColumn::named(table, &key_columns(table))
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

fn columns(key: &[KeyColumn]) -> Vec<Expr> {
    key.iter().map(KeyColumn::expr).collect()
}

fn tuple(mut parts: Vec<Expr>) -> Expr {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        Expr::tuple(parts)
    }
}

/// The rows of these units. Each key is a value of the statement, so callers bound their number.
pub(crate) fn among(key: &[KeyColumn], units: &[UnitKey], dialect: Dialect) -> Expr {
    let mut operands: Vec<_> = units
        .iter()
        .filter_map(|unit| unit.operand(key, dialect))
        .collect();
    match operands.len() {
        0 => Expr::cust("1 = 0"),
        1 => tuple(columns(key)).eq(operands.remove(0)),
        _ => tuple(columns(key)).is_in(of_few_lengths(operands)),
    }
}

/// The rows of some units.
pub fn is_one_of(table: &Table, units: &[UnitKey], dialect: Dialect) -> Expr {
    among(&unit_key(table), units, dialect)
}

/// The rows of one unit.
pub fn is_unit(table: &Table, unit: &UnitKey, dialect: Dialect) -> Expr {
    is_one_of(table, std::slice::from_ref(unit), dialect)
}

/// Condition: `key > after AND key <= last`, each where given. Both keys were read from this
/// database.
pub fn within(
    key: &[KeyColumn],
    after: Option<&UnitKey>,
    last: Option<&UnitKey>,
    dialect: Dialect,
) -> Cond {
    let after = after.map(|after| compared(key, BinOper::GreaterThan, after, dialect));
    let last = last.map(|last| compared(key, BinOper::SmallerThanOrEqual, last, dialect));
    Cond::all().add_option(after).add_option(last)
}

/// Condition: `(a, b) > (x, y)`, or another comparison.
fn compared(key: &[KeyColumn], comparison: BinOper, bound: &UnitKey, dialect: Dialect) -> Expr {
    let operands = bound.operands(key, dialect);
    if dialect != Dialect::Mysql {
        return tuple(columns(key)).binary(comparison, tuple(operands));
    }
    // MySQL uses no index for the comparison of rows, but for what it stands for:
    // `a > x OR (a = x AND b > y)`. The last column alone may be equal.
    let strict = match comparison {
        BinOper::SmallerThanOrEqual => BinOper::SmallerThan,
        strict => strict,
    };
    let mut pairs = columns(key).into_iter().zip(operands).rev();
    let (column, operand) = pairs.next().expect("a key has columns");
    let last = column.binary(comparison, operand);
    pairs.fold(last, |rest, (column, operand)| {
        let differs = column.clone().binary(strict, operand.clone());
        differs.or(column.eq(operand).and(rest))
    })
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

    fn mixed_key() -> [KeyColumn; 3] {
        [
            ("guid", Encoding::Text),
            ("slot", Encoding::Integer),
            ("gone", Encoding::Boolean),
        ]
        .map(|(name, encoding)| KeyColumn {
            name: name.to_owned(),
            encoding,
        })
    }

    #[test]
    fn key_from_its_name_has_the_type_of_its_column() {
        let [text, number, flag] = mixed_key();
        let key = |name: &str, column: &KeyColumn| {
            UnitKey::from_name(name.to_owned(), std::slice::from_ref(column))
        };
        for (column, integer) in [(&number, -3), (&flag, 1)] {
            let expected = UnitKey(vec![KeyPart::Integer(integer)]);
            assert_eq!(key(&expected.name(), column), expected);
        }
        assert_eq!(key("1", &text), UnitKey::text("1"));
        for other in ["a", "01", "+1", "9223372036854775808"] {
            assert_eq!(key(other, &number).name(), other);
        }
        assert_eq!(UnitKey::from_name("1".into(), &[]), UnitKey::text("1"));
    }

    /// PostgreSQL refuses to compare a text with a number.
    #[test]
    fn key_is_fitted_to_columns_of_another_type() {
        let [text, number, flag] = mixed_key();
        let one = UnitKey(vec![KeyPart::Integer(1)]);
        for column in [&number, &flag] {
            let fitted = |key: &UnitKey| key.fitted(std::slice::from_ref(column));
            assert_eq!(fitted(&UnitKey::text("1")), Some(one.clone()));
            assert_eq!(fitted(&one), Some(one.clone()));
            assert_eq!(fitted(&UnitKey::text("a")), None);
        }
        let fitted = one.fitted(std::slice::from_ref(&text));
        assert_eq!(fitted, Some(UnitKey::text("1")));
        assert_eq!(one.fitted(&mixed_key()), None);
    }

    #[test]
    fn rotation_cursor_round_trips_through_its_text() {
        for text in [
            b"gr\xc3\xb6\xc3\x9fe/\"".to_vec(),
            vec![0xff, 0],
            Vec::new(),
        ] {
            let parts = [
                KeyPart::Text(text),
                KeyPart::Integer(-3),
                KeyPart::Integer(1),
            ];
            let key = UnitKey(parts.into());
            let json = key.to_json(&mixed_key());
            assert!(json.ends_with(",-3,true]"), "{json}");
            assert_eq!(UnitKey::from_json(&json, &mixed_key()), Some(key));
        }
    }

    #[test]
    fn rotation_cursor_of_another_key_is_none() {
        for text in [
            "",
            "7",
            "[]",
            r#"["a"]"#,
            r#"["a","b",true]"#,
            r#"[1,2,true]"#,
            r#"["a",1,1]"#,
            r#"["a",1,true,2]"#,
            r#"[[256],1,true]"#,
        ] {
            assert_eq!(UnitKey::from_json(text, &mixed_key()), None, "{text}");
        }
    }

    #[test]
    fn range_of_several_columns_is_expanded_on_mysql_alone() {
        let bound = UnitKey(vec![
            KeyPart::Text("g".into()),
            KeyPart::Integer(1),
            KeyPart::Integer(0),
        ]);
        let condition = |dialect| {
            let mut query = sea_query::Query::select();
            query.cond_where(within(&mixed_key(), Some(&bound), Some(&bound), dialect));
            query.to_string(sea_query::MysqlQueryBuilder)
        };
        for dialect in [Dialect::Sqlite, Dialect::Postgres] {
            let rows = "(`guid`, `slot`, `gone`) > ('g', 1, FALSE) \
                 AND (`guid`, `slot`, `gone`) <= ('g', 1, FALSE)";
            assert!(condition(dialect).contains(rows), "{}", condition(dialect));
        }
        let expanded = "(`guid` > 'g' OR (`guid` = 'g' AND (`slot` > 1 OR (`slot` = 1 \
             AND `gone` > FALSE)))) AND (`guid` < 'g' OR (`guid` = 'g' AND (`slot` < 1 OR \
             (`slot` = 1 AND `gone` <= FALSE))))";
        let found = condition(Dialect::Mysql);
        assert!(found.contains(expanded), "{found}");
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
        let one = Table::new("things").primary_key(["a"]);
        let two = Table::new("things").primary_key(["a", "b"]);
        assert_eq!(unit_column(&two.clone().partition_key("b")), Some("b"));
        assert_eq!(unit_column(&one), Some("a"));
        assert_eq!(unit_column(&two), None);
    }
}
