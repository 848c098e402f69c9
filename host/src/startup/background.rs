//! The work of a master beside answering calls: the online migration, then a key rotation, and
//! reloads of the modules. Owns what may change without a restart: translators serve at once, and a
//! newer migration begins as an online one; if anything is wrong, nothing changes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs_work::causes::with_causes;
use bbs_work::progress::SERVING;
use futures_util::FutureExt;
use futures_util::future::FusedFuture;

use super::prepared::{check_versions, load};
use super::report::MetricsReporter;
use super::takeover::examine_briefly;
use super::{Prepared, StartupError};
use crate::domain::Service;
use crate::lock::fence::Fence;
use crate::migrate::online::{Online, Start};
use crate::migrate::{self, Decision, Found};
use crate::reload::{ReloadReceiver, ReloadReport, ReloadResult};
use crate::store::Store;

/// How long a reload waits for the work in progress: a host that has just begun to serve looks for
/// records under old keys, and after a reload that migrates nothing, cleans up.
const SHORT_WORK: Duration = Duration::from_secs(5);

impl Prepared {
    /// A copy with the modules that the folders have now. Changes nothing; compiles new modules on
    /// another thread.
    async fn with_reloaded_modules(&self) -> Result<Self, StartupError> {
        let catalog = load(&self.config, &self.sandbox, &self.catalog, true).await?;
        check_versions(&self.config, &catalog)?;
        Ok(Self {
            catalog: Arc::new(catalog),
            ..self.clone()
        })
    }

    fn has_migrations_of(&self, other: &Self) -> bool {
        self.catalog
            .migration_digests()
            .eq(other.catalog.migration_digests())
    }

    /// The difference to the modules of before.
    fn report_since(&self, before: &Self, migrates_to: Option<u64>) -> ReloadReport {
        let missing_in = |one: &Self, other: &Self| {
            let known: BTreeSet<_> = other.catalog.files().into_keys().collect();
            let missing = one
                .catalog
                .files()
                .into_iter()
                .filter(|(digest, _)| !known.contains(digest));
            missing.map(|(_, file)| file.to_owned()).collect()
        };
        ReloadReport {
            added: missing_in(self, before),
            removed: missing_in(before, self),
            migrates_to,
        }
    }

    /// Loads the modules again while this host waits for the lock: it begins with the new ones once
    /// it has it. The result is for the client that requested it.
    pub(super) async fn reload_as_standby(&mut self) -> ReloadResult {
        let result = match self.with_reloaded_modules().await {
            // Reports a refusal of the takeover now, while an operator is watching.
            Ok(next) => examine_briefly(next.may_serve()).await.map(|()| next),
            Err(error) => Err(error),
        };
        logged(result.map(|next| {
            let report = next.report_since(self, None);
            self.adopt(next);
            report
        }))
    }
}

/// The parts with which a master serves; they stay the same over reloads.
pub(super) struct Serving<'a> {
    pub(super) fence: &'a Fence,
    pub(super) report: &'a MetricsReporter,
    pub(super) service: &'a Service,
    pub(super) store: &'a Store,
}

impl Serving<'_> {
    /// The background work while the API is served, and the reloads. Leaves in `prepared` the
    /// modules that were served last.
    ///
    /// # Errors
    /// This host is no longer the master, or a migration ended it.
    pub(super) async fn run(
        &self,
        prepared: &mut Prepared,
        begun: Option<(Online, Instant)>,
        requests: &mut ReloadReceiver,
    ) -> Result<Infallible, StartupError> {
        let mut work = pin!(self.background(prepared.clone(), begun).fuse());
        loop {
            let request = unless_work_fails(work.as_mut(), requests.next()).await?;
            // Compiling takes seconds; the work goes on.
            let loaded = unless_work_fails(work.as_mut(), prepared.with_reloaded_modules()).await?;
            let result = match loaded {
                Ok(next) => {
                    if !next.has_migrations_of(prepared) && !work.is_terminated() {
                        // What is left after this time refuses the reload.
                        tokio::time::timeout(SHORT_WORK, work.as_mut())
                            .await
                            .unwrap_or(Ok(()))?;
                    }
                    let is_idle = work.is_terminated();
                    let changed =
                        unless_work_fails(work.as_mut(), self.change_to(&next, prepared, is_idle))
                            .await?;
                    changed.map(|begun| (next, begun))
                }
                Err(error) => Err(error),
            };
            let result = result.map(|(next, begun)| {
                let report = next.report_since(prepared, begun.as_ref().map(Online::to));
                // Other migrations are refused beside work. Without one that begins, the clean-up
                // of an earlier one may have been postponed.
                let has_new_work = begun.is_some() || !next.has_migrations_of(prepared);
                prepared.adopt(next);
                if has_new_work {
                    let begun = begun.map(|online| (online, Instant::now()));
                    work.set(self.background(prepared.clone(), begun).fuse());
                }
                report
            });
            // The client may have gone.
            let _ = request.send(logged(result));
        }
    }

    /// The online migration and its clean-up, or that of an earlier one, then a key rotation: also
    /// if the migration has failed, since a module may fail at each start while a key has to go.
    async fn background(
        &self,
        prepared: Prepared,
        begun: Option<(Online, Instant)>,
    ) -> Result<(), StartupError> {
        if let Some((online, began)) = begun {
            if !prepared.follow(self.fence, &online, self.store).await? {
                return prepared.rotate_in_background(self.fence, self.report).await;
            }
            finished_migrations(self.report, began);
        }
        prepared.clean_up_in_background(self.fence).await?;
        prepared.progress.enter(SERVING, "", None);
        prepared.rotate_in_background(self.fence, self.report).await
    }

    /// Serves with other modules, and begins the migration that they need. If it fails, nothing has
    /// changed.
    async fn change_to(
        &self,
        next: &Prepared,
        now: &Prepared,
        is_idle: bool,
    ) -> Result<Option<Online>, StartupError> {
        let api = Arc::new(next.api(self.service.clone())?);
        let same_migrations = next.has_migrations_of(now);
        if !is_idle && !same_migrations {
            return Err(StartupError::WorkUnderWay);
        }
        next.may_serve().await?;
        let online = if is_idle {
            self.begin_migration_after_reload(next, same_migrations)
                .await?
        } else {
            None
        };
        next.gate.open(api);
        if let Err(error) = next.remember_serials(self.fence).await {
            let reason = with_causes(&error);
            tracing::error!(%reason, "the serials of the catalogs could not be recorded; the next start does it");
        }
        Ok(online)
    }

    async fn begin_migration_after_reload(
        &self,
        next: &Prepared,
        same_migrations: bool,
    ) -> Result<Option<Online>, StartupError> {
        let found = migrate::found(&next.database).await?;
        let decision = migrate::decide(&found, next.intent());
        if matches!(decision, Decision::Begin { .. } | Decision::Continue { .. })
            && let Start::Follow(online) = next.begin_to(self.fence).await?
        {
            return self.record_changes_for(next, online).await.map(Some);
        }
        if let Found::Versioned { current, .. } = found
            && !same_migrations
        {
            let access = next
                .access(self.fence, current, next.stays_at(current))
                .await?;
            // With this access, what clients change is not recorded: copies whose cut-over was given
            // up must not be resumed.
            migrate::settle(&next.context(), self.fence).await?;
            self.store.switch_between_lists().await.open(access);
            next.progress.enter(SERVING, "", None);
        }
        Ok(None)
    }

    /// From here on, what clients change is recorded.
    async fn record_changes_for(
        &self,
        next: &Prepared,
        online: Online,
    ) -> Result<Online, StartupError> {
        let recording = async {
            let access = next.access_following(self.fence, &online).await?;
            let switch = self.store.switch_between_lists().await;
            online.forget_earlier_changes(self.fence).await?;
            switch.open(access);
            Ok(())
        };
        match recording.await {
            Ok(()) => Ok(online),
            Err(error) => {
                // Nothing was copied.
                online.give_up(&next.context(), self.fence).await?;
                Err(error)
            }
        }
    }
}

/// The result of a task while the background work goes on.
///
/// # Errors
/// The work has failed.
async fn unless_work_fails<T>(
    mut work: Pin<&mut impl FusedFuture<Output = Result<(), StartupError>>>,
    task: impl Future<Output = T>,
) -> Result<T, StartupError> {
    let mut task = pin!(task);
    loop {
        tokio::select! {
            done = &mut work, if !work.is_terminated() => done?,
            result = &mut task => return Ok(result),
        }
    }
}

/// Reports the end of the migrations that began at a time.
pub(super) fn finished_migrations(report: &MetricsReporter, began: Instant) {
    report.migrated(began.elapsed());
    tracing::info!(name: "migration-manager.finished-migrations", "the database is at the wanted version");
}

fn logged(result: Result<ReloadReport, StartupError>) -> ReloadResult {
    match result {
        Ok(report) => {
            let ReloadReport {
                added,
                removed,
                migrates_to,
            } = &report;
            tracing::info!(name: "modules.reloaded", ?added, ?removed, migrates_to, "loaded the modules again");
            Ok(report)
        }
        Err(error) => {
            let reason = with_causes(&error).to_string();
            tracing::error!(name: "modules.reload-failed", %reason, "the modules cannot be loaded again; nothing has changed");
            Err(reason)
        }
    }
}
