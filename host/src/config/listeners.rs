//! The keys that say where this host is reached, and how it shows that it is well. Owns reading them; opens nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::keys::Keys;
use super::{ConfigError, Tls};

/// The API's port in every Diego.
const PORT: u16 = 8889;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    pub api: SocketAddr,
    /// Plain HTTP where absent, which only this machine may use.
    pub tls: Option<Tls>,
    pub health: Option<SocketAddr>,
    /// Where the level of the log is changed.
    pub debug: Option<SocketAddr>,
    /// Where Prometheus may ask; nowhere if absent.
    pub metrics: Option<SocketAddr>,
    pub access_log: Option<PathBuf>,
    /// Whether and how the database is probed.
    pub health_check: Option<HealthCheck>,
}

/// A probe of the database, which ends the host when it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    pub interval: Duration,
    /// Of each attempt.
    pub timeout: Duration,
    pub attempts: u32,
}

impl Default for Listeners {
    fn default() -> Self {
        Self {
            api: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            tls: None,
            health: None,
            debug: None,
            metrics: None,
            access_log: None,
            health_check: None,
        }
    }
}

impl Listeners {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, ConfigError> {
        let listeners = Self {
            api: keys.address("listen_address")?.unwrap_or(Self::default().api),
            tls: Tls::read(keys)?,
            health: keys.address("health_address")?,
            debug: keys.address("debug_address")?,
            metrics: keys.address("metrics_address")?,
            access_log: keys.path("access_log_path")?,
            health_check: HealthCheck::read(keys)?,
        };
        if listeners.tls.is_none() && !listeners.api.ip().is_loopback() {
            return Err(ConfigError::Refused {
                key: "listen_address",
                why: "other machines reach it, and whoever does may do anything; give `cert_file`, `key_file` and \
                      `ca_file`, or listen on 127.0.0.1",
            });
        }
        Ok(listeners)
    }
}

impl HealthCheck {
    fn read(keys: &mut Keys) -> Result<Option<Self>, ConfigError> {
        let check = Self {
            interval: keys.duration("health_check_interval")?.unwrap_or(Duration::from_secs(10)),
            timeout: keys.duration("health_check_timeout")?.unwrap_or(Duration::from_secs(5)),
            attempts: keys.count("health_check_failure_threshold")?.unwrap_or(3),
        };
        Ok(keys.flag("enable_db_health_check")?.then_some(check))
    }
}
