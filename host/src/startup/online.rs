//! Serving while a migration runs, from about one second after the lock is taken. Owns the store
//! that clients use meanwhile, when they wait, and the return to the original tables if the
//! migration fails.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, Retryable};
use bbs_work::causes::with_causes;
use bbs_work::pauses;
use bbs_work::progress::{STOPPED, Wait};
use tokio::time::timeout;
use tracing::Instrument;

use super::{Prepared, StartupError};
use crate::lock::fence::Fence;
use crate::migrate::online::{self, Online, Start};
use crate::migrate::{self, Context, Decision, Found, MigrateError};
use crate::store::{Store, Switch, TableAccess};

/// Target duration of writing a batch while clients write, too: on SQLite they wait for it.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// Pause before a migration goes on after an outage.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait of calls for the outcome of a cut-over that has failed.
const OUTCOME_WAIT: Duration = Duration::from_secs(1);
/// Attempts of a cut-over before which clients had changed units that modules take long for.
const ATTEMPTS_BEHIND: u32 = 5;

impl Prepared {
    /// Migrates like [`bring_to`](Self::bring_to), except for the copy, during which the database
    /// can be served.
    pub(super) async fn begin_to(&self, fence: &Fence) -> Result<Start, StartupError> {
        let intent = self.intent();
        if migrate::found(&self.database).await? == Found::Fresh {
            // There is no table to serve, and none that clients could write to.
            return Ok(Start::Done(self.bring_to(fence, intent).await?));
        }
        self.announce(intent).await?;
        self.begin_rotation(fence).await?;
        match online::start(&self.context(), fence, intent).await? {
            Start::Done(Decision::ShutDown(reason)) => Err(StartupError::ShutDown(reason)),
            started => Ok(started),
        }
    }

    /// Access to the source version of the migration, with a record of what clients change.
    pub(super) async fn access_following(
        &self,
        fence: &Fence,
        online: &Online,
    ) -> Result<TableAccess, StartupError> {
        Ok(self
            .access(fence, online.from(), false)
            .await?
            .with_change_recorder(online.change_recorder()))
    }

    fn online_context(&self) -> Context {
        let mut context = self.context();
        if self.config.migration.batch_time.is_none() {
            context.tuning.batch_time = BATCH_TIME;
        }
        context
    }

    /// Copies and cuts over while the API is served. Returns whether the migration is complete. A
    /// failed migration has no effect on clients: the originals are served as before, and the next
    /// start retries.
    pub(super) async fn follow(
        &self,
        fence: &Fence,
        online: &Online,
        store: &Store,
    ) -> Result<bool, StartupError> {
        let context = self.online_context();
        let span = tracing::info_span!("migration-manager", from = online.from(), to = online.to());
        match self
            .copy_and_switch(&context, fence, online, store)
            .instrument(span)
            .await
        {
            Ok(()) => {
                (|| online.check_names(&context))
                    .retry(pauses::of_outcome())
                    .when(MigrateError::is_repeatable)
                    .await?;
                Ok(true)
            }
            Err(StartupError::Migrate(
                fault @ (MigrateError::Locked { .. } | MigrateError::Behind { .. }),
            )) if !self.has_arrived(&context, fence, online).await? => {
                self.go_on_beside(&fault);
                Ok(false)
            }
            Err(StartupError::Migrate(fault))
                if !self.has_arrived(&context, fence, online).await? =>
            {
                self.go_on_without(fence, online, store, &fault).await?;
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Goes on after an outage of the server, from the last batch.
    async fn copy_and_switch(
        &self,
        context: &Context,
        fence: &Fence,
        online: &Online,
        store: &Store,
    ) -> Result<(), StartupError> {
        loop {
            let done = async {
                online.copy(context, fence).await?;
                self.switch(context, fence, online, store).await
            };
            let Err(fault) = done.await else {
                return Ok(());
            };
            if !fault.is_outage() || self.has_arrived(context, fence, online).await? {
                return Err(fault);
            }
            let reason = with_causes(&fault);
            tracing::warn!(name: "migration-interrupted", %reason, "the migration goes on after an outage of the database");
            self.progress.retried();
            tokio::time::sleep(OUTAGE_PAUSE).await;
        }
    }

    /// Waits for the server.
    async fn has_arrived(
        &self,
        context: &Context,
        fence: &Fence,
        online: &Online,
    ) -> Result<bool, MigrateError> {
        (|| online.has_arrived(context, fence))
            .retry(pauses::of_outcome())
            .when(MigrateError::is_repeatable)
            .await
    }

    /// The cut-over. Clients wait from the end of the last call in progress until the tables are
    /// renamed.
    async fn switch(
        &self,
        context: &Context,
        fence: &Fence,
        online: &Online,
        store: &Store,
    ) -> Result<(), StartupError> {
        // Prepared before clients have to wait. After the cut-over, what the catalog has inserted
        // has run, too.
        let layouts = self.catalog.layout_history();
        let next = self
            .access_in(layouts, fence, online.to(), self.is_pinned(online.to()))
            .await?;
        let mut pauses = pauses::of_locks(context.tuning.lock_timeout).build();
        let mut times_behind = 0;
        let mut list_waits = 0;
        loop {
            online.catch_up(context, fence).await?;
            online.prepare_cut_over(context).await?;
            let Some(pending) = store.try_pending_switch(&mut list_waits).await else {
                continue;
            };
            // Again, so that little is left while all clients wait.
            online.catch_up_soon(context, fence).await?;
            let mut switch = pending.exclude_others().await;
            let began = Instant::now();
            // Closed also if this is dropped meanwhile, at a signal: the calls that wait would go
            // on with tables that are replaced, or about to be.
            let done = online.cut_over(context, fence, || switch.close());
            let fault = match done.await {
                Ok(()) => {
                    switch.open(next);
                    let blocked_ms = began.elapsed().as_secs_f64() * 1000.0;
                    tracing::info!(name: "cut-over", blocked_ms, data_version = online.to(), "cut over");
                    return Ok(());
                }
                Err(fault) => fault,
            };
            if !self.reopened(context, fence, online, store, switch).await? {
                return Err(fault.into());
            }
            if matches!(fault, MigrateError::Behind { .. }) && times_behind < ATTEMPTS_BEHIND {
                times_behind += 1;
                continue;
            }
            if !fault.is_transient() || fault.is_outage() {
                return Err(fault.into());
            }
            let holders = migrate::lock_holders(&context.database).await;
            let Some(pause) = pauses.next() else {
                return Err(MigrateError::Locked {
                    holders,
                    source: Box::new(fault),
                }
                .into());
            };
            tracing::warn!(
                name: "cut-over-waits",
                reason = %with_causes(&fault), holders, ?pause, "another client holds a lock on a table; trying again"
            );
            self.progress
                .enter("cut-over", format!("waits for a lock of {holders}"), None);
            let _waiting = self.progress.wait(Wait::Lock);
            tokio::time::sleep(pause).await;
        }
    }

    /// Lets calls go on with the original tables after a cut-over that has failed, unless its
    /// version has become durable all the same, of which the answer may be lost. While that cannot
    /// be found out, calls wait for a moment, and then are refused. Returns whether they go on.
    async fn reopened(
        &self,
        context: &Context,
        fence: &Fence,
        online: &Online,
        store: &Store,
        switch: Switch,
    ) -> Result<bool, MigrateError> {
        if switch.is_open() {
            return Ok(true);
        }
        if let Ok(Ok(has_arrived)) = timeout(OUTCOME_WAIT, online.has_arrived(context, fence)).await
        {
            if !has_arrived {
                switch.reopen();
            }
            return Ok(!has_arrived);
        }
        drop(switch);
        let has_arrived = self.has_arrived(context, fence, online).await?;
        if !has_arrived {
            store.switch().await.reopen();
        }
        Ok(!has_arrived)
    }

    /// The copies are caught up with by the next start, or reload, which cuts over.
    fn go_on_beside(&self, fault: &MigrateError) {
        let reason = with_causes(fault).to_string();
        tracing::error!(
            name: "cut-over-given-up",
            %reason,
            "the API continues at the version found, with the copies; the next start or reload cuts over"
        );
        self.progress.enter(STOPPED, reason, None);
    }

    async fn go_on_without(
        &self,
        fence: &Fence,
        online: &Online,
        store: &Store,
        fault: &MigrateError,
    ) -> Result<(), StartupError> {
        let reason = with_causes(fault).to_string();
        let given_up = async {
            let access = (|| self.access(fence, online.from(), false))
                .retry(pauses::of_outcome())
                .when(
                    |fault| matches!(fault, StartupError::Migrate(fault) if fault.is_repeatable()),
                )
                .await?;
            let context = self.online_context();
            // Changes may go unrecorded only after the database says that the copies are abandoned.
            (|| online.abandon(&context, fence))
                .retry(pauses::of_outcome())
                .when(MigrateError::is_repeatable)
                .await?;
            store.switch_between_lists().await.open(access);
            Ok(())
        };
        let given_up: Result<(), StartupError> = given_up.await;
        tracing::error!(
            name: "migration-failed",
            %reason,
            "the migration failed; the API continues at the version found, and the next start retries"
        );
        given_up?;
        self.remove_copies(fence, online).await?;
        self.progress.enter(STOPPED, reason, None);
        Ok(())
    }

    /// Removes the copies of a migration that has failed, beside the service: another client may
    /// keep them locked for long. What is not removed is left to the next start or reload.
    async fn remove_copies(&self, fence: &Fence, online: &Online) -> Result<(), MigrateError> {
        let context = self.online_context();
        let removed = (|| online.remove_copies(&context, fence))
            .retry(pauses::of_background_work())
            .when(MigrateError::is_repeatable)
            .notify(|fault, delay| {
                self.progress.retried();
                let reason = with_causes(fault);
                tracing::warn!(name: "clean-up-waits", %reason, ?delay, "the copies of the failed migration are not removed yet");
            })
            .await;
        match removed {
            Err(fault) if !fault.is_lost() => {
                let reason = with_causes(&fault);
                tracing::warn!(
                    name: "copies-stay",
                    %reason, "the copies of the failed migration are not removed; the next start or reload removes them"
                );
                Ok(())
            }
            removed => removed,
        }
    }

    /// Removes what a complete migration replaced, or an abandoned one has made, beside the service:
    /// retries while others hold locks on it, or have made something that depends on it.
    pub(super) async fn clean_up_in_background(&self, fence: &Fence) -> Result<(), MigrateError> {
        let context = self.online_context();
        self.retried(|| migrate::clean_up_rows(&context, fence))
            .await?;
        // By themselves: a table that stays locked has no unit in quarantine tried again.
        self.retried(|| migrate::clean_up_tables(&context, fence))
            .await
    }

    async fn retried<F>(&self, clean_up: impl FnMut() -> F) -> Result<(), MigrateError>
    where
        F: Future<Output = Result<(), MigrateError>>,
    {
        clean_up
            .retry(pauses::of_background_work())
            .when(|fault| !fault.is_lost())
            .notify(|fault, delay| {
                self.progress.retried();
                let reason = with_causes(fault);
                tracing::warn!(
                    name: "clean-up-waits", %reason, ?delay,
                    "rows or tables that no migration needs any more are not removed yet; end the sessions that lock them, or drop \
                     the objects that depend on them. The host tries again"
                );
            })
            .await
    }
}
