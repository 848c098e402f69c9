//! An entry of the quarantine as JSON: exported, and corrected by an operator. Owns the form of its
//! values, and the checks of a corrected one against the layout of its rows.

use std::collections::{BTreeMap, BTreeSet};

use bbs_database::Dialect;
use bbs_encryption::Keyring;
use bbs_files::digest::{from_hex, to_hex};
use bbs_lens::TableBuilder;
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Column, ColumnType, Layout, Sealing, Table};
use bbs_lens::layout::values::Value;
use bbs_units::{OwnedValue, TableRows, UnitBatch, UnitKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::QuarantineEntry;

/// How the sealed values of an entry are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedValues {
    /// As the database stores them, under the active key.
    Kept,
    /// Decrypted. One that does not open is exported as it is stored.
    Decrypted,
}

/// An entry with its content. `unit`, `table` and `from` identify the entry, and are those of
/// [`QuarantineEntry`].
///
/// A value is `null`, a boolean, an integer or a text. Bytes are as [`json_of_bytes`] writes them,
/// and a sealed value that is not decrypted is `{"sealed": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuarantineDocument {
    /// The unit's name.
    pub unit: String,
    /// The first of the tables that it was in.
    pub table: String,
    /// The version of its rows.
    pub from: DataVersion,
    /// The rows by table, each with a value for every column.
    pub tables: BTreeMap<String, Vec<BTreeMap<String, Json>>>,
    /// A record of etcd, which no table has a row for; decrypted only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Json>,
}

impl QuarantineDocument {
    pub(super) fn of(
        entry: &QuarantineEntry,
        unit: &UnitBatch,
        layout: &Layout,
        keyring: &Keyring,
        sealed: SealedValues,
    ) -> Self {
        let rows = |(name, rows): (&String, &TableRows)| {
            let table = &layout.tables[name];
            let row = |at: usize| {
                let value = |column: &Column| {
                    let value = rows.value(table, &column.name, at).unwrap_or(Value::Null);
                    (
                        column.name.clone(),
                        exported(value, column, keyring, sealed),
                    )
                };
                table.columns.iter().map(value).collect()
            };
            (name.clone(), (0..rows.count()).map(row).collect())
        };
        Self {
            tables: unit.tables.iter().map(rows).collect(),
            ..Self::without_rows(entry)
        }
    }

    pub(super) fn of_foreign(
        entry: &QuarantineEntry,
        content: &[u8],
        sealed: SealedValues,
    ) -> Self {
        let record = (sealed == SealedValues::Decrypted).then(|| json_of_bytes(content));
        Self {
            record,
            ..Self::without_rows(entry)
        }
    }

    fn without_rows(entry: &QuarantineEntry) -> Self {
        let QuarantineEntry {
            unit, table, from, ..
        } = entry;
        Self {
            unit: unit.clone(),
            table: table.clone(),
            from: *from,
            tables: BTreeMap::new(),
            record: None,
        }
    }

    /// Whether the document is of the entry.
    pub(super) fn is_of(&self, entry: &QuarantineEntry) -> bool {
        (&self.unit, &self.table, self.from) == (&entry.unit, &entry.table, entry.from)
    }

    /// Its rows as the database stores them, sealed with the active key. `before` is the content
    /// that they correct.
    ///
    /// # Errors
    /// Every reason why they cannot take its place; none has a value.
    pub(super) fn corrected(
        &self,
        before: &UnitBatch,
        layout: &Layout,
        keyring: &Keyring,
        dialect: Dialect,
    ) -> Result<UnitBatch, Vec<String>> {
        let mut faults = Vec::new();
        let mut unit = UnitBatch {
            units: before.units.clone(),
            tables: BTreeMap::new(),
        };
        for name in before
            .tables
            .keys()
            .filter(|name| !self.tables.contains_key(*name))
        {
            faults.push(format!(
                "the table `{name}` of the entry is missing; give it without rows as []"
            ));
        }
        let keys = keys_of(before, layout);
        for (name, given) in &self.tables {
            if !before.tables.contains_key(name) {
                faults.push(format!("the entry has no table `{name}`"));
                continue;
            }
            let table = &layout.tables[name];
            if let Some(rows) = parsed_rows(table, given, keyring, &mut faults) {
                let columns = bbs_units::key_columns(table);
                let is_moved = |at: &usize| !keys.contains(&rows.encoded(table, &columns, *at));
                faults.extend((0..rows.count()).filter(is_moved).map(|at| {
                    format!(
                        "row {} of `{name}` is of another unit; keep its `{}`",
                        at + 1,
                        columns.join("`, `")
                    )
                }));
                faults.extend(bbs_units::flaws(table, &rows, keyring, dialect));
                unit.tables.insert(name.clone(), rows);
            }
        }
        if faults.is_empty() && unit.is_empty() {
            faults
                .push("it has no row; `bbs migrate quarantine delete` removes an entry".to_owned());
        }
        if faults.is_empty() {
            Ok(unit)
        } else {
            Err(faults)
        }
    }
}

/// The keys of the rows of a unit, in every spelling that they have.
fn keys_of(unit: &UnitBatch, layout: &Layout) -> BTreeSet<Vec<u8>> {
    let of_table = |(name, rows): (&String, &TableRows)| {
        let table = &layout.tables[name];
        let columns = bbs_units::key_columns(table);
        (0..rows.count())
            .map(|row| rows.encoded(table, &columns, row))
            .collect::<Vec<_>>()
    };
    let name = unit
        .units
        .first()
        .cloned()
        .and_then(UnitKey::into_text)
        .map(|text| {
            let mut key = Vec::new();
            Value::Text(&text).encode(&mut key);
            key
        });
    unit.tables.iter().flat_map(of_table).chain(name).collect()
}

/// The rows of a table; `None` with a fault added for each value that does not fit its column.
fn parsed_rows(
    table: &Table,
    given: &[BTreeMap<String, Json>],
    keyring: &Keyring,
    faults: &mut Vec<String>,
) -> Option<TableRows> {
    let before = faults.len();
    for (row, values) in (1..).zip(given) {
        let unknown = values
            .keys()
            .filter(|name| table.find_column(name).is_none());
        faults.extend(
            unknown.map(|name| format!("row {row} of `{}`: it has no column `{name}`", table.name)),
        );
    }
    let mut rows = TableBuilder::new(&table.columns);
    for (place, column) in table.columns.iter().enumerate() {
        for (row, given) in (1..).zip(given) {
            let parsed = given
                .get(&column.name)
                .ok_or("it is missing")
                .and_then(|json| parsed(json, column, keyring));
            match parsed {
                Ok(value) => rows.push(place, value.value()),
                Err(fault) => {
                    faults.push(format!(
                        "row {row} of `{}`, `{}`: {fault}",
                        table.name, column.name
                    ));
                    rows.push(place, Value::Null);
                }
            }
        }
    }
    let count = u32::try_from(given.len()).ok()?;
    (faults.len() == before).then(|| rows.finish(vec![0, count]))
}

fn exported(value: Value<'_>, column: &Column, keyring: &Keyring, sealed: SealedValues) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => value.into(),
        Value::Integer(value) => value.into(),
        Value::Text(plain) if column.sealing == Sealing::Plain => json_of_bytes(plain),
        Value::Text(stored) => {
            // An empty text is stored as it is, and is none that was sealed.
            let decrypted = (sealed == SealedValues::Decrypted && !stored.is_empty())
                .then(|| keyring.open(column.sealing, stored).ok())
                .flatten();
            decrypted.map_or_else(
                || json!({ SEALED: json_of_bytes(stored) }),
                |plain| json_of_bytes(&plain),
            )
        }
    }
}

const SEALED: &str = "sealed";
const HEX: &str = "hex";

/// A text as it is; bytes that are no plain text as `{"hex": "0a05"}`. The golden cases of the SDK
/// have the same form.
pub fn json_of_bytes(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !c.is_whitespace()) => text.into(),
        _ => json!({ HEX: to_hex(bytes) }),
    }
}

/// The only member of an object, if it has this name.
fn only<'a>(json: &'a Json, name: &str) -> Option<&'a Json> {
    json.as_object()
        .filter(|object| object.len() == 1)?
        .get(name)
}

fn parsed_text(json: &Json) -> Option<Vec<u8>> {
    match json {
        Json::String(text) => Some(text.clone().into_bytes()),
        json => from_hex(
            &only(json, HEX)?
                .as_str()?
                .split_whitespace()
                .collect::<String>(),
        ),
    }
}

/// A value as its column stores it.
fn parsed(json: &Json, column: &Column, keyring: &Keyring) -> Result<OwnedValue, &'static str> {
    match (json, column.kind) {
        (Json::Null, _) if column.nullable => Ok(OwnedValue::Null),
        (Json::Null, _) => Err("the column does not accept NULL"),
        (Json::Bool(value), ColumnType::Boolean) => Ok(OwnedValue::Boolean(*value)),
        (_, ColumnType::Boolean) => Err("expected true or false"),
        (json, ColumnType::Integer) => {
            let number = json
                .as_i64()
                .filter(|number| i32::try_from(*number).is_ok());
            number
                .map(OwnedValue::Integer)
                .ok_or("expected an integer of 32 bits")
        }
        (json, ColumnType::BigInteger) => json
            .as_i64()
            .map(OwnedValue::Integer)
            .ok_or("expected an integer of 64 bits"),
        (json, _) => {
            let stored = only(json, SEALED).filter(|_| column.sealing != Sealing::Plain);
            if let Some(stored) = stored {
                return parsed_text(stored)
                    .map(OwnedValue::Text)
                    .ok_or("expected a text in `sealed`");
            }
            let plain = parsed_text(json).ok_or("expected a text, or {\"hex\": \"0a05\"}")?;
            if column.sealing == Sealing::Plain {
                Ok(OwnedValue::Text(plain))
            } else {
                Ok(OwnedValue::Text(keyring.seal(column.sealing, &plain)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Table {
        Table::new("things")
            .column(Column::varchar("guid", 9))
            .column(Column::big_integer("number").nullable())
            .column(Column::boolean("flag"))
            .column(Column::long_text("secret").sealed())
            .primary_key(["guid"])
    }

    fn values() -> impl Strategy<Value = Json> {
        let text = prop_oneof![".{0,8}", "[0-9a-f]{0,8}", "u"];
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            text.prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 8, 3, |inner| {
            let name = prop_oneof![Just(SEALED.to_owned()), Just(HEX.to_owned()), ".{0,4}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
                prop::collection::btree_map(name, inner, 0..3)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn arbitrary_documents_correct_a_unit_or_are_refused(
            rows in prop::collection::vec(
                prop::collection::btree_map(
                    prop_oneof![Just("guid"), Just("number"), Just("flag"), Just("secret"), Just("other")],
                    values(),
                    0..6,
                ),
                0..3,
            ),
        ) {
            let keyring = Keyring::new([("a", "one")], "a").unwrap();
            let layout = Layout { tables: [("things".to_owned(), table())].into() };
            let before = UnitBatch {
                units: vec![UnitKey::text("u")],
                tables: [("things".to_owned(), TableBuilder::new(&table().columns).finish(vec![0, 0]))].into(),
            };
            let text = json!({ "unit": "u", "table": "things", "from": 1, "tables": { "things": rows } }).to_string();
            let document: QuarantineDocument = serde_json::from_str(&text).unwrap();
            if let Ok(unit) = document.corrected(&before, &layout, &keyring, Dialect::Sqlite) {
                prop_assert_eq!(unit.tables["things"].count(), rows.len());
            }
        }
    }
}
