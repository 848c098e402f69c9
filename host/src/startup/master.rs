//! The master, from taking the lock to releasing it: the API port, the migration, the gate, the
//! rotation. Owns their order and what ends them.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bbs_lens::layout::manifest::DataVersion;
use bbs_work::progress::{Progress, SERVING, Snapshot, TAKEOVER};
use tokio::sync::watch;

use super::background::{Serving, finished_migrations};
use super::bind::{bind, bound_address};
use super::drain::{self, request_drain};
use super::essential::EssentialTasks;
use super::listeners::Front;
use super::open_files::OpenFiles;
use super::report::MetricsReporter;
use super::{Prepared, Served, StartupError, periodic};
use crate::config::MigrationMode;
use crate::http::{self, Port};
use crate::import::{Due, Reimport};
use crate::lock::HeldLock;
use crate::lock::fence::Fence;
use crate::migrate::online::{Online, Start};
use crate::migrate::{Decision, Reason};
use crate::reload::ReloadReceiver;
use crate::shutdown::Shutdown;
use crate::store::Store;

/// Interval at which a host that does not serve yet logs its progress.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Inputs of the master stage.
pub(super) struct MasterStage<'a> {
    pub(super) front: &'a Front,
    pub(super) open_files: OpenFiles,
    pub(super) lock: &'a HeldLock,
    pub(super) shutdown: &'a Shutdown,
}

impl MasterStage<'_> {
    /// Serves until this host ends or is no longer the master. Leaves in `prepared` the modules
    /// that were served last. Returns the version of the database if the host was to take it back.
    ///
    /// # Errors
    /// Whatever ended the host other than a request.
    pub(super) async fn serve(
        &self,
        prepared: &mut Prepared,
        reloads: &mut ReloadReceiver,
        tasks: &mut EssentialTasks,
        announce: impl FnOnce(&Served),
    ) -> Result<Option<DataVersion>, StartupError> {
        let Self { lock, shutdown, .. } = *self;
        let progress = prepared.progress.clone();
        // Before the port opens: requests wait in this phase alone.
        progress.enter(TAKEOVER, "taking over from the previous master", None);
        let (end_server, server_stop) = watch::channel(None);
        let mut server = EssentialTasks::default();
        let address = self.start_server(prepared, &mut server, server_stop)?;
        let gate = prepared.gate.clone();
        let is_bosh_job = prepared.config.is_bosh_job;
        let close_port = || {
            // Event streams do not end by themselves.
            gate.end_streams();
            // Fails only if the server has ended already.
            let _ = end_server.send(Some(request_drain(is_bosh_job, shutdown)));
        };
        let master = MasterWork {
            front: self.front,
            address,
            served_store: OnceLock::new(),
        };
        let work = async {
            let fence = tokio::select! {
                fence = take_over(prepared) => fence?,
                () = drain::ends_the_work(prepared, shutdown) => {
                    return drain::cut_short(prepared, shutdown);
                }
            };
            let back_to = tokio::select! {
                end = master.run(prepared, reloads, &fence, announce) => match end? {
                    MasterEnd::GivenUp => None,
                    // It has begun: the next host completes it, whatever ended the one before.
                    MasterEnd::UnfinishedRollback => prepared.config.migration.rollback_on_drain_to,
                },
                fault = fence.lost() => return Err(fault.into()),
                () = shutdown.reach(1) => drain::rolls_back_to(prepared, shutdown),
            };
            progress.enter("drain", "waiting for requests in flight", None);
            if let Some(to) = back_to {
                let store = master.served_store.get();
                return drain::roll_back(prepared, &fence, store, to, shutdown).await;
            }
            close_port();
            drain::finish_rotation(prepared, &fence, shutdown, Some(drain::ROTATION)).await?;
            Ok(None)
        };
        let outcome = tokio::select! {
            outcome = work => outcome,
            lost = lock.lost() => Err(lost.into()),
            failure = server.failure() => Err(failure),
            failure = tasks.failure() => Err(failure),
            never = log_progress(&progress) => match never {},
        };
        if outcome.is_err() {
            gate.close();
        }
        close_port();
        let ended = tokio::select! {
            ended = server.ended() => ended,
            () = shutdown.reach(2) => return outcome,
        };
        let version = outcome?;
        ended.map(|()| version)
    }

    /// Serves the API port, whose gate may be closed, until `stop` has the longest time for
    /// requests in flight. Returns its address.
    fn start_server(
        &self,
        prepared: &Prepared,
        server: &mut EssentialTasks,
        stop: watch::Receiver<Option<Duration>>,
    ) -> Result<SocketAddr, StartupError> {
        let Self {
            front, open_files, ..
        } = *self;
        let configured = prepared.config.listeners.api;
        let listener = bind("listen_address", configured)?;
        let address = bound_address("listen_address", configured, &listener)?;
        tracing::info!(name: "server.listening", %address,
            "listening; requests wait for the takeover, and get 503 while the database is prepared");
        let router = http::router(prepared.gate.clone(), prepared.metrics.clone());
        let router = http::logged(router, front.access_log.clone());
        let certificates = front.certificates.clone();
        let port = Port {
            name: "API",
            listener,
            most_connections: open_files.api(&prepared.database),
        };
        let serving = http::serve_clients(port, certificates, router, stopped(stop));
        server.spawn("the port of the API", serving);
        Ok(address)
    }
}

/// Examines the database under the lock and raises the fence.
async fn take_over(prepared: &Prepared) -> Result<Fence, StartupError> {
    prepared.may_serve().await?;
    prepared.warn_of_rollback().await?;
    prepared.raise_fence().await
}

/// Why a master ends by itself without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MasterEnd {
    /// An earlier host had begun a rollback, which this one completes before it ends.
    UnfinishedRollback,
    /// A table is gone. The database is left as it is.
    GivenUp,
}

impl MasterEnd {
    /// Logs the error of the database, which names the table.
    fn of_missing_table(error: &str) -> Self {
        tracing::error!(
            name: "unrecoverable", error,
            "a table of the database is missing, so this host ends; restore the database from a backup, then start the host"
        );
        Self::GivenUp
    }
}

/// The work of a master whose port is open.
struct MasterWork<'a> {
    front: &'a Front,
    address: SocketAddr,
    /// Set once the API is served.
    served_store: OnceLock<Store>,
}

impl MasterWork<'_> {
    /// Migrates and serves. Returns only on failure, if a table is gone, or, before it has migrated
    /// or served, if an earlier host had begun a rollback.
    async fn run(
        &self,
        prepared: &mut Prepared,
        reloads: &mut ReloadReceiver,
        fence: &Fence,
        announce: impl FnOnce(&Served),
    ) -> Result<MasterEnd, StartupError> {
        let report = MetricsReporter::new(prepared, self.front);
        let began = Instant::now();
        let import = prepared.import_if_due(fence, Reimport::Refuse).await?;
        // What was imported is served, and a mark in etcd ends the older BBS, once the migration
        // has succeeded.
        let is_new = import.due == Due::Unmarked { served: false };
        let Some(started) = begin_migration(prepared, fence, is_new).await? else {
            return Ok(MasterEnd::UnfinishedRollback);
        };
        let (online, data_version) = match started {
            Start::Done(decision) => {
                finished_migrations(&report, began);
                (None, version_after(prepared, &decision))
            }
            Start::Follow(online) => {
                let from = online.from();
                (Some(online), from)
            }
        };
        let unmarked = prepared.mark_import(fence, import).await?;
        let store = open_store(prepared, fence, online.as_ref(), data_version).await?;
        let service = prepared.service(store.clone(), self.front.clients.clone());
        prepared.gate.open(Arc::new(prepared.api(service.clone())?));
        if online.is_none() {
            prepared.progress.enter(SERVING, "", None);
        }
        self.announce(prepared, data_version, announce);
        let _ = self.served_store.set(store.clone());
        let serving = Serving {
            fence,
            report: &report,
            service: &service,
            store: &store,
        };
        let beside = prepared.clone();
        tokio::select! {
            failed = serving.run(prepared, online.map(|online| (online, began)), reloads) => failed.map(|never| match never {}),
            never = report.publish_master_metrics() => match never {},
            never = beside.keep_marking(fence, unmarked) => match never {},
            failed = periodic::converge(&service, beside.config.convergence.repeat_interval) => failed.map(|never| match never {}),
            failed = periodic::check_health(&beside, data_version) => failed.map(|never| match never {}),
            error = service.given_up() => Ok(MasterEnd::of_missing_table(&error)),
        }
    }

    fn announce(
        &self,
        prepared: &Prepared,
        data_version: DataVersion,
        announce: impl FnOnce(&Served),
    ) {
        let address = self.address;
        tracing::info!(name: "started", %address, data_version, "serving");
        announce(&Served {
            address,
            data_version,
            migrations: prepared.catalog.migrations().len(),
            translators: prepared.catalog.translators().len(),
        });
    }
}

/// The store at a version, or with the changes that an online migration records.
async fn open_store(
    prepared: &Prepared,
    fence: &Fence,
    online: Option<&Online>,
    data_version: DataVersion,
) -> Result<Store, StartupError> {
    let access = match online {
        None => {
            let stays = prepared.stays_at(data_version);
            prepared.access(fence, data_version, stays).await?
        }
        Some(online) => prepared.access_following(fence, online).await?,
    };
    Ok(prepared.store(fence, access))
}

/// Migrates, or begins an online migration; a database that was just imported is migrated offline.
/// `None`, with nothing done, if an earlier host had begun the rollback that the configuration
/// names.
async fn begin_migration(
    prepared: &Prepared,
    fence: &Fence,
    is_new: bool,
) -> Result<Option<Start>, StartupError> {
    let started = match prepared.config.migration.mode {
        MigrationMode::Online if !is_new => prepared.begin_to(fence).await,
        _ => prepared
            .bring_to(fence, prepared.intent())
            .await
            .map(Start::Done),
    };
    match started {
        // This host, or one with the same setting, was ended during its rollback.
        Err(StartupError::ShutDown(Reason::GoingDown { to }))
            if prepared.config.migration.rollback_on_drain_to == Some(to) =>
        {
            tracing::info!(
                to,
                "an earlier host had begun a rollback; this host completes it and ends"
            );
            Ok(None)
        }
        started => started.map(Some),
    }
}

/// The version that a host serves after its migration.
fn version_after(prepared: &Prepared, decision: &Decision) -> DataVersion {
    let Decision::Stay { at } = *decision else {
        return prepared.wanted();
    };
    tracing::warn!(
        name: "migration-manager.stays", data_version = at, wanted = prepared.wanted(),
        "an earlier rollback left the database at this version, and `rollback_on_drain_to_version` keeps it there; remove that \
         key and restart, or run `bbs migrate up`, to migrate again"
    );
    at
}

/// Logs the progress at an interval while there is work, independent of the number of records.
async fn log_progress(progress: &Progress) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = progress.snapshot();
        if !now.is_over() {
            let Snapshot {
                phase,
                detail,
                done,
                total,
                units_per_second,
                eta_seconds,
                counted,
                ..
            } = now;
            let counted = counted.map(|counted| counted.to_string());
            let waits_for = now.waiting.map(|waiting| waiting.reason.to_string());
            tracing::info!(
                name: "migration-manager.progress",
                phase, detail, counted, done, total, units_per_second, eta_seconds, waits_for, "in progress"
            );
        }
    }
}

/// The time for requests in flight once the server has to stop.
async fn stopped(mut stop: watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await {
        Ok(drain) => drain.unwrap_or_default(),
        // The sender is gone, which also ends the server.
        Err(_) => Duration::ZERO,
    }
}
