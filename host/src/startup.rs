//! From a configuration to a served API, on one screen: what runs, in which order, and what each failure
//! means. The only place where the parts meet; it does no work of its own.

pub mod catalog;
mod converge;
mod doors;
mod drain;
mod error;
mod keys;
mod master;
mod online;
mod prepared;
mod probe;
mod report;
mod signals;
mod takeover;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::admin::AdminError;
use crate::config::Config;
use crate::layout::manifest::DataVersion;
use crate::logs::Level;
pub use error::{COULD_NOT_BEGIN, StartupError};
pub use prepared::{Prepared, sandbox};
use signals::Signals;

/// How long requests under way may take to end once the host is told to.
const DRAIN: Duration = Duration::from_secs(60);

/// What a host that has begun to serve says of itself.
#[derive(Debug, Clone)]
pub struct Served {
    pub address: SocketAddr,
    pub data_version: DataVersion,
    pub migrations: usize,
    pub translators: usize,
}

/// Serves until a signal, a lost lock or a failure ends it; `announce` is called once the API answers.
pub async fn serve(config: Config, level: &Level, announce: impl FnOnce(&Served)) -> Result<(), StartupError> {
    let signals = Signals::listen().map_err(StartupError::Signals)?;
    tracing::info!(name: "starting", "starting");
    let served = run(config, level, &signals, announce).await;
    match &served {
        Ok(()) => tracing::info!(name: "exited", "ended as it was told to"),
        Err(error) => error.log(),
    }
    served
}

/// The stages, one after another; what one of them ends with ends the host.
async fn run(
    config: Config,
    level: &Level,
    signals: &Signals,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let front = doors::Front::read(&config)?;
    doors::open_first(&config, level).await?;
    let prepared = tokio::select! {
        prepared = Prepared::new(config) => prepared?,
        () = signals.reach(1) => return Ok(()),
    };
    doors::open_metrics(&prepared).await?;
    tokio::spawn(report::Report::new(&prepared, &front).of_host());
    let mut admin = match prepared.open_admin().await {
        // On a machine with several hosts the master has it until it ends.
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
        master::serve_as_master(&prepared, &front, &lock, signals, announce).await
    }
    .await;
    prepared.metrics.measures().lock_held(false);
    // Before the lock, so that the next master finds the place free.
    drop(admin);
    prepared.database.close().await;
    lock.release().await;
    served
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartupError> {
    TcpListener::bind(address).await.map_err(|source| StartupError::Listen { address, source })
}
