//! Reads through a lens: units are loaded in batches, transformed to the native layout, and then
//! filtered.

use std::sync::Arc;

use bbs_database::Transaction;
use bbs_lens::layout::schema::{Sealing, Table};
use bbs_lens::layout::values::Value;
use bbs_units::{RowsError, TableRows, UnitKey};

use super::{Lenses, failed, keys};
use crate::store::filter::Filter;
use crate::store::page::{Key, Listed, PageEnd, Range};
use crate::store::record::{Columns, Projection, RecordReadError};
use crate::store::{EntityTable, Session, StoreError};

/// The most units in memory at a time.
const UNITS: u32 = 250;

/// One row of a table at the native layout.
pub(super) struct NativeRow<'a> {
    pub(super) table: &'a Table,
    pub(super) rows: &'a TableRows,
    pub(super) row: usize,
}

impl<'a> NativeRow<'a> {
    pub(super) fn all(table: &'a Table, rows: &'a TableRows) -> impl Iterator<Item = Self> {
        (0..rows.count()).map(move |row| Self { table, rows, row })
    }

    fn value(&self, column: &'static str) -> Value<'_> {
        self.rows
            .value(self.table, column, self.row)
            .unwrap_or(Value::Null)
    }
}

impl Columns for NativeRow<'_> {
    fn bytes(&self, column: &'static str) -> Result<Option<&[u8]>, RecordReadError> {
        Ok(match self.value(column) {
            Value::Text(text) => Some(text),
            Value::Null | Value::Boolean(_) | Value::Integer(_) => None,
        })
    }

    fn integer(&self, column: &'static str) -> Result<Option<i64>, RecordReadError> {
        Ok(match self.value(column) {
            Value::Integer(number) => Some(number),
            Value::Boolean(value) => Some(value.into()),
            Value::Null | Value::Text(_) => None,
        })
    }

    fn is_opened(&self, column: &'static str) -> bool {
        self.rows.columns[column].sealing == Sealing::Plain
    }
}

impl Lenses {
    /// The last key of the first page of a range; that of the range if no units of it follow. Only
    /// the conditions that the database evaluates are taken into account, so the page may have
    /// fewer records than units.
    pub(in crate::store) async fn page_end(
        &self,
        tx: &mut Transaction,
        table: EntityTable,
        filter: &Filter,
        range: &Range,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        let end = PageEnd::new(units);
        let found = keys::next(self, tx, table, filter, range, end.most_read()).await?;
        Ok(end.find(found).or_else(|| range.through.clone()))
    }

    /// The readable records of a range.
    pub(in crate::store) async fn list<T>(
        self: &Arc<Self>,
        session: &mut Session,
        projection: &Projection<T>,
        filter: &Filter,
        range: &Range,
    ) -> Result<Listed<T>, StoreError> {
        let mut range = range.clone();
        if let Some(units) = range.most.take() {
            range.through = self
                .page_end(&mut session.tx, projection.table, filter, &range, units)
                .await?;
        }
        let records = self.records(session, projection, filter, &range).await?;
        Ok(Listed {
            records: session.store.readable(records.into_iter())?,
            last: range.through,
        })
    }

    /// The records of a range in key order, including errors for the unreadable ones.
    pub(in crate::store) async fn records<T>(
        self: &Arc<Self>,
        session: &mut Session,
        projection: &Projection<T>,
        filter: &Filter,
        range: &Range,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let mut range = range.clone();
        let mut records = Vec::new();
        // The database compares keys itself: its collation need not compare their bytes.
        let rest = filter.but_in_sql(projection.table.key, session.tx.dialect());
        loop {
            let tx = &mut session.tx;
            let found = keys::next(self, tx, projection.table, filter, &range, UNITS).await?;
            let is_last = found.len() < UNITS as usize;
            range.after = found.last().map(|(key, _)| key.clone());
            let found = found
                .into_iter()
                .map(|(key, _)| UnitKey::text(key))
                .collect();
            records.extend(self.records_of(session, projection, &rest, found).await?);
            if is_last {
                break;
            }
        }
        Ok(records)
    }

    /// The record of a unit.
    pub(in crate::store) async fn get<T>(
        self: &Arc<Self>,
        session: &mut Session,
        projection: &Projection<T>,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        let unit = vec![UnitKey::text(key)];
        let all = Filter::everything();
        let found = self.records_of(session, projection, &all, unit).await?;
        found.into_iter().next().transpose()
    }

    /// The records of some units, including errors for the unreadable ones.
    async fn records_of<T>(
        self: &Arc<Self>,
        Session { store, tx }: &mut Session,
        projection: &Projection<T>,
        filter: &Filter,
        units: Vec<UnitKey>,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let table = projection.table;
        let keyring = store.keyring();
        let columns = Some((table.name, projection.columns));
        let mut records = Vec::new();
        // In order, the next ones last.
        let mut waiting = vec![units];
        while let Some(mut units) = waiting.pop() {
            let native = match self
                .load(tx, keyring, self.group(table.name), units.clone(), columns)
                .await
            {
                Err(fault) if fault.is_of_several_units() => {
                    let back = units.split_off(units.len() / 2);
                    waiting.extend([back, units]);
                    continue;
                }
                native => native.map_err(failed("read records through the lens"))?,
            };
            let rows = &native.batch.tables[table.name];
            let matching =
                NativeRow::all(self.table(table.name), rows).filter(|row| filter.holds(row));
            let damaged = native
                .damaged
                .into_iter()
                .map(|(key, fault)| Err(unreadable(table, &key, Arc::new(fault))));
            records.extend(
                matching
                    .map(|row| projection.record(&row, keyring))
                    .chain(damaged),
            );
        }
        Ok(records)
    }
}

pub(super) fn unreadable(table: EntityTable, key: &UnitKey, fault: Arc<RowsError>) -> StoreError {
    let source = RecordReadError::Lens { source: fault };
    StoreError::Unreadable {
        table: table.name,
        key: key.name().into_bytes(),
        source,
    }
}
