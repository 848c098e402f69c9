//! Units between two steps: tables whose columns are still those of the source, were written by a
//! step, or are the same in every row. Owns what a layout change does to rows in memory.

mod aside;
mod groups;
mod target;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::budget::{BatchBudget, OverBudget};
use super::column::{Content, EncodedRows, FrameColumn, PlainColumn};
use super::error::ChangeError;
use super::{LensInput, UnitKeys};
use crate::layout::columns::{NEW_ROW, Shape};
use crate::layout::history::Leg;
use crate::layout::manifest::{Change, DataVersion};
use crate::layout::schema::{Column, Layout, Table};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
use aside::ColumnAside;

/// A change of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChangePlace {
    /// The place of the step on the way.
    pub(super) step: usize,
    /// The place of the change in the step.
    pub(super) change: usize,
}

/// A column that the current step drops.
#[derive(Debug, Clone)]
pub(super) struct LeavingColumn {
    /// Its name before the step, by which the other direction gives its values back.
    pub(super) before: String,
    pub(super) column: FrameColumn,
}

#[derive(Debug, Clone)]
pub(super) struct FrameTable {
    pub(super) unit_offsets: Vec<u32>,
    /// By source table: the source row that each row continues.
    pub(super) origins: BTreeMap<String, Vec<u32>>,
    pub(super) columns: Vec<FrameColumn>,
    /// Columns that the current step drops, until their values are saved.
    pub(super) leaving: Vec<LeavingColumn>,
    /// Columns that a step dropped whose migration the way comes up through again.
    aside: Vec<ColumnAside>,
    pub(super) primary_key: Vec<String>,
    partition_key: Option<String>,
    /// Tables whose rows, in their order, this one adopted in the current step.
    pub(super) same_rows_as: BTreeSet<String>,
    /// Source tables whose rows came with moved columns in the current step.
    continues: BTreeSet<String>,
    pub(super) reshaped: bool,
    pub(super) transformed: Option<Leg>,
    /// An element of the union-find of groups.
    pub(super) group: usize,
}

impl FrameTable {
    pub(super) fn rows(&self) -> usize {
        self.unit_offsets.last().map_or(0, |&rows| rows as usize)
    }

    pub(super) fn rows_of(&self, unit: usize) -> std::ops::Range<usize> {
        self.unit_offsets[unit] as usize..self.unit_offsets[unit + 1] as usize
    }

    /// Whether it has had no rows since it was created: none of the source, and none that a row
    /// function made or that residue restored.
    fn is_new(&self) -> bool {
        self.origins.is_empty()
            && !self
                .columns
                .iter()
                .any(|column| matches!(column.content, Content::Given(_)))
    }

    /// Whether residue has restored all rows that it has, with keys of the same types as those of
    /// another table.
    fn is_restored_like(&self, other: &Self) -> bool {
        let is_restored = |key: &String| {
            let own = self.find(key);
            let encoding = Encoding::from(other.find(key).column.kind);
            matches!(own.content, Content::Given(_)) && Encoding::from(own.column.kind) == encoding
        };
        let is_computed = self.reshaped || self.transformed.is_some();
        self.origins.is_empty() && !is_computed && other.key_columns().all(is_restored)
    }

    /// The columns of the primary key, and the partition key if it is none of them.
    fn key_columns(&self) -> impl Iterator<Item = &String> {
        let partition = self.partition_key.iter();
        let apart = partition.filter(move |key| !self.primary_key.contains(key));
        self.primary_key.iter().chain(apart)
    }

    pub(super) fn find(&self, name: &str) -> &FrameColumn {
        &self.columns[self.position(name)]
    }

    fn position(&self, name: &str) -> usize {
        let known = self
            .columns
            .iter()
            .position(|column| column.column.name == name);
        known.unwrap_or_else(|| panic!("the layout was checked to have a column {name:?}"))
    }

    pub(super) fn set(&mut self, name: &str, content: Content) {
        let at = self.position(name);
        self.columns[at].content = content;
    }
}

#[derive(Debug)]
pub(super) struct Frame<'a> {
    input: &'a LensInput,
    budget: &'a BatchBudget,
    tables: BTreeMap<String, FrameTable>,
    needed: RefCell<BTreeMap<String, BTreeSet<String>>>,
    /// Union-find over tables that share units.
    group_parents: Vec<usize>,
    source_groups: BTreeMap<String, usize>,
    /// By the place of a step and table, the group.
    recorded_groups: BTreeMap<(usize, String), usize>,
    /// The group of each table that a change has created.
    created: BTreeMap<ChangePlace, usize>,
    /// Tables that a migration has dropped on the way down, for its way up.
    aside: BTreeMap<(DataVersion, String), FrameTable>,
    /// The groups of tables of which steps have saved values.
    losing_groups: BTreeSet<usize>,
    /// Tables of which steps have saved rows or values, each with the place of its step; an empty
    /// name stands for the residue of a row function.
    saved: BTreeSet<(usize, String)>,
}

impl<'a> Frame<'a> {
    /// The tables of the source, or those of one group.
    pub(super) fn new(
        source: &Layout,
        group: Option<&[String]>,
        input: &'a LensInput,
        budget: &'a BatchBudget,
    ) -> Self {
        let mut frame = Self {
            input,
            budget,
            tables: BTreeMap::new(),
            needed: RefCell::default(),
            group_parents: Vec::new(),
            source_groups: BTreeMap::new(),
            recorded_groups: BTreeMap::new(),
            created: BTreeMap::new(),
            aside: BTreeMap::new(),
            losing_groups: BTreeSet::new(),
            saved: BTreeSet::new(),
        };
        for (name, table) in &source.tables {
            if group.is_some_and(|group| !group.contains(name)) {
                continue;
            }
            let content = |column: &Column| Content::Source {
                table: name.clone(),
                column: column.name.clone(),
                sealing: column.sealing,
            };
            let mut traced = frame.start(table, content);
            if let Some(loaded) = input.tables.get(name) {
                traced.unit_offsets.clone_from(&loaded.unit_offsets);
            }
            let rows = u32::try_from(traced.rows()).expect("batches are bounded");
            traced.origins.insert(name.clone(), (0..rows).collect());
            frame.source_groups.insert(name.clone(), traced.group);
            frame.tables.insert(name.clone(), traced);
        }
        frame
    }

    fn start(&mut self, table: &Table, content: impl Fn(&Column) -> Content) -> FrameTable {
        let group = self.group_parents.len();
        self.group_parents.push(group);
        FrameTable {
            unit_offsets: vec![0; self.input.units + 1],
            origins: BTreeMap::new(),
            columns: table
                .columns
                .iter()
                .map(|column| FrameColumn {
                    column: column.clone(),
                    content: content(column),
                })
                .collect(),
            leaving: Vec::new(),
            aside: Vec::new(),
            primary_key: table.primary_key.clone(),
            partition_key: table.partition_key.clone(),
            same_rows_as: BTreeSet::new(),
            continues: BTreeSet::new(),
            reshaped: false,
            transformed: None,
            group,
        }
    }

    pub(super) fn units(&self) -> usize {
        self.input.units
    }

    pub(super) fn unit_keys(&self) -> Option<&UnitKeys> {
        self.input.keys.as_ref()
    }

    pub(super) fn budget(&self) -> &'a BatchBudget {
        self.budget
    }

    /// The memory of what the steps have made so far.
    pub(super) fn bytes(&self) -> usize {
        let content = |column: &FrameColumn| match &column.content {
            Content::Given(data) => data.bytes(),
            Content::Source { .. } | Content::Fill(_) => 0,
        };
        let table = |table: &FrameTable| {
            let origins: usize = table.origins.values().map(Vec::len).sum();
            let aside = table.aside.iter().map(|aside| &aside.column);
            let columns = table.columns.iter().chain(aside);
            (table.unit_offsets.len() + origins) * size_of::<u32>()
                + columns.map(content).sum::<usize>()
        };
        self.tables
            .values()
            .chain(self.aside.values())
            .map(table)
            .sum()
    }

    /// Takes out a table that no step reads any more.
    pub(super) fn take_table(&mut self, table: &str) -> FrameTable {
        let held = self.tables.remove(table);
        held.expect("the layout was checked to have the table")
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub(super) fn table(&self, table: &str) -> &FrameTable {
        &self.tables[table]
    }

    pub(super) fn table_mut(&mut self, table: &str) -> &mut FrameTable {
        self.tables
            .get_mut(table)
            .expect("the layout was checked to have the table")
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.tables.keys().cloned().collect()
    }

    pub(super) fn column(&self, table: &str, column: &str) -> &FrameColumn {
        self.table(table).find(column)
    }

    /// The plain values of a column.
    pub(super) fn read(&self, table: &str, column: &str) -> Result<PlainColumn<'_>, OverBudget> {
        let table = self.table(table);
        self.contents(table, table.find(column))
    }

    pub(super) fn contents<'b>(
        &'b self,
        table: &'b FrameTable,
        column: &'b FrameColumn,
    ) -> Result<PlainColumn<'b>, OverBudget> {
        let FrameColumn { column, content } = column;
        match content {
            Content::Given(data) => PlainColumn::borrowed(data, self.budget),
            Content::Fill(literal) => {
                let value = Value::of(literal.as_ref());
                PlainColumn::repeated(value, column, table.rows(), self.budget)
            }
            Content::Source {
                table: source,
                column: name,
                ..
            } => {
                self.needed
                    .borrow_mut()
                    .entry(source.clone())
                    .or_default()
                    .insert(name.clone());
                let Some(loaded) = self.input.tables.get(source) else {
                    return PlainColumn::repeated(Value::Null, column, 0, self.budget);
                };
                let opened = self.input.opened.get(source);
                let opened = opened.and_then(|columns| columns.get(name));
                let data = &opened.unwrap_or_else(|| &loaded.columns[name]).data;
                let origins = &table.origins[source];
                if loaded.is_continued_whole(origins) {
                    return PlainColumn::borrowed(data, self.budget);
                }
                let otherwise = Value::of(column.default.as_ref());
                PlainColumn::picked(data, column, origins, otherwise, self.budget)
            }
        }
    }

    /// Drops a column of a table. `before` is its name before the step; none if the step has added
    /// it, as the other direction does again.
    pub(super) fn drop_column(&mut self, table: &str, column: &str, before: Option<String>) {
        if let Some(table) = self.tables.get_mut(table) {
            let at = table.position(column);
            let column = table.columns.remove(at);
            let leaving = before.map(|before| LeavingColumn { before, column });
            table.leaving.extend(leaving);
        }
    }

    /// Applies one change to the tables of the frame; [`Frame::create`] adds tables.
    pub(super) fn change(&mut self, change: &Change) -> Result<(), ChangeError> {
        match change {
            Change::RenameTable { from, to } => {
                if let Some(table) = self.tables.remove(from) {
                    self.tables.insert(to.clone(), table);
                }
            }
            Change::AddColumn { table, column } => {
                if let Some(table) = self.tables.get_mut(table) {
                    let content = Content::Fill(column.default.clone());
                    table.columns.push(FrameColumn {
                        column: column.clone(),
                        content,
                    });
                }
            }
            Change::AlterColumn { table, column } => {
                if let Some(table) = self.tables.get_mut(table) {
                    let at = table.position(&column.name);
                    table.columns[at].column = column.clone();
                }
            }
            Change::RenameColumn { table, from, to } => {
                if let Some(table) = self.tables.get_mut(table) {
                    let at = table.position(from);
                    table.columns[at].column.name.clone_from(to);
                    table
                        .primary_key
                        .iter_mut()
                        .chain(table.partition_key.iter_mut())
                        .filter(|key| *key == from)
                        .for_each(|key| key.clone_from(to));
                }
            }
            Change::MoveColumn { column, from, to } => {
                if self.has(from) && self.has(to) {
                    self.move_column(column, from, to)?;
                }
            }
            Change::SetPrimaryKey { table, columns } => {
                if let Some(table) = self.tables.get_mut(table) {
                    table.primary_key.clone_from(columns);
                }
            }
            // A table is dropped once its rows are saved, and created where it belongs to the
            // frame; a column is dropped by `drop_column`; indexes have no rows.
            Change::CreateTable(_)
            | Change::DropTable { .. }
            | Change::DropColumn { .. }
            | Change::CreateIndex { .. }
            | Change::DropIndex { .. } => {}
        }
        Ok(())
    }

    /// Clears the state of one step.
    pub(super) fn settle(&mut self) {
        for table in self.tables.values_mut() {
            table.leaving.clear();
            table.same_rows_as.clear();
            table.continues.clear();
        }
    }

    /// Removes a table. The caller has saved its rows.
    pub(super) fn remove(&mut self, table: &str) {
        self.tables.remove(table);
    }

    /// Moves a column. A new table adopts the rows of the table that the column comes from, and one
    /// that residue restored those of units that it has no rows of; otherwise each value moves to
    /// the row with the same key. Values that were not opened stay sealed.
    fn move_column(&mut self, column: &str, from: &str, to: &str) -> Result<(), ChangeError> {
        self.join(from, to);
        let giver = self.table(from).clone();
        let moved = giver.find(column).clone();
        let taker = self.table(to);
        if taker.is_new() {
            self.adopt(&giver, from, to);
        } else if taker.is_restored_like(&giver) {
            self.adopt_missing(&giver, to)?;
        }
        let alike = self.table(to).same_rows_as.contains(from);
        let content = match moved.content {
            Content::Fill(literal) => Content::Fill(literal),
            content if alike => content,
            content => {
                let rows = self.counterparts(from, to)?;
                self.give(
                    &giver,
                    FrameColumn {
                        column: moved.column.clone(),
                        content,
                    },
                    to,
                    &rows,
                )?
            }
        };
        self.table_mut(to).columns.push(FrameColumn {
            column: moved.column,
            content,
        });
        let table = self.table_mut(from);
        let at = table.position(column);
        table.columns.remove(at);
        Ok(())
    }

    fn adopt(&mut self, giver: &FrameTable, from: &str, to: &str) {
        let taker = self.table_mut(to);
        taker.unit_offsets.clone_from(&giver.unit_offsets);
        taker.origins.clone_from(&giver.origins);
        taker.same_rows_as.insert(from.to_owned());
        for key in giver.key_columns() {
            taker.set(key, giver.find(key).content.clone());
        }
    }

    /// Adds the rows of `giver` in units of which `to` has none, with their keys and the defaults
    /// of the other columns. Their records are newer than the residue: without any residue, the
    /// table would be new, and adopt them too.
    fn adopt_missing(&mut self, giver: &FrameTable, to: &str) -> Result<(), OverBudget> {
        for key in giver.key_columns() {
            // Recorded as needed before there are rows.
            self.contents(giver, giver.find(key))?;
        }
        let number = |rows: usize| u32::try_from(rows).expect("batches are bounded");
        let taker = self.table(to);
        let mut adopted = Vec::new();
        let mut shape = Shape {
            unit_offsets: vec![0],
            origins: Vec::new(),
        };
        for unit in 0..self.units() {
            let own = taker.rows_of(unit);
            if own.is_empty() {
                let rows = giver.rows_of(unit);
                shape.origins.extend(rows.clone().map(|_| NEW_ROW));
                adopted.extend(rows.map(number));
            } else {
                adopted.extend(own.clone().map(|_| NEW_ROW));
                shape.origins.extend(own.map(number));
            }
            shape.unit_offsets.push(number(adopted.len()));
        }
        if adopted.iter().all(|&row| row == NEW_ROW) {
            return Ok(());
        }
        self.pick_rows(to, &shape)?;
        for key in giver.key_columns() {
            let content = self.with_adopted(giver, to, key, &adopted)?;
            self.table_mut(to).set(key, content);
        }
        Ok(())
    }

    /// A key column of `to`, with the values of `giver` in the rows that it adopts from there.
    fn with_adopted(
        &self,
        giver: &FrameTable,
        to: &str,
        key: &str,
        adopted: &[u32],
    ) -> Result<Content, OverBudget> {
        let taker = self.table(to);
        let column = taker.find(key);
        let encoding = Encoding::from(column.column.kind);
        let own = self.contents(taker, column)?;
        let given = self.contents(giver, giver.find(key))?;
        self.budget.spend(own.bytes() + given.bytes())?.keep();
        let mut data = ColumnBuilder::new(encoding);
        for (row, &origin) in adopted.iter().enumerate() {
            data.push(if origin == NEW_ROW {
                own.get(encoding, row)
            } else {
                given.get(encoding, origin as usize)
            });
        }
        Ok(Content::Given(data.finish().into()))
    }

    /// A column of `giver` over the rows of `to`. A source column stays one, unless the rows of
    /// `to` already continue other rows of the same source table.
    fn give(
        &mut self,
        giver: &FrameTable,
        moved: FrameColumn,
        to: &str,
        rows: &[u32],
    ) -> Result<Content, OverBudget> {
        if let Content::Source { table, .. } = &moved.content {
            let taker = self.table_mut(to);
            if taker.continues.contains(table) || !taker.origins.contains_key(table) {
                let origins = &giver.origins[table];
                taker.origins.insert(
                    table.clone(),
                    rows.iter().map(|&row| origins[row as usize]).collect(),
                );
                taker.continues.insert(table.clone());
                return Ok(moved.content);
            }
        }
        let data = self.contents(giver, &moved)?;
        let data = PlainColumn::picked(&data, &moved.column, rows, Value::Null, self.budget)?;
        Ok(Content::Given(data.into_owned(self.budget)?.into()))
    }

    /// For each row of `to`, the row of `from` with the same key.
    fn counterparts(&self, from: &str, to: &str) -> Result<Vec<u32>, ChangeError> {
        let giver = self.table(from);
        let taker = self.table(to);
        let given = self.keys(from)?;
        let taken = self.keys(to)?;
        let mut rows = vec![NEW_ROW; taker.rows()];
        let mut without = Vec::new();
        for unit in 0..self.units() {
            let here: BTreeMap<_, _> = giver.rows_of(unit).map(|row| (&given[row], row)).collect();
            let mut complete = giver.rows_of(unit).len() == taker.rows_of(unit).len();
            for row in taker.rows_of(unit) {
                match here.get(&taken[row]) {
                    Some(&found) => rows[row] = u32::try_from(found).expect("batches are bounded"),
                    None => complete = false,
                }
            }
            if !complete {
                without.push(unit);
            }
        }
        if without.is_empty() {
            return Ok(rows);
        }
        Err(ChangeError::NoCounterpart {
            units: without,
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    /// The primary key of every row, encoded.
    pub(super) fn keys(&self, table: &str) -> Result<EncodedRows<'_>, OverBudget> {
        self.encoded(table, &self.table(table).primary_key, &[])
    }

    /// The values of some columns of every row, encoded, and after them those of the columns of
    /// `unless_default` that have another value than their default.
    pub(super) fn encoded(
        &self,
        table: &str,
        columns: &[String],
        unless_default: &[String],
    ) -> Result<EncodedRows<'_>, OverBudget> {
        let count = self.table(table).rows();
        let mut spent = self.budget.spend(count * size_of::<Vec<u8>>())?;
        let mut rows = vec![Vec::new(); count];
        for (place, name) in columns.iter().chain(unless_default).enumerate() {
            let column = &self.column(table, name).column;
            let encoding = Encoding::from(column.kind);
            let omitted = (place >= columns.len()).then(|| Value::of(column.default.as_ref()));
            let data = self.read(table, name)?;
            spent.add(data.bytes() + count * Value::MOST_TAG_BYTES)?;
            for (row, bytes) in rows.iter_mut().enumerate() {
                let value = data.get(encoding, row);
                if omitted != Some(value) {
                    value.encode(bytes);
                }
            }
        }
        Ok(EncodedRows::new(rows, spent))
    }

    /// Gives a table the rows that a row function made.
    pub(super) fn reshape(&mut self, table: &str, shape: &Shape) -> Result<(), OverBudget> {
        self.table_mut(table).reshaped = true;
        self.pick_rows(table, shape)
    }

    /// Gives a table other rows, with the values of those that they continue.
    fn pick_rows(&mut self, table: &str, shape: &Shape) -> Result<(), OverBudget> {
        let budget = self.budget;
        let table = self.table_mut(table);
        table.unit_offsets.clone_from(&shape.unit_offsets);
        for origins in table.origins.values_mut() {
            budget.spend(size_of_val(shape.origins.as_slice()))?.keep();
            let picked = shape.origins.iter().map(|&row| {
                if row == NEW_ROW {
                    NEW_ROW
                } else {
                    origins[row as usize]
                }
            });
            *origins = picked.collect();
        }
        let leaving = table.leaving.iter_mut().map(|leaving| &mut leaving.column);
        let aside = table.aside.iter_mut().map(|aside| &mut aside.column);
        let columns = table.columns.iter_mut().chain(leaving).chain(aside);
        for FrameColumn { column, content } in columns {
            if let Content::Given(data) = content {
                let otherwise = Value::of(column.default.as_ref());
                let picked = PlainColumn::picked(data, column, &shape.origins, otherwise, budget)?;
                *data = picked.into_owned(budget)?.into();
            }
        }
        Ok(())
    }

    pub(super) fn needed(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.needed.borrow().clone()
    }
}
