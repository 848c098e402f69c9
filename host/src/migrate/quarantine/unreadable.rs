//! Rows that a serving host cannot read, in quarantine. Such an entry is of one row, and of one
//! version: nothing migrated it. It leaves when an operator retries it.

use std::collections::BTreeSet;

use bbs_database::{StatementResult, Transaction};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::Table;
use bbs_lens::layout::values::Value;
use bbs_units::{Place, RowLock, TableRows, UnitKey};
use futures_util::future::BoxFuture;
use sea_query::{Cond, Expr, ExprTrait, Query};

use super::{FOREIGN, QUARANTINE, QuarantineEntry, is_present, key_at, put, unit};
use crate::migrate::state::history_pair::HistoryPair;
use crate::migrate::{Context, MigrateError};
use crate::store::{Key, Quarantine, QuarantineError, QuarantinedRow};

const DESIRED_LRPS: &str = "desired_lrps";

/// The column that marks an entry whose unit is not held any more. Hosts of earlier releases wrote
/// a path into it, so that the table of each database has it.
const HOLD: &str = "replay";
const HOLD_ENDED: &str = "hold ended";

/// The quarantine of a store at a version.
#[derive(Debug)]
pub struct ServingQuarantine {
    context: Context,
    version: DataVersion,
}

impl ServingQuarantine {
    /// The quarantine for rows of a database at a version.
    pub fn new(context: Context, version: DataVersion) -> Self {
        Self { context, version }
    }

    async fn keep_row(
        &self,
        tx: &mut Transaction,
        row: QuarantinedRow<'_>,
    ) -> Result<(), MigrateError> {
        let unknown = MigrateError::UnknownVersion {
            version: self.version,
        };
        let layouts = HistoryPair::here(&self.context, tx).await?.ran;
        let place = Place::new(layouts.at(self.version).ok_or(unknown)?.clone());
        let table = &place.layout.tables[row.table];
        let key = UnitKey::text(row.unit);
        let wanted = bbs_units::whole([table]);
        let units = std::slice::from_ref(&key);
        let mut unit = bbs_units::load(tx, &place, &wanted, units, RowLock::Exclusive).await?;
        let rows = unit
            .tables
            .get_mut(row.table)
            .expect("the table was loaded");
        let is_row = is_at(table, rows, row.place);
        rows.retain(table, |at| is_row[at]);
        if rows.count() != 1 {
            return Err(MigrateError::WrittenMeanwhile {
                table: row.table.to_owned(),
            });
        }
        let within: String = row
            .place
            .iter()
            .map(|(_, value)| format!("/{value}"))
            .collect();
        let name = key.name() + &within;
        let mut entry = QuarantineEntry {
            rows: [(row.table.to_owned(), 1)].into(),
            ..QuarantineEntry::without_a_module(
                &name,
                row.table,
                self.version,
                &row.reason,
                row.at_ns,
            )
        };
        // The place may have had another row that could not be read.
        for number in 2.. {
            if !is_present(tx, &entry).await? {
                break;
            }
            entry.unit = format!("{name} ({number})");
        }
        let keyring = &self.context.keyring;
        let content = unit::encode(&unit, &place.layout, keyring);
        put(tx, keyring, &entry, &key, &content).await
    }
}

/// The entries of rows of a table that a serving host keeps, or the import from etcd. The latter
/// leaves records out that no table has had. The keys of those that are not of desired LRPs are
/// paths, which no process guid is.
fn kept_of(table: &str) -> Cond {
    let of_a_host = Cond::all()
        .add(Expr::col("table_name").eq(table))
        .add(Expr::col("from_version").equals("to_version"));
    let of_the_import = (table == DESIRED_LRPS).then(|| Expr::col("table_name").eq(FOREIGN));
    Cond::any().add(of_a_host).add_option(of_the_import)
}

/// The keys of the units of some entries, as far as they are texts.
async fn units(tx: &mut Transaction, entries: Cond) -> Result<BTreeSet<Key>, MigrateError> {
    let mut query = Query::select();
    query
        .column("unit_key")
        .from(QUARANTINE)
        .cond_where(entries);
    let mut units = BTreeSet::new();
    for row in tx.fetch(&query).await.about(QUARANTINE)? {
        units.extend(key_at(&row, 0)?.and_then(UnitKey::into_text));
    }
    Ok(units)
}

/// For each row, whether it has these values.
fn is_at(table: &Table, rows: &TableRows, place: &[(&'static str, i64)]) -> Vec<bool> {
    let has = |row: usize| {
        place
            .iter()
            .all(|(column, value)| rows.value(table, column, row) == Some(Value::Integer(*value)))
    };
    (0..rows.count()).map(has).collect()
}

impl Quarantine for ServingQuarantine {
    fn keep<'a>(
        &'a self,
        tx: &'a mut Transaction,
        row: QuarantinedRow<'a>,
    ) -> BoxFuture<'a, Result<(), QuarantineError>> {
        Box::pin(async { Ok(self.keep_row(tx, row).await?) })
    }

    fn kept_since<'a>(
        &'a self,
        tx: &'a mut Transaction,
        table: &'static str,
        since_ns: i64,
    ) -> BoxFuture<'a, Result<BTreeSet<Key>, QuarantineError>> {
        Box::pin(async move {
            let is_held = Cond::any()
                .add(Expr::col(HOLD).is_null())
                .add(Expr::col(HOLD).ne(HOLD_ENDED));
            let kept = Cond::all()
                .add(kept_of(table))
                .add(Expr::col("at_ns").gte(since_ns))
                .add(is_held);
            Ok(units(tx, kept).await?)
        })
    }

    fn end_hold<'a>(
        &'a self,
        tx: &'a mut Transaction,
        table: &'static str,
        unit: &'a [u8],
    ) -> BoxFuture<'a, Result<(), QuarantineError>> {
        Box::pin(async move {
            let of_the_unit = Expr::col("unit_key").eq(UnitKey::text(unit).to_text());
            let mut update = Query::update();
            update
                .table(QUARANTINE)
                .value(HOLD, HOLD_ENDED)
                .cond_where(Cond::all().add(kept_of(table)).add(of_the_unit));
            let ended = tx.execute(&update).await.map(drop).about(QUARANTINE);
            Ok(ended.map_err(MigrateError::from)?)
        })
    }

    fn kept<'a>(
        &'a self,
        tx: &'a mut Transaction,
    ) -> BoxFuture<'a, Result<BTreeSet<Key>, QuarantineError>> {
        Box::pin(async move { Ok(units(tx, Cond::all()).await?) })
    }
}

impl From<MigrateError> for QuarantineError {
    fn from(fault: MigrateError) -> Self {
        Self {
            is_transient: fault.is_repeatable(),
            source: Box::new(fault),
        }
    }
}
