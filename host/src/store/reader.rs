//! Reading: one short transaction, and scans by ranges of partition keys.

use tokio::sync::OwnedRwLockReadGuard;

use super::filter::Filter;
use super::record::{Read, Record};
use super::{Access, Store, StoreError, Table, direct, failed, lensed};
use crate::database::{Dialect, Transaction, sql};

/// A partition key. Databases differ in how they order keys, so they are never compared here.
pub type Key = Vec<u8>;

/// The keys after one and up to another; without either, all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    pub after: Option<Key>,
    pub through: Option<Key>,
}

/// What a page's large columns may come to. A page ends with the unit that reaches it, so that the memory
/// of a list, and of a translator on its way, does not depend on how large records are.
const PAGE_BYTES: u64 = 4 << 20;

/// Counts units until a page is full.
#[derive(Debug)]
pub(super) struct PageEnd {
    units: u32,
    bytes: u64,
    most: u32,
}

impl PageEnd {
    pub(super) fn new(most: u32) -> Self {
        Self { units: 0, bytes: 0, most }
    }

    /// Whether the page ends with one more unit of this size.
    pub(super) fn reached_by(&mut self, bytes: u64) -> bool {
        self.units += 1;
        self.bytes += bytes;
        self.bytes >= PAGE_BYTES || self.units >= self.most
    }
}

#[derive(Debug)]
pub struct Reader {
    store: Store,
    access: OwnedRwLockReadGuard<Access>,
    tx: Transaction,
}

impl Reader {
    /// Fixes the state that is seen, and makes the connection look at the tables as they now are. SQLite
    /// takes the quoted name of a column that it does not know for text, so a connection that has not
    /// noticed a migration would otherwise give the name of a new column instead of its value.
    pub(super) async fn begin(
        store: Store,
        access: OwnedRwLockReadGuard<Access>,
        mut tx: Transaction,
    ) -> Result<Self, StoreError> {
        if tx.dialect() == Dialect::Sqlite {
            tx.fetch(sql("SELECT 1 FROM sqlite_schema LIMIT 1")).await.map_err(failed("begin to read"))?;
        }
        Ok(Self { store, access, tx })
    }

    pub fn now_ns(&self) -> i64 {
        self.store.now_ns()
    }

    /// The last key of a page that begins after a key and has at most this many. `None` where the page
    /// takes all that is left.
    pub(super) async fn page_end(
        &mut self,
        table: Table,
        filter: &Filter,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        match &self.access.lenses {
            None => direct::page_end(&mut self.tx, table, filter, after, units).await,
            Some(lenses) => lensed::page_end(lenses, &mut self.tx, table, filter, after, units).await,
        }
    }

    /// The records of a range that can be read, in the order of keys.
    pub(super) async fn list<T>(
        &mut self,
        table: Table,
        columns: &[&'static str],
        filter: &Filter,
        range: &Range,
        read: Read<T>,
    ) -> Result<Vec<T>, StoreError> {
        let (store, tx) = (&self.store, &mut self.tx);
        if let Some(lenses) = &self.access.lenses {
            return lensed::list(store, lenses, tx, (table, columns), filter, range, read).await;
        }
        let rows = direct::scan(tx, table, columns, filter, range, "list records").await?;
        store.readable(rows.iter().map(|row| Record::read(row, store, table, read)))
    }

    pub(super) async fn get<T>(
        &mut self,
        table: Table,
        columns: &[&'static str],
        key: &[u8],
        read: Read<T>,
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
