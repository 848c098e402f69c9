//! Brings the copies up to date while clients write, and once more when they wait for the cut-over:
//! each unit that a client has changed since the migration began is copied again as it is now. Only
//! the migration itself writes to the copies.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bbs_database::{Dialect, StatementResult};
use bbs_units::UnitKey;
use bbs_work::pauses;
use bbs_work::progress::Counted;
use tokio::time::{Instant, timeout};

use super::copied_units::{COPIES, CopiedUnits};
use crate::lock::fence::Fence;
use crate::migrate::state::changed_units::{self, ChangedUnit};
use crate::migrate::state::own_tables::CHANGED_UNIT;
use crate::migrate::{Context, Job, MigrateError, fault, state};

/// The units that are copied again at a time.
const UNITS: u64 = 100;
/// The most changed units that are left to the cut-over, for which clients wait.
const FEW: u64 = 16;
/// Longest wait of all clients for modules at a cut-over.
const MODULE_WAIT: Duration = Duration::from_secs(1);

/// The calls of clients while units are copied again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// They read and write: the work can be paused, and rests.
    Call,
    /// They write; those whose lists have several pages wait for the cut-over.
    Write,
    /// All wait for the cut-over.
    Wait,
}

/// Copies the changed units again: all of them if clients wait, and otherwise until few are left,
/// since they change further ones; or until no fewer are left than before, since they change as many
/// as can be copied.
///
/// # Errors
/// A unit cannot be transformed, another host has raised the fence, or the database fails. If clients
/// wait, [`MigrateError::Behind`] if modules take long for a unit.
pub(crate) async fn catch_up(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    clients: Meanwhile,
) -> Result<(), MigrateError> {
    let mut rests = clients == Meanwhile::Call;
    let mut fewest = u64::MAX;
    loop {
        enter(context, job, clients).await?;
        let units = sweep(context, fence, job, clients, rests).await?;
        if clients == Meanwhile::Wait || units <= FEW {
            return Ok(());
        }
        if units < fewest {
            fewest = units;
        } else if rests {
            rests = false;
        } else {
            if units >= UNITS {
                tracing::warn!(
                    units,
                    "clients change units as fast as these are copied again; they wait at the cut-over while about as many are copied"
                );
            }
            return Ok(());
        }
    }
}

/// Enters the phase with the number of units that are recorded now.
async fn enter(context: &Context, job: &Job, clients: Meanwhile) -> Result<(), MigrateError> {
    let amount = match clients {
        Meanwhile::Call | Meanwhile::Write => {
            let mut reader = context.database.read().await?;
            let units = state::count(&mut reader, CHANGED_UNIT).await?;
            Some(Counted::Units.total(units.unsigned_abs()))
        }
        // They would wait for the query, too.
        Meanwhile::Wait => None,
    };
    context.progress.enter("catch-up", job.describe(), amount);
    Ok(())
}

/// Copies each unit again that is recorded now. Returns how many there were.
async fn sweep(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    clients: Meanwhile,
    rests: bool,
) -> Result<u64, MigrateError> {
    let mut after = None;
    let mut count = 0;
    let mut module_wait = MODULE_WAIT;
    loop {
        if clients == Meanwhile::Call {
            // A pause holds here, too. The rate does not: below that of the clients' changes, no
            // unit would be copied in time.
            context.throttle.ready(&context.progress).await;
        }
        let began = Instant::now();
        let mut reader = context.database.read().await?;
        let units = changed_units::next(&mut reader, after.as_ref(), UNITS).await?;
        drop(reader);
        let Some(last) = units.last() else {
            return Ok(count);
        };
        after = Some(last.clone());
        let found = units.len() as u64;
        count += found;
        for units in distinct(units, context.database.dialect()) {
            copy_all(context, fence, job, units, clients, &mut module_wait).await?;
        }
        context.progress.advance(found);
        if found < UNITS {
            return Ok(count);
        }
        if rests {
            pauses::rest_after(began.elapsed()).await;
        }
    }
}

/// Divides changed units into parts of one group each, whose keys are distinct for the database.
fn distinct(units: Vec<ChangedUnit>, dialect: Dialect) -> Vec<Vec<ChangedUnit>> {
    let mut by_group: BTreeMap<usize, Vec<ChangedUnit>> = BTreeMap::new();
    let mut alone = Vec::new();
    let mut classes = HashSet::new();
    for unit in units {
        // On MySQL, keys of the same class may be equal, and one without a class equal to any.
        let is_distinct = dialect != Dialect::Mysql
            || unit
                .key
                .collation_class()
                .is_some_and(|class| classes.insert((unit.group, class)));
        if is_distinct {
            by_group.entry(unit.group).or_default().push(unit);
        } else {
            alone.push(vec![unit]);
        }
    }
    by_group.into_values().chain(alone).collect()
}

/// Copies units again: at once, or in halves where that is not possible.
async fn copy_all(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    units: Vec<ChangedUnit>,
    clients: Meanwhile,
    module_wait: &mut Duration,
) -> Result<(), MigrateError> {
    let mut waiting = vec![units];
    while let Some(mut units) = waiting.pop() {
        let copied = match clients {
            Meanwhile::Call | Meanwhile::Write => {
                let attempt = || copy(context, fence, job, &units, None);
                pauses::retry_batch(&context.progress, MigrateError::is_transient, attempt).await
            }
            // The caller tries again, and lets clients go on between.
            Meanwhile::Wait => copy(context, fence, job, &units, Some(module_wait)).await,
        };
        if copied? == Copied::NotAtOnce {
            let rest = units.split_off(units.len() / 2);
            waiting.extend([rest, units]);
        }
    }
    Ok(())
}

/// The result of an attempt to copy units.
#[derive(Debug, PartialEq, Eq)]
enum Copied {
    All,
    /// None of several: they are too large together, or one of them is at fault.
    NotAtOnce,
}

/// Copies units of one group again, and removes their records. Takes the time of their modules off
/// `module_wait`.
async fn copy(
    context: &Context,
    fence: &Fence,
    job: &Arc<Job>,
    units: &[ChangedUnit],
    module_wait: Option<&mut Duration>,
) -> Result<Copied, MigrateError> {
    let group = units[0].group;
    let keys: Vec<UnitKey> = units.iter().map(|unit| unit.key.clone()).collect();
    let mut reader = context.database.read().await?;
    let read = CopiedUnits::read(&mut reader, job, group, &keys).await?;
    // No transaction is open while a module is called: SQLite has one writer.
    drop(reader);
    let Some(read) = read else {
        return Ok(Copied::NotAtOnce);
    };
    let transformed = match module_wait {
        None => read.transformed(job).await?,
        Some(left) => {
            let began = Instant::now();
            let in_time = timeout(*left, read.transformed(job)).await;
            *left = left.saturating_sub(began.elapsed());
            in_time.map_err(|_| MigrateError::Behind {
                unit: keys[0].name(),
            })??
        }
    };
    let Some(mut transformed) = transformed else {
        return Ok(Copied::NotAtOnce);
    };
    loop {
        let mut tx = fence.begin_relaxed().await?;
        let written = async {
            transformed.replace(&mut tx, job).await?;
            // Last, since clients that change one of the units wait for the end of the transaction
            // from here on.
            changed_units::forget(&mut tx, units).await
        };
        match written.await {
            Err(MigrateError::RefusedRow { .. }) if units.len() > 1 => {
                return Ok(Copied::NotAtOnce);
            }
            Err(MigrateError::Rows(fault)) if fault.is_of_several_units() => {
                return Ok(Copied::NotAtOnce);
            }
            Err(MigrateError::RefusedRow { table, source }) => {
                transformed = transformed.without_refused(job, &table, &source)?;
            }
            written => {
                written?;
                fault::point(fault::BEFORE_CATCH_UP);
                tx.commit().await.about(COPIES)?;
                fault::point(fault::AFTER_CATCH_UP);
                context.progress.quarantined(transformed.left_out());
                return Ok(Copied::All);
            }
        }
    }
}
