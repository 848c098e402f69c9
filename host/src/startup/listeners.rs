//! The ports besides the API's, each of which opens as early as possible, and what the API's port
//! needs: certificates, the access log, and the clients of other components.

use std::net::SocketAddr;

use super::bind::{bind, bound_address};
use super::essential::EssentialTasks;
use super::open_files::OpenFiles;
use super::{Prepared, StartupError};
use crate::clients::{Clients, ClientsError};
use crate::config::Config;
use crate::http::{self, AccessLog, Health, Port};
use crate::logs::LevelHandle;
use crate::tls::Certificates;

/// Files and connections that the API needs, opened before any wait, so that a fault in it is
/// reported at once.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) certificates: Option<Certificates>,
    pub(super) access_log: Option<AccessLog>,
    pub(super) clients: Clients,
}

impl Front {
    pub(super) fn read(config: &Config) -> Result<Self, StartupError> {
        Ok(Self {
            certificates: Self::certificates(config)?,
            access_log: config
                .listeners
                .access_log
                .as_deref()
                .map(AccessLog::open)
                .transpose()?,
            clients: Self::clients(config).map_err(|mut faults| faults.remove(0))?,
        })
    }

    pub(super) fn certificates(config: &Config) -> Result<Option<Certificates>, StartupError> {
        Ok(config
            .listeners
            .tls
            .as_ref()
            .map(Certificates::read)
            .transpose()?)
    }

    /// Reloads the certificates while the process runs, so that those of a standby are current when
    /// it becomes the master.
    pub(super) fn watch_certificates(&self, tasks: &mut EssentialTasks) {
        if let Some(certificates) = self.certificates.clone() {
            tasks.spawn("the reload of certificates", async move {
                certificates.watch().await;
                Ok(())
            });
        }
    }

    pub(super) fn clients(config: &Config) -> Result<Clients, Vec<ClientsError>> {
        Clients::new(
            &config.clients,
            config.lock.locket.as_ref(),
            // Receivers of callbacks see the certificate that the API's clients see.
            config.listeners.tls.as_ref(),
        )
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(log) = &self.access_log {
            log.flush();
        }
    }
}

fn port(
    name: &'static str,
    key: &'static str,
    address: SocketAddr,
    open_files: OpenFiles,
) -> Result<Port, StartupError> {
    Ok(Port {
        name,
        listener: bind(key, address)?,
        most_connections: open_files.other(),
    })
}

/// Opens the health and debug ports, so that an occupied one is reported at once. Returns what the
/// health port answers.
pub(super) fn open_first(
    config: &Config,
    level: &LevelHandle,
    open_files: OpenFiles,
    tasks: &mut EssentialTasks,
) -> Result<Health, StartupError> {
    let health = Health::default();
    if let Some(address) = config.listeners.debug {
        let port = port("debug", "debug_address", address, open_files)?;
        tasks.spawn("the debug port", http::serve_debug(port, level.clone()));
    }
    if let Some(address) = config.listeners.health {
        let port = port("health", "health_address", address, open_files)?;
        tasks.spawn("the health port", http::serve_health(port, health.clone()));
    }
    Ok(health)
}

/// Opens the port for Prometheus, on a standby too.
pub(super) fn open_metrics(
    prepared: &Prepared,
    open_files: OpenFiles,
    tasks: &mut EssentialTasks,
) -> Result<(), StartupError> {
    if let Some(address) = prepared.config.listeners.metrics {
        let key = "metrics_address";
        let port = port("metrics", key, address, open_files)?;
        let address = bound_address(key, address, &port.listener)?;
        tracing::info!(name: "metrics.listening", metrics = %address, "metrics are at /metrics");
        let server = http::serve_metrics(port, prepared.metrics.clone(), prepared.gate.clone());
        tasks.spawn("the metrics port", server);
    }
    Ok(())
}
