//! Writing through the lens: units are read once, changed at the handlers' layout in memory, and at the end taken back
//! and written as a difference, with what their steps would lose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::read::{LiftedRow, unreadable};
use super::{Lenses, failed};
use crate::database::{Transaction, is_unique_violation};
use crate::layout::schema::{Column, Sealing, Table as Declared};
use crate::layout::values::{Encoding, Value};
use crate::lens::ResidueEntry;
use crate::rows::{self, ByteLimits, OwnedValue, RowLock, RowsError, TableRows, UnitBatch, UnitKey, residue};
use crate::store::column_values::{ColumnValue, ColumnValues};
use crate::store::filter::Filter;
use crate::store::record::{Read, Record};
use crate::store::writer::Conflict;
use crate::store::{Store, StoreError, Table};

/// The units that one transaction has touched.
#[derive(Debug)]
pub(in crate::store) struct Session {
    lenses: Arc<Lenses>,
    /// By cluster and key.
    units: BTreeMap<(usize, Vec<u8>), Unit>,
    /// Whether a key that is taken by the time of writing is the caller's to hear of.
    tells_conflicts: bool,
}

/// One unit as it was and as it will be.
#[derive(Debug)]
struct Unit {
    stored: UnitBatch,
    native: Native,
    changed: bool,
    /// Whether something was kept of it.
    had_residue: bool,
}

#[derive(Debug)]
enum Native {
    Lifted {
        before: UnitBatch,
        now: UnitBatch,
        kept: Vec<ResidueEntry>,
    },
    /// For each look at it the same.
    Damaged(Arc<RowsError>),
    /// Removed without having been read.
    Removed,
}

impl Session {
    pub(in crate::store) fn new(lenses: Arc<Lenses>) -> Self {
        Self { lenses, units: BTreeMap::new(), tells_conflicts: false }
    }

    async fn unit(
        &mut self,
        store: &Store,
        tx: &mut Transaction,
        table: Table,
        key: &[u8],
    ) -> Result<&mut Unit, StoreError> {
        let cluster = self.lenses.cluster(table.name);
        let at = (cluster, key.to_vec());
        if !self.units.contains_key(&at) {
            let unit = self.read(store, tx, cluster, key).await.map_err(failed("read a record to change it"))?;
            self.units.insert(at.clone(), unit);
        }
        Ok(self.units.get_mut(&at).expect("it was put there"))
    }

    async fn read(&self, store: &Store, tx: &mut Transaction, cluster: usize, key: &[u8]) -> Result<Unit, RowsError> {
        let (lenses, keyring) = (&self.lenses, store.keyring());
        let (units, wanted) = ([UnitKey::text(key)], lenses.wanted(cluster, None));
        let stored = rows::load(tx, &lenses.place, &wanted, &units, RowLock::Exclusive, ByteLimits::NONE).await?;
        let left = lenses.left(tx, keyring, cluster, &stored).await?;
        let had_residue = !left.is_empty();
        let mut lifted = lenses.lifted(keyring, cluster, stored.clone(), left).await?;
        let native = match lifted.damaged.pop() {
            Some((_, fault)) => Native::Damaged(Arc::new(fault)),
            None => Native::Lifted { before: lifted.batch.clone(), now: lifted.batch, kept: lifted.kept },
        };
        Ok(Unit { stored, native, changed: false, had_residue })
    }

    pub(in crate::store) async fn get<T>(
        &mut self,
        store: &Store,
        tx: &mut Transaction,
        table: Table,
        key: &[u8],
        read: Read<T>,
    ) -> Result<Option<T>, StoreError> {
        let lenses = Arc::clone(&self.lenses);
        let rows = self.unit(store, tx, table, key).await?.rows(table, key)?;
        let mut rows = (0..rows.count()).map(|row| LiftedRow { table: lenses.table(table.name), rows, row });
        rows.next().map(|row| Record::read(&row, store, table, read)).transpose()
    }

    pub(in crate::store) async fn rows<T>(
        &mut self,
        store: &Store,
        tx: &mut Transaction,
        (table, key): (Table, &[u8]),
        filter: &Filter,
        read: Read<T>,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let lenses = Arc::clone(&self.lenses);
        let rows = self.unit(store, tx, table, key).await?.rows(table, key)?;
        let rows = (0..rows.count()).map(|row| LiftedRow { table: lenses.table(table.name), rows, row });
        let meant = rows.filter(|row| filter.holds(row));
        Ok(meant.map(|row| Record::read(&row, store, table, read)).collect())
    }

    pub(in crate::store) async fn insert(
        &mut self,
        store: &Store,
        tx: &mut Transaction,
        (table, key): (Table, &[u8]),
        rows: Vec<ColumnValues>,
        conflict: Conflict,
    ) -> Result<(), StoreError> {
        let lenses = Arc::clone(&self.lenses);
        let declared = lenses.table(table.name);
        self.tells_conflicts |= conflict == Conflict::Fails;
        let unit = self.unit(store, tx, table, key).await?;
        unit.changed = true;
        let held = unit.rows_mut(table, key)?;
        let mut new = Vec::with_capacity(rows.len());
        for values in rows {
            let row = |row| LiftedRow { table: declared, rows: held, row };
            let taken = (0..held.count()).find(|at| is_same_row(table, &row(*at), &values));
            match (taken, conflict) {
                (None, _) => new.push(row_of(declared, held, values, store)),
                (Some(_), Conflict::Fails) => return Err(StoreError::Exists),
                (Some(at), Conflict::Takes(column)) => {
                    let value = values.into_iter().find(|(name, _)| *name == column);
                    let (_, value) = value.expect("what is taken over is given");
                    let value = held_in(held, column, value, store);
                    held.set(declared, column, &[at], value.value());
                }
            }
        }
        held.extend(declared, &new);
        Ok(())
    }

    pub(in crate::store) async fn update(
        &mut self,
        store: &Store,
        tx: &mut Transaction,
        (table, key): (Table, &[u8]),
        filter: &Filter,
        values: ColumnValues,
    ) -> Result<u64, StoreError> {
        let lenses = Arc::clone(&self.lenses);
        let declared = lenses.table(table.name);
        let unit = self.unit(store, tx, table, key).await?;
        let rows = unit.rows_mut(table, key)?;
        let meant: Vec<_> =
            (0..rows.count()).filter(|row| filter.holds(&LiftedRow { table: declared, rows, row: *row })).collect();
        for (column, value) in values {
            let value = held_in(rows, column, value, store);
            rows.set(declared, column, &meant, value.value());
        }
        unit.changed |= !meant.is_empty();
        Ok(meant.len() as u64)
    }

    pub(in crate::store) async fn delete(
        &mut self,
        store: &Store,
        tx: &mut Transaction,
        (table, key): (Table, &[u8]),
        filter: &Filter,
    ) -> Result<u64, StoreError> {
        let lenses = Arc::clone(&self.lenses);
        let declared = lenses.table(table.name);
        let alone = lenses.clusters[lenses.cluster(table.name)].native.len() == 1;
        let unit = self.unit(store, tx, table, key).await?;
        if matches!(unit.native, Native::Damaged(_)) && alone && filter.conditions().count() == 0 {
            unit.native = Native::Removed;
            unit.changed = true;
            return Ok(1);
        }
        let rows = unit.rows_mut(table, key)?;
        let goes = |rows: &TableRows, row| filter.holds(&LiftedRow { table: declared, rows, row });
        let gone: BTreeSet<_> = (0..rows.count()).filter(|row| goes(rows, *row)).collect();
        rows.retain(declared, |row| !gone.contains(&row));
        unit.changed |= !gone.is_empty();
        Ok(gone.len() as u64)
    }

    /// Writes what has changed.
    pub(in crate::store) async fn write(self, store: &Store, tx: &mut Transaction) -> Result<(), StoreError> {
        let tells_conflicts = self.tells_conflicts;
        for ((cluster, _), unit) in self.units {
            if !unit.changed {
                continue;
            }
            let written = write_unit(&self.lenses, store, tx, cluster, unit).await;
            written.map_err(|fault| match fault {
                StoreError::Units { source, .. } if is_conflict(&source) && tells_conflicts => StoreError::Exists,
                StoreError::Units { source, .. } if is_conflict(&source) => StoreError::Raced,
                fault => fault,
            })?;
        }
        Ok(())
    }
}

async fn write_unit(
    lenses: &Arc<Lenses>,
    store: &Store,
    tx: &mut Transaction,
    cluster: usize,
    unit: Unit,
) -> Result<(), StoreError> {
    let keyring = store.keyring();
    let (after, kept) = match unit.native {
        Native::Lifted { now, .. } if now.is_empty() => (unit.stored.emptied(&lenses.place.layout), Vec::new()),
        Native::Removed => (unit.stored.emptied(&lenses.place.layout), Vec::new()),
        Native::Lifted { before, now, kept } => {
            let (lenses, keyring) = (Arc::clone(lenses), Arc::clone(keyring));
            let lower = move || super::pin::lowered(&lenses, &keyring, cluster, &before, &now, kept);
            let interrupted = |_| failed("write a record")(RowsError::Interrupted);
            tokio::task::spawn_blocking(lower).await.map_err(interrupted)??
        }
        Native::Damaged(_) => return Ok(()),
    };
    let failed = |fault| lenses.not_written(fault);
    rows::replace(tx, &lenses.place, &unit.stored, &after, keyring).await.map_err(failed)?;
    if unit.had_residue || !kept.is_empty() {
        let keeps = &lenses.clusters[cluster].keeps;
        let names = unit.stored.names();
        let entries = residue::seal(keyring, kept, &names);
        residue::replace(tx, lenses.lower.direction, keeps, &names[0], &entries).await.map_err(failed)?;
    }
    Ok(())
}

fn is_conflict(fault: &RowsError) -> bool {
    matches!(fault, RowsError::Rows { source, .. } if is_unique_violation(source))
}

impl Unit {
    fn rows(&mut self, table: Table, key: &[u8]) -> Result<&TableRows, StoreError> {
        self.rows_mut(table, key).map(|rows| &*rows)
    }

    fn rows_mut(&mut self, table: Table, key: &[u8]) -> Result<&mut TableRows, StoreError> {
        match &mut self.native {
            Native::Lifted { now, .. } => Ok(now.tables.get_mut(table.name).expect("a table of the cluster")),
            Native::Damaged(fault) => Err(unreadable(table, &UnitKey::text(key), Arc::clone(fault))),
            Native::Removed => unreachable!("nothing is asked of a unit after it was removed unread"),
        }
    }
}

fn is_same_row(table: Table, row: &LiftedRow<'_>, values: &ColumnValues) -> bool {
    let mut key = values.iter().filter(|(column, _)| table.primary_key.contains(column));
    key.all(|(column, value)| match (value, row.rows.value(row.table, column, row.row)) {
        (ColumnValue::Text(text), Some(Value::Text(held))) => text.as_bytes() == held,
        (ColumnValue::Number(number), Some(Value::Integer(held))) => *number == held,
        _ => false,
    })
}

/// A whole row: what is given, and the defaults of the rest.
fn row_of(table: &Declared, rows: &TableRows, values: ColumnValues, store: &Store) -> BTreeMap<String, OwnedValue> {
    let mut row: BTreeMap<_, _> = table.columns.iter().map(|column| (column.name.clone(), absent(column))).collect();
    for (column, value) in values {
        row.insert(column.to_owned(), held_in(rows, column, value, store));
    }
    row
}

/// What a column has that nobody gave a value.
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

/// A value as its column holds values here: sealed where the others rest sealed, plain where they were opened.
fn held_in(rows: &TableRows, column: &str, value: ColumnValue, store: &Store) -> OwnedValue {
    match value {
        ColumnValue::Number(number) => OwnedValue::Integer(number),
        ColumnValue::Flag(flag) => OwnedValue::Boolean(flag),
        ColumnValue::Text(text) => OwnedValue::Text(text.into_bytes()),
        ColumnValue::Sealed(_, plain) if rows.columns[column].sealing == Sealing::Plain => OwnedValue::Text(plain),
        ColumnValue::Sealed(sealing, plain) => OwnedValue::Text(store.keyring().seal(sealing, &plain)),
    }
}
