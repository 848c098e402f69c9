//! Writers: one fenced transaction, which fails if this host is no longer the master. Rolled back if dropped.

use tokio::sync::OwnedRwLockReadGuard;

use super::column_values::{ColumnValues, Conflict};
use super::filter::Filter;
use super::lensed::LensSession;
use super::page::{Key, Range};
use super::record::{ReadRecord, Record};
use super::{EntityTable, Store, StoreError, TableAccess, direct};
use crate::database::Transaction;
use crate::rows::{UnitKey, residue};

/// A fenced transaction that reads and writes the entities of a unit. Rolled back if dropped.
///
/// # Errors
/// Every method fails if the database does, with an error whose [`StoreError::is_transient`] says whether to retry. A get
/// fails with [`StoreError::Unreadable`], an insertion with [`StoreError::Exists`], and a write of plain text with
/// [`StoreError::NotText`] or [`StoreError::TooLong`] if its column cannot hold it.
///
/// Through lenses, every access to a unit that cannot be transformed fails with [`StoreError::Unreadable`], except the
/// deletion of the whole unit.
pub struct Writer {
    pub(super) store: Store,
    pub(super) access: OwnedRwLockReadGuard<TableAccess>,
    pub(super) tx: Transaction,
    /// The units loaded so far, if the tables are accessed through a lens.
    session: Option<LensSession>,
    /// The stored tables and keys that were changed, for dual writes.
    touched: Vec<(String, Key)>,
    /// Excludes the copier of the online migration. Dropped after the transaction.
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
        access: OwnedRwLockReadGuard<TableAccess>,
        held: Option<Box<dyn Send + Sync>>,
        tx: Transaction,
    ) -> Self {
        let session = access.lenses.clone().map(LensSession::new);
        Self { store, access, tx, session, touched: Vec::new(), _held: held }
    }

    /// The present time in nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        self.store.now_ns()
    }

    /// Writes the changes of a lens session, applies dual writes, and commits.
    ///
    /// # Errors
    /// If a write fails; then nothing is committed. A lens session fails with [`StoreError::Exists`] or [`StoreError::Raced`]
    /// on a conflict, and with [`StoreError::NotHeld`] if the stored layout cannot hold a change; dual writes fail with
    /// [`StoreError::DualWrite`]. [`StoreError::Commit`] if the database did not confirm the commit, which may have
    /// succeeded.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        if let Some(session) = self.session.take() {
            session.write(&self.store, &mut self.tx).await?;
        }
        if let Some(dual_write) = self.access.dual_write.clone() {
            dual_write.changed(&mut self.tx, &self.touched).await?;
        }
        self.tx.commit().await.map_err(|source| StoreError::Commit { source })
    }

    /// Reads a record in order to change it. It is locked until the transaction ends.
    pub(super) async fn get<T>(
        &mut self,
        table: EntityTable,
        columns: &[&'static str],
        key: &[u8],
        read: ReadRecord<T>,
    ) -> Result<Option<T>, StoreError> {
        if let Some(session) = &mut self.session {
            return session.get(&self.store, &mut self.tx, table, key, read).await;
        }
        let filter = Filter::everything().equals(table.key, key);
        let rows = direct::scan_to_change(&mut self.tx, table, columns, &filter, "get a record to change it").await?;
        rows.first().map(|row| Record::read(row, &self.store, table, read)).transpose()
    }

    /// Reads records of a unit in order to change them, including errors for the unreadable ones. They are not locked, since
    /// MySQL would lock the gap if there are none, and block insertions by others. So a write must have a filter that
    /// matches only the row as it was read.
    pub(super) async fn rows<T>(
        &mut self,
        table: EntityTable,
        columns: &[&'static str],
        key: &[u8],
        filter: Filter,
        read: ReadRecord<T>,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        if let Some(session) = &mut self.session {
            return session.rows(&self.store, &mut self.tx, (table, key), &filter, read).await;
        }
        let filter = filter.equals(table.key, key);
        let all = Range::default();
        let rows = direct::scan(&mut self.tx, table, columns, &filter, &all, "get records to change them").await?;
        Ok(rows.iter().map(|row| Record::read(row, &self.store, table, read)).collect())
    }

    /// Inserts rows of one unit, all with the same columns.
    pub(super) async fn insert(
        &mut self,
        table: EntityTable,
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

    /// Updates the matching rows of a unit and returns their number.
    pub(super) async fn update(
        &mut self,
        table: EntityTable,
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

    /// Deletes the matching rows of a unit and returns their number. Without conditions, the unit's residue is deleted too.
    pub(super) async fn delete(&mut self, table: EntityTable, key: &[u8], filter: Filter) -> Result<u64, StoreError> {
        self.touch(table, key);
        if let Some(session) = &mut self.session {
            return session.delete(&self.store, &mut self.tx, (table, key), &filter).await;
        }
        let whole_unit = filter.conditions().count() == 0;
        let deleted = direct::delete(&mut self.tx, table, &filter.equals(table.key, key), "delete records").await?;
        if whole_unit {
            self.delete_residue(table, key).await?;
        }
        Ok(deleted)
    }

    /// Deletes the only record of a unit and returns it, or the error if it was unreadable; none if there was none.
    pub(super) async fn take<T>(
        &mut self,
        table: EntityTable,
        columns: &[&'static str],
        key: &[u8],
        read: ReadRecord<T>,
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
        self.delete_residue(table, key).await?;
        Ok(Some(taken))
    }

    /// Deletes the residue of a unit whose rows are deleted.
    async fn delete_residue(&mut self, table: EntityTable, key: &[u8]) -> Result<(), StoreError> {
        let Some(places) = self.access.residue_places(table.name) else { return Ok(()) };
        let result = residue::forget(&mut self.tx, places, &UnitKey::text(key.to_vec()).name()).await;
        result.map_err(|source| StoreError::Units { what: "delete the residue of a record", source: Box::new(source) })
    }

    fn touch(&mut self, table: EntityTable, key: &[u8]) {
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
