//! Reading through the lens.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Lenses, failed, keys};
use crate::database::Transaction;
use crate::layout::schema::{Sealing, Table as Declared};
use crate::layout::values::Value;
use crate::record::Keyring;
use crate::rows::{RowsError, TableRows, UnitKey};
use crate::store::filter::Filter;
use crate::store::reader::{Key, PageEnd, Range};
use crate::store::record::{Columns, Read, Record, RecordProblem};
use crate::store::{Store, StoreError, Table};

/// Units that are in memory at a time.
const UNITS: u32 = 250;

/// One row of a table at the handlers' layout.
pub(super) struct LiftedRow<'a> {
    pub(super) table: &'a Declared,
    pub(super) rows: &'a TableRows,
    pub(super) row: usize,
}

impl LiftedRow<'_> {
    fn value(&self, column: &'static str) -> Value<'_> {
        self.rows.value(self.table, column, self.row).unwrap_or(Value::Null)
    }
}

impl Columns for LiftedRow<'_> {
    fn bytes(&self, column: &'static str) -> Result<Option<&[u8]>, RecordProblem> {
        Ok(match self.value(column) {
            Value::Text(text) => Some(text),
            Value::Null | Value::Boolean(_) | Value::Integer(_) => None,
        })
    }

    fn integer(&self, column: &'static str) -> Result<Option<i64>, RecordProblem> {
        Ok(match self.value(column) {
            Value::Integer(number) => Some(number),
            Value::Boolean(value) => Some(value.into()),
            Value::Null | Value::Text(_) => None,
        })
    }

    /// What the lens has opened is plain. An empty message is one; empty JSON is none.
    fn open(
        &self,
        column: &'static str,
        sealing: Sealing,
        keyring: &Keyring,
    ) -> Result<Option<Cow<'_, [u8]>>, RecordProblem> {
        let Some(text) = self.bytes(column)? else { return Ok(None) };
        if self.rows.columns[column].sealing == Sealing::Plain {
            return Ok((!text.is_empty() || sealing == Sealing::Enveloped).then_some(Cow::Borrowed(text)));
        }
        if text.is_empty() {
            return Ok(None);
        }
        let opened = keyring.open(sealing, text).map_err(|source| RecordProblem::Sealed { column, source })?;
        Ok(Some(Cow::Owned(opened)))
    }
}

/// Where a page ends that begins after a key. Only what the database judges of the filter counts, so a page may turn
/// out to have fewer records than it has units.
pub(in crate::store) async fn page_end(
    lenses: &Lenses,
    tx: &mut Transaction,
    table: Table,
    filter: &Filter,
    after: Option<&Key>,
    units: u32,
) -> Result<Option<Key>, StoreError> {
    let beyond = Range { after: after.cloned(), ..Range::default() };
    let mut end = PageEnd::new(units);
    let found = keys::next(lenses, tx, table.name, filter, &beyond, units).await?;
    Ok(found.into_iter().find_map(|(key, bytes)| end.reached_by(bytes).then_some(key)))
}

/// The records of a range, those that cannot be read among them, in the order of keys.
pub(in crate::store) async fn list<T>(
    store: &Store,
    lenses: &Arc<Lenses>,
    tx: &mut Transaction,
    (table, columns): (Table, &[&'static str]),
    filter: &Filter,
    range: &Range,
    read: Read<T>,
) -> Result<Vec<Result<T, StoreError>>, StoreError> {
    let mut range = range.clone();
    let mut records = Vec::new();
    loop {
        let found = keys::next(lenses, tx, table.name, filter, &range, UNITS).await?;
        let is_last = found.len() < UNITS as usize;
        range.after = found.last().map(|(key, _)| key.clone());
        let found = found.into_iter().map(|(key, _)| UnitKey::text(key)).collect();
        records.extend(records_of(store, lenses, tx, (table, columns), filter, found, read).await?);
        if is_last {
            break;
        }
    }
    Ok(records)
}

pub(in crate::store) async fn get<T>(
    store: &Store,
    lenses: &Arc<Lenses>,
    tx: &mut Transaction,
    (table, columns): (Table, &[&'static str]),
    key: &[u8],
    read: Read<T>,
) -> Result<Option<T>, StoreError> {
    let filter = Filter::everything();
    let found = records_of(store, lenses, tx, (table, columns), &filter, vec![UnitKey::text(key)], read).await?;
    found.into_iter().next().transpose()
}

/// The records of some units, those that cannot be read among them.
async fn records_of<T>(
    store: &Store,
    lenses: &Arc<Lenses>,
    tx: &mut Transaction,
    (table, columns): (Table, &[&'static str]),
    filter: &Filter,
    units: Vec<UnitKey>,
    read: Read<T>,
) -> Result<Vec<Result<T, StoreError>>, StoreError> {
    let cluster = lenses.cluster(table.name);
    let lifted = lenses.load(tx, store.keyring(), cluster, units, Some((table.name, columns))).await;
    let lifted = lifted.map_err(failed("read records through the lens"))?;
    let rows = &lifted.batch.tables[table.name];
    let rows = (0..rows.count()).map(|row| LiftedRow { table: lenses.table(table.name), rows, row });
    let meant = rows.filter(|row| filter.holds(row)).map(|row| Record::read(&row, store, table, read));
    let damaged = lifted.damaged.into_iter().map(|(key, fault)| Err(unreadable(table, &key, Arc::new(fault))));
    Ok(meant.chain(damaged).collect())
}

pub(super) fn unreadable(table: Table, key: &UnitKey, fault: Arc<RowsError>) -> StoreError {
    let source = RecordProblem::Lens { source: fault };
    StoreError::Unreadable { table: table.name, key: key.name(), source }
}
