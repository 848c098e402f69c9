//! The start sequence of the host, from a configuration to a served API: the order of the stages,
//! and the meaning of each failure. The only place where all parts are connected; the work itself
//! is done by the other modules.

mod background;
mod bind;
mod drain;
mod error;
mod essential;
mod import;
mod keys;
mod listeners;
mod master;
mod offline;
mod online;
mod open_files;
mod periodic;
mod prepared;
mod report;
mod takeover;
mod version_name;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use bbs_lens::layout::manifest::DataVersion;
use bbs_work::causes::with_causes;
use bbs_work::progress::{ENDED, FAILED, Progress};

use crate::admin::{Control, RemainingClients};
use crate::config::Config;
use crate::lock::HeldLock;
use crate::logs::LevelHandle;
use crate::reload::ReloadReceiver;
use crate::shutdown::Shutdown;
pub use error::{HostFailure, StartupError};
use essential::EssentialTasks;
pub use offline::{faults, warnings};
use open_files::OpenFiles;
pub use prepared::{Prepared, load_catalog, pin_release, sandbox, translators};
pub use version_name::VersionName;

/// The properties of a host that has begun to serve.
#[derive(Debug, Clone)]
pub struct Served {
    /// The address of the API.
    pub address: SocketAddr,
    /// The data version of the tables that are served.
    pub data_version: DataVersion,
    /// Number of migrations in the catalog.
    pub migrations: usize,
    /// Number of translators in the catalog.
    pub translators: usize,
}

/// Serves until a signal, a lost lock or a failure ends the host; calls `announce` once the API
/// answers.
///
/// # Errors
/// Whatever ended the host other than a signal.
pub async fn serve(
    config: Config,
    level: &LevelHandle,
    announce: impl FnOnce(&Served),
) -> Result<(), HostFailure> {
    let no_signals = |source| HostFailure::Start(StartupError::Signals(source));
    let shutdown = Shutdown::listen().map_err(no_signals)?;
    let (reload, reloads) = crate::reload::queue();
    reload.listen().map_err(no_signals)?;
    tracing::info!(name: "starting", "starting");
    let has_served = AtomicBool::new(false);
    let control = Control {
        shutdown: shutdown.clone(),
        reload,
    };
    run(config, level, &control, reloads, |served| {
        has_served.store(true, Ordering::Relaxed);
        announce(served);
    })
    .await
    .map_err(|error| {
        // What fails once the host was requested to end belongs to its end.
        if has_served.load(Ordering::Relaxed) || shutdown.is_requested() {
            HostFailure::Service(error)
        } else {
            HostFailure::Start(error)
        }
    })?;
    tracing::info!(name: "exited", "the host has ended as requested");
    Ok(())
}

/// The stages in order; the result of the stage that ends is the result of the host.
async fn run(
    config: Config,
    level: &LevelHandle,
    control: &Control,
    mut reloads: ReloadReceiver,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let shutdown = &control.shutdown;
    let front = listeners::Front::read(&config)?;
    let open_files = OpenFiles::raise();
    let mut tasks = EssentialTasks::default();
    let health = listeners::open_first(&config, level, open_files, &mut tasks)?;
    front.watch_certificates(&mut tasks);
    let mut prepared = tokio::select! {
        prepared = Prepared::with_tried_keys(config) => prepared?,
        () = shutdown.reach(1) => return Ok(()),
    };
    // As the health port of Diego's BBS, which opens once its database was reached: a deployment
    // goes on to the next instance.
    health.report_healthy();
    listeners::open_metrics(&prepared, open_files, &mut tasks)?;
    tokio::spawn(report::MetricsReporter::new(&prepared, &front).publish_host_metrics());
    let admin = prepared.open_admin(Some(control)).await;
    let taken = tokio::select! {
        taken = wait_for_lock(&mut prepared, &mut reloads) => taken.map(Some),
        failure = tasks.failure() => Err(failure),
        () = shutdown.reach(1) => Ok(None),
    };
    let lock = match taken {
        Ok(Some(lock)) => lock,
        not_taken => {
            let ended = not_taken.map(|_| None);
            report_end(&prepared.progress, admin.close(), &ended).await;
            return ended.map(drop);
        }
    };
    tracing::info!(name: "locket-lock.acquired-lock", "took the lock");
    prepared.metrics.measures().lock_held(true);
    let stage = master::MasterStage {
        front: &front,
        open_files,
        lock: &lock,
        shutdown,
    };
    let served = stage
        .serve(&mut prepared, &mut reloads, &mut tasks, announce)
        .await;
    prepared.metrics.measures().lock_held(false);
    // Before the lock is released, so that the next master can open the socket.
    let clients = admin.close();
    tokio::select! {
        () = prepared.database.close() => {}
        // A database that does not answer must not keep the lock from the next master.
        () = shutdown.reach(2) => {}
    }
    if served.as_ref().is_err_and(StartupError::is_fence_lost) {
        // Locket cannot distinguish hosts of the same `uuid`: a release by this one would delete
        // the lock of the other one, which has raised the fence.
        drop(lock);
    } else {
        lock.release().await;
    }
    report_end(&prepared.progress, clients, &served).await;
    served.map(drop)
}

const RELOAD_GIVEN_UP: &str = "this host has taken the lock while it loaded the modules again, and serves with those of before; \
     request the reload again";

/// Waits for the lock, and loads the modules again whenever that is requested.
async fn wait_for_lock(
    prepared: &mut Prepared,
    reloads: &mut ReloadReceiver,
) -> Result<HeldLock, StartupError> {
    let waiting = prepared.clone();
    let mut taken = pin!(waiting.wait_for_lock());
    loop {
        tokio::select! {
            taken = &mut taken => return taken,
            request = reloads.next() => {
                let result = tokio::select! {
                    taken = &mut taken => {
                        tracing::warn!(name: "modules.reload-failed", "{RELOAD_GIVEN_UP}");
                        // The client may have gone, here and below.
                        let _ = request.send(Err(RELOAD_GIVEN_UP.to_owned()));
                        return taken;
                    }
                    result = prepared.reload_as_standby() => result,
                };
                let _ = request.send(result);
            }
        }
    }
}

/// Shows how the host ended to the operators that watch it, with the version of the database if the
/// host was to take it back.
async fn report_end(
    progress: &Progress,
    clients: Option<RemainingClients>,
    served: &Result<Option<DataVersion>, StartupError>,
) {
    match served {
        Ok(None) => progress.enter(ENDED, "", None),
        Ok(Some(version)) => {
            progress.enter(ENDED, format!("the database is at {version}"), None);
        }
        Err(error) => progress.enter(FAILED, with_causes(error).to_string(), None),
    }
    if let Some(clients) = clients {
        clients.served().await;
    }
}
