//! Writes through a lens: units are loaded once, changed in memory at the native layout, and at
//! commit transformed back and written as a difference, together with their residue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bbs_database::{Dialect, is_unique_violation, sql};
use bbs_encryption::Keyring;
use bbs_lens::ResidueEntry;
use bbs_lens::layout::schema::{Column, Sealing, Table};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_units::{OwnedValue, RowLock, RowsError, TableRows, UnitBatch, UnitKey, residue};

use super::read::{NativeRow, unreadable};
use super::{Lenses, TransformPermit, failed};
use crate::store::column_values::{ColumnValue, ColumnValues, Conflict, DIAGNOSTIC, ascii};
use crate::store::filter::Filter;
use crate::store::record::Projection;
use crate::store::{EntityTable, Session, StoreError};

/// The units that one transaction has loaded.
#[derive(Debug, Default)]
pub(in crate::store) struct LoadedUnits {
    /// By table group and key.
    units: BTreeMap<(usize, Vec<u8>), LoadedUnit>,
    /// Whether a unique violation at commit is reported to the caller as [`StoreError::Exists`].
    reports_conflicts: bool,
}

/// One unit as it is stored, and at the native layout.
#[derive(Debug, Clone)]
struct LoadedUnit {
    stored: UnitBatch,
    native: UnitState,
    changed: bool,
    /// Whether residue of it is stored.
    had_residue: bool,
}

/// A unit at the native layout.
#[derive(Debug, Clone)]
enum UnitState {
    Readable {
        before: UnitBatch,
        now: UnitBatch,
        /// The residue of the transformation to the native layout.
        residue: Vec<ResidueEntry>,
    },
    /// The lens cannot transform it. Each access returns this error.
    Damaged(Arc<RowsError>),
    /// Damaged, and deleted.
    Removed,
}

impl LoadedUnits {
    async fn unit(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        table: EntityTable,
        key: &[u8],
    ) -> Result<&mut LoadedUnit, StoreError> {
        let group = lenses.group(table.name);
        let at = (group, key.to_vec());
        if !self.units.contains_key(&at) {
            let unit = LoadedUnit::read(lenses, session, group, key).await;
            self.units.insert(
                at.clone(),
                unit.map_err(failed("read a record to change it"))?,
            );
        }
        Ok(self.units.get_mut(&at).expect("just inserted"))
    }

    pub(in crate::store) async fn get<T>(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        projection: &Projection<T>,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        let all = Filter::everything();
        let found = self.rows(lenses, session, projection, key, &all).await?;
        found.into_iter().next().transpose()
    }

    pub(in crate::store) async fn rows<T>(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        projection: &Projection<T>,
        key: &[u8],
        filter: &Filter,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let table = projection.table;
        let unit = self.unit(lenses, session, table, key).await?;
        let rows = unit.rows_mut(table, key)?;
        let matching =
            NativeRow::all(lenses.table(table.name), rows).filter(|row| filter.holds(row));
        Ok(matching
            .map(|row| projection.record(&row, session.store.keyring()))
            .collect())
    }

    pub(in crate::store) async fn bytes(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        table: EntityTable,
        key: &[u8],
        columns: &[&'static str],
    ) -> Result<u64, StoreError> {
        let unit = self.unit(lenses, session, table, key).await?;
        let rows = unit.rows_mut(table, key)?;
        let declared = lenses.table(table.name);
        let length = |(column, row): (&&str, usize)| match rows.value(declared, column, row) {
            Some(Value::Text(text)) => text.len() as u64,
            Some(Value::Null | Value::Boolean(_) | Value::Integer(_)) | None => 0,
        };
        Ok((0..rows.count())
            .flat_map(|row| columns.iter().map(move |column| (column, row)))
            .map(length)
            .sum())
    }

    pub(in crate::store) async fn insert(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        (table, key): (EntityTable, &[u8]),
        rows: Vec<ColumnValues>,
        conflict: Conflict,
    ) -> Result<(), StoreError> {
        let declared = lenses.table(table.name);
        self.reports_conflicts |= conflict == Conflict::Fails;
        let unit = self.unit(lenses, session, table, key).await?;
        unit.changed = true;
        let held = unit.rows_mut(table, key)?;
        let mut new = Vec::with_capacity(rows.len());
        for values in rows {
            let row = |row| NativeRow {
                table: declared,
                rows: held,
                row,
            };
            let taken = (0..held.count()).find(|at| is_same_row(table, &row(*at), &values));
            match (taken, conflict) {
                (None, _) => new.push(row_of(declared, held, values, session.store.keyring())),
                (Some(_), Conflict::Fails) => return Err(StoreError::Exists),
                (Some(at), Conflict::Updates(column)) => {
                    let value = values.into_iter().find(|(name, _)| *name == column);
                    let (_, value) = value.expect("the updated column is given");
                    let value = held_in(held, column, value, session.store.keyring());
                    held.set(declared, column, &[at], value.value());
                }
            }
        }
        held.extend(declared, &new);
        Ok(())
    }

    pub(in crate::store) async fn update(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        (table, key): (EntityTable, &[u8]),
        filter: &Filter,
        values: ColumnValues,
    ) -> Result<u64, StoreError> {
        let declared = lenses.table(table.name);
        let unit = self.unit(lenses, session, table, key).await?;
        let rows = unit.rows_mut(table, key)?;
        let matching = NativeRow::all(declared, rows).filter(|row| filter.holds(row));
        let matching: Vec<_> = matching.map(|row| row.row).collect();
        for (column, value) in values {
            let value = held_in(rows, column, value, session.store.keyring());
            rows.set(declared, column, &matching, value.value());
        }
        unit.changed |= !matching.is_empty();
        Ok(matching.len() as u64)
    }

    pub(in crate::store) async fn delete(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        (table, key): (EntityTable, &[u8]),
        filter: &Filter,
    ) -> Result<u64, StoreError> {
        let declared = lenses.table(table.name);
        let alone = lenses.table_groups[lenses.group(table.name)].native.len() == 1;
        let unit = self.unit(lenses, session, table, key).await?;
        if matches!(unit.native, UnitState::Damaged(_)) && alone && filter.conditions().count() == 0
        {
            unit.native = UnitState::Removed;
            unit.changed = true;
            return Ok(1);
        }
        let rows = unit.rows_mut(table, key)?;
        let deleted = NativeRow::all(declared, rows).filter(|row| filter.holds(row));
        let deleted: BTreeSet<_> = deleted.map(|row| row.row).collect();
        rows.retain(declared, |row| !deleted.contains(&row));
        unit.changed |= !deleted.is_empty();
        Ok(deleted.len() as u64)
    }

    /// Deletes the only record of a unit and returns it.
    pub(in crate::store) async fn take<T>(
        &mut self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
        projection: &Projection<T>,
        key: &[u8],
    ) -> Result<Option<Result<T, StoreError>>, StoreError> {
        let taken = match self.get(lenses, session, projection, key).await {
            Err(fault @ StoreError::Unreadable { .. }) => Err(fault),
            found => match found? {
                None => return Ok(None),
                Some(record) => Ok(record),
            },
        };
        self.delete(
            lenses,
            session,
            (projection.table, key),
            &Filter::everything(),
        )
        .await?;
        Ok(Some(taken))
    }

    /// Writes the changed units.
    pub(in crate::store) async fn write(
        self,
        lenses: &Arc<Lenses>,
        session: &mut Session,
    ) -> Result<(), StoreError> {
        let reports_conflicts = self.reports_conflicts;
        for ((group, _), unit) in self.units {
            if !unit.changed {
                continue;
            }
            // Only MySQL has columns for a part of all characters.
            let ascii = if session.tx.dialect() == Dialect::Mysql {
                unit.with_ascii_diagnostics(lenses)
            } else {
                None
            };
            let written = match ascii {
                Some(ascii) => write_either(lenses, session, group, unit, ascii).await,
                None => write_unit(lenses, session, group, unit).await,
            };
            written.map_err(|fault| match fault {
                StoreError::Units { source, .. } if is_conflict(&source) && reports_conflicts => {
                    StoreError::Exists
                }
                StoreError::Units { source, .. } if is_conflict(&source) => StoreError::Raced,
                fault => fault,
            })?;
        }
        Ok(())
    }
}

/// Writes a unit, or, if a column cannot hold one of its characters, `ascii` in its place. A failed
/// statement does not end a transaction of MySQL, but rows before it are written.
async fn write_either(
    lenses: &Arc<Lenses>,
    session: &mut Session,
    group: usize,
    unit: LoadedUnit,
    ascii: LoadedUnit,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::Statement {
        what: "write a record through the lens",
        source,
    };
    let savepoint = sql("SAVEPOINT bbs_unit");
    session.tx.execute(savepoint).await.map_err(failed)?;
    match write_unit(lenses, session, group, unit).await {
        Err(StoreError::Characters { .. }) => {
            let back = sql("ROLLBACK TO SAVEPOINT bbs_unit");
            session.tx.execute(back).await.map_err(failed)?;
            write_unit(lenses, session, group, ascii).await
        }
        written => written,
    }
}

async fn write_unit(
    lenses: &Arc<Lenses>,
    Session { store, tx }: &mut Session,
    group: usize,
    unit: LoadedUnit,
) -> Result<(), StoreError> {
    let keyring = store.keyring();
    let (after, residue_entries) = match unit.native {
        UnitState::Readable { now, .. } if now.is_empty() => {
            (unit.stored.emptied(&lenses.place.layout), Vec::new())
        }
        UnitState::Removed => (unit.stored.emptied(&lenses.place.layout), Vec::new()),
        UnitState::Readable {
            before,
            now,
            residue,
        } => {
            let transformations = &lenses.transformations;
            let lenses = Arc::clone(lenses);
            let keyring = Arc::clone(keyring);
            let transform = move |permit: TransformPermit| {
                super::pin::to_stored(&lenses, &keyring, group, &before, &now, residue, &permit)
            };
            let transformed = transformations.run(1, transform).await;
            transformed.map_err(failed("write a record"))??
        }
        UnitState::Damaged(_) => return Ok(()),
    };
    let failed = |fault| lenses.not_written(fault);
    bbs_units::replace(tx, &lenses.place, &unit.stored, &after, keyring)
        .await
        .map_err(failed)?;
    if unit.had_residue || !residue_entries.is_empty() {
        let residue_places = &lenses.table_groups[group].residue_places;
        let names = unit.stored.names();
        let entries = residue::seal(keyring, residue_entries, &names);
        residue::replace(
            tx,
            lenses.to_stored.direction,
            residue_places,
            &names[0],
            &entries,
        )
        .await
        .map_err(failed)?;
    }
    Ok(())
}

fn is_conflict(fault: &RowsError) -> bool {
    matches!(fault, RowsError::Rows { source, .. } if is_unique_violation(source))
}

impl LoadedUnit {
    async fn read(
        lenses: &Arc<Lenses>,
        Session { store, tx }: &mut Session,
        group: usize,
        key: &[u8],
    ) -> Result<Self, RowsError> {
        let keyring = store.keyring();
        let units = [UnitKey::text(key)];
        let wanted = lenses.wanted(group, None);
        let lock = RowLock::Exclusive;
        let stored = bbs_units::load(tx, &lenses.place, &wanted, &units, lock).await?;
        let residue_before = lenses.load_residue(tx, keyring, group, &stored).await?;
        let had_residue = !residue_before.is_empty();
        let mut native = lenses
            .transform_loaded(keyring, group, stored.clone(), residue_before)
            .await?;
        let native = match native.damaged.pop() {
            Some((_, fault)) => UnitState::Damaged(Arc::new(fault)),
            None => UnitState::Readable {
                before: native.batch.clone(),
                now: native.batch,
                residue: native.residue,
            },
        };
        Ok(Self {
            stored,
            native,
            changed: false,
            had_residue,
        })
    }

    /// Copy of the unit in which diagnostic texts that it did not have before are [`ascii`]; `None`
    /// if there are none. A text that was read can be written.
    fn with_ascii_diagnostics(&self, lenses: &Lenses) -> Option<Self> {
        let UnitState::Readable { before, now, .. } = &self.native else {
            return None;
        };
        let mut replaced: Option<Self> = None;
        for (name, rows) in &now.tables {
            let table = lenses.table(name);
            let stored = &before.tables[name];
            let diagnostic = DIAGNOSTIC
                .into_iter()
                .filter(|column| table.find_column(column).is_some());
            for column in diagnostic {
                let known: BTreeSet<_> = (0..stored.count())
                    .filter_map(|row| beyond_ascii(stored, table, column, row))
                    .collect();
                for row in 0..rows.count() {
                    let text = beyond_ascii(rows, table, column, row);
                    let Some(text) = text.filter(|text| !known.contains(text)) else {
                        continue;
                    };
                    let text = ascii(&String::from_utf8_lossy(text));
                    let copy = replaced.get_or_insert_with(|| self.clone());
                    copy.set_native(name, table, (column, row), text.as_bytes());
                }
            }
        }
        replaced
    }

    /// Sets a text of a row at the native layout.
    fn set_native(&mut self, name: &str, table: &Table, place: (&str, usize), text: &[u8]) {
        let (column, row) = place;
        if let UnitState::Readable { now, .. } = &mut self.native
            && let Some(rows) = now.tables.get_mut(name)
        {
            rows.set(table, column, &[row], Value::Text(text));
        }
    }

    fn rows_mut(&mut self, table: EntityTable, key: &[u8]) -> Result<&mut TableRows, StoreError> {
        match &mut self.native {
            UnitState::Readable { now, .. } => Ok(now
                .tables
                .get_mut(table.name)
                .expect("a table of the group")),
            UnitState::Damaged(fault) => {
                Err(unreadable(table, &UnitKey::text(key), Arc::clone(fault)))
            }
            UnitState::Removed => unreachable!("a unit deleted unread is not accessed again"),
        }
    }
}

/// A text with characters beyond ASCII.
fn beyond_ascii<'a>(
    rows: &'a TableRows,
    table: &Table,
    column: &str,
    row: usize,
) -> Option<&'a [u8]> {
    match rows.value(table, column, row) {
        Some(Value::Text(text)) if !text.is_ascii() => Some(text),
        _ => None,
    }
}

/// All rows of a unit have its key, whose spelling the database may ignore.
fn is_same_row(table: EntityTable, row: &NativeRow<'_>, values: &ColumnValues) -> bool {
    let is_compared = |column: &str| column != table.key && table.primary_key.contains(&column);
    let mut key = values.iter().filter(|(column, _)| is_compared(column));
    key.all(
        |(column, value)| match (value, row.rows.value(row.table, column, row.row)) {
            (ColumnValue::Text(text), Some(Value::Text(held))) => text.as_bytes() == held,
            (ColumnValue::Number(number), Some(Value::Integer(held))) => *number == held,
            _ => false,
        },
    )
}

/// A complete row: the given values, and the defaults of the other columns.
fn row_of(
    table: &Table,
    rows: &TableRows,
    values: ColumnValues,
    keyring: &Keyring,
) -> BTreeMap<String, OwnedValue> {
    let mut row: BTreeMap<_, _> = table
        .columns
        .iter()
        .map(|column| (column.name.clone(), absent(column)))
        .collect();
    for (column, value) in values {
        row.insert(column.to_owned(), held_in(rows, column, value, keyring));
    }
    row
}

/// The value of a column that is not given: its default, NULL, or zero.
fn absent(column: &Column) -> OwnedValue {
    match Value::of(column.default.as_ref()) {
        Value::Null if column.nullable => OwnedValue::Null,
        Value::Null => match Encoding::from(column.kind) {
            Encoding::Boolean => OwnedValue::Boolean(false),
            Encoding::Integer => OwnedValue::Integer(0),
            Encoding::Text => OwnedValue::Text(Vec::new()),
        },
        value => value.into(),
    }
}

/// A value in the form that the loaded column has: sealed, or plain if the lens has opened it.
fn held_in(rows: &TableRows, column: &str, value: ColumnValue, keyring: &Keyring) -> OwnedValue {
    match value {
        ColumnValue::Number(number) => OwnedValue::Integer(number),
        ColumnValue::Flag(flag) => OwnedValue::Boolean(flag),
        ColumnValue::Text(text) => OwnedValue::Text(text.into_bytes()),
        ColumnValue::Sealed(_, plain) if rows.columns[column].sealing == Sealing::Plain => {
            OwnedValue::Text(plain)
        }
        ColumnValue::Sealed(sealing, plain) => OwnedValue::Text(keyring.seal(sealing, &plain)),
    }
}
