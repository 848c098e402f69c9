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
    /// At most so many of them that have records, and fewer where those are large.
    pub most: Option<u32>,
}

/// The records of a range that can be read, in the order of keys.
#[derive(Debug)]
pub struct Listed<T> {
    pub records: Vec<T>,
    /// The last key that the range has room for; none where it has room for all.
    pub last: Option<Key>,
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

    pub(super) fn begin_unit(&mut self) {
        self.units += 1;
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Whether the page ends with the units that it has.
    pub(super) fn is_reached(&self) -> bool {
        self.bytes >= PAGE_BYTES || self.units >= self.most
    }

    /// Whether the page ends with one more unit of this size.
    pub(super) fn reached_by(&mut self, bytes: u64) -> bool {
        self.begin_unit();
        self.add(bytes);
        self.is_reached()
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

    /// Where the range is bounded it says where it ends; whoever reads it again is to say so.
    pub(super) async fn list<T>(
        &mut self,
        table: Table,
        columns: &[&'static str],
        filter: &Filter,
        range: &Range,
        read: Read<T>,
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

    /// All records of a unit, those that cannot be read among them.
    pub(super) async fn rows<T>(
        &mut self,
        table: Table,
        columns: &[&'static str],
        key: &[u8],
        filter: Filter,
        read: Read<T>,
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
