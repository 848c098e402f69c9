//! A migration while the host serves. The originals stay what counts until the cut-over: reads come from them, and
//! writes go to them and to the copies in one transaction. Owns the order of steps; who serves, and how the store gets
//! at the tables, is the caller's.

mod keys;
mod mirror;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub(super) use keys::{Held, UnitLocks};
pub(super) use mirror::Mirror;

use super::part::Allowance;
use super::{
    Context, Decision, Intent, MigrateError, Phase, Work, begin, copy, cut_over, decided, fault, line, prepare,
    start_over, state, verify,
};
use crate::database::Dialect;
use crate::layout::manifest::DataVersion;
use crate::lock::fence::Fence;
use crate::store;

/// A migration that has begun and whose copies are ready to be written to.
#[derive(Debug)]
pub struct Online {
    work: Arc<Work>,
    mirror: Arc<Mirror>,
}

/// How to go on after a migration was begun.
#[derive(Debug)]
pub enum Start {
    /// The database is where it has to be, or this host has to shut down.
    Done(Decision),
    /// Serve the version that was found, with this migration following along.
    Follow(Online),
}

/// As [`super::run`], up to where records would be copied.
pub async fn start(context: &Context, fence: &Fence, intent: Intent) -> Result<Start, MigrateError> {
    let line = line(&context.migrations)?;
    let decision = decided(context, fence, &line, intent).await?;
    let (Decision::Begin { from, to } | Decision::Continue { from, to }) = decision else {
        if !matches!(decision, Decision::ShutDown(_)) {
            super::settle(context, fence).await?;
        }
        return Ok(Start::Done(decision));
    };
    let going_down = matches!(intent, Intent::Down { .. });
    let mut work = Work::following(context, &line, from, to);
    let resumed = begin(context, fence, &mut work, going_down).await?;
    let work = Arc::new(work);
    if !resumed {
        prepare(context, fence, &work, going_down).await?;
    }
    let mirror = Arc::new(Mirror::new(Arc::clone(&work)));
    Ok(Start::Follow(Online { work, mirror }))
}

impl Online {
    /// The version that is served until the cut-over.
    pub fn from(&self) -> DataVersion {
        self.work.from
    }

    pub fn to(&self) -> DataVersion {
        self.work.to
    }

    /// What takes the writes of clients to the copies.
    pub fn mirror(&self) -> Arc<dyn store::Mirror> {
        Arc::clone(&self.mirror) as Arc<dyn store::Mirror>
    }

    /// Everything up to copies that are complete and verified, while clients go on reading and writing.
    pub async fn copy(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        copy::copy(context, fence, &self.work, &Arc::new(Allowance::of(None))).await?;
        fault::point(fault::AFTER_COPY);
        cut_over::build_indexes(context, fence, &self.work).await?;
        cut_over::change_ahead(context, fence, &self.work).await?;
        verify::verify(context, &self.work).await?;
        fault::point(fault::AFTER_VERIFY);
        self.work.check_mirror()
    }

    /// Makes the copies real. Only while nobody reads or writes.
    pub async fn cut_over(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        self.work.check_mirror()?;
        cut_over::cut_over(context, fence, &self.work).await
    }

    /// Removes what the migration replaced.
    pub async fn clean_up(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        cut_over::check_names(context, &self.work).await?;
        cut_over::clean_up(context, fence).await
    }

    /// Whether the cut-over has become durable, whatever was said of it.
    pub async fn has_arrived(&self, context: &Context) -> Result<bool, MigrateError> {
        let mut reader = context.database.read().await?;
        let phase = state::underway(&mut reader).await?.map(|underway| underway.phase);
        Ok(matches!(phase, None | Some(Phase::Renaming | Phase::CleaningUp)))
    }

    /// Gives the copies up: from here on only the originals are written. Only while nobody writes.
    pub async fn give_up(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        start_over(context, fence, &self.work, self.work.to < self.work.from).await
    }
}

impl Work {
    /// What broke the mirror, if anything did: the copies are worth nothing any more.
    pub(super) fn check_mirror(&self) -> Result<(), MigrateError> {
        match &self.following {
            None => Ok(()),
            Some(following) => following.fault(),
        }
    }
}

/// What the copier and the writes of clients have in common.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) locks: UnitLocks,
    broken: OnceLock<Arc<MigrateError>>,
    /// A row that a copy has refused, until a transaction gives the copies up. The one in which it was refused cannot.
    refusal: Mutex<Option<MigrateError>>,
}

impl Following {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { locks: UnitLocks::new(dialect == Dialect::Mysql), broken: OnceLock::new(), refusal: Mutex::default() }
    }

    fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// The first fault is what counts.
    fn broken_by(&self, fault: MigrateError) {
        let _ = self.broken.set(Arc::new(fault));
    }

    fn refused_by(&self, fault: MigrateError) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    fn take_refusal(&self) -> Option<MigrateError> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn fault(&self) -> Result<(), MigrateError> {
        self.broken.get().map_or(Ok(()), |fault| Err(MigrateError::NotFollowed { source: Arc::clone(fault) }))
    }
}
