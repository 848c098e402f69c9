//! The ports beside the API's, each of which is open as early as there is something to say, and what stands at the
//! host's own doors: its certificates, its access log, and those that it speaks to.

use super::{Prepared, StartupError, bind};
use crate::clients::Clients;
use crate::config::{ClientTls, Config};
use crate::http::{self, AccessLog, Certificates};
use crate::logs::Level;

/// What the API needs, read before anything is waited for, so that what is wrong with it shows at once.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) certificates: Option<Certificates>,
    pub(super) access_log: Option<AccessLog>,
    pub(super) clients: Clients,
}

impl Front {
    pub(super) fn read(config: &Config) -> Result<Self, StartupError> {
        let listeners = &config.listeners;
        // To whoever is called back the host is who it is to its clients.
        let identity = listeners.tls.as_ref().map(|tls| ClientTls {
            cert_file: tls.cert_file.clone(),
            key_file: tls.key_file.clone(),
            ca_file: tls.ca_file.clone(),
        });
        Ok(Self {
            certificates: listeners.tls.as_ref().map(Certificates::read).transpose()?,
            access_log: listeners.access_log.as_deref().map(AccessLog::open).transpose()?,
            clients: Clients::new(&config.clients, config.lock.locket.as_ref(), identity.as_ref())?,
        })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(log) = &self.access_log {
            log.flush();
        }
    }
}

/// Health and the debug server. Loading modules may take a while, and a supervisor does not wait for that.
pub(super) async fn open_first(config: &Config, level: &Level) -> Result<(), StartupError> {
    if let Some(address) = config.listeners.debug {
        tokio::spawn(http::serve_debug(bind(address).await?, level.clone()));
    }
    if let Some(address) = config.listeners.health {
        tokio::spawn(http::serve_health(bind(address).await?));
    }
    Ok(())
}

/// For Prometheus, on a standby too.
pub(super) async fn open_metrics(prepared: &Prepared) -> Result<(), StartupError> {
    if let Some(address) = prepared.config.listeners.metrics {
        let listener = bind(address).await?;
        let address = listener.local_addr().map_err(StartupError::Server)?;
        tracing::info!(name: "metrics.listening", metrics = %address, "metrics are at /metrics");
        tokio::spawn(http::serve_metrics(listener, prepared.metrics.clone(), prepared.gate.clone()));
    }
    Ok(())
}
