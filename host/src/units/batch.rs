//! Units in memory as columns, and their way through a lens. A column that nobody needs to see stays sealed on its
//! way, byte for byte.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Key, UnitsError};
use crate::layout::columns::ColumnData;
use crate::layout::schema::{Column, Layout, Sealing, Table};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
use crate::lens::{Arguments, Kept, Left, Lens, Provenance, Source, SourceTable};
use crate::record::{Keyring, RecordError};

/// The rows of some units over some tables.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub units: Vec<Key>,
    pub tables: BTreeMap<String, Rows>,
}

/// The rows of one table, in the order of the batch's units.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// Unit `i` has the rows from `unit_offsets[i]` up to `unit_offsets[i + 1]`.
    pub unit_offsets: Vec<u32>,
    pub columns: BTreeMap<String, Content>,
}

/// The values of one column.
#[derive(Debug, Clone)]
pub struct Content {
    pub data: ColumnData,
    /// How they are sealed as they are here; plain if they were opened.
    pub sealing: Sealing,
}

/// A batch at the far end of a lens, and what the steps lost on the way.
#[derive(Debug, Default)]
pub struct Transformed {
    pub batch: Batch,
    pub kept: Vec<Kept>,
}

impl Rows {
    pub fn of(&self, unit: usize) -> std::ops::Range<usize> {
        self.unit_offsets[unit] as usize..self.unit_offsets[unit + 1] as usize
    }

    pub fn count(&self) -> usize {
        self.unit_offsets.last().map_or(0, |&rows| rows as usize)
    }

    /// The rows of these units alone.
    fn only(&self, table: &Table, units: &[usize]) -> Self {
        let rows: Vec<_> = units.iter().flat_map(|&unit| self.of(unit)).map(|row| row as u32).collect();
        let mut unit_offsets = vec![0];
        for &unit in units {
            unit_offsets.push(unit_offsets.last().copied().unwrap_or_default() + self.of(unit).len() as u32);
        }
        self.rebuilt(table, unit_offsets, |content, encoding| content.data.pick(encoding, &rows, Value::Null))
    }

    /// Keeps the rows that `keep` says, of a batch of one unit.
    pub fn retain(&mut self, table: &Table, keep: impl Fn(usize) -> bool) {
        let rows: Vec<_> = (0..self.count()).filter(|row| keep(*row)).map(|row| row as u32).collect();
        let unit_offsets = vec![0, rows.len() as u32];
        *self = self.rebuilt(table, unit_offsets, |content, encoding| content.data.pick(encoding, &rows, Value::Null));
    }

    /// Adds rows to a batch of one unit. Each column has one value for each.
    pub fn extend(&mut self, table: &Table, rows: &[BTreeMap<String, Held>]) {
        let before = self.count();
        let unit_offsets = vec![0, (before + rows.len()) as u32];
        let mut columns = BTreeMap::new();
        for (name, content) in &self.columns {
            let encoding = encoding(table, name);
            let mut data = ColumnBuilder::new(encoding);
            (0..before).for_each(|row| data.push(content.data.get(encoding, row)));
            rows.iter().for_each(|row| data.push(row[name].value()));
            columns.insert(name.clone(), Content { data: data.finish(), sealing: content.sealing });
        }
        *self = Self { unit_offsets, columns };
    }

    /// Puts a value into a column of some rows.
    pub fn set(&mut self, table: &Table, name: &str, rows: &[usize], value: Value<'_>) {
        let (encoding, count) = (encoding(table, name), self.count());
        let content = self.columns.get_mut(name).expect("a batch that is changed has every column");
        let mut data = ColumnBuilder::new(encoding);
        for row in 0..count {
            data.push(if rows.contains(&row) { value } else { content.data.get(encoding, row) });
        }
        content.data = data.finish();
    }

    pub fn value(&self, table: &Table, name: &str, row: usize) -> Option<Value<'_>> {
        self.columns.get(name).map(|content| content.data.get(encoding(table, name), row))
    }

    fn rebuilt(&self, table: &Table, unit_offsets: Vec<u32>, build: impl Fn(&Content, Encoding) -> ColumnData) -> Self {
        let columns = self.columns.iter().map(|(name, content)| {
            let data = build(content, encoding(table, name));
            (name.clone(), Content { data, sealing: content.sealing })
        });
        Self { unit_offsets, columns: columns.collect() }
    }
}

impl Batch {
    /// These units alone.
    #[must_use]
    pub fn only(&self, layout: &Layout, units: &[usize]) -> Self {
        let tables = self.tables.iter().map(|(name, rows)| (name.clone(), rows.only(&layout.tables[name], units)));
        Self { units: units.iter().map(|&unit| self.units[unit].clone()).collect(), tables: tables.collect() }
    }

    /// The same units without a row.
    #[must_use]
    pub fn emptied(&self, layout: &Layout) -> Self {
        let none = |(name, rows): (&String, &Rows)| {
            let offsets = vec![0; self.units.len() + 1];
            let empty =
                rows.rebuilt(&layout.tables[name], offsets, |_, encoding| ColumnBuilder::new(encoding).finish());
            (name.clone(), empty)
        };
        Self { units: self.units.clone(), tables: self.tables.iter().map(none).collect() }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(|rows| rows.count() == 0)
    }
}

fn encoding(table: &Table, column: &str) -> Encoding {
    table.column(column).expect("a batch has columns of its layout").kind.into()
}

/// A value of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(Vec<u8>),
}

impl Held {
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Integer(value) => Value::Integer(*value),
            Self::Text(text) => Value::Text(text),
        }
    }
}

impl From<Value<'_>> for Held {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Boolean(value) => Self::Boolean(value),
            Value::Integer(value) => Self::Integer(value),
            Value::Text(text) => Self::Text(text.to_vec()),
        }
    }
}

/// One value, plain. NULL and empty stay what they are: Diego writes both.
pub(super) fn opened<'a>(
    value: Value<'a>,
    sealing: Sealing,
    keyring: &Keyring,
) -> Result<Option<Cow<'a, [u8]>>, RecordError> {
    match value {
        Value::Text(text) if text.is_empty() || sealing == Sealing::Plain => Ok(Some(Cow::Borrowed(text))),
        Value::Text(text) => keyring.open(sealing, text).map(|plain| Some(Cow::Owned(plain))),
        Value::Null | Value::Boolean(_) | Value::Integer(_) => Ok(None),
    }
}

/// A column's plain values, or the row that does not open.
fn open<'a>(content: &'a Content, rows: usize, keyring: &Keyring) -> Result<Cow<'a, ColumnData>, (usize, RecordError)> {
    if content.sealing == Sealing::Plain {
        return Ok(Cow::Borrowed(&content.data));
    }
    let mut plain = ColumnBuilder::new(Encoding::Text);
    for row in 0..rows {
        let value = content.data.get(Encoding::Text, row);
        let opened = opened(value, content.sealing, keyring).map_err(|fault| (row, fault))?;
        plain.push(opened.as_deref().map_or(value, Value::Text));
    }
    Ok(Cow::Owned(plain.finish()))
}

/// Takes the units of a group of tables to the lens's other end. The near end has to hold every column of the group
/// that the lens needs, and those that are wanted at the far end.
pub fn transform(
    lens: &Lens,
    group: usize,
    near: &Batch,
    left: &Left,
    arguments: &Arguments,
    keyring: &Keyring,
) -> Result<Transformed, UnitsError> {
    let source = source(lens, group, near, keyring)?;
    let applied = lens.apply(group, &source, left, arguments).map_err(|fault| UnitsError::Lens(Box::new(fault)))?;
    let mut far = Batch { units: near.units.clone(), tables: BTreeMap::new() };
    for (name, mut table) in applied.tables {
        let composed = &lens.tables[&name];
        let rows = table.unit_offsets.last().map_or(0, |&rows| rows as usize);
        let mut columns = BTreeMap::new();
        for (column, provenance) in &composed.columns {
            let encoding = Encoding::from(column.kind);
            let content = match provenance {
                Provenance::Raw { table: from, column: name } => {
                    // A column that was not loaded is not wanted.
                    let Some(content) = near.tables.get(from).and_then(|rows| rows.columns.get(name)) else { continue };
                    let at = composed.sources.iter().position(|source| source == from).expect("a source of the table");
                    let otherwise = Value::of(column.default.as_ref());
                    let data = content.data.pick(encoding, &table.origins[at], otherwise);
                    Content { data, sealing: content.sealing }
                }
                Provenance::Fill(literal) => {
                    let data = ColumnData::repeat(encoding, Value::of(literal.as_ref()), rows);
                    Content { data, sealing: Sealing::Plain }
                }
                Provenance::Computed => {
                    let data = table.computed.remove(&column.name).expect("the lens gives what it said");
                    Content { data, sealing: Sealing::Plain }
                }
            };
            columns.insert(column.name.clone(), content);
        }
        far.tables.insert(name, Rows { unit_offsets: table.unit_offsets, columns });
    }
    Ok(Transformed { batch: far, kept: applied.kept })
}

fn source(lens: &Lens, group: usize, near: &Batch, keyring: &Keyring) -> Result<Source, UnitsError> {
    let mut source = Source { units: near.units.len(), tables: BTreeMap::new() };
    for name in &lens.groups[group].sources {
        let rows = &near.tables[name];
        let mut columns = BTreeMap::new();
        for column in lens.needed.get(name).into_iter().flatten() {
            let content = &rows.columns[column];
            let data = open(content, rows.count(), keyring).map_err(|(row, source)| UnitsError::Sealed {
                unit: rows.unit_offsets.partition_point(|&start| start as usize <= row) - 1,
                table: name.clone(),
                column: column.clone(),
                source,
            })?;
            columns.insert(column.clone(), data.into_owned());
        }
        source.tables.insert(name.clone(), SourceTable { unit_offsets: rows.unit_offsets.clone(), columns });
    }
    Ok(source)
}

impl Content {
    /// A value as it rests in a column.
    pub(super) fn at_rest(&self, row: usize, column: &Column, keyring: &Keyring) -> Held {
        match self.data.get(column.kind.into(), row) {
            Value::Text(plain) if self.sealing != column.sealing => Held::Text(keyring.seal(column.sealing, plain)),
            value => value.into(),
        }
    }
}
