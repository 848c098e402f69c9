//! Application and inversion of a single change. Owns the rules of a change, those of the tables
//! that it leaves, and those of a whole layout, which are checked once, after the last change.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    LONGEST_DEFAULT, LONGEST_KEY, LONGEST_VARCHAR, MOST_COLUMNS, MOST_INDEXES, MOST_TABLES,
    Problem, column_before, share_units,
};
use crate::layout::manifest::Change;
use crate::layout::schema::{
    Column, ColumnType, Index, Layout, Literal, Sealing, Table, characters,
};
use crate::layout::values::Encoding;

/// Tables that no migration may touch: Diego's `configurations` and Locket's `locks`. The host's
/// own are recognised by [`OUR_PREFIX`].
const FOREIGN_TABLES: [&str; 2] = ["configurations", "locks"];
const OUR_PREFIX: &str = "bbs_";
/// Tables of the catalog that have the prefix of the host's own: one is Diego's, the others are the
/// host's records.
const OF_THE_CATALOG: [&str; 3] = ["bbs_health_check", "bbs_lrp_definitions", "bbs_lrp_updates"];
const LONGEST_NAME: usize = 63;
/// For a table beside it, a migration adds two underscores and a version of ten digits.
const LONGEST_TABLE_NAME: usize = LONGEST_NAME - 12;

impl Layout {
    pub(super) fn change(&mut self, change: &Change) -> Result<(), Problem> {
        match change {
            Change::CreateTable(table) => self.create(table),
            Change::DropTable { table } => {
                self.known(table)?;
                self.tables.remove(table);
                Ok(())
            }
            Change::RenameTable { from, to } => self.rename_table(from, to),
            Change::AddColumn { table, column } => {
                check_name(&column.name)?;
                let table = self.known(table)?;
                absent(table, &column.name)?;
                table.columns.push(column.clone());
                Ok(())
            }
            Change::AlterColumn { table, column } => alter(self.known(table)?, column),
            Change::DropColumn { table, column } => self.take(table, column).map(drop),
            Change::RenameColumn { table, from, to } => {
                check_name(to)?;
                let table = self.known(table)?;
                absent(table, to)?;
                position(table, from)?;
                rename_column(table, from, to);
                Ok(())
            }
            Change::MoveColumn { column, from, to } => self.move_column(column, from, to),
            Change::SetPrimaryKey { table, columns } => {
                let table = self.known(table)?;
                if table.partition_key.is_none() {
                    return Err(Problem::RekeyWithoutUnits {
                        table: table.name.clone(),
                    });
                }
                table.primary_key.clone_from(columns);
                Ok(())
            }
            Change::CreateIndex { table, index } => {
                check_name(&index.name)?;
                self.known(table)?.indexes.push(index.clone());
                Ok(())
            }
            Change::DropIndex { table, index } => {
                let table = self.known(table)?;
                let at = table
                    .indexes
                    .iter()
                    .position(|known| known.name == *index)
                    .ok_or_else(|| Problem::UnknownIndex {
                        table: table.name.clone(),
                        index: index.clone(),
                    })?;
                table.indexes.remove(at);
                Ok(())
            }
        }
    }

    /// The change that undoes `change`; `self` is the layout before it.
    pub(super) fn inverse(&self, change: &Change) -> Change {
        let column = |table: &str, column: &str| {
            self.tables[table]
                .find_column(column)
                .expect("checked")
                .clone()
        };
        match change {
            Change::CreateTable(table) => Change::DropTable {
                table: table.name.clone(),
            },
            Change::DropTable { table } => Change::CreateTable(self.tables[table].clone()),
            Change::RenameTable { from, to } => Change::RenameTable {
                from: to.clone(),
                to: from.clone(),
            },
            Change::AddColumn { table, column } => Change::DropColumn {
                table: table.clone(),
                column: column.name.clone(),
            },
            Change::AlterColumn {
                table,
                column: altered,
            } => Change::AlterColumn {
                table: table.clone(),
                column: column(table, &altered.name),
            },
            Change::DropColumn {
                table,
                column: name,
            } => Change::AddColumn {
                table: table.clone(),
                column: column(table, name),
            },
            Change::RenameColumn { table, from, to } => Change::RenameColumn {
                table: table.clone(),
                from: to.clone(),
                to: from.clone(),
            },
            Change::MoveColumn { column, from, to } => Change::MoveColumn {
                column: column.clone(),
                from: to.clone(),
                to: from.clone(),
            },
            Change::SetPrimaryKey { table, .. } => Change::SetPrimaryKey {
                table: table.clone(),
                columns: self.tables[table].primary_key.clone(),
            },
            Change::CreateIndex { table, index } => Change::DropIndex {
                table: table.clone(),
                index: index.name.clone(),
            },
            Change::DropIndex { table, index } => {
                let known = self.tables[table]
                    .indexes
                    .iter()
                    .find(|known| known.name == *index)
                    .expect("checked");
                Change::CreateIndex {
                    table: table.clone(),
                    index: known.clone(),
                }
            }
        }
    }

    fn known(&mut self, table: &str) -> Result<&mut Table, Problem> {
        self.tables
            .get_mut(table)
            .ok_or_else(|| Problem::UnknownTable {
                table: table.to_owned(),
            })
    }

    fn create(&mut self, table: &Table) -> Result<(), Problem> {
        check_table_name(&table.name)?;
        if self.tables.contains_key(&table.name) {
            return Err(Problem::DuplicateTable {
                table: table.name.clone(),
            });
        }
        table
            .columns
            .iter()
            .try_for_each(|column| check_name(&column.name))?;
        table
            .indexes
            .iter()
            .try_for_each(|index| check_name(&index.name))?;
        self.tables.insert(table.name.clone(), table.clone());
        Ok(())
    }

    fn rename_table(&mut self, from: &str, to: &str) -> Result<(), Problem> {
        check_table_name(to)?;
        self.known(from)?;
        if self.tables.contains_key(to) {
            return Err(Problem::DuplicateTable {
                table: to.to_owned(),
            });
        }
        let mut table = self.tables.remove(from).expect("just found");
        to.clone_into(&mut table.name);
        self.tables.insert(to.to_owned(), table);
        Ok(())
    }

    fn take(&mut self, table: &str, column: &str) -> Result<Column, Problem> {
        let table = self.known(table)?;
        let at = position(table, column)?;
        if keyed(table).contains(column) {
            return Err(Problem::ColumnInUse {
                table: table.name.clone(),
                column: column.to_owned(),
            });
        }
        Ok(table.columns.remove(at))
    }

    fn move_column(&mut self, column: &str, from: &str, to: &str) -> Result<(), Problem> {
        let source = self.known(from)?.clone();
        let target = self.known(to)?;
        absent(target, column)?;
        let alike = share_units(&source, target) && source.primary_key == target.primary_key;
        if !alike || from == to {
            return Err(Problem::MoveBetween {
                from: from.to_owned(),
                to: to.to_owned(),
            });
        }
        let moved = self.take(from, column)?;
        self.known(to)?.columns.push(moved);
        Ok(())
    }

    /// Checks the size of the layout, and what a change has altered of its tables: an added column
    /// by itself, since the time of a manifest that adds many would otherwise grow with their
    /// square.
    pub(super) fn check_changed(&self, change: &Change) -> Result<(), Problem> {
        let table = match change {
            Change::CreateTable(table) => &table.name,
            Change::AddColumn { table, column } => {
                self.check_size()?;
                return check_column(&self.tables[table], column);
            }
            Change::AlterColumn { table, .. }
            | Change::SetPrimaryKey { table, .. }
            | Change::CreateIndex { table, .. } => table,
            // These rename or remove what was sound, and nothing that a key or an index names.
            Change::DropTable { .. }
            | Change::RenameTable { .. }
            | Change::DropColumn { .. }
            | Change::RenameColumn { .. }
            | Change::MoveColumn { .. }
            | Change::DropIndex { .. } => return Ok(()),
        };
        self.check_size()?;
        check_table(&self.tables[table])
    }

    fn check_size(&self) -> Result<(), Problem> {
        let columns: usize = self.tables.values().map(|table| table.columns.len()).sum();
        let indexes: usize = self.tables.values().map(|table| table.indexes.len()).sum();
        let problem = match () {
            () if self.tables.len() > MOST_TABLES => Problem::TooManyTables,
            () if columns > MOST_COLUMNS => Problem::TooManyColumns,
            () if indexes > MOST_INDEXES => Problem::TooManyIndexes,
            () => return Ok(()),
        };
        Err(problem)
    }

    /// Checks the rules of a whole layout. Between two changes they may be broken: an index may be
    /// replaced by another.
    pub(super) fn check(&self) -> Result<(), Problem> {
        let mut indexes = BTreeSet::new();
        for table in self.tables.values() {
            check_table(table)?;
            check_partition_key_order(table)?;
            for index in &table.indexes {
                if !indexes.insert(&index.name) {
                    return Err(Problem::DuplicateIndex {
                        index: index.name.clone(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Checks that changes add no column under a name that its table had before them: the values of a
/// column are restored by its name.
pub(super) fn check_added(before: &Layout, changes: &[Change]) -> Result<(), Problem> {
    let tables = before.tables.iter();
    let mut tables: BTreeMap<&str, &Table> =
        tables.map(|(name, table)| (name.as_str(), table)).collect();
    for change in changes {
        match change {
            Change::DropTable { table } => {
                tables.remove(table.as_str());
            }
            Change::RenameTable { from, to } => {
                if let Some(table) = tables.remove(from.as_str()) {
                    tables.insert(to, table);
                }
            }
            Change::AddColumn { table, column } => {
                let had = tables
                    .get(table.as_str())
                    .and_then(|before| before.find_column(&column.name));
                if had.is_some() {
                    return Err(Problem::AddedAgain {
                        table: table.clone(),
                        column: column.name.clone(),
                    });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that changes move no column that they have added: the values of a dropped column are
/// restored to the table that it was dropped from.
pub(super) fn check_moved(changes: &[Change]) -> Result<(), Problem> {
    for (place, change) in changes.iter().enumerate() {
        if let Change::MoveColumn { column, from, .. } = change
            && column_before(&changes[..place], from, column).is_none()
        {
            return Err(Problem::MovedWithin {
                table: from.clone(),
                column: column.clone(),
            });
        }
    }
    Ok(())
}

fn check_table(table: &Table) -> Result<(), Problem> {
    let name = || table.name.clone();
    if table.columns.is_empty() {
        return Err(Problem::NoColumns { table: name() });
    }
    let mut seen = BTreeSet::new();
    for column in &table.columns {
        if !seen.insert(column.name.as_str()) {
            return Err(Problem::DuplicateColumn {
                table: name(),
                column: column.name.clone(),
            });
        }
        check_column(table, column)?;
    }
    if table.primary_key.is_empty() {
        return Err(Problem::NoKey { table: name() });
    }
    check_key(table, &table.primary_key, true)?;
    for index in &table.indexes {
        if index.columns.is_empty() {
            return Err(Problem::EmptyIndex {
                index: index.name.clone(),
            });
        }
        check_key(table, &index.columns, false)?;
    }
    table.partition_key.as_ref().map_or(Ok(()), |key| {
        check_key(table, std::slice::from_ref(key), true)
    })
}

fn check_partition_key_order(table: &Table) -> Result<(), Problem> {
    let Some(partition) = &table.partition_key else {
        return Ok(());
    };
    let leads = |columns: &[String]| columns.first() == Some(partition);
    if !leads(&table.primary_key)
        && !table
            .indexes
            .iter()
            .any(|index: &Index| leads(&index.columns))
    {
        return Err(Problem::PartitionKeyOrder {
            table: table.name.clone(),
            column: partition.clone(),
        });
    }
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// The number of checks of columns by this thread.
    pub(super) static CHECKED_COLUMNS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn check_column(table: &Table, column: &Column) -> Result<(), Problem> {
    #[cfg(test)]
    CHECKED_COLUMNS.set(CHECKED_COLUMNS.get() + 1);
    let named = |problem: fn(String, String) -> Problem| {
        Err(problem(table.name.clone(), column.name.clone()))
    };
    if column.sealing != Sealing::Plain && (!column.kind.is_text() || column.default.is_some()) {
        return named(|table, column| Problem::Sealing { table, column });
    }
    if let ColumnType::Varchar(length) = column.kind
        && !(1..=LONGEST_VARCHAR).contains(&length)
    {
        return named(|table, column| Problem::VarcharLength { table, column });
    }
    if let Some(Literal::Text(text)) = &column.default
        && text.len() > LONGEST_DEFAULT
    {
        return named(|table, column| Problem::LongDefault { table, column });
    }
    let fits = match (&column.default, Encoding::from(column.kind)) {
        (None, _)
        | (Some(Literal::Boolean(_)), Encoding::Boolean)
        | (Some(Literal::Integer(_)), Encoding::Integer)
        | (Some(Literal::Text(_)), Encoding::Text) => true,
        (Some(_), _) => false,
    };
    if !fits {
        return named(|table, column| Problem::DefaultType { table, column });
    }
    if column
        .default
        .as_ref()
        .is_some_and(|default| !holds(column.kind, default))
    {
        return named(|table, column| Problem::DefaultTooLarge { table, column });
    }
    Ok(())
}

/// Whether every database stores a value of the type's own encoding in a column of this type. A NUL
/// ends the statement on SQLite, and PostgreSQL has none in a text.
fn holds(kind: ColumnType, value: &Literal) -> bool {
    match (kind, value) {
        (_, Literal::Text(text)) if text.contains('\0') => false,
        (ColumnType::Varchar(length), Literal::Text(text)) => {
            characters(text.as_bytes()) <= length as usize
        }
        (ColumnType::Integer, Literal::Integer(number)) => i32::try_from(*number).is_ok(),
        _ => true,
    }
}

/// With `required`, as for a primary or partition key, the columns must not be nullable. An index
/// may cover NULL. SQLite, and PostgreSQL for most values, would create what MySQL refuses, which
/// an operator would learn only after the copy.
fn check_key(table: &Table, columns: &[String], required: bool) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    for name in columns {
        let at = position(table, name)?;
        let column = &table.columns[at];
        if !seen.insert(name) {
            return Err(Problem::RepeatedKey {
                table: table.name.clone(),
                column: name.clone(),
            });
        }
        if (required && column.nullable) || column.sealing != Sealing::Plain {
            return Err(Problem::UnfitKey {
                table: table.name.clone(),
                column: name.clone(),
            });
        }
        bytes += bytes_in_key(column.kind).ok_or_else(|| Problem::TextInKey {
            table: table.name.clone(),
            column: name.clone(),
        })?;
    }
    if bytes > LONGEST_KEY {
        return Err(Problem::LongKey {
            table: table.name.clone(),
            bytes,
        });
    }
    Ok(())
}

/// The bytes of a column in a key or index of MySQL, which counts the longest characters of its
/// default character set; none if it cannot be part of one.
fn bytes_in_key(kind: ColumnType) -> Option<u64> {
    match kind {
        ColumnType::Boolean => Some(1),
        ColumnType::Integer => Some(4),
        ColumnType::BigInteger => Some(8),
        ColumnType::Varchar(length) => Some(4 * u64::from(length)),
        ColumnType::Text | ColumnType::MediumText | ColumnType::LongText => None,
    }
}

fn alter(table: &mut Table, column: &Column) -> Result<(), Problem> {
    let at = position(table, &column.name)?;
    if Encoding::from(table.columns[at].kind) != Encoding::from(column.kind) {
        return Err(Problem::Retyped {
            table: table.name.clone(),
            column: column.name.clone(),
        });
    }
    table.columns[at] = column.clone();
    Ok(())
}

fn rename_column(table: &mut Table, from: &str, to: &str) {
    let columns = table.columns.iter_mut().map(|column| &mut column.name);
    let keys = table
        .primary_key
        .iter_mut()
        .chain(table.partition_key.iter_mut());
    let indexed = table
        .indexes
        .iter_mut()
        .flat_map(|index| index.columns.iter_mut());
    for name in columns
        .chain(keys)
        .chain(indexed)
        .filter(|name| *name == from)
    {
        to.clone_into(name);
    }
}

fn keyed(table: &Table) -> BTreeSet<&str> {
    let indexed = table.indexes.iter().flat_map(|index| &index.columns);
    table
        .primary_key
        .iter()
        .chain(&table.partition_key)
        .chain(indexed)
        .map(String::as_str)
        .collect()
}

fn position(table: &Table, column: &str) -> Result<usize, Problem> {
    table
        .columns
        .iter()
        .position(|known| known.name == column)
        .ok_or_else(|| Problem::UnknownColumn {
            table: table.name.clone(),
            column: column.to_owned(),
        })
}

fn absent(table: &Table, column: &str) -> Result<(), Problem> {
    match position(table, column) {
        Ok(_) => Err(Problem::DuplicateColumn {
            table: table.name.clone(),
            column: column.to_owned(),
        }),
        Err(_) => Ok(()),
    }
}

fn check_table_name(name: &str) -> Result<(), Problem> {
    let ours = name.starts_with(OUR_PREFIX) && !OF_THE_CATALOG.contains(&name);
    if ours || FOREIGN_TABLES.contains(&name) || name.len() > LONGEST_TABLE_NAME {
        return Err(Problem::Name {
            name: name.to_owned(),
        });
    }
    check_name(name)
}

/// Two consecutive underscores are reserved for the names of a migration's temporary tables.
fn check_name(name: &str) -> Result<(), Problem> {
    let fits = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !name.contains("__")
        && name.len() <= LONGEST_NAME;
    if fits {
        Ok(())
    } else {
        Err(Problem::Name {
            name: name.to_owned(),
        })
    }
}
