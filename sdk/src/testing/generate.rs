//! Generates units of a layout from a seed: the same seed gives the same units on every machine.
//! Owns the choice of values (NULL, empty, absent, huge, non-ASCII, unknown protobuf fields).

use std::collections::{BTreeMap, BTreeSet};

use bbs_lens::layout::schema::Layout;

use super::data::{Datum, RowData, UnitData};
use crate::columns::Encoding;
use crate::schema::{Column, ColumnType, Sealing, Table};
use crate::wire;

type Fill = Box<dyn Fn(&mut Generator) -> Datum>;

/// A deterministic source of values.
#[derive(Debug, Clone)]
pub struct Generator(u64);

/// Length of the longest generated text, where the type allows it; exceeds 16 bits.
const HUGE_BYTES: usize = 70_000;
/// Length of the longest generated partition key, in characters.
const KEY_CHARACTERS: u32 = 32;
/// The number of attempts at a partition key that no unit has yet.
const KEY_ATTEMPTS: usize = 20;
const LETTERS: [char; 12] = ['a', 'Z', '0', '-', ' ', '"', '<', '&', 'é', 'ß', '界', '🚀'];

impl Generator {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next random number (SplitMix64 by Steele, Lea and Flood).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// Returns true once in `times` calls on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these values.
    ///
    /// # Panics
    /// If `from` is empty.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Text of at most this many characters: empty, short, non-ASCII, or of full length.
    pub fn text(&mut self, characters: usize) -> String {
        let length = match self.below(10) {
            0 => 0,
            1 => characters,
            _ => self.below(characters.min(24) + 1),
        };
        (0..length).map(|_| self.pick(&LETTERS)).collect()
    }

    /// A protobuf message with unknown fields: any field numbers, every wire type, nesting.
    pub fn message(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        for _ in 0..self.below(8) {
            let number = 1 + if self.once_in(3) {
                self.below(1 << 28)
            } else {
                self.below(40)
            } as u32;
            self.append_field(&mut message, number);
        }
        message
    }

    /// Appends a field of any type.
    pub fn append_field(&mut self, message: &mut Vec<u8>, number: u32) {
        let nested = if self.once_in(8) {
            self.message()
        } else {
            self.text(40).into_bytes()
        };
        let value = match self.below(8) {
            0 => wire::Value::Varint(self.number() >> self.below(64)),
            1 => wire::Value::Fixed64(self.number()),
            2 => wire::Value::Fixed32(self.number() as u32),
            3 => wire::Value::Group(&[]),
            _ => wire::Value::Bytes(&nested),
        };
        wire::append(message, number, value);
    }

    fn integer(&mut self, bits: u32) -> i64 {
        match self.below(6) {
            0 => 0,
            1 => i64::MAX >> (64 - bits),
            2 => i64::MIN >> (64 - bits),
            3 => -1,
            _ => self.below(100) as i64,
        }
    }

    fn json(&mut self) -> String {
        let members = (0..self.below(4)).map(|_| {
            (
                self.text(12),
                crate::json::JsonValue::from(self.text(20).as_str()),
            )
        });
        let object = crate::json::JsonValue::Object(members.collect());
        let null = crate::json::JsonValue::Null;
        crate::json::to_go_string(if self.once_in(8) { &null } else { &object })
    }

    /// A value of the column, sometimes NULL if it is nullable.
    pub fn datum(&mut self, column: &Column) -> Datum {
        if column.nullable && self.once_in(4) {
            return Datum::Null;
        }
        match (column.kind, column.sealing) {
            (ColumnType::Boolean, _) => self.once_in(2).into(),
            (ColumnType::Integer, _) => self.integer(32).into(),
            (ColumnType::BigInteger, _) => self.integer(64).into(),
            (_, Sealing::Enveloped) => self.message().into(),
            (_, Sealing::Sealed) => self.json().as_str().into(),
            (ColumnType::Varchar(length), _) => self.text(length as usize).as_str().into(),
            (_, Sealing::Plain) if self.once_in(20) => "界".repeat(HUGE_BYTES / 3).as_str().into(),
            (_, Sealing::Plain) => self.text(200).as_str().into(),
        }
    }

    /// A value of a partition key, which is never NULL: short text, or any number.
    fn key(&mut self, column: &Column) -> Datum {
        let is_any = !self.once_in(4);
        match column.kind {
            ColumnType::Integer if is_any => i64::from(self.number() as i32).into(),
            ColumnType::BigInteger if is_any => (self.number() as i64).into(),
            ColumnType::Boolean | ColumnType::Integer | ColumnType::BigInteger => {
                self.datum(column)
            }
            ColumnType::Varchar(length) => self
                .text(length.min(KEY_CHARACTERS) as usize)
                .as_str()
                .into(),
            ColumnType::Text | ColumnType::MediumText | ColumnType::LongText => {
                self.text(KEY_CHARACTERS as usize).as_str().into()
            }
        }
    }
}

/// Generates units of a layout.
pub(super) struct Units {
    pub(super) layout: Layout,
    fills: BTreeMap<(String, String), Fill>,
}

impl Units {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            fills: BTreeMap::new(),
        }
    }

    pub(super) fn fill(&mut self, table: &str, column: &str, fill: Fill) {
        self.fills
            .insert((table.to_owned(), column.to_owned()), fill);
    }

    /// Generates units with different partition keys, as far as the values of the keys suffice.
    pub(super) fn units(&self, generator: &mut Generator, count: usize) -> Vec<UnitData> {
        let mut taken = BTreeSet::new();
        let unit = |_| {
            let mut keys = self.keys(generator);
            for _ in 1..KEY_ATTEMPTS {
                if !taken.contains(&keys) {
                    break;
                }
                keys = self.keys(generator);
            }
            let unit = self.unit(&keys, generator);
            taken.insert(keys);
            unit
        };
        (0..count).map(unit).collect()
    }

    /// The partition key of a unit, by table. Tables whose keys have one encoding share it: their
    /// rows with equal keys are one unit. The `fill` of one of these columns sets the key of all of
    /// them.
    fn keys(&self, generator: &mut Generator) -> BTreeMap<&str, Datum> {
        let keyed = self.layout.tables.values().filter_map(|table| {
            let column = table.find_column(table.partition_key.as_ref()?)?;
            Some((table.name.as_str(), column))
        });
        let keyed: Vec<_> = keyed.collect();
        let mut keys = BTreeMap::new();
        for encoding in [Encoding::Text, Encoding::Integer, Encoding::Boolean] {
            let alike: Vec<_> = keyed
                .iter()
                .filter(|(_, column)| Encoding::from(column.kind) == encoding)
                .collect();
            let Some((_, narrowest)) = alike.iter().min_by_key(|(_, column)| width(column)) else {
                continue;
            };
            let fill = alike
                .iter()
                .find_map(|(table, column)| self.fill_of(table, &column.name));
            let key = match fill {
                Some(fill) => fill(generator),
                None => generator.key(narrowest),
            };
            keys.extend(alike.iter().map(|(table, _)| (*table, key.clone())));
        }
        keys
    }

    fn fill_of(&self, table: &str, column: &str) -> Option<&Fill> {
        self.fills.get(&(table.to_owned(), column.to_owned()))
    }

    /// Generates one unit: up to four rows per table, sometimes none, with unique primary keys.
    fn unit(&self, keys: &BTreeMap<&str, Datum>, generator: &mut Generator) -> UnitData {
        let mut tables = BTreeMap::new();
        for table in self.layout.tables.values() {
            let mut rows: BTreeMap<Vec<Datum>, RowData> = BTreeMap::new();
            for _ in 0..generator.below(5) {
                let row = self.row(table, keys.get(table.name.as_str()), generator);
                let primary = table
                    .primary_key
                    .iter()
                    .map(|column| row[column].clone())
                    .collect();
                rows.entry(primary).or_insert(row);
            }
            tables.insert(table.name.clone(), rows.into_values().collect());
        }
        UnitData { tables }
    }

    fn row(&self, table: &Table, key: Option<&Datum>, generator: &mut Generator) -> RowData {
        let columns = table.columns.iter().map(|column| {
            let is_key = table.partition_key.as_ref() == Some(&column.name);
            let value = if let Some(key) = key.filter(|_| is_key) {
                key.clone()
            } else if let Some(fill) = self.fill_of(&table.name, &column.name) {
                fill(generator)
            } else {
                generator.datum(column)
            };
            (column.name.clone(), value)
        });
        columns.collect()
    }
}

/// The width of a column among those of its encoding: a bound of characters or bits.
fn width(column: &Column) -> u32 {
    match column.kind {
        ColumnType::Varchar(characters) => characters,
        ColumnType::Integer => i32::BITS,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let table = Table::new("t")
            .column(Column::varchar("k", 32))
            .column(Column::integer("i").nullable());
        let table = table
            .column(Column::text("x").nullable())
            .column(Column::text("m").enveloped());
        Layout::of([table
            .column(Column::text("j").sealed())
            .primary_key(["k", "i"])
            .partition_key("k")])
    }

    fn units(seed: u64, count: usize) -> Vec<UnitData> {
        Units::new(layout()).units(&mut Generator::new(seed), count)
    }

    /// Tables of one unit with these partition keys.
    fn keyed<const N: usize>(columns: [(&str, Column); N]) -> Units {
        let table = |(name, column): (&str, Column)| {
            let key = column.name.clone();
            Table::new(name)
                .column(column)
                .primary_key([&*key])
                .partition_key(&key)
        };
        Units::new(Layout::of(columns.map(table)))
    }

    /// The partition keys of units, of those that have rows.
    fn keys(units: &Units, table: &str, column: &str) -> Vec<Datum> {
        let units = units.units(&mut Generator::new(5), 100);
        let rows = units.iter().flat_map(|unit| &unit.tables[table]);
        rows.map(|row| row[column].clone()).collect()
    }

    #[test]
    fn partition_key_is_of_the_type_of_its_column_and_of_one_unit() {
        for column in [Column::integer("k"), Column::varchar("k", 8)] {
            let encoding = Encoding::from(column.kind);
            let units = keyed([("t", column)]);
            let keys = keys(&units, "t", "k");
            assert!(
                keys.iter().all(|key| key.value().fits(encoding)),
                "{keys:?}"
            );
            let different: BTreeSet<_> = keys.iter().collect();
            assert_eq!(different.len(), keys.len(), "{keys:?}");
            assert!(keys.len() > 50, "{keys:?}");
        }
    }

    #[test]
    fn fill_of_a_partition_key_is_used_for_all_tables_of_the_unit() {
        let mut units = keyed([
            ("t", Column::varchar("k", 32)),
            ("u", Column::varchar("guid", 32)),
        ]);
        let fill =
            |generator: &mut Generator| Datum::from(&*format!("key-{}", generator.below(1_000)));
        units.fill("u", "guid", Box::new(fill));
        for unit in units.units(&mut Generator::new(6), 50) {
            let [of_t, of_u] = [("t", "k"), ("u", "guid")]
                .map(|(table, column)| unit.tables[table].first().map(|row| &row[column]));
            for key in [of_t, of_u].into_iter().flatten() {
                assert!(format!("{key:?}").starts_with("\"key-"), "{key:?}");
            }
            if let (Some(of_t), Some(of_u)) = (of_t, of_u) {
                assert_eq!(of_t, of_u);
            }
        }
    }

    #[test]
    fn units_depend_on_the_seed_alone() {
        assert_eq!(units(1, 20), units(1, 20));
        assert_ne!(units(1, 20), units(2, 20));
    }

    #[test]
    fn every_kind_of_value_is_generated() {
        let units = units(3, 300);
        let rows = || units.iter().flat_map(|unit| &unit.tables["t"]);
        let values = |column: &'static str| rows().map(move |row| &row[column]);
        assert!(
            units.iter().any(|unit| unit.tables["t"].is_empty()),
            "a unit without rows"
        );
        assert!(
            units.iter().any(|unit| unit.tables["t"].len() > 2),
            "a unit of several rows"
        );
        assert!(values("x").any(|value| *value == Datum::Null), "NULL");
        assert!(values("x").any(|value| *value == Datum::from("")), "empty");
        let long = |value: &&Datum| matches!(value, Datum::Text(text) if text.len() > usize::from(u16::MAX));
        assert!(values("x").any(|value| long(&value)), "huge");
        assert!(
            values("x").any(|value| matches!(value, Datum::Text(text) if !text.is_ascii())),
            "not ASCII"
        );
        assert!(
            values("i").any(|value| *value == Datum::Integer(i64::from(i32::MIN))),
            "the least integer"
        );
        assert!(
            values("j").any(|value| *value == Datum::from("null")),
            "JSON null"
        );
        for value in values("m") {
            let Datum::Text(message) = value else {
                panic!("a message is bytes")
            };
            wire::check(message).expect("a message that can be walked");
        }
    }

    #[test]
    fn generated_primary_keys_are_unique() {
        for unit in units(4, 200) {
            let keys: Vec<_> = unit.tables["t"]
                .iter()
                .map(|row| (row["k"].clone(), row["i"].clone()))
                .collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
        }
    }
}
