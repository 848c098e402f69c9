//! Keys for the ports of this host and its health check. Owns parsing them; opens no port.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::keys::Keys;
use super::tls::SERVER_FILES;
use super::{CertificateFiles, ConfigError};

/// Diego's default port of the API.
const PORT: u16 = 8889;

/// The addresses that the host listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    pub api: SocketAddr,
    /// TLS of the API; without it, plain HTTP on the loopback interface only.
    pub tls: Option<CertificateFiles>,
    pub health: Option<SocketAddr>,
    /// The debug port, at which the log level is changed.
    pub debug: Option<SocketAddr>,
    /// The port for Prometheus; none if absent.
    pub metrics: Option<SocketAddr>,
    /// The file of the access log; none if absent.
    pub access_log: Option<PathBuf>,
    /// The probe of the database; none if absent.
    pub health_check: Option<HealthCheck>,
}

/// A periodic probe of the database, which ends the host when it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    pub interval: Duration,
    /// Longest time of each attempt.
    pub timeout: Duration,
    /// Failed attempts in a row after which the host ends.
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
    pub(super) fn read(keys: &mut Keys) -> Self {
        let listeners = Self {
            api: keys
                .address("listen_address")
                .unwrap_or(Self::default().api),
            tls: CertificateFiles::all_or_none(keys, SERVER_FILES),
            health: keys.address("health_address"),
            debug: keys.address("debug_address"),
            metrics: keys.address("metrics_address"),
            access_log: keys.path("access_log_path"),
            health_check: HealthCheck::read(keys),
        };
        if listeners.are_exposed() {
            keys.fault(ConfigError::Refused {
                key: "listen_address",
                why: "other machines can reach it, and without TLS every client has full access; give `cert_file`, `key_file` and \
                      `ca_file`, or listen on 127.0.0.1",
            });
        }
        let ports = [
            ("listen_address", Some(listeners.api)),
            ("health_address", listeners.health),
            ("debug_address", listeners.debug),
            ("metrics_address", listeners.metrics),
        ];
        for (index, (key, address)) in ports.into_iter().enumerate() {
            let mut others = ports[..index].iter().filter_map(|(_, other)| *other);
            if address.is_some_and(|address| others.any(|other| is_same(address, other))) {
                keys.fault(ConfigError::Refused {
                    key,
                    why: "another address of this host is the same; give each a port of its own",
                });
            }
        }
        listeners
    }

    /// Whether clients on other machines reach the API without TLS, and so with full access.
    pub fn are_exposed(&self) -> bool {
        self.tls.is_none() && !self.api.ip().is_loopback()
    }
}

/// Whether a process cannot listen on both addresses. Port 0 is a free one each time.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let is_everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (is_everywhere || one.ip() == other.ip())
}

impl HealthCheck {
    fn read(keys: &mut Keys) -> Option<Self> {
        let check = Self {
            interval: keys
                .duration("health_check_interval")
                .unwrap_or(Duration::from_secs(10)),
            timeout: keys
                .duration("health_check_timeout")
                .unwrap_or(Duration::from_secs(5)),
            attempts: keys.count("health_check_failure_threshold").unwrap_or(3),
        };
        keys.flag("enable_db_health_check").then_some(check)
    }
}
