//! Rows that a serving host cannot read, in quarantine. Such an entry is of one row, and of one version: nothing migrated it. It
//! leaves when an operator retries it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use sea_query::{Expr, ExprTrait, Query};

use super::{QUARANTINE, QuarantineEntry, failed, of, put};
use crate::database::Transaction;
use crate::encryption::Keyring;
use crate::layout::manifest::{DataVersion, Direction};
use crate::layout::schema::{Layout, Table};
use crate::layout::values::Value;
use crate::migrate::MigrateError;
use crate::rows::{self, ByteLimits, Place, RowLock, TableRows, UnitBatch, UnitKey};
use crate::store::{Key, Quarantine, QuarantineError, QuarantinedRow};

/// The quarantine of a store at a version.
#[derive(Debug)]
pub struct ServingQuarantine {
    place: Place,
    version: DataVersion,
    keyring: Arc<Keyring>,
}

impl ServingQuarantine {
    /// The quarantine for rows of this layout, which is that of the version.
    pub fn new(layout: Layout, version: DataVersion, keyring: Arc<Keyring>) -> Self {
        Self { place: Place::new(layout), version, keyring }
    }

    async fn keep_row(&self, tx: &mut Transaction, row: QuarantinedRow<'_>) -> Result<(), MigrateError> {
        let table = &self.place.layout.tables[row.table];
        let key = UnitKey::text(row.unit);
        let mut unit = self.unit(tx, table, key.clone()).await?;
        let rows = unit.tables.get_mut(row.table).expect("the table was loaded");
        let is_row = is_at(table, rows, row.place);
        rows.retain(table, |at| is_row[at]);
        let place: String = row.place.iter().map(|(_, value)| format!("/{value}")).collect();
        let mut entry = QuarantineEntry {
            unit: key.name() + &place,
            table: row.table.to_owned(),
            from: self.version,
            to: self.version,
            version: self.version,
            direction: Direction::Up,
            module: String::new(),
            digest: String::new(),
            reason: row.reason,
            replay: None,
            rows: [(row.table.to_owned(), rows.count() as u64)].into(),
            at_ns: row.at_ns,
            pending: false,
        };
        // The place may have had another row that could not be read.
        let name = entry.unit.clone();
        for number in 2.. {
            if !is_present(tx, &entry).await? {
                break;
            }
            entry.unit = format!("{name} ({number})");
        }
        put(tx, &self.keyring, &self.place.layout, &entry, &key, &unit).await
    }

    async fn unit(&self, tx: &mut Transaction, table: &Table, key: UnitKey) -> Result<UnitBatch, MigrateError> {
        let wanted = rows::whole([table]);
        Ok(rows::load(tx, &self.place, &wanted, &[key], RowLock::Exclusive, ByteLimits::NONE).await?)
    }

    async fn units_since(
        &self,
        tx: &mut Transaction,
        table: &str,
        since_ns: i64,
    ) -> Result<BTreeSet<Key>, MigrateError> {
        let mut query = Query::select();
        query
            .column("unit_key")
            .from(QUARANTINE)
            .and_where(Expr::col("table_name").eq(table))
            .and_where(Expr::col("from_version").equals("to_version"))
            .and_where(Expr::col("at_ns").gte(since_ns));
        let mut units = BTreeSet::new();
        for row in tx.fetch(&query).await.map_err(failed)? {
            let key = row.text(0).map_err(failed)?.and_then(UnitKey::from_text);
            units.extend(key.and_then(UnitKey::into_text));
        }
        Ok(units)
    }
}

/// For each row, whether it has these values.
fn is_at(table: &Table, rows: &TableRows, place: &[(&'static str, i64)]) -> Vec<bool> {
    let has =
        |row: usize| place.iter().all(|(column, value)| rows.value(table, column, row) == Some(Value::Integer(*value)));
    (0..rows.count()).map(has).collect()
}

async fn is_present(tx: &mut Transaction, entry: &QuarantineEntry) -> Result<bool, MigrateError> {
    let query = Query::select().column("unit").from(QUARANTINE).cond_where(of(entry)).to_owned();
    Ok(tx.fetch_optional(&query).await.map_err(failed)?.is_some())
}

impl Quarantine for ServingQuarantine {
    fn keep<'a>(
        &'a self,
        tx: &'a mut Transaction,
        row: QuarantinedRow<'a>,
    ) -> BoxFuture<'a, Result<(), QuarantineError>> {
        Box::pin(async { self.keep_row(tx, row).await.map_err(QuarantineError::from) })
    }

    fn kept_since<'a>(
        &'a self,
        tx: &'a mut Transaction,
        table: &'static str,
        since_ns: i64,
    ) -> BoxFuture<'a, Result<BTreeSet<Key>, QuarantineError>> {
        Box::pin(async move { self.units_since(tx, table, since_ns).await.map_err(QuarantineError::from) })
    }
}

impl From<MigrateError> for QuarantineError {
    fn from(fault: MigrateError) -> Self {
        Self { is_transient: fault.is_transient() || fault.is_outage(), source: Box::new(fault) }
    }
}
