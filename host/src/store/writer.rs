//! Writing: one transaction in which this host is proven to be the master. Dropping it undoes it.

use tokio::sync::OwnedRwLockReadGuard;

use super::column_values::ColumnValues;
use super::filter::Filter;
use super::lensed::Session;
use super::reader::{Key, Range};
use super::record::{Read, Record};
use super::{Access, Store, StoreError, Table, direct};
use crate::database::Transaction;
use crate::rows::{UnitKey, residue};

/// What becomes of a row whose key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflict {
    /// The whole insertion fails with [`StoreError::Exists`].
    Fails,
    /// The row that is there takes the new value of this column.
    Takes(&'static str),
}

pub struct Writer {
    pub(super) store: Store,
    pub(super) access: OwnedRwLockReadGuard<Access>,
    pub(super) tx: Transaction,
    /// Where records are reached through the lens: the units that were touched.
    session: Option<Session>,
    /// Tables and keys that were changed, for a migration that follows along.
    touched: Vec<(String, Key)>,
    /// What keeps that migration away meanwhile. Dropped after the transaction.
    _held: Option<Box<dyn Send + Sync>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("tx", &self.tx).field("touched", &self.touched.len()).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn new(
        store: Store,
        access: OwnedRwLockReadGuard<Access>,
        held: Option<Box<dyn Send + Sync>>,
        tx: Transaction,
    ) -> Self {
        let session = access.lenses.clone().map(Session::new);
        Self { store, access, tx, session, touched: Vec::new(), _held: held }
    }

    pub fn now_ns(&self) -> i64 {
        self.store.now_ns()
    }

    pub async fn commit(mut self) -> Result<(), StoreError> {
        if let Some(session) = self.session.take() {
            session.write(&self.store, &mut self.tx).await?;
        }
        if let Some(dual_write) = self.access.dual_write.clone() {
            dual_write.changed(&mut self.tx, &self.touched).await?;
        }
        self.tx.commit().await.map_err(|source| StoreError::Commit { source })
    }

    /// A record that is about to change: nobody else changes it before this transaction ends.
    pub(super) async fn get<T>(
        &mut self,
        table: Table,
        columns: &[&'static str],
        key: &[u8],
        read: Read<T>,
    ) -> Result<Option<T>, StoreError> {
        if let Some(session) = &mut self.session {
            return session.get(&self.store, &mut self.tx, table, key, read).await;
        }
        let filter = Filter::everything().equals(table.key, key);
        let rows = direct::scan_to_change(&mut self.tx, table, columns, &filter, "get a record to change it").await?;
        rows.first().map(|row| Record::read(row, &self.store, table, read)).transpose()
    }

    /// Records of a unit that are about to change, those that cannot be read among them. They are not locked: where
    /// there are none, MySQL would lock the gap that others are about to insert theirs into. Whoever writes names the
    /// image that was read.
    pub(super) async fn rows<T>(
        &mut self,
        table: Table,
        columns: &[&'static str],
        key: &[u8],
        filter: Filter,
        read: Read<T>,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        if let Some(session) = &mut self.session {
            return session.rows(&self.store, &mut self.tx, (table, key), &filter, read).await;
        }
        let filter = filter.equals(table.key, key);
        let all = Range::default();
        let rows = direct::scan(&mut self.tx, table, columns, &filter, &all, "get records to change them").await?;
        Ok(rows.iter().map(|row| Record::read(row, &self.store, table, read)).collect())
    }

    /// All rows have the same columns and belong to the same unit.
    pub(super) async fn insert(
        &mut self,
        table: Table,
        key: &[u8],
        rows: Vec<ColumnValues>,
        conflict: Conflict,
    ) -> Result<(), StoreError> {
        self.touch(table, key);
        if let Some(session) = &mut self.session {
            return session.insert(&self.store, &mut self.tx, (table, key), rows, conflict).await;
        }
        let stamp = self.access.stamp(table.name);
        direct::insert(&mut self.tx, self.store.keyring(), (table, stamp), rows, conflict, "insert records").await
    }

    /// How many rows of a unit the filter meant.
    pub(super) async fn update(
        &mut self,
        table: Table,
        key: &[u8],
        filter: Filter,
        values: ColumnValues,
    ) -> Result<u64, StoreError> {
        self.touch(table, key);
        if let Some(session) = &mut self.session {
            return session.update(&self.store, &mut self.tx, (table, key), &filter, values).await;
        }
        let filter = filter.equals(table.key, key);
        direct::update(&mut self.tx, self.store.keyring(), table, &filter, values, "update a record").await
    }

    /// How many rows of a unit the filter meant.
    pub(super) async fn delete(&mut self, table: Table, key: &[u8], filter: Filter) -> Result<u64, StoreError> {
        self.touch(table, key);
        if let Some(session) = &mut self.session {
            return session.delete(&self.store, &mut self.tx, (table, key), &filter).await;
        }
        let whole_unit = filter.conditions().count() == 0;
        let gone = direct::delete(&mut self.tx, table, &filter.equals(table.key, key), "delete records").await?;
        if whole_unit {
            self.forget(table, key).await?;
        }
        Ok(gone)
    }

    /// Deletes the one record of a unit and gives it, as far as it can be read; nothing where there is none.
    pub(super) async fn take<T>(
        &mut self,
        table: Table,
        columns: &[&'static str],
        key: &[u8],
        read: Read<T>,
    ) -> Result<Option<Result<T, StoreError>>, StoreError> {
        if self.session.is_some() {
            let taken = match self.get(table, columns, key, read).await {
                Err(fault @ StoreError::Unreadable { .. }) => Err(fault),
                found => match found? {
                    None => return Ok(None),
                    Some(record) => Ok(record),
                },
            };
            self.delete(table, key, Filter::everything()).await?;
            return Ok(Some(taken));
        }
        self.touch(table, key);
        let filter = Filter::everything().equals(table.key, key);
        let rows = direct::take(&mut self.tx, table, columns, &filter, "delete a record").await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let taken = Record::read(row, &self.store, table, read);
        self.forget(table, key).await?;
        Ok(Some(taken))
    }

    /// Removes what was kept of a unit whose rows are gone.
    async fn forget(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        let Some(places) = self.access.kept(table.name) else { return Ok(()) };
        let forgotten = residue::forget(&mut self.tx, places, &UnitKey::text(key.to_vec()).name()).await;
        forgotten.map_err(|source| StoreError::Units { what: "forget what was kept", source: Box::new(source) })
    }

    fn touch(&mut self, table: Table, key: &[u8]) {
        let Some(_) = &self.access.dual_write else { return };
        let tables = match &self.access.lenses {
            None => vec![table.name],
            Some(lenses) => lenses.stored_for(table.name),
        };
        for table in tables {
            let pair = (table.to_owned(), key.to_vec());
            if !self.touched.contains(&pair) {
                self.touched.push(pair);
            }
        }
    }
}
