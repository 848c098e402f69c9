//! The ports beside the API's, each of which is open as early as there is something to say, and what guards the API's
//! own: its certificates and its access log; and the way out, to the rest of Diego.

use super::{Prepared, StartupError, bind};
use crate::clients::Clients;
use crate::config::{ClientTls, Config};
use crate::http::{self, AccessLog, Certificates};
use crate::logs::Level;

/// What the API's port and the way out need, read before anything is waited for, so that what is wrong with it shows at once.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) certificates: Option<Certificates>,
    pub(super) access_log: Option<AccessLog>,
    pub(super) clients: Clients,
}

impl Front {
    pub(super) fn read(config: &Config) -> Result<Self, StartupError> {
        let listeners = &config.listeners;
        let identity = listeners.tls.as_ref().map(|tls| ClientTls {
            cert_file: tls.cert_file.clone(),
            key_file: tls.key_file.clone(),
            ca_file: tls.ca_file.clone(),
        });
        Ok(Self {
            clients: Clients::new(&config.clients, config.lock.locket.as_ref(), identity.as_ref())?,
            certificates: listeners.tls.as_ref().map(Certificates::read).transpose()?,
            access_log: listeners.access_log.as_deref().map(AccessLog::open).transpose()?,
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
