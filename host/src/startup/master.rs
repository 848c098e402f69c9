//! What the master does from taking the lock to giving it up: the API port, the migration, the gate, the rotation. Owns
//! the order of these, and what ends them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::doors::Front;
use super::report::Report;
use super::signals::Signals;
use super::{DRAIN, Prepared, Served, StartupError, bind, converge, drain, probe};
use crate::config::MigrationMode;
use crate::http;
use crate::layout::manifest::DataVersion;
use crate::lock::Held;
use crate::lock::fence::Fence;
use crate::migrate::online::{Online, Start};
use crate::migrate::{Decision, Reason};
use crate::progress::{Progress, SERVING, Snapshot};
use crate::store::Store;

/// How often a host that does not serve yet writes to its log how far it has come.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn serve_as_master(
    prepared: &Prepared,
    front: &Front,
    lock: &Held,
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
    let server = tokio::spawn(http::serve_clients(listener, certificates, router, stopped(server_stop), DRAIN));

    let close_port = || {
        // They would never end of themselves.
        gate.end_streams();
        // Without a receiver the server has ended first, and that is the reason to stop.
        let _ = end_server.send(true);
    };
    prepared.progress.enter("fence", "taking over from the host before", None);
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

/// Ends only with a failure, or when nothing more can succeed, or when the database was found on its way back and is
/// there now.
async fn work_and_serve(
    prepared: &Prepared,
    front: &Front,
    fence: &Fence,
    address: SocketAddr,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let (report, began) = (Report::new(prepared, front), Instant::now());
    let started = match prepared.config.migration.mode {
        MigrationMode::Online => prepared.begin_to(fence).await,
        MigrationMode::Offline => prepared.bring_to(fence, prepared.intent()).await.map(Start::Done),
    };
    let (following, data_version) = match started {
        // What this host, or one with the same setting, had begun when it was ended.
        Err(StartupError::ShutDown(Reason::GoingDown { to }))
            if prepared.config.migration.rollback_on_drain_to == Some(to) =>
        {
            tracing::info!(to, "the database was on its way back; this host finishes that and ends");
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
    let store = match &following {
        None => {
            let stays = prepared.is_pinned(data_version) || data_version < prepared.wanted();
            prepared.store(fence, prepared.access(fence, data_version, stays).await?)
        }
        Some(online) => prepared.store_following(fence, online).await?,
    };
    let service = prepared.service(store.clone(), front.clients.clone());
    prepared.gate.open(Arc::new(prepared.api(service.clone())?));
    if following.is_none() {
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
        outcome = finish_beside(prepared, fence, &report, following.as_ref().map(|online| (online, began)), &store) => outcome,
        never = report.of_master() => match never {},
        never = converge::repeatedly(&service, prepared.config.convergence.repeat_interval) => match never {},
        failed = probe::watch(prepared, fence, served.data_version) => failed.map(|never| match never {}),
        () = service.given_up() => {
            tracing::error!(name: "unrecoverable", "a table is gone; this host ends, and may be started again");
            Ok(())
        }
    }
}

/// Where a host serves that has nothing more to migrate.
fn version_after(prepared: &Prepared, decision: &Decision) -> DataVersion {
    let Decision::Stay { at } = *decision else { return prepared.wanted() };
    tracing::warn!(
        name: "migration-manager.stays", data_version = at, wanted = prepared.wanted(),
        "an earlier rollback left the database here, and `rollback_on_drain_to_version` says to keep it so; remove that \
         key and restart, or run `bbs migrate up`, to migrate again"
    );
    at
}

fn finished_migrations(report: &Report, began: Instant) {
    report.migrated(began.elapsed());
    tracing::info!(name: "migration-manager.finished-migrations", "the database is at the version wanted");
}

/// What is left to do while the API is served.
async fn finish_beside(
    prepared: &Prepared,
    fence: &Fence,
    report: &Report,
    following: Option<(&Online, Instant)>,
    store: &Store,
) -> Result<(), StartupError> {
    if let Some((online, began)) = following {
        if !prepared.follow(fence, online, store).await? {
            return std::future::pending().await;
        }
        finished_migrations(report, began);
        prepared.progress.enter(SERVING, "", None);
    }
    prepared.rotate_beside(fence, report).await?;
    std::future::pending().await
}

/// A line now and then while there is work: as many as it takes time, however many records there are.
async fn log_progress(progress: &Progress) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = progress.snapshot();
        if !now.is_over() {
            let Snapshot { phase, detail, done, total, units_per_second, eta_seconds, .. } = now;
            let waits_for = now.waiting.map(|waiting| waiting.reason.to_string());
            tracing::info!(
                name: "migration-manager.progress",
                phase, detail, done, total, units_per_second, eta_seconds, waits_for, "still at work"
            );
        }
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone can say nothing more, so there is nothing more to wait for.
    let _ = stop.wait_for(|stop| *stop).await;
}
