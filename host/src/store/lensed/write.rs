//! Writing through the lens: units are read once, changed at the handlers' layout in memory, and at the end taken back
//! and written as a difference, with what their steps would lose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::read::{LiftedRow, unreadable};
use super::{Lenses, failed};
use crate::database::{Transaction, is_unique_violation};
use crate::layout::schema::{Column, Sealing, Table as Declared};
use crate::layout::values::{Encoding, Value};
use crate::lens::Kept;
use crate::store::cells::{Cell, Cells};
use crate::store::filter::Filter;
use crate::store::record::{Read, Record};
use crate::store::writer::Conflict;
use crate::store::{Store, StoreError, Table};
use crate::units::{self, Batch, Held, Key, Rows, UnitsError, residue};

/// The units that one transaction has touched.
#[derive(Debug)]
pub(in crate::store) struct Session {
    lenses: Arc<Lenses>,
    /// By cluster and key.
    units: BTreeMap<(usize, Key), Unit>,
    /// Whether a key that is taken by the time of writing is the caller's to hear of.
    tells_conflicts: bool,
}

/// One unit as it was and as it will be.
#[derive(Debug)]
struct Unit {
    stored: Batch,
    native: Native,
    changed: bool,
    /// Whether something was kept of it.
    had_residue: bool,
}

#[derive(Debug)]
enum Native {
    Lifted {
        before: Batch,
        now: Batch,
        kept: Vec<Kept>,
    },
    /// For each look at it the same.
    Damaged(Arc<UnitsError>),
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

    async fn read(&self, store: &Store, tx: &mut Transaction, cluster: usize, key: &[u8]) -> Result<Unit, UnitsError> {
        let (lenses, keyring) = (&self.lenses, store.keyring());
        let units = vec![key.to_vec()];
        let stored = units::load_locked(tx, &lenses.place, &lenses.wanted(cluster, None), &units).await?;
        let left = lenses.left(tx, keyring, cluster, &units).await?;
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
        rows: Vec<Cells>,
        conflict: Conflict,
    ) -> Result<(), StoreError> {
        let lenses = Arc::clone(&self.lenses);
        let declared = lenses.table(table.name);
        self.tells_conflicts |= conflict == Conflict::Fails;
        let unit = self.unit(store, tx, table, key).await?;
        unit.changed = true;
        let held = unit.rows_mut(table, key)?;
        let mut new = Vec::with_capacity(rows.len());
        for cells in rows {
            let row = |row| LiftedRow { table: declared, rows: held, row };
            let taken = (0..held.count()).find(|at| is_same_row(table, &row(*at), &cells));
            match (taken, conflict) {
                (None, _) => new.push(row_of(declared, held, cells, store)),
                (Some(_), Conflict::Fails) => return Err(StoreError::Exists),
                (Some(at), Conflict::Takes(column)) => {
                    let cell = cells.into_iter().find(|(name, _)| *name == column);
                    let (_, cell) = cell.expect("what is taken over is given");
                    let value = held_in(held, column, cell, store);
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
        cells: Cells,
    ) -> Result<u64, StoreError> {
        let lenses = Arc::clone(&self.lenses);
        let declared = lenses.table(table.name);
        let unit = self.unit(store, tx, table, key).await?;
        let rows = unit.rows_mut(table, key)?;
        let meant: Vec<_> =
            (0..rows.count()).filter(|row| filter.holds(&LiftedRow { table: declared, rows, row: *row })).collect();
        for (column, cell) in cells {
            let value = held_in(rows, column, cell, store);
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
        let goes = |rows: &Rows, row| filter.holds(&LiftedRow { table: declared, rows, row });
        let gone: BTreeSet<_> = (0..rows.count()).filter(|row| goes(rows, *row)).collect();
        rows.retain(declared, |row| !gone.contains(&row));
        unit.changed |= !gone.is_empty();
        Ok(gone.len() as u64)
    }

    /// Writes what has changed.
    pub(in crate::store) async fn write(self, store: &Store, tx: &mut Transaction) -> Result<(), StoreError> {
        let tells_conflicts = self.tells_conflicts;
        for ((cluster, key), unit) in self.units {
            if !unit.changed {
                continue;
            }
            let written = write_unit(&self.lenses, store, tx, cluster, &key, unit).await;
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
    key: &Key,
    unit: Unit,
) -> Result<(), StoreError> {
    let keyring = store.keyring();
    let (after, kept) = match unit.native {
        Native::Lifted { now, .. } if now.is_empty() => (unit.stored.emptied(&lenses.place.layout), Vec::new()),
        Native::Removed => (unit.stored.emptied(&lenses.place.layout), Vec::new()),
        Native::Lifted { before, now, kept } => {
            let (lenses, keyring) = (Arc::clone(lenses), Arc::clone(keyring));
            let lower = move || super::pin::lowered(&lenses, &keyring, cluster, &before, &now, kept);
            let interrupted = |_| failed("write a record")(UnitsError::Interrupted);
            tokio::task::spawn_blocking(lower).await.map_err(interrupted)??
        }
        Native::Damaged(_) => return Ok(()),
    };
    let failed = |fault| lenses.not_written(fault);
    units::replace(tx, &lenses.place, &unit.stored, &after, keyring).await.map_err(failed)?;
    if unit.had_residue || !kept.is_empty() {
        let keeps = &lenses.clusters[cluster].keeps;
        let name = units::name(key);
        let direction = lenses.lower.direction;
        residue::replace(tx, keyring, direction, keeps, &name, &kept).await.map_err(failed)?;
    }
    Ok(())
}

fn is_conflict(fault: &UnitsError) -> bool {
    matches!(fault, UnitsError::Rows { source, .. } if is_unique_violation(source))
}

impl Unit {
    fn rows(&mut self, table: Table, key: &[u8]) -> Result<&Rows, StoreError> {
        self.rows_mut(table, key).map(|rows| &*rows)
    }

    fn rows_mut(&mut self, table: Table, key: &[u8]) -> Result<&mut Rows, StoreError> {
        match &mut self.native {
            Native::Lifted { now, .. } => Ok(now.tables.get_mut(table.name).expect("a table of the cluster")),
            Native::Damaged(fault) => Err(unreadable(table, &key.to_vec(), Arc::clone(fault))),
            Native::Removed => unreachable!("nothing is asked of a unit after it was removed unread"),
        }
    }
}

fn is_same_row(table: Table, row: &LiftedRow<'_>, cells: &Cells) -> bool {
    let mut key = cells.iter().filter(|(column, _)| table.primary_key.contains(column));
    key.all(|(column, cell)| match (cell, row.rows.value(row.table, column, row.row)) {
        (Cell::Text(text), Some(Value::Text(held))) => text.as_bytes() == held,
        (Cell::Number(number), Some(Value::Integer(held))) => *number == held,
        _ => false,
    })
}

/// A whole row: what is given, and the defaults of the rest.
fn row_of(table: &Declared, rows: &Rows, cells: Cells, store: &Store) -> BTreeMap<String, Held> {
    let mut row: BTreeMap<_, _> = table.columns.iter().map(|column| (column.name.clone(), absent(column))).collect();
    for (column, cell) in cells {
        row.insert(column.to_owned(), held_in(rows, column, cell, store));
    }
    row
}

/// What a column has that nobody gave a value.
fn absent(column: &Column) -> Held {
    match Value::of(column.default.as_ref()) {
        Value::Null if column.nullable => Held::Null,
        Value::Null => match Encoding::from(column.kind) {
            Encoding::Boolean => Held::Boolean(false),
            Encoding::Integer => Held::Integer(0),
            Encoding::Text => Held::Text(Vec::new()),
        },
        value => value.into(),
    }
}

/// A value as its column holds values here: sealed where the others rest sealed, plain where they were opened.
fn held_in(rows: &Rows, column: &str, cell: Cell, store: &Store) -> Held {
    match cell {
        Cell::Number(number) => Held::Integer(number),
        Cell::Flag(flag) => Held::Boolean(flag),
        Cell::Text(text) => Held::Text(text.into_bytes()),
        Cell::Sealed(_, plain) if rows.columns[column].sealing == Sealing::Plain => Held::Text(plain),
        Cell::Sealed(sealing, plain) => Held::Text(store.keyring().seal(sealing, &plain)),
    }
}
