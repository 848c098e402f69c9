//! Writing: one transaction in which this host is proven to be the master. Dropping it undoes it.

use super::cells::Cells;
use super::filter::Filter;
use super::record::{Read, Record};
use super::{Store, StoreError, Table, direct};
use crate::database::Transaction;

/// What becomes of a row whose key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conflict {
    /// The whole insertion fails with [`StoreError::Exists`].
    Fails,
    /// The row that is there stays as it is.
    Stays,
    /// The row that is there takes the new value of this column.
    Takes(&'static str),
}

#[derive(Debug)]
pub struct Writer {
    pub(super) store: Store,
    tx: Transaction,
}

impl Writer {
    pub(super) fn new(store: Store, tx: Transaction) -> Self {
        Self { store, tx }
    }

    pub async fn commit(self) -> Result<(), StoreError> {
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
        let filter = Filter::everything().equals(table.key, key);
        let rows = direct::scan_to_change(&mut self.tx, table, columns, &filter, "get a record to change it").await?;
        rows.first().map(|row| Record::read(row, &self.store, table, read)).transpose()
    }

    /// All rows have the same columns.
    pub(super) async fn insert(
        &mut self,
        table: Table,
        rows: Vec<Cells>,
        conflict: Conflict,
    ) -> Result<(), StoreError> {
        direct::insert(&mut self.tx, &self.store, table, rows, conflict, "insert records").await
    }

    /// How many rows the filter meant.
    pub(super) async fn update(&mut self, table: Table, filter: &Filter, cells: Cells) -> Result<u64, StoreError> {
        direct::update(&mut self.tx, &self.store, table, filter, cells, "update a record").await
    }

    /// How many rows the filter meant.
    pub(super) async fn delete(&mut self, table: Table, filter: &Filter) -> Result<u64, StoreError> {
        direct::delete(&mut self.tx, table, filter, "delete records").await
    }
}
