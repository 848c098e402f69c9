//! The master, from taking the lock to releasing it: the API port, the migration, the gate, the rotation. Owns their order
//! and what ends them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::drain::{self, Signals};
use super::listeners::Front;
use super::open_files::OpenFiles;
use super::report::MetricsReporter;
use super::{DRAIN, Prepared, Served, StartupError, bind, periodic};
use crate::config::MigrationMode;
use crate::http::{self, Port};
use crate::layout::manifest::DataVersion;
use crate::lock::HeldLock;
use crate::lock::fence::Fence;
use crate::migrate::online::{Online, Start};
use crate::migrate::{Decision, Reason};
use crate::progress::{Progress, SERVING, Snapshot};
use crate::store::Store;

/// Interval at which a host that does not serve yet logs its progress.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn serve_as_master(
    prepared: &Prepared,
    front: &Front,
    open_files: OpenFiles,
    lock: &HeldLock,
    signals: &Signals,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let listener = bind(prepared.config.listeners.api).await?;
    let address = listener.local_addr().map_err(StartupError::Server)?;
    tracing::info!(
        name: "server.listening",
        %address, "listening; every request is answered 503 until the database is ready"
    );
    let gate = &prepared.gate;
    let (end_server, server_stop) = watch::channel(false);
    let router = http::logged(http::router(gate.clone(), prepared.metrics.clone()), front.access_log.clone());
    if let Some(certificates) = front.certificates.clone() {
        tokio::spawn(certificates.watch());
    }
    let certificates = front.certificates.clone();
    let port = Port { name: "API", listener, most_connections: open_files.api(&prepared.database) };
    let server = tokio::spawn(http::serve_clients(port, certificates, router, stopped(server_stop), DRAIN));

    let close_port = || {
        // Event streams do not end by themselves.
        gate.end_streams();
        // Fails only if the server has ended already.
        let _ = end_server.send(true);
    };
    prepared.progress.enter("fence", "taking over from the previous master", None);
    let work = async {
        prepared.may_serve().await?;
        let fence = Fence::raise(&prepared.database).await?;
        tokio::select! {
            outcome = work_and_serve(prepared, front, &fence, address, announce) => outcome?,
            fault = fence.lost() => return Err(fault.into()),
            () = signals.reach(1) => {}
        }
        if prepared.config.migration.rollback_on_drain_to.is_some() {
            return drain::roll_back(prepared, &fence, signals).await;
        }
        close_port();
        drain::finish_rotation(prepared, &fence, signals).await
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        lost = lock.lost() => Err(lost.into()),
        never = log_progress(&prepared.progress) => match never {},
    };
    if outcome.is_err() {
        gate.close();
    }
    close_port();
    let ended = tokio::select! {
        ended = server => ended,
        () = signals.reach(2) => return outcome,
    };
    outcome.and(ended.map_err(|join| StartupError::Server(join.into()))?.map_err(StartupError::Server))
}

/// Migrates and serves. Returns only on failure, if a table is gone, or if it finished a rollback that an earlier host had
/// begun.
async fn work_and_serve(
    prepared: &Prepared,
    front: &Front,
    fence: &Fence,
    address: SocketAddr,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let (report, began) = (MetricsReporter::new(prepared, front), Instant::now());
    let started = match prepared.config.migration.mode {
        MigrationMode::Online => prepared.begin_to(fence).await,
        MigrationMode::Offline => prepared.bring_to(fence, prepared.intent()).await.map(Start::Done),
    };
    let (online, data_version) = match started {
        // This host, or one with the same setting, was ended during its rollback.
        Err(StartupError::ShutDown(Reason::GoingDown { to }))
            if prepared.config.migration.rollback_on_drain_to == Some(to) =>
        {
            tracing::info!(to, "an earlier host had begun a rollback; this host has finished it and ends");
            return Ok(());
        }
        Ok(Start::Done(decision)) => {
            finished_migrations(&report, began);
            (None, version_after(prepared, &decision))
        }
        Ok(Start::Follow(online)) => {
            let from = online.from();
            (Some(online), from)
        }
        Err(fault) => return Err(fault),
    };
    let store = match &online {
        None => {
            let stays = prepared.is_pinned(data_version) || data_version < prepared.wanted();
            prepared.store(fence, prepared.access(fence, data_version, stays).await?)
        }
        Some(online) => prepared.store_following(fence, online).await?,
    };
    let service = prepared.service(store.clone(), front.clients.clone());
    prepared.gate.open(Arc::new(prepared.api(service.clone())?));
    if online.is_none() {
        prepared.progress.enter(SERVING, "", None);
    }
    let served = Served {
        address,
        data_version,
        migrations: prepared.catalog.migrations().len(),
        translators: prepared.catalog.translators().len(),
    };
    tracing::info!(name: "started", %address, data_version = served.data_version, "serving");
    announce(&served);
    tokio::select! {
        outcome = finish_in_background(prepared, fence, &report, online.as_ref().map(|online| (online, began)), &store) => outcome,
        never = report.publish_master_metrics() => match never {},
        never = periodic::converge(&service, prepared.config.convergence.repeat_interval) => match never {},
        failed = periodic::check_health(prepared, fence, served.data_version) => failed.map(|never| match never {}),
        () = service.given_up() => {
            tracing::error!(name: "unrecoverable", "a table is gone; this host ends, and its supervisor may start it again");
            Ok(())
        }
    }
}

/// The version that a host serves after its migration.
fn version_after(prepared: &Prepared, decision: &Decision) -> DataVersion {
    let Decision::Stay { at } = *decision else { return prepared.wanted() };
    tracing::warn!(
        name: "migration-manager.stays", data_version = at, wanted = prepared.wanted(),
        "an earlier rollback left the database at this version, and `rollback_on_drain_to_version` keeps it there; remove that \
         key and restart, or run `bbs migrate up`, to migrate again"
    );
    at
}

fn finished_migrations(report: &MetricsReporter, began: Instant) {
    report.migrated(began.elapsed());
    tracing::info!(name: "migration-manager.finished-migrations", "the database is at the wanted version");
}

/// The background work while the API is served: the online migration, then a key rotation.
async fn finish_in_background(
    prepared: &Prepared,
    fence: &Fence,
    report: &MetricsReporter,
    online: Option<(&Online, Instant)>,
    store: &Store,
) -> Result<(), StartupError> {
    if let Some((online, began)) = online {
        if !prepared.follow(fence, online, store).await? {
            return std::future::pending().await;
        }
        finished_migrations(report, began);
        prepared.progress.enter(SERVING, "", None);
    }
    prepared.rotate_in_background(fence, report).await?;
    std::future::pending().await
}

/// Logs the progress at an interval while there is work, independent of the number of records.
async fn log_progress(progress: &Progress) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = progress.snapshot();
        if !now.is_over() {
            let Snapshot { phase, detail, done, total, units_per_second, eta_seconds, .. } = now;
            let waits_for = now.waiting.map(|waiting| waiting.reason.to_string());
            tracing::info!(
                name: "migration-manager.progress",
                phase, detail, done, total, units_per_second, eta_seconds, waits_for, "in progress"
            );
        }
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone, which also ends the server.
    let _ = stop.wait_for(|stop| *stop).await;
}
