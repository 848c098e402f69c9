//! Dual writes: what a client writes to the originals while rows are copied is written to the
//! copies in the same transaction. The originals are authoritative: a unit that cannot be written
//! to the copies ends the migration, not the client's call.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bbs_database::{StatementResult, Transaction, sql};
use bbs_units::UnitKey;
use bbs_work::causes::with_causes;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::DualWrites;
use crate::migrate::copied_units::CopiedUnit;
use crate::migrate::quarantine::RefusedUnit;
use crate::migrate::transform::{ReadBatch, TransformedBatch};
use crate::migrate::{Job, MigrateError, RefusedUnits, state};
use crate::store;

/// The longest time for which a client's write waits for the modules of one unit.
const MODULE_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct CopyWriter {
    job: Arc<Job>,
}

impl CopyWriter {
    pub(super) fn new(job: Arc<Job>) -> Self {
        Self { job }
    }

    fn dual_writes(&self) -> &DualWrites {
        self.job
            .dual_writes
            .as_ref()
            .expect("the migration has dual writes")
    }

    /// The unit of rows of a table with this partition key, if the table is copied.
    fn unit(&self, table: &str, key: &[u8]) -> Option<(usize, UnitKey)> {
        let group = self.job.group_of(table)?;
        self.job
            .has_copies(group)
            .then(|| (group, UnitKey::text(key)))
    }

    /// Takes the units that a transaction has changed to the copies.
    async fn take_changes(
        &self,
        tx: &mut Transaction,
        touched: &[(String, Vec<u8>)],
    ) -> Result<(), MigrateError> {
        if self.dual_writes().is_broken() {
            return abandon_copies(tx).await;
        }
        if let Some(fault) = self.dual_writes().take_refusal() {
            return self.give_up(tx, fault).await;
        }
        let mut units: BTreeMap<usize, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (table, key) in touched {
            if let Some((group, _)) = self.unit(table, key) {
                units.entry(group).or_default().insert(key.clone());
            }
        }
        for (group, keys) in units {
            for key in keys {
                match self.take_across(tx, group, UnitKey::text(key)).await {
                    // After a failed statement the transaction cannot continue; it ends without
                    // harm.
                    Err(
                        fault @ (MigrateError::Sql { .. }
                        | MigrateError::RefusedRow { .. }
                        | MigrateError::Database(_)
                        | MigrateError::Fence(_)),
                    ) => {
                        return Err(fault);
                    }
                    Err(fault) => return self.give_up(tx, fault).await,
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    /// From now on only the originals are written.
    async fn give_up(&self, tx: &mut Transaction, fault: MigrateError) -> Result<(), MigrateError> {
        abandon_copies(tx).await?;
        tracing::error!(
            reason = %with_causes(&fault),
            "a client's write could not be applied to the copies, so the migration is abandoned; the next start migrates again"
        );
        self.dual_writes().broken_by(fault);
        Ok(())
    }

    /// Takes one unit, as the transaction has left it, to the copies.
    async fn take_across(
        &self,
        tx: &mut Transaction,
        group: usize,
        asked: UnitKey,
    ) -> Result<(), MigrateError> {
        let job = &self.job;
        let unit = CopiedUnit::read(tx, job, group, &asked).await?;
        let unit = self.transformed_in_time(unit, (group, &asked)).await?;
        if self.dual_writes().is_suspect(&(group, asked.clone())) {
            return self.write_suspect(tx, &unit).await;
        }
        let written = unit.replace(tx, job).await;
        if job.refused_units == RefusedUnits::Quarantine
            && matches!(written, Err(MigrateError::RefusedRow { .. }))
        {
            self.dual_writes().suspect((group, asked));
        }
        written
    }

    /// Takes a unit through the modules. If that takes long, the unit is left out of the copies until
    /// the copier copies it: the client waits, and on SQLite each other one that writes.
    async fn transformed_in_time(
        &self,
        unit: CopiedUnit<ReadBatch>,
        (group, key): (usize, &UnitKey),
    ) -> Result<CopiedUnit<TransformedBatch>, MigrateError> {
        let place = (group, key.clone());
        let postponed = unit.left_out(RefusedUnit {
            key: key.clone(),
            error: MigrateError::Postponed { unit: key.name() },
        });
        if self.dual_writes().is_postponed(&place) {
            return Ok(postponed);
        }
        match timeout(MODULE_WAIT, unit.transformed(&self.job)).await {
            Ok(transformed) => transformed,
            Err(_) => {
                self.dual_writes().postpone(place);
                Ok(postponed)
            }
        }
    }

    /// Replacement of a unit of which the database has refused a row: if it does so again, the unit
    /// goes into quarantine, and the transaction, which is the client's, goes on. Only then,
    /// because a savepoint costs two statements.
    async fn write_suspect(
        &self,
        tx: &mut Transaction,
        unit: &CopiedUnit<TransformedBatch>,
    ) -> Result<(), MigrateError> {
        tx.execute(sql("SAVEPOINT bbs_unit"))
            .await
            .about("rows of a copy that follow a write")?;
        match unit.replace(tx, &self.job).await {
            Err(MigrateError::RefusedRow { table, source }) => {
                tx.execute(sql("ROLLBACK TO SAVEPOINT bbs_unit"))
                    .await
                    .about("rows of a copy that follow a write")?;
                let left_out = unit.left_out(unit.refused(&self.job, &table, &source));
                left_out.replace(tx, &self.job).await?;
            }
            written => written?,
        }
        Ok(tx
            .execute(sql("RELEASE SAVEPOINT bbs_unit"))
            .await
            .map(drop)
            .about("rows of a copy that follow a write")?)
    }
}

/// Abandons the copies in a transaction that does not write to them, so that its commit always
/// includes this. Another transaction may have done so before; that one may still be rolled back.
async fn abandon_copies(tx: &mut Transaction) -> Result<(), MigrateError> {
    let begun = state::Phase::Begun.name();
    let rows = tx
        .fetch(sql("SELECT phase FROM bbs_migration"))
        .await
        .about("bbs_migration")?;
    for row in rows {
        if row.text(0).about("bbs_migration")? == Some(begun) {
            return Ok(());
        }
    }
    tx.execute(sql("UPDATE bbs_migration SET phase = ?").bind(begun))
        .await
        .about("bbs_migration")?;
    Ok(())
}

impl store::DualWrite for CopyWriter {
    fn hold<'a>(
        &'a self,
        tables: Vec<&'a str>,
        key: &'a [u8],
    ) -> BoxFuture<'a, Box<dyn Send + Sync>> {
        Box::pin(async move {
            let units: HashSet<_> = tables
                .iter()
                .filter_map(|table| self.unit(table, key))
                .collect();
            Box::new(
                self.dual_writes()
                    .locks
                    .take(units.into_iter().collect())
                    .await,
            ) as Box<dyn Send + Sync>
        })
    }

    fn changed<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), store::DualWriteError>> {
        Box::pin(async move {
            self.take_changes(tx, touched).await.map_err(|fault| {
                if !fault.is_refused_row() {
                    return store::DualWriteError {
                        is_transient: fault.is_repeatable(),
                        source: Box::new(fault),
                    };
                }
                // The fault is not the client's: its call is retried, which leaves the unit out or
                // abandons the copies.
                let source = fault.to_string().into();
                let is_left_out = self.job.refused_units == RefusedUnits::Quarantine
                    && matches!(fault, MigrateError::RefusedRow { .. });
                if !is_left_out {
                    self.dual_writes().refused_by(fault);
                }
                store::DualWriteError {
                    is_transient: true,
                    source,
                }
            })
        })
    }
}
