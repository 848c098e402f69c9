//! Readers and writers: one transaction each. Own the choice of the backend for each operation on
//! the tables.

use bbs_database::{Dialect, Transaction, sql};
use bbs_units::RowLock;
use tokio::sync::OwnedRwLockReadGuard;

use super::access::Backend;
use super::column_values::{ColumnValues, Conflict, check_size, with_ascii_diagnostics};
use super::filter::Filter;
use super::lensed::LoadedUnits;
use super::page::{Key, Listed, Range};
use super::record::Projection;
use super::{EntityTable, Session, SharedAccess, Store, StoreError, direct, failed};

/// A transaction that reads entities.
///
/// # Errors
/// Every list and get fails if the database does. An unreadable record fails a get with
/// [`StoreError::Unreadable`]; lists leave it out.
#[derive(Debug)]
pub struct Reader {
    pub(super) access: SharedAccess,
    pub(super) session: Session,
    /// See [`Store::lasting_reader`]. Dropped after the transaction.
    _lasting: Option<OwnedRwLockReadGuard<()>>,
}

impl Reader {
    /// Begins the snapshot and refreshes the connection's view of the schema. SQLite reads the
    /// quoted name of an unknown column as a text literal, so a connection with the schema before a
    /// migration would return a column's name instead of its value.
    pub(super) async fn begin(
        store: Store,
        access: SharedAccess,
        mut tx: Transaction,
    ) -> Result<Self, StoreError> {
        if tx.dialect() == Dialect::Sqlite {
            tx.fetch(sql("SELECT 1 FROM sqlite_schema LIMIT 1"))
                .await
                .map_err(failed("begin to read"))?;
        }
        Ok(Self {
            access,
            session: Session { store, tx },
            _lasting: None,
        })
    }

    pub(super) fn lasting(self, guard: OwnedRwLockReadGuard<()>) -> Self {
        Self {
            _lasting: Some(guard),
            ..self
        }
    }

    /// The present time in nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        self.session.store.now_ns()
    }

    /// The last key of a page of at most `units` units after a key; none if the page is the last.
    pub(super) async fn page_end(
        &mut self,
        table: EntityTable,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        let tx = &mut self.session.tx;
        let all = Filter::everything();
        let beyond = Range {
            after: after.cloned(),
            ..Range::default()
        };
        match &self.access.backend {
            Backend::Direct => direct::page_end(tx, table, &all, &beyond, units).await,
            Backend::Lensed(lenses) => lenses.page_end(tx, table, &all, &beyond, units).await,
        }
    }

    /// The readable records of a range. With [`Range::most`], the result has the last key of the
    /// page, from which the next range begins.
    pub(super) async fn list<T>(
        &mut self,
        projection: &Projection<T>,
        filter: &Filter,
        range: &Range,
    ) -> Result<Listed<T>, StoreError> {
        match self.access.backend_of(projection.table) {
            None => Ok(Listed {
                records: Vec::new(),
                last: range.through.clone(),
            }),
            Some(Backend::Direct) => {
                direct::list(&mut self.session, projection, filter, range).await
            }
            Some(Backend::Lensed(lenses)) => {
                lenses
                    .list(&mut self.session, projection, filter, range)
                    .await
            }
        }
    }

    /// All matching records of a unit, including errors for the unreadable ones.
    pub(super) async fn rows<T>(
        &mut self,
        projection: &Projection<T>,
        key: &[u8],
        filter: Filter,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let filter = filter.equals(projection.table.key, key);
        match self.access.backend_of(projection.table) {
            None => Ok(Vec::new()),
            Some(Backend::Direct) => {
                direct::records(&mut self.session, projection, &filter, "get records").await
            }
            Some(Backend::Lensed(lenses)) => {
                lenses
                    .records(&mut self.session, projection, &filter, &Range::default())
                    .await
            }
        }
    }

    /// The record of a unit.
    pub(super) async fn get<T>(
        &mut self,
        projection: &Projection<T>,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        match self.access.backend_of(projection.table) {
            None => Ok(None),
            Some(Backend::Direct) => {
                direct::get(&mut self.session, projection, key, RowLock::None).await
            }
            Some(Backend::Lensed(lenses)) => lenses.get(&mut self.session, projection, key).await,
        }
    }
}

/// A fenced transaction that reads and writes the entities of a unit. Rolled back if dropped.
///
/// # Errors
/// Every method fails if the database does, with an error whose [`StoreError::is_transient`] says
/// whether to retry. A get fails with [`StoreError::Unreadable`], an insertion with
/// [`StoreError::Exists`], and a write of plain text with [`StoreError::NotText`] or
/// [`StoreError::TooLong`] if its column cannot hold it.
pub struct Writer {
    pub(super) access: SharedAccess,
    pub(super) session: Session,
    /// The units loaded so far, if the tables are accessed through a lens.
    units: LoadedUnits,
    /// The stored tables and keys that were changed, for the record of an online migration.
    touched: Vec<(String, Key)>,
    /// Excludes a switch of the store. Dropped after the transaction.
    _writing: OwnedRwLockReadGuard<()>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let touched = self.touched.len();
        f.debug_struct("Writer")
            .field("tx", &self.session.tx)
            .field("touched", &touched)
            .finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn new(
        store: Store,
        access: SharedAccess,
        writing: OwnedRwLockReadGuard<()>,
        tx: Transaction,
    ) -> Self {
        let session = Session { store, tx };
        let units = LoadedUnits::default();
        Self {
            access,
            session,
            units,
            touched: Vec::new(),
            _writing: writing,
        }
    }

    /// The present time in nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        self.session.store.now_ns()
    }

    /// Writes the changes of units that were loaded through a lens, records what was changed if a
    /// migration needs it, and commits.
    ///
    /// # Errors
    /// If a write fails; then nothing is committed. Units behind lenses fail with
    /// [`StoreError::Exists`] or [`StoreError::Raced`] on a conflict, and with
    /// [`StoreError::NotHeld`] if the stored layout cannot hold a change.
    /// [`StoreError::Commit`] if the database did not confirm the commit, which may have succeeded.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        match &self.access.backend {
            Backend::Direct => {}
            Backend::Lensed(lenses) => self.units.write(lenses, &mut self.session).await?,
        }
        if let Some(recorder) = &self.access.change_recorder {
            let recorded = recorder.record(&mut self.session.tx, &self.touched).await;
            recorded.map_err(|source| StoreError::Statement {
                what: "record which units have changed",
                source,
            })?;
        }
        self.session
            .tx
            .commit()
            .await
            .map_err(|source| StoreError::Commit { source })
    }

    /// Reads a record in order to change it. It is locked until the transaction ends.
    pub(super) async fn get<T>(
        &mut self,
        projection: &Projection<T>,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        match self.access.backend_of(projection.table) {
            None => Ok(None),
            Some(Backend::Direct) => {
                direct::get(&mut self.session, projection, key, RowLock::Exclusive).await
            }
            Some(Backend::Lensed(lenses)) => {
                self.units
                    .get(lenses, &mut self.session, projection, key)
                    .await
            }
        }
    }

    /// Reads records of a unit in order to change them, including errors for the unreadable ones.
    /// They are not locked, so a write must have a filter that matches only the row as it was read.
    pub(super) async fn rows<T>(
        &mut self,
        projection: &Projection<T>,
        key: &[u8],
        filter: Filter,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let session = &mut self.session;
        let what = "get records to change them";
        match self.access.backend_of(projection.table) {
            None => Ok(Vec::new()),
            Some(Backend::Direct) => {
                direct::records(
                    session,
                    projection,
                    &filter.equals(projection.table.key, key),
                    what,
                )
                .await
            }
            Some(Backend::Lensed(lenses)) => {
                self.units
                    .rows(lenses, session, projection, key, &filter)
                    .await
            }
        }
    }

    /// Inserts rows of one unit, all with the same columns.
    pub(super) async fn insert(
        &mut self,
        table: EntityTable,
        key: &[u8],
        rows: Vec<ColumnValues>,
        conflict: Conflict,
    ) -> Result<(), StoreError> {
        rows.iter()
            .try_for_each(|values| check_size(table, values))?;
        self.insert_unmeasured(table, key, rows, conflict).await
    }

    /// [`Self::insert`] for rows with content that is stored already. It may be larger than one
    /// write: several writes have made it, or another BBS has.
    pub(super) async fn insert_unmeasured(
        &mut self,
        table: EntityTable,
        key: &[u8],
        rows: Vec<ColumnValues>,
        conflict: Conflict,
    ) -> Result<(), StoreError> {
        self.touch(table, key);
        match &self.access.backend {
            Backend::Direct => {
                direct::insert(
                    &mut self.session,
                    table,
                    self.access.stamp(table.name),
                    rows,
                    conflict,
                )
                .await
            }
            Backend::Lensed(lenses) => {
                self.units
                    .insert(lenses, &mut self.session, (table, key), rows, conflict)
                    .await
            }
        }
    }

    /// Updates the matching rows of a unit and returns their number.
    pub(super) async fn update(
        &mut self,
        table: EntityTable,
        key: &[u8],
        filter: Filter,
        values: ColumnValues,
    ) -> Result<u64, StoreError> {
        check_size(table, &values)?;
        self.update_unmeasured(table, key, filter, values).await
    }

    /// [`Self::update`] with content as that of [`Self::insert_unmeasured`].
    pub(super) async fn update_unmeasured(
        &mut self,
        table: EntityTable,
        key: &[u8],
        filter: Filter,
        values: ColumnValues,
    ) -> Result<u64, StoreError> {
        self.touch(table, key);
        let session = &mut self.session;
        match &self.access.backend {
            Backend::Direct => {
                // Only MySQL has columns for a part of all characters. There a failed statement
                // does not end the transaction.
                let is_mysql = session.tx.dialect() == Dialect::Mysql;
                let ascii = if is_mysql {
                    with_ascii_diagnostics(&values)
                } else {
                    None
                };
                let filter = filter.equals(table.key, key);
                match (direct::update(session, table, &filter, values).await, ascii) {
                    (Err(StoreError::Characters { .. }), Some(ascii)) => {
                        direct::update(session, table, &filter, ascii).await
                    }
                    (updated, _) => updated,
                }
            }
            Backend::Lensed(lenses) => {
                self.units
                    .update(lenses, session, (table, key), &filter, values)
                    .await
            }
        }
    }

    /// The bytes of text in these columns of all rows of a unit.
    pub(super) async fn unit_bytes(
        &mut self,
        table: EntityTable,
        key: &[u8],
        columns: &[&'static str],
    ) -> Result<u64, StoreError> {
        match &self.access.backend {
            Backend::Direct => direct::unit_bytes(&mut self.session.tx, table, key, columns).await,
            Backend::Lensed(lenses) => {
                self.units
                    .bytes(lenses, &mut self.session, table, key, columns)
                    .await
            }
        }
    }

    /// Deletes the matching rows of a unit and returns their number. The unit's residue stays.
    pub(super) async fn delete(
        &mut self,
        table: EntityTable,
        key: &[u8],
        filter: Filter,
    ) -> Result<u64, StoreError> {
        self.touch(table, key);
        match self.access.backend_of(table) {
            None => Ok(0),
            Some(Backend::Direct) => direct::delete(&mut self.session.tx, table, key, filter).await,
            Some(Backend::Lensed(lenses)) => {
                self.units
                    .delete(lenses, &mut self.session, (table, key), &filter)
                    .await
            }
        }
    }

    /// Deletes a unit's rows of a table, and its residue, which no row needs any more. Returns the
    /// number of rows.
    pub(super) async fn delete_unit(
        &mut self,
        table: EntityTable,
        key: &[u8],
    ) -> Result<u64, StoreError> {
        let deleted = self.delete(table, key, Filter::everything()).await?;
        // Access through a lens has no places: it writes the residue with the unit.
        let places = self.access.residue_places(table.name);
        direct::delete_residue(&mut self.session.tx, places, key).await?;
        Ok(deleted)
    }

    /// Deletes the only record of a unit and returns it, or the error if it was unreadable; none if
    /// there was none.
    pub(super) async fn take<T>(
        &mut self,
        projection: &Projection<T>,
        key: &[u8],
    ) -> Result<Option<Result<T, StoreError>>, StoreError> {
        self.touch(projection.table, key);
        let residue_places = self.access.residue_places(projection.table.name);
        match &self.access.backend {
            Backend::Direct => {
                direct::take(&mut self.session, projection, residue_places, key).await
            }
            Backend::Lensed(lenses) => {
                self.units
                    .take(lenses, &mut self.session, projection, key)
                    .await
            }
        }
    }

    /// Notes that a unit is changed, for the record of an online migration.
    fn touch(&mut self, table: EntityTable, key: &[u8]) {
        if self.access.change_recorder.is_none() {
            return;
        }
        for table in self.access.stored(&[table.name]) {
            let pair = (table.to_owned(), key.to_vec());
            if !self.touched.contains(&pair) {
                self.touched.push(pair);
            }
        }
    }
}
