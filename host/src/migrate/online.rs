//! A migration while the host serves. The originals are authoritative until the cut-over: reads
//! come from them, and writes go to them and to the copies in one transaction. Owns the state that
//! the copier shares with these writes; serving, and giving the store access to the tables, is the
//! caller's.

mod dual_write;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

pub(super) use dual_write::CopyWriter;

use bbs_database::Dialect;
use bbs_lens::layout::manifest::DataVersion;
use bbs_units::UnitKey;

use super::copy::UnitBudget;
use super::unit_locks::{GroupUnit, UnitLocks};
use super::{
    Context, Decision, Intent, Job, LinePair, MigrateError, Phase, RefusedUnits, Work, cut_over,
    decided, start_over, state, steps,
};
use crate::lock::fence::Fence;
use crate::store;

/// A migration that has begun and whose copies are ready for writes.
#[derive(Debug)]
pub struct Online {
    job: Arc<Job>,
    copy_writer: Arc<CopyWriter>,
}

/// How to continue after a migration has begun.
#[derive(Debug)]
pub enum Start {
    /// The database is at its version, or this host has to shut down.
    Done(Decision),
    /// Serve the version that was found, with dual writes.
    Follow(Online),
}

/// As [`super::run`], up to where rows would be copied.
///
/// # Errors
/// As [`super::run`], except that no unit is transformed.
pub async fn start(
    context: &Context,
    fence: &Fence,
    intent: Intent,
) -> Result<Start, MigrateError> {
    let decision = decided(context, fence, intent).await?;
    let (Decision::Begin { from, to } | Decision::Continue { from, to }) = decision else {
        if !matches!(decision, Decision::ShutDown(_)) {
            super::settle(context, fence).await?;
        }
        return Ok(Start::Done(decision));
    };
    let going_down = matches!(intent, Intent::Down { .. });
    let lines = LinePair::here(context, &mut context.database.read().await?).await?;
    let work = Work::with_dual_writes(context, lines.way(from, to))?;
    let job = steps::begin(context, fence, work, going_down).await?;
    let copy_writer = Arc::new(CopyWriter::new(Arc::clone(&job)));
    Ok(Start::Follow(Online { job, copy_writer }))
}

impl Online {
    /// The version that is served until the cut-over.
    pub fn from(&self) -> DataVersion {
        self.job.from
    }

    /// The version that is served after the cut-over.
    pub fn to(&self) -> DataVersion {
        self.job.to
    }

    /// Takes the writes of clients to the copies.
    pub fn dual_write(&self) -> Arc<dyn store::DualWrite> {
        Arc::clone(&self.copy_writer) as Arc<dyn store::DualWrite>
    }

    /// Everything up to complete and verified copies, while clients read and write.
    ///
    /// # Errors
    /// As [`super::run`]; [`MigrateError::NotFollowed`] once a write of a client could not be
    /// applied to the copies.
    pub async fn copy(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        steps::copy(context, fence, &self.job, &Arc::new(UnitBudget::of(None))).await?;
        steps::verify(context, &self.job).await?;
        steps::copy_postponed(context, fence, &self.job).await?;
        self.job.check_copies()
    }

    /// Makes the copies real. Only while no client reads or writes.
    ///
    /// # Errors
    /// [`MigrateError::NotFollowed`] as of [`Self::copy`]; another host has raised the fence, or
    /// the database fails.
    pub async fn cut_over(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        self.job.check_copies()?;
        self.job.check_postponed()?;
        cut_over::cut_over(context, fence, &self.job).await
    }

    /// Checks the tables under their new names, where that is not a part of the cut-over.
    ///
    /// # Errors
    /// A renamed table differs from its layout, or the database fails.
    pub async fn check_names(&self, context: &Context) -> Result<(), MigrateError> {
        cut_over::check_names(context, &self.job).await
    }

    /// Whether the version became durable, whatever the cut-over returned.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn has_arrived(&self, context: &Context) -> Result<bool, MigrateError> {
        let phase = state::phase(&mut context.database.read().await?).await?;
        Ok(phase.is_none_or(Phase::has_arrived))
    }

    /// Abandons the copies: from here on only the originals are written. Only while no client
    /// writes.
    ///
    /// # Errors
    /// Another host has raised the fence, or the database fails.
    pub async fn give_up(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        start_over(context, fence, &self.job, self.job.to < self.job.from).await
    }
}

impl Job {
    /// The fault that ended the dual writes, if any: the copies are out of date then.
    pub(super) fn check_copies(&self) -> Result<(), MigrateError> {
        match &self.dual_writes {
            None => Ok(()),
            Some(dual_writes) => dual_writes.fault(),
        }
    }

    /// The fault of a unit that is postponed to the last moment. With quarantine it is there.
    fn check_postponed(&self) -> Result<(), MigrateError> {
        let of_unit = |dual_writes: &DualWrites| {
            let postponed = dual_writes.postponed.lock();
            postponed.iter().next().map(|(_, key)| key.name())
        };
        match self.dual_writes.as_ref().and_then(of_unit) {
            Some(unit) if self.refused_units == RefusedUnits::Stop => {
                Err(MigrateError::NotFollowed {
                    source: Arc::new(MigrateError::Postponed { unit }),
                })
            }
            _ => Ok(()),
        }
    }
}

/// The state that the copier shares with the writes of clients.
#[derive(Debug)]
pub(super) struct DualWrites {
    pub(super) locks: UnitLocks,
    broken: OnceLock<Arc<MigrateError>>,
    /// Units of which a copy has refused a row.
    suspects: Mutex<HashSet<GroupUnit>>,
    /// Units for which modules took longer than a client waits.
    postponed: Mutex<HashSet<GroupUnit>>,
    /// A row that a copy has refused, until a later transaction abandons the copies: the
    /// transaction in which it was refused can do nothing more.
    refusal: Mutex<Option<MigrateError>>,
}

impl DualWrites {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            locks: UnitLocks::new(dialect == Dialect::Mysql),
            broken: OnceLock::new(),
            suspects: Mutex::default(),
            postponed: Mutex::default(),
            refusal: Mutex::default(),
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Keeps the first fault.
    fn broken_by(&self, fault: MigrateError) {
        let _ = self.broken.set(Arc::new(fault));
    }

    fn suspect(&self, unit: GroupUnit) {
        self.suspects.lock().insert(unit);
    }

    fn is_suspect(&self, unit: &GroupUnit) -> bool {
        self.suspects.lock().contains(unit)
    }

    fn postpone(&self, unit: GroupUnit) {
        self.postponed.lock().insert(unit);
    }

    fn is_postponed(&self, unit: &GroupUnit) -> bool {
        self.postponed.lock().contains(unit)
    }

    /// The units that are postponed, by group. They are no longer, so that a client's write takes
    /// them to the copies, or postpones them again.
    pub(super) fn take_postponed(&self) -> BTreeMap<usize, BTreeSet<UnitKey>> {
        let mut postponed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (group, key) in self.postponed.lock().drain() {
            postponed.entry(group).or_default().insert(key);
        }
        postponed
    }

    fn refused_by(&self, fault: MigrateError) {
        *self.refusal.lock() = Some(fault);
    }

    fn take_refusal(&self) -> Option<MigrateError> {
        self.refusal.lock().take()
    }

    fn fault(&self) -> Result<(), MigrateError> {
        self.broken.get().map_or(Ok(()), |fault| {
            Err(MigrateError::NotFollowed {
                source: Arc::clone(fault),
            })
        })
    }
}
