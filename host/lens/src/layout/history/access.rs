//! Validation of a manifest's accesses: the columns it reads exist in the source layout, those it
//! writes in the target.

use std::collections::BTreeSet;

use super::{Problem, directed_changes};
use crate::layout::manifest::{Access, Change, Direction, Manifest};
use crate::layout::schema::{Column, Layout, Table};
use crate::layout::values::Encoding;

pub(super) fn check(before: &Layout, after: &Layout, manifest: &Manifest) -> Result<(), Problem> {
    if !manifest.reversible && !manifest.down.is_empty() {
        return Err(Problem::DownOfIrreversible);
    }
    if manifest.leaves_residue && manifest.up.is_empty() && manifest.down.is_empty() {
        return Err(Problem::ResidueOfNothing);
    }
    if manifest.removes_rows
        && !manifest
            .up
            .iter()
            .chain(&manifest.down)
            .any(|access| access.reshapes)
    {
        return Err(Problem::RemovesWithoutReshaping);
    }
    check_direction(
        before,
        after,
        &manifest.changes,
        Direction::Up,
        &manifest.up,
    )?;
    if manifest.reversible {
        let changes = directed_changes(before, manifest, Direction::Down);
        check_direction(after, before, &changes, Direction::Down, &manifest.down)?;
    }
    Ok(())
}

/// The name in the source layout of a table of the target layout; none if the changes create it.
pub fn name_before(changes: &[Change], table: &str) -> Option<String> {
    let mut name = table.to_owned();
    for change in changes.iter().rev() {
        match change {
            Change::RenameTable { from, to } if *to == name => name.clone_from(from),
            Change::CreateTable(created) if created.name == name => return None,
            _ => {}
        }
    }
    Some(name)
}

/// Whether tables have the same partition key, of one type: rows with the same value are of one
/// unit.
pub fn share_units(one: &Table, other: &Table) -> bool {
    one.partition_key.is_some()
        && one.partition_key == other.partition_key
        && key_encoding(one) == key_encoding(other)
}

/// The encoding of the partition key; none without one.
fn key_encoding(table: &Table) -> Option<Encoding> {
    let key = table.find_column(table.partition_key.as_ref()?)?;
    Some(key.kind.into())
}

/// The origin of a column that a table has after some changes.
enum ColumnSource<'a> {
    /// A column of the layout before them.
    Before { table: String, name: String },
    /// They add it, with this definition.
    Added(&'a Column),
    /// They create its table with it, under this name.
    Created { table: &'a Table, name: String },
}

/// The name in the source layout of a column that a table has after some changes; none if the
/// changes add it. The table may have been another one, if the column was moved.
pub fn column_before(changes: &[Change], table: &str, column: &str) -> Option<String> {
    match source_of(changes, table, column) {
        ColumnSource::Before { name, .. } => Some(name),
        ColumnSource::Added(_) | ColumnSource::Created { .. } => None,
    }
}

fn source_of<'a>(changes: &'a [Change], table: &str, column: &str) -> ColumnSource<'a> {
    let mut table = table.to_owned();
    let mut name = column.to_owned();
    for change in changes.iter().rev() {
        match change {
            Change::RenameTable { from, to } if *to == table => table.clone_from(from),
            Change::CreateTable(created) if created.name == table => {
                return ColumnSource::Created {
                    table: created,
                    name,
                };
            }
            Change::AddColumn {
                table: of,
                column: added,
            } if *of == table && added.name == name => return ColumnSource::Added(added),
            Change::RenameColumn {
                table: of,
                from,
                to,
            } if *of == table && *to == name => name.clone_from(from),
            Change::MoveColumn { column, from, to } if *to == table && *column == name => {
                table.clone_from(from);
            }
            _ => {}
        }
    }
    ColumnSource::Before { table, name }
}

/// Whether the changes create a table and move columns to it, with whose rows it is then filled.
fn adopts_rows<'a>(changes: &'a [Change], mut table: &'a str) -> bool {
    let mut is_moved_to = false;
    for change in changes.iter().rev() {
        match change {
            Change::RenameTable { from, to } if *to == table => table = from,
            Change::CreateTable(created) if created.name == table => return is_moved_to,
            Change::MoveColumn { to, .. } if *to == table => is_moved_to = true,
            _ => {}
        }
    }
    false
}

fn check_direction(
    source: &Layout,
    target: &Layout,
    changes: &[Change],
    direction: Direction,
    accesses: &[Access],
) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for access in accesses {
        if !seen.insert(&access.table) {
            return Err(Problem::RepeatedAccess {
                direction,
                table: access.table.clone(),
            });
        }
        check_access(source, target, changes, direction, access)?;
    }
    // PostgreSQL compares no text with a number.
    let key = |access: &Access| key_encoding(&target.tables[&access.table]);
    if let Some(other) = accesses
        .iter()
        .find(|access| key(access) != key(&accesses[0]))
    {
        return Err(Problem::UnlikeKeys {
            direction,
            table: accesses[0].table.clone(),
            other: other.table.clone(),
        });
    }
    check_values(source, target, changes, accesses)
}

fn check_access(
    source: &Layout,
    target: &Layout,
    changes: &[Change],
    direction: Direction,
    access: &Access,
) -> Result<(), Problem> {
    let name = || access.table.clone();
    let table = target
        .tables
        .get(&access.table)
        .ok_or_else(|| Problem::UnknownTable { table: name() })?;
    let earlier = name_before(changes, &access.table).and_then(|name| source.tables.get(&name));
    let without_units = || Problem::AccessWithoutUnits {
        direction,
        table: name(),
    };
    let partition = table.partition_key.as_ref().ok_or_else(without_units)?;
    if earlier.is_some_and(|earlier| earlier.partition_key.is_none()) {
        return Err(without_units());
    }
    if adopts_rows(changes, &access.table) {
        return Err(Problem::AccessToMoved {
            direction,
            table: name(),
        });
    }
    check_columns(table, earlier, direction, access)?;
    if !access.reshapes && access.writes.contains(partition) {
        return Err(Problem::WritesPartitionKey {
            direction,
            table: name(),
            column: partition.clone(),
        });
    }
    // A table that the step creates has only added rows, so this can be checked here; for other
    // tables, it is checked on the module's answer.
    if access.reshapes && earlier.is_none() {
        check_new_rows(table, partition, direction, access)?;
    }
    Ok(())
}

/// Checks that the columns of an access exist before and after the step, each named once.
fn check_columns(
    table: &Table,
    earlier: Option<&Table>,
    direction: Direction,
    access: &Access,
) -> Result<(), Problem> {
    let name = || access.table.clone();
    for columns in [&access.reads, &access.writes] {
        let mut seen = BTreeSet::new();
        if let Some(column) = columns.iter().find(|column| !seen.insert(*column)) {
            return Err(Problem::RepeatedAccessColumn {
                direction,
                table: name(),
                column: column.clone(),
            });
        }
    }
    let has = |table: Option<&Table>, column: &str| {
        table.is_some_and(|table| table.find_column(column).is_some())
    };
    if let Some(column) = access.reads.iter().find(|column| !has(earlier, column)) {
        return Err(Problem::UnknownRead {
            direction,
            table: name(),
            column: column.clone(),
        });
    }
    if let Some(column) = access
        .writes
        .iter()
        .find(|column| !has(Some(table), column))
    {
        return Err(Problem::UnknownWrite {
            direction,
            table: name(),
            column: column.clone(),
        });
    }
    Ok(())
}

/// Checks that an access to a created table writes each column that a new row needs.
fn check_new_rows(
    table: &Table,
    partition: &str,
    direction: Direction,
    access: &Access,
) -> Result<(), Problem> {
    let missing = needed_by_new_rows(table).find(|column| !access.writes.contains(&column.name));
    let Some(missing) = missing else {
        return Ok(());
    };
    let column = missing.name.clone();
    let is_key = table.primary_key.contains(&column) || column == partition;
    let table = access.table.clone();
    Err(if is_key {
        Problem::ReshapeWithoutKey {
            direction,
            table,
            column,
        }
    } else {
        Problem::NoValue { table, column }
    })
}

/// The columns that an added row must write: those that are neither nullable nor have a default,
/// and the partition key. Key columns come first.
pub fn needed_by_new_rows(table: &Table) -> impl Iterator<Item = &Column> {
    let is_partition = |column: &Column| table.partition_key.as_ref() == Some(&column.name);
    let is_key =
        move |column: &Column| is_partition(column) || table.primary_key.contains(&column.name);
    let has_none =
        move |column: &Column| is_partition(column) || !column.nullable && column.default.is_none();
    let keys = table
        .columns
        .iter()
        .filter(move |column| is_key(column) && has_none(column));
    keys.chain(
        table
            .columns
            .iter()
            .filter(move |column| !is_key(column) && has_none(column)),
    )
}

/// Checks that an added or no longer nullable column gets a value in every row: by a default or by
/// the row function. So does every column of a table that adopts rows, but for those of its keys,
/// which it adopts with them.
fn check_values(
    source: &Layout,
    target: &Layout,
    changes: &[Change],
    accesses: &[Access],
) -> Result<(), Problem> {
    let lacks_values =
        |table: &Table, column: &Column| match source_of(changes, &table.name, &column.name) {
            ColumnSource::Before { table, name } => {
                let earlier = source.tables.get(&table);
                let earlier = earlier.and_then(|table| table.find_column(&name));
                earlier.is_some_and(|column| column.nullable)
            }
            ColumnSource::Added(column) => column.default.is_none(),
            ColumnSource::Created { table, name } => {
                let is_key = table.primary_key.contains(&name)
                    || table.partition_key.as_ref() == Some(&name);
                let column = table.find_column(&name);
                !is_key && column.is_some_and(|column| column.default.is_none())
            }
        };
    // Any other table that the changes create has no rows yet.
    let has_rows = |table: &&Table| {
        name_before(changes, &table.name).is_some_and(|name| source.tables.contains_key(&name))
            || adopts_rows(changes, &table.name)
    };
    for table in target.tables.values().filter(has_rows) {
        let access = accesses.iter().find(|access| access.table == table.name);
        let written: BTreeSet<&String> = access.iter().flat_map(|access| &access.writes).collect();
        let mut required = table
            .columns
            .iter()
            .filter(|column| !column.nullable && !written.contains(&column.name));
        if let Some(column) = required.find(|&column| lacks_values(table, column)) {
            return Err(Problem::NoValue {
                table: table.name.clone(),
                column: column.name.clone(),
            });
        }
    }
    Ok(())
}
