//! Units between two steps: tables whose columns are still those of the source, were written by a step, or are the same
//! in every row. Owns what a layout change does to rows in memory.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::LensInput;
use crate::layout::columns::{ColumnData, NEW_ROW, Shape};
use crate::layout::manifest::{Change, DataVersion};
use crate::layout::schema::{Column, Layout, Literal, Sealing, Table};
use crate::layout::values::{Encoding, Value};

/// What a column of the frame holds.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// A column of the source, with the sealing that it has there.
    Source {
        table: String,
        column: String,
        sealing: Sealing,
    },
    Fill(Option<Literal>),
    Given(ColumnData),
}

#[derive(Debug, Clone)]
pub(super) struct FrameColumn {
    pub(super) column: Column,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) struct FrameTable {
    pub(super) unit_offsets: Vec<u32>,
    /// By source table: the source row that each row continues.
    pub(super) origins: BTreeMap<String, Vec<u32>>,
    pub(super) columns: Vec<FrameColumn>,
    /// Columns that the current step drops, until their values are saved.
    pub(super) leaving: Vec<FrameColumn>,
    pub(super) primary_key: Vec<String>,
    /// Tables whose rows, in their order, this one adopted in the current step.
    same_rows_as: BTreeSet<String>,
    /// Source tables whose rows came with moved columns in the current step.
    continues: BTreeSet<String>,
    pub(super) reshaped: bool,
    pub(super) transformed: Option<DataVersion>,
    pub(super) class: usize,
}

impl FrameTable {
    pub(super) fn rows(&self) -> usize {
        self.unit_offsets.last().map_or(0, |&rows| rows as usize)
    }

    pub(super) fn rows_of(&self, unit: usize) -> std::ops::Range<usize> {
        self.unit_offsets[unit] as usize..self.unit_offsets[unit + 1] as usize
    }

    pub(super) fn find(&self, name: &str) -> &FrameColumn {
        let known = self.columns.iter().find(|column| column.column.name == name);
        known.unwrap_or_else(|| panic!("the layout was checked to have a column {name:?}"))
    }

    fn position(&self, name: &str) -> usize {
        let known = self.columns.iter().position(|column| column.column.name == name);
        known.expect("the layout was checked to have the column")
    }

    pub(super) fn set(&mut self, name: &str, content: Content) {
        let at = self.position(name);
        self.columns[at].content = content;
    }
}

/// Units with a row that has no counterpart in the table that a column moves to, or the other way round.
#[derive(Debug)]
pub(super) struct NoCounterpart {
    pub(super) units: Vec<usize>,
    pub(super) from: String,
    pub(super) to: String,
}

#[derive(Debug)]
pub(super) struct Frame<'a> {
    input: &'a LensInput,
    tables: BTreeMap<String, FrameTable>,
    needed: RefCell<BTreeMap<String, BTreeSet<String>>>,
    /// Union-find over tables that share units.
    classes: Vec<usize>,
    source_classes: BTreeMap<String, usize>,
    notes: BTreeMap<(DataVersion, String), usize>,
    losing: BTreeSet<usize>,
}

impl<'a> Frame<'a> {
    /// The tables of the source, or those of one group.
    pub(super) fn new(source: &Layout, group: Option<&[String]>, input: &'a LensInput) -> Self {
        let mut frame = Self {
            input,
            tables: BTreeMap::new(),
            needed: RefCell::default(),
            classes: Vec::new(),
            source_classes: BTreeMap::new(),
            notes: BTreeMap::new(),
            losing: BTreeSet::new(),
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
            frame.source_classes.insert(name.clone(), traced.class);
            frame.tables.insert(name.clone(), traced);
        }
        frame
    }

    fn start(&mut self, table: &Table, content: impl Fn(&Column) -> Content) -> FrameTable {
        let class = self.classes.len();
        self.classes.push(class);
        FrameTable {
            unit_offsets: vec![0; self.input.units + 1],
            origins: BTreeMap::new(),
            columns: table
                .columns
                .iter()
                .map(|column| FrameColumn { column: column.clone(), content: content(column) })
                .collect(),
            leaving: Vec::new(),
            primary_key: table.primary_key.clone(),
            same_rows_as: BTreeSet::new(),
            continues: BTreeSet::new(),
            reshaped: false,
            transformed: None,
            class,
        }
    }

    pub(super) fn units(&self) -> usize {
        self.input.units
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub(super) fn table(&self, table: &str) -> &FrameTable {
        &self.tables[table]
    }

    pub(super) fn table_mut(&mut self, table: &str) -> &mut FrameTable {
        self.tables.get_mut(table).expect("the layout was checked to have the table")
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.tables.keys().cloned().collect()
    }

    pub(super) fn column(&self, table: &str, column: &str) -> &FrameColumn {
        self.table(table).find(column)
    }

    /// The plain values of a column.
    pub(super) fn read(&self, table: &str, column: &str) -> Cow<'_, ColumnData> {
        let table = self.table(table);
        self.contents(table, table.find(column))
    }

    pub(super) fn contents<'b>(&'b self, table: &'b FrameTable, column: &'b FrameColumn) -> Cow<'b, ColumnData> {
        let encoding = Encoding::from(column.column.kind);
        match &column.content {
            Content::Given(data) => Cow::Borrowed(data),
            Content::Fill(literal) => {
                Cow::Owned(ColumnData::repeat(encoding, Value::of(literal.as_ref()), table.rows()))
            }
            Content::Source { table: source, column: name, .. } => {
                self.needed.borrow_mut().entry(source.clone()).or_default().insert(name.clone());
                let Some(loaded) = self.input.tables.get(source) else {
                    return Cow::Owned(ColumnData::repeat(encoding, Value::Null, 0));
                };
                let data = &loaded.columns[name];
                let origins = &table.origins[source];
                let all = loaded.unit_offsets.last().map_or(0, |&rows| rows as usize);
                if origins.len() == all && origins.iter().zip(0..).all(|(&origin, row)| origin == row) {
                    return Cow::Borrowed(data);
                }
                Cow::Owned(data.pick(encoding, origins, Value::of(column.column.default.as_ref())))
            }
        }
    }

    /// Applies one change to the tables of the frame. `creates` selects the new tables that belong to it.
    pub(super) fn change(
        &mut self,
        version: DataVersion,
        change: &Change,
        creates: impl Fn(&str) -> bool,
    ) -> Result<(), NoCounterpart> {
        match change {
            Change::CreateTable(table) if creates(&table.name) => {
                let started = self.start(table, |column| Content::Fill(column.default.clone()));
                self.notes.insert((version, table.name.clone()), started.class);
                self.tables.insert(table.name.clone(), started);
            }
            Change::RenameTable { from, to } => {
                if let Some(table) = self.tables.remove(from) {
                    self.tables.insert(to.clone(), table);
                }
            }
            Change::AddColumn { table, column } => {
                if let Some(table) = self.tables.get_mut(table) {
                    let content = Content::Fill(column.default.clone());
                    table.columns.push(FrameColumn { column: column.clone(), content });
                }
            }
            Change::AlterColumn { table, column } => {
                if let Some(table) = self.tables.get_mut(table) {
                    let at = table.position(&column.name);
                    table.columns[at].column = column.clone();
                }
            }
            Change::DropColumn { table, column } => {
                if let Some(table) = self.tables.get_mut(table) {
                    let at = table.position(column);
                    let left = table.columns.remove(at);
                    table.leaving.push(left);
                }
            }
            Change::RenameColumn { table, from, to } => {
                if let Some(table) = self.tables.get_mut(table) {
                    let at = table.position(from);
                    table.columns[at].column.name.clone_from(to);
                    table.primary_key.iter_mut().filter(|key| *key == from).for_each(|key| key.clone_from(to));
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
            // A table is dropped once its rows are saved; indexes have no rows.
            Change::CreateTable(_)
            | Change::DropTable { .. }
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

    /// Moves a column. A table without rows adopts those of the table that the column comes from; otherwise each value
    /// moves to the row with the same key. Values that were not opened stay sealed.
    fn move_column(&mut self, column: &str, from: &str, to: &str) -> Result<(), NoCounterpart> {
        self.join(from, to);
        let giver = self.table(from).clone();
        let moved = giver.find(column).clone();
        if self.table(to).origins.is_empty() {
            self.adopt(&giver, from, to);
        }
        let alike = self.table(to).same_rows_as.contains(from);
        let content = match moved.content {
            Content::Fill(literal) => Content::Fill(literal),
            content if alike => content,
            content => {
                let rows = self.counterparts(from, to)?;
                self.give(&giver, FrameColumn { column: moved.column.clone(), content }, to, &rows)
            }
        };
        self.table_mut(to).columns.push(FrameColumn { column: moved.column, content });
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
        for key in &giver.primary_key {
            taker.set(key, giver.find(key).content.clone());
        }
    }

    /// A column of `giver` over the rows of `to`. A source column stays one, unless the rows of `to` already continue other
    /// rows of the same source table.
    fn give(&mut self, giver: &FrameTable, moved: FrameColumn, to: &str, rows: &[u32]) -> Content {
        if let Content::Source { table, .. } = &moved.content {
            let taker = self.table_mut(to);
            if taker.continues.contains(table) || !taker.origins.contains_key(table) {
                let origins = &giver.origins[table];
                taker.origins.insert(table.clone(), rows.iter().map(|&row| origins[row as usize]).collect());
                taker.continues.insert(table.clone());
                return moved.content;
            }
        }
        let data = self.contents(giver, &moved);
        Content::Given(data.pick(Encoding::from(moved.column.kind), rows, Value::Null))
    }

    /// For each row of `to`, the row of `from` with the same key.
    fn counterparts(&self, from: &str, to: &str) -> Result<Vec<u32>, NoCounterpart> {
        let (giver, taker) = (self.table(from), self.table(to));
        let (given, taken) = (self.keys(from), self.keys(to));
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
        match without.is_empty() {
            true => Ok(rows),
            false => Err(NoCounterpart { units: without, from: from.to_owned(), to: to.to_owned() }),
        }
    }

    /// The primary key of every row, encoded.
    pub(super) fn keys(&self, table: &str) -> Vec<Vec<u8>> {
        let names: Vec<_> = self.table(table).primary_key.clone();
        self.encoded(table, &names)
    }

    /// The values of some columns of every row, encoded.
    pub(super) fn encoded(&self, table: &str, columns: &[String]) -> Vec<Vec<u8>> {
        let mut rows = vec![Vec::new(); self.table(table).rows()];
        for name in columns {
            let encoding = Encoding::from(self.column(table, name).column.kind);
            let data = self.read(table, name);
            rows.iter_mut().enumerate().for_each(|(row, bytes)| data.get(encoding, row).encode(bytes));
        }
        rows
    }

    /// Gives a table the rows that a row function made.
    pub(super) fn reshape(&mut self, table: &str, shape: &Shape) {
        let table = self.table_mut(table);
        table.unit_offsets.clone_from(&shape.unit_offsets);
        table.reshaped = true;
        for origins in table.origins.values_mut() {
            let picked = shape.origins.iter().map(|&row| if row == NEW_ROW { NEW_ROW } else { origins[row as usize] });
            *origins = picked.collect();
        }
        for FrameColumn { column, content } in table.columns.iter_mut().chain(&mut table.leaving) {
            if let Content::Given(data) = content {
                let otherwise = Value::of(column.default.as_ref());
                *data = data.pick(Encoding::from(column.kind), &shape.origins, otherwise);
            }
        }
    }

    /// Records that two tables share their units.
    pub(super) fn join(&mut self, one: &str, other: &str) {
        let (one, other) = (self.find(self.table(one).class), self.find(self.table(other).class));
        self.classes[one] = other;
    }

    pub(super) fn find(&self, mut class: usize) -> usize {
        while self.classes[class] != class {
            class = self.classes[class];
        }
        class
    }

    pub(super) fn source_class(&self, table: &str) -> usize {
        self.find(self.source_classes[table])
    }

    pub(super) fn note(&mut self, version: DataVersion, table: &str) {
        self.notes.insert((version, table.to_owned()), self.table(table).class);
    }

    /// Records the group of every table, before a step and after it.
    pub(super) fn note_all(&mut self, version: DataVersion) {
        let classes: Vec<_> = self.tables.iter().map(|(name, table)| (name.clone(), table.class)).collect();
        for (name, class) in classes {
            self.notes.insert((version, name), class);
        }
    }

    /// The tables of a class that a step noted.
    pub(super) fn noted_as(&self, version: DataVersion, class: usize) -> impl Iterator<Item = &String> {
        let of_step = self.notes.range((version, String::new())..).take_while(move |((of, _), _)| *of == version);
        of_step.filter(move |(_, noted)| self.find(**noted) == class).map(|((_, table), _)| table)
    }

    /// The class of a table that a step noted.
    pub(super) fn noted(&self, version: DataVersion, table: &str) -> usize {
        self.find(self.notes[&(version, table.to_owned())])
    }

    pub(super) fn note_loss(&mut self, table: &str) {
        let class = self.table(table).class;
        self.losing.insert(class);
    }

    pub(super) fn losing(&self) -> BTreeSet<usize> {
        self.losing.iter().map(|&class| self.find(class)).collect()
    }

    pub(super) fn needed(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.needed.borrow().clone()
    }
}
