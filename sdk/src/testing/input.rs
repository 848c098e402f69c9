//! The rows of units as the lens receives them: plain columns, with a value in place of each that a
//! test leaves out and no row function reads.

use std::collections::{BTreeMap, BTreeSet};

use bbs_lens::layout::history::{directed_changes, name_before};
use bbs_lens::layout::schema::{Column, Sealing, Table};
use bbs_lens::layout::values::ColumnBuilder;
use bbs_lens::{BatchColumn, Lens, LensInput, OpenedColumns, TableRows, UnitKeys};

use super::data::{Datum, RowData, UnitData};
use crate::columns::{ColumnData, ColumnValue, Encoding};
use crate::manifest::Manifest;

/// The rows of a batch of units at the source of a step.
pub(super) struct GivenRows<'a> {
    lens: &'a Lens,
    units: &'a [&'a UnitData],
    /// The columns that the row function reads, by table and name at the source.
    read: BTreeSet<(String, &'a str)>,
    /// By table, its rows of all units.
    rows: BTreeMap<&'a str, Vec<&'a RowData>>,
}

impl<'a> GivenRows<'a> {
    pub(super) fn new(lens: &'a Lens, manifest: &'a Manifest, units: &'a [&'a UnitData]) -> Self {
        let below = match lens.direction {
            crate::Direction::Up => &lens.source,
            crate::Direction::Down => &lens.target,
        };
        let changes = directed_changes(below, manifest, lens.direction);
        let mut read = BTreeSet::new();
        for access in manifest.accesses(lens.direction) {
            if let Some(table) = name_before(&changes, &access.table) {
                read.extend(access.reads.iter().map(|column| (table.clone(), &**column)));
            }
        }
        let mut rows: BTreeMap<&str, Vec<&RowData>> = BTreeMap::new();
        let tables = units.iter().flat_map(|unit| &unit.tables);
        for (name, of_unit) in tables.filter(|(_, rows)| !rows.is_empty()) {
            assert!(
                lens.source.tables.contains_key(name),
                "a unit has rows of `{name}`, and the layout before {} has no such table; write the name that the table has \
                 there, or add it to the layout of the test",
                lens.direction
            );
            rows.entry(name).or_default().extend(of_unit);
        }
        Self {
            lens,
            units,
            read,
            rows,
        }
    }

    /// A row of a table, counted over all units.
    pub(super) fn row(&self, table: &str, row: usize) -> &'a RowData {
        self.rows[table][row]
    }

    /// The plain columns that the lens needs of a group.
    pub(super) fn input(&self, group: usize) -> LensInput {
        let sources = self.lens.groups[group].sources.iter();
        let tables = sources.map(|name| (name.clone(), self.table(name)));
        LensInput {
            units: self.units.len(),
            keys: self.lens.writes_keys().then(|| self.keys(group)).flatten(),
            tables: tables.collect(),
            opened: OpenedColumns::new(),
        }
    }

    fn table(&self, name: &str) -> TableRows {
        let mut unit_offsets = vec![0];
        let mut end = 0;
        for unit in self.units {
            end += unit.tables.get(name).map_or(0, Vec::len) as u32;
            unit_offsets.push(end);
        }
        let table = &self.lens.source.tables[name];
        let needed = self.lens.needed.get(name).into_iter().flatten();
        let columns = needed.map(|column| {
            let definition = table.find_column(column).expect("a column of the source");
            let values = BatchColumn::new(self.column(table, definition), Sealing::Plain);
            (column.clone(), values)
        });
        TableRows {
            columns: columns.collect(),
            unit_offsets,
        }
    }

    fn column(&self, table: &Table, column: &Column) -> ColumnData {
        let encoding = Encoding::from(column.kind);
        let mut built = ColumnBuilder::new(encoding);
        let mut place = 0;
        for (unit, rows) in self
            .units
            .iter()
            .map(|unit| unit.tables.get(&table.name))
            .enumerate()
        {
            for row in rows.into_iter().flatten() {
                let value = self.value(table, column, row, (unit, place));
                assert!(
                    value.value().fits(encoding),
                    "`{}` of `{}` is {value:?}, and the layout of the test has {encoding} there",
                    column.name,
                    table.name
                );
                built.push(value.value());
                place += 1;
            }
        }
        built.finish()
    }

    /// The value of a column, or one in its place. `place` is the unit and the row of the table.
    fn value(&self, table: &Table, column: &Column, row: &RowData, place: (usize, usize)) -> Datum {
        if let Some(value) = row.get(&column.name) {
            return value.clone();
        }
        assert!(
            !self.read.contains(&(table.name.clone(), &*column.name)),
            "a row of `{}` has no column `{}`, which the migration reads; add it to the layout of the test, or to the row in \
             `input.json`: {row:?}",
            table.name,
            column.name
        );
        let is_partition_key = table.partition_key.as_ref() == Some(&column.name);
        let is_key = is_partition_key || table.primary_key.contains(&column.name);
        let number = if is_partition_key { place.0 } else { place.1 };
        match (Encoding::from(column.kind), is_key) {
            (_, false) if column.nullable || column.default.is_some() => {
                ColumnValue::of(column.default.as_ref()).into()
            }
            (Encoding::Text, _) => Datum::from(&*number.to_string()),
            (Encoding::Integer, _) => Datum::Integer(number as i64),
            (Encoding::Boolean, _) => Datum::Boolean(number % 2 == 1),
        }
    }

    /// The key of each unit: that of its first row in a table of the group; NULL without rows.
    fn keys(&self, group: usize) -> Option<UnitKeys> {
        let tables = self.lens.groups[group]
            .sources
            .iter()
            .map(|name| &self.lens.source.tables[name]);
        let keyed: Vec<_> = tables
            .filter_map(|table| Some((table, table.find_column(table.partition_key.as_ref()?)?)))
            .collect();
        let encoding = Encoding::from(keyed.first()?.1.kind);
        let mut values = ColumnBuilder::new(encoding);
        for (unit, data) in self.units.iter().enumerate() {
            let first = keyed.iter().find_map(|(table, column)| {
                let row = data.tables.get(&table.name)?.first()?;
                Some(self.value(table, column, row, (unit, 0)))
            });
            let key = first.filter(|key| key.value().fits(encoding));
            values.push(key.as_ref().map_or(ColumnValue::Null, Datum::value));
        }
        Some(UnitKeys {
            encoding,
            values: values.finish(),
        })
    }
}
