//! A migration while the host serves. Clients read and write the originals until the cut-over, and
//! their transactions record which units they change; the copier copies these again. Serving, and
//! giving the store access to the tables, is the caller's.

use std::sync::Arc;

use bbs_database::{Dialect, StatementResult};
use bbs_lens::layout::manifest::DataVersion;

use super::copy::UnitBudget;
use super::copy::catch_up::Meanwhile;
use super::state::changed_units::{self, UnitRecorder};
use super::{
    Context, Decision, HistoryPair, Intent, Job, MigrateError, Phase, Work, cut_over, decided,
    prepare, start_over, state, steps,
};
use crate::lock::fence::Fence;
use crate::store::ChangeRecorder;

/// A migration that has begun and whose copies are made.
#[derive(Debug)]
pub struct Online {
    job: Arc<Job>,
}

/// How to continue after a migration has begun.
#[derive(Debug)]
pub enum Start {
    /// The database is at its version, or this host has to shut down.
    Done(Decision),
    /// Serve the version that was found, and record what clients change.
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
    let context = &Context {
        is_online: true,
        ..context.clone()
    };
    let decision = decided(context, fence, intent).await?;
    let (Decision::Begin { from, to } | Decision::Continue { from, to }) = decision else {
        if !matches!(decision, Decision::ShutDown(_)) {
            super::settle(context, fence).await?;
        }
        return Ok(Start::Done(decision));
    };
    let histories = HistoryPair::here(context, &mut context.database.read().await?).await?;
    let work = Work::online(context, histories.way(from, to))?;
    let job = steps::begin(context, fence, work).await?;
    Ok(Start::Follow(Online { job }))
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

    /// Records the units that clients change.
    pub fn change_recorder(&self) -> Arc<dyn ChangeRecorder> {
        Arc::new(UnitRecorder::new(Arc::clone(&self.job)))
    }

    /// Removes what clients have recorded for an earlier migration, whose groups of tables may be
    /// others. Only while no client writes.
    ///
    /// # Errors
    /// Another host has raised the fence, or the database fails.
    pub async fn forget_earlier_changes(&self, fence: &Fence) -> Result<(), MigrateError> {
        if self.job.is_resumed {
            return Ok(());
        }
        // A commit that goes on without its connection changes units without a record.
        fence.wait_for_transactions().await?;
        changed_units::forget_all(fence).await
    }

    /// Everything up to complete and verified copies, while clients read and write.
    ///
    /// # Errors
    /// As [`super::run`].
    pub async fn copy(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        steps::copy(context, fence, &self.job, &Arc::new(UnitBudget::of(None))).await?;
        steps::verify(context, fence, &self.job).await
    }

    /// Copies again what clients have changed, while they read and write.
    ///
    /// # Errors
    /// As [`super::run`].
    pub async fn catch_up(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        steps::catch_up(context, fence, &self.job, Meanwhile::Call).await
    }

    /// Does ahead what the cut-over would make clients wait for.
    pub async fn prepare_cut_over(&self, context: &Context) -> Result<(), MigrateError> {
        let done = context.database.checkpoint().await;
        Ok(done.about("the log of the database")?)
    }

    /// A catch-up while lists wait for the cut-over. It cannot be paused.
    ///
    /// # Errors
    /// As [`super::run`].
    pub async fn catch_up_soon(
        &self,
        context: &Context,
        fence: &Fence,
    ) -> Result<(), MigrateError> {
        steps::catch_up(context, fence, &self.job, Meanwhile::Write).await
    }

    /// Completes the copies and makes them real. Only while no client reads or writes. Calls
    /// `replaces` before it begins to replace the tables: from there on, an error may hide that
    /// they are replaced.
    ///
    /// # Errors
    /// [`MigrateError::Behind`] if modules take long for what clients have changed last;
    /// [`MigrateError::Attached`] if something was added that would be lost with a replaced table;
    /// another host has raised the fence, or the database fails.
    pub async fn cut_over(
        &self,
        context: &Context,
        fence: &Fence,
        replaces: impl FnOnce(),
    ) -> Result<(), MigrateError> {
        // The units of a commit that goes on without its connection are not recorded yet.
        fence.wait_for_transactions().await?;
        steps::catch_up(context, fence, &self.job, Meanwhile::Wait).await?;
        replaces();
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
    /// Another host has raised the fence, or the database fails; transient if the cut-over may
    /// still be committed.
    pub async fn has_arrived(
        &self,
        context: &Context,
        fence: &Fence,
    ) -> Result<bool, MigrateError> {
        if context.database.dialect() != Dialect::Sqlite {
            // A server may go on with a commit whose connection is lost.
            state::wait_for_writers(fence).await?;
        }
        let mut tx = context.database.read().await?;
        let phase = state::phase(&mut tx).await?;
        Ok(phase.is_none_or(Phase::has_arrived))
    }

    /// Records that the copies are abandoned: from here on the changes of clients need no record.
    ///
    /// # Errors
    /// Another host has raised the fence, or the database fails.
    pub async fn abandon(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        prepare::abandon(context, fence, &self.job).await
    }

    /// Removes abandoned copies, while clients read and write the originals without a record of
    /// what they change. Safe to repeat.
    ///
    /// # Errors
    /// [`MigrateError::Locked`] if another client has locked a copy for too long, another host has
    /// raised the fence, or the database fails.
    pub async fn remove_copies(
        &self,
        context: &Context,
        fence: &Fence,
    ) -> Result<(), MigrateError> {
        prepare::remove_copies(context, fence, &self.job).await
    }

    /// Abandons the copies, and removes them. Only while no client writes.
    ///
    /// # Errors
    /// Another host has raised the fence, or the database fails.
    pub async fn give_up(&self, context: &Context, fence: &Fence) -> Result<(), MigrateError> {
        start_over(context, fence, &self.job).await
    }
}
