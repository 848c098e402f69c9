//! Readers: one short transaction, with lists by ranges of partition keys.

use tokio::sync::OwnedRwLockReadGuard;

use super::filter::Filter;
use super::page::{Key, Listed, Range};
use super::record::{ReadRecord, Record};
use super::{EntityTable, Store, StoreError, TableAccess, direct, failed, lensed};
use crate::database::{Dialect, Transaction, sql};

/// A transaction that reads entities.
///
/// # Errors
/// Every list and get fails if the database does. An unreadable record fails a get with [`StoreError::Unreadable`]; lists
/// leave it out.
#[derive(Debug)]
pub struct Reader {
    store: Store,
    access: OwnedRwLockReadGuard<TableAccess>,
    tx: Transaction,
}

impl Reader {
    /// Begins the snapshot and refreshes the connection's view of the schema. SQLite reads the quoted name of an unknown
    /// column as a text literal, so a connection with the schema before a migration would return a column's name instead
    /// of its value.
    pub(super) async fn begin(
        store: Store,
        access: OwnedRwLockReadGuard<TableAccess>,
        mut tx: Transaction,
    ) -> Result<Self, StoreError> {
        if tx.dialect() == Dialect::Sqlite {
            tx.fetch(sql("SELECT 1 FROM sqlite_schema LIMIT 1")).await.map_err(failed("begin to read"))?;
        }
        Ok(Self { store, access, tx })
    }

    /// The present time in nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        self.store.now_ns()
    }

    /// The last key of a page of at most `units` units after a key; none if the page is the last.
    pub(super) async fn page_end(
        &mut self,
        table: EntityTable,
        filter: &Filter,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        match &self.access.lenses {
            None => direct::page_end(&mut self.tx, table, filter, after, units).await,
            Some(lenses) => lensed::page_end(lenses, &mut self.tx, table, filter, after, units).await,
        }
    }

    /// Lists the records of a range. With [`Range::most`], the result has the last key of the page, from which the next
    /// range begins.
    pub(super) async fn list<T>(
        &mut self,
        table: EntityTable,
        columns: &[&'static str],
        filter: &Filter,
        range: &Range,
        read: ReadRecord<T>,
    ) -> Result<Listed<T>, StoreError> {
        let (store, tx) = (&self.store, &mut self.tx);
        if let Some(lenses) = &self.access.lenses {
            let mut range = range.clone();
            if let Some(units) = range.most.take() {
                range.through = lensed::page_end(lenses, tx, table, filter, range.after.as_ref(), units).await?;
            }
            let records = lensed::list(store, lenses, tx, (table, columns), filter, &range, read).await?;
            return Ok(Listed { records: store.readable(records.into_iter())?, last: range.through });
        }
        let (rows, last) = match range.most {
            Some(units) => direct::page(tx, table, columns, filter, range.after.as_ref(), units).await?,
            None => (direct::scan(tx, table, columns, filter, range, "list records").await?, range.through.clone()),
        };
        let records = store.readable(rows.iter().map(|row| Record::read(row, store, table, read)))?;
        Ok(Listed { records, last })
    }

    /// All matching records of a unit, including errors for the unreadable ones.
    pub(super) async fn rows<T>(
        &mut self,
        table: EntityTable,
        columns: &[&'static str],
        key: &[u8],
        filter: Filter,
        read: ReadRecord<T>,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let (store, tx, all) = (&self.store, &mut self.tx, Range::default());
        let filter = filter.equals(table.key, key);
        if let Some(lenses) = &self.access.lenses {
            return lensed::list(store, lenses, tx, (table, columns), &filter, &all, read).await;
        }
        let rows = direct::scan(tx, table, columns, &filter, &all, "get records").await?;
        Ok(rows.iter().map(|row| Record::read(row, store, table, read)).collect())
    }

    pub(super) async fn get<T>(
        &mut self,
        table: EntityTable,
        columns: &[&'static str],
        key: &[u8],
        read: ReadRecord<T>,
    ) -> Result<Option<T>, StoreError> {
        let (store, tx) = (&self.store, &mut self.tx);
        if let Some(lenses) = &self.access.lenses {
            return lensed::get(store, lenses, tx, (table, columns), key, read).await;
        }
        let filter = Filter::everything().equals(table.key, key);
        let rows = direct::scan(tx, table, columns, &filter, &Range::default(), "get a record").await?;
        rows.first().map(|row| Record::read(row, store, table, read)).transpose()
    }
}
