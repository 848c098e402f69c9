//! Serving while a migration runs: from one second after the lock is held. Owns what clients see meanwhile, when they
//! wait, and what happens to them if the migration does not get to its end: nothing.

use std::time::{Duration, Instant};

use tracing::Instrument;

use super::{Prepared, StartupError};
use crate::lock::fence::Fence;
use crate::migrate::online::{self, Online, Start};
use crate::migrate::{self, Context, Decision, Found, MigrateError};
use crate::progress::STOPPED;
use crate::store::Store;

/// How long writing a batch may take while clients write, too: whoever wants a unit of the batch waits about this long.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// Before something that waited for somebody else's lock is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Prepared {
    /// As bringing the database to the version wanted, but for the copying, during which it can be served.
    pub(super) async fn begin_to(&self, fence: &Fence) -> Result<Start, StartupError> {
        let intent = self.intent();
        if migrate::found(&self.database).await? == Found::Fresh {
            // There is nothing to serve meanwhile, and no table that a client could write to.
            return Ok(Start::Done(self.bring_to(fence, intent).await?));
        }
        self.announce(intent).await?;
        self.begin_rotation(fence).await?;
        match online::start(&self.context(), fence, intent).await? {
            Start::Done(Decision::ShutDown(reason)) => Err(StartupError::ShutDown(reason)),
            started => Ok(started),
        }
    }

    /// The entities at the version that a migration leaves, with the migration following along.
    pub(super) async fn store_following(&self, fence: &Fence, online: &Online) -> Result<Store, StartupError> {
        let access = self.access(fence, online.from(), false).await?.writing_also(online.dual_write());
        Ok(self.store(fence, access))
    }

    fn online_context(&self) -> Context {
        let mut context = self.context();
        if self.config.migration.batch_time.is_none() {
            context.tuning.batch_time = BATCH_TIME;
        }
        context
    }

    /// Migrates beside the served API, and says whether it got there. A migration that cannot be finished costs no client
    /// anything: the originals are served as before, and the next start tries again.
    pub(super) async fn follow(&self, fence: &Fence, online: &Online, store: &Store) -> Result<bool, StartupError> {
        let context = self.online_context();
        let span = tracing::info_span!("migration-manager", from = online.from(), to = online.to());
        let done = async {
            online.copy(&context, fence).await?;
            self.switch(&context, fence, online, store).await
        };
        match done.instrument(span).await {
            Ok(()) => {
                clean_up(&context, fence, online).await?;
                Ok(true)
            }
            Err(StartupError::Migrate(fault)) if !online.has_arrived(&context).await? => {
                self.go_on_without(fence, online, store, &fault).await?;
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The cut-over: clients wait from when the last of them has what it asked for until the names have changed.
    async fn switch(
        &self,
        context: &Context,
        fence: &Fence,
        online: &Online,
        store: &Store,
    ) -> Result<(), StartupError> {
        // Everything that can be got ready without keeping anybody waiting.
        let next = self.access(fence, online.to(), self.is_pinned(online.to())).await?;
        loop {
            let mut access = store.switch().await;
            let began = Instant::now();
            match online.cut_over(context, fence).await {
                Ok(()) => {
                    *access = next;
                    drop(access);
                    let blocked_ms = began.elapsed().as_secs_f64() * 1000.0;
                    tracing::info!(name: "cut-over", blocked_ms, data_version = online.to(), "cut over");
                    return Ok(());
                }
                Err(fault) if fault.is_transient() && !online.has_arrived(context).await? => {
                    drop(access);
                    tracing::info!(
                        name: "cut-over-waits",
                        reason = %fault, "the cut-over waits for somebody else's lock and is tried again"
                    );
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    async fn go_on_without(
        &self,
        fence: &Fence,
        online: &Online,
        store: &Store,
        fault: &MigrateError,
    ) -> Result<(), StartupError> {
        let reason = with_sources(fault);
        tracing::error!(
            name: "migration-failed",
            reason,
            "the migration ends here; the API goes on at the version found, and the next start tries again"
        );
        let access = self.access(fence, online.from(), false).await?;
        let mut current = store.switch().await;
        // Only once the database says that the copies are given up may a write leave them out.
        online.give_up(&self.online_context(), fence).await?;
        *current = access;
        self.progress.enter(STOPPED, reason, None);
        Ok(())
    }
}

/// As often as clients, or whoever reads what is removed, are in the way: they are served meanwhile.
async fn clean_up(context: &Context, fence: &Fence, online: &Online) -> Result<(), MigrateError> {
    loop {
        match online.clean_up(context, fence).await {
            Err(fault) if fault.is_transient() => {
                tracing::info!(
                    name: "clean-up-waits",
                    reason = %fault, "the clean-up waits for somebody else's lock and is tried again"
                );
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            done => return done,
        }
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
