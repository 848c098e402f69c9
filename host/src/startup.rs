//! The start sequence of the host, from a configuration to a served API: the order of the stages, and the meaning of each
//! failure. The only place where all parts are connected; the work itself is done by the other modules.

mod drain;
mod error;
mod keys;
mod listeners;
mod master;
mod online;
mod open_files;
mod periodic;
mod prepared;
mod report;
mod takeover;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::admin::AdminError;
use crate::config::Config;
use crate::layout::manifest::DataVersion;
use crate::logs::LevelHandle;
use drain::Signals;
pub use error::{COULD_NOT_BEGIN, StartupError};
use open_files::OpenFiles;
pub use prepared::{Prepared, load_catalog, pin_release, sandbox, translators};

/// Longest time that requests in flight may take after the first signal.
const DRAIN: Duration = Duration::from_secs(60);

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

/// Serves until a signal, a lost lock or a failure ends the host; calls `announce` once the API answers.
///
/// # Errors
/// Whatever ended the host other than a signal. The error is already logged; [`StartupError::exit_code`] has its code.
pub async fn serve(config: Config, level: &LevelHandle, announce: impl FnOnce(&Served)) -> Result<(), StartupError> {
    let signals = Signals::listen().map_err(StartupError::Signals)?;
    tracing::info!(name: "starting", "starting");
    let served = run(config, level, &signals, announce).await;
    match &served {
        Ok(()) => tracing::info!(name: "exited", "a signal ended the host"),
        Err(error) => error.log(),
    }
    served
}

/// The stages in order; the result of the stage that ends is the result of the host.
async fn run(
    config: Config,
    level: &LevelHandle,
    signals: &Signals,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let front = listeners::Front::read(&config)?;
    let open_files = OpenFiles::raise();
    listeners::open_first(&config, level, open_files).await?;
    let prepared = tokio::select! {
        prepared = Prepared::new(config) => prepared?,
        () = signals.reach(1) => return Ok(()),
    };
    listeners::open_metrics(&prepared, open_files).await?;
    tokio::spawn(report::MetricsReporter::new(&prepared, &front).publish_host_metrics());
    let mut admin = match prepared.open_admin().await {
        // Another host of this machine has the socket; this one opens it when it becomes the master.
        Err(AdminError::InUse { .. }) => None,
        opened => Some(opened?),
    };
    let lock = tokio::select! {
        taken = prepared.wait_for_lock() => taken?,
        () = signals.reach(1) => return Ok(()),
    };
    tracing::info!(name: "locket-lock.acquired-lock", "took the lock");
    prepared.metrics.measures().lock_held(true);
    let served = async {
        if admin.is_none() {
            admin = Some(prepared.open_admin().await?);
        }
        master::serve_as_master(&prepared, &front, open_files, &lock, signals, announce).await
    }
    .await;
    prepared.metrics.measures().lock_held(false);
    // Before the lock is released, so that the next master can open the socket.
    drop(admin);
    prepared.database.close().await;
    lock.release().await;
    served
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartupError> {
    TcpListener::bind(address).await.map_err(|source| StartupError::Listen { address, source })
}
