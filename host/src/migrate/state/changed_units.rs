//! The units that clients have changed while a migration copies them. Each transaction of a client
//! records the units that it changes, in itself; what the copies lack is recorded here until it is
//! copied again (`catch_up`). Owns `bbs_changed_unit`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bbs_database::{Row, SqlError, StatementResult, Transaction, of_few_lengths};
use bbs_files::digest::digest_of;
use bbs_units::UnitKey;
use futures_util::future::BoxFuture;
use sea_query::{Cond, Expr, ExprTrait, OnConflict, Order, Query};
use uuid::Uuid;

use super::own_tables::{self, CHANGED_UNIT};
use super::removal;
use crate::lock::fence::Fence;
use crate::migrate::{Job, MigrateError};
use crate::store::ChangeRecorder;

/// A unit that was changed.
#[derive(Debug, Clone)]
pub(crate) struct ChangedUnit {
    pub(crate) group: usize,
    /// As the client that changed it has spelled it.
    pub(crate) key: UnitKey,
    /// The last change.
    change: String,
}

impl ChangedUnit {
    fn digest(&self) -> String {
        digest_of(self.key.to_text().as_bytes())
    }
}

/// Records the changes of clients.
#[derive(Debug)]
pub(crate) struct UnitRecorder {
    job: Arc<Job>,
}

impl UnitRecorder {
    pub(crate) fn new(job: Arc<Job>) -> Self {
        Self { job }
    }

    /// The group of a table, if it is walked.
    fn walked_group(&self, table: &str) -> Option<usize> {
        let group = self.job.group_of(table)?;
        self.job.walks(group).then_some(group)
    }
}

impl ChangeRecorder for UnitRecorder {
    fn record<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(async move {
            let units = touched
                .iter()
                .filter_map(|(table, key)| Some((self.walked_group(table)?, key)));
            // In the same order in all transactions, which then do not wait for each other.
            let units: BTreeSet<_> = units.collect();
            if units.is_empty() {
                return Ok(());
            }
            let place = ["unit_digest", "group_number"];
            let values = ["unit_key", "change_id"];
            let mut insert = Query::insert();
            insert
                .into_table(CHANGED_UNIT)
                .columns(place.into_iter().chain(values))
                .on_conflict(OnConflict::columns(place).update_columns(values).to_owned());
            for (group, key) in units {
                let key = UnitKey::text(key.as_slice()).to_text();
                insert.values_panic([
                    digest_of(key.as_bytes()).into(),
                    (group as i64).into(),
                    key.into(),
                    Uuid::new_v4().to_string().into(),
                ]);
            }
            tx.execute(&insert).await.map(drop)
        })
    }
}

/// The next changed units after one, at most this number. A change that is committed later is
/// another one.
pub(crate) async fn next(
    tx: &mut Transaction,
    after: Option<&ChangedUnit>,
    most: u64,
) -> Result<Vec<ChangedUnit>, MigrateError> {
    let mut query = Query::select();
    query
        .columns(["group_number", "unit_key", "change_id"])
        .from(CHANGED_UNIT)
        .order_by("unit_digest", Order::Asc)
        .order_by("group_number", Order::Asc)
        .limit(most);
    if let Some(after) = after {
        let digest = after.digest();
        let same_digest = Expr::col("unit_digest").eq(digest.as_str());
        let later_group = same_digest.and(Expr::col("group_number").gt(after.group as i64));
        query.cond_where(
            Cond::any()
                .add(Expr::col("unit_digest").gt(digest.as_str()))
                .add(later_group),
        );
    }
    let rows = tx.fetch(&query).await.about(CHANGED_UNIT)?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<ChangedUnit, MigrateError> {
    let group = row.integer_or_zero(0).about(CHANGED_UNIT)?;
    let key = row.text_or_empty(1).about(CHANGED_UNIT)?;
    let damaged = || MigrateError::DamagedChange {
        key: key.to_owned(),
    };
    Ok(ChangedUnit {
        group: usize::try_from(group).map_err(|_| damaged())?,
        key: UnitKey::from_text(key).ok_or_else(damaged)?,
        change: row.owned_text(2).about(CHANGED_UNIT)?,
    })
}

/// Removes the records of units that are copied as they were when these were read. A unit that was
/// changed since remains.
pub(crate) async fn forget(
    tx: &mut Transaction,
    units: &[ChangedUnit],
) -> Result<(), MigrateError> {
    // A change has an id of its own; the digests have an index.
    let digests = units.iter().map(ChangedUnit::digest).collect();
    let changes = units.iter().map(|unit| unit.change.as_str()).collect();
    let delete = Query::delete()
        .from_table(CHANGED_UNIT)
        .and_where(Expr::col("unit_digest").is_in(of_few_lengths::<String>(digests)))
        .and_where(Expr::col("change_id").is_in(of_few_lengths::<&str>(changes)))
        .to_owned();
    tx.execute(&delete).await.about(CHANGED_UNIT)?;
    Ok(())
}

/// Removes the records of a migration that is complete or abandoned.
pub(crate) async fn forget_all(fence: &Fence) -> Result<(), MigrateError> {
    removal::remove(fence, &own_tables::changed_unit(), Cond::all()).await
}
