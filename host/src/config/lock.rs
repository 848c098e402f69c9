//! Keys for the master lock. Owns parsing them; takes no lock.

use std::time::Duration;

use super::keys::{FileKeys, Keys};
use super::{CertificateFiles, ConfigError};

const TTL: Duration = Duration::from_secs(15);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Used instead of zero, with which every look-up would time out at once.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The master lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// How long a master stays the master after its last renewal.
    pub ttl: Duration,
    /// Interval at which a standby retries.
    pub retry_interval: Duration,
    /// The identity of this host towards others; a new one on each start if absent.
    pub uuid: Option<String>,
    /// Diego's lock service; without it, the lock is a lease in the database or a file lock.
    pub locket: Option<LocketConfig>,
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            ttl: TTL,
            retry_interval: RETRY_INTERVAL,
            uuid: None,
            locket: None,
        }
    }
}

/// The client of Locket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocketConfig {
    /// `host:port`.
    pub address: String,
    /// The certificate that this host presents to Locket, and the authority of Locket.
    pub tls: CertificateFiles,
    /// Interval of pings on the connection during a call; no pings if absent.
    pub keepalive_time: Option<Duration>,
    /// Longest wait for the answer to a ping; the library's default if absent.
    pub keepalive_timeout: Option<Duration>,
    /// Longest time of looking up one cell or all.
    pub lookup_timeout: Duration,
}

impl Lock {
    /// `lookup_timeout` is the configured connection timeout of the database, which in Diego also
    /// bounds cell look-ups.
    pub(super) fn read(keys: &mut Keys, lookup_timeout: Option<Duration>) -> Self {
        let uuid = keys.text("uuid");
        let lock = Self {
            ttl: keys.duration("lock_ttl").unwrap_or(TTL),
            retry_interval: keys
                .duration("lock_retry_interval")
                .unwrap_or(RETRY_INTERVAL),
            locket: LocketConfig::read(
                keys,
                uuid.as_deref(),
                lookup_timeout.unwrap_or(LOOKUP_TIMEOUT),
            ),
            uuid,
        };
        if lock.ttl < Duration::from_secs(1) {
            keys.fault(ConfigError::Refused {
                key: "lock_ttl",
                why: "a lock is held for whole seconds; give at least \"1s\"",
            });
        }
        lock
    }
}

/// The key of this host's identity, with its meaning.
pub(super) const UUID: (&str, &str) = ("uuid", "the identity of this host in Locket");
/// The keys of Locket's files, each with its meaning.
pub(super) const LOCKET_FILES: FileKeys = [
    ("locket_ca_cert_file", "the authority that signed Locket"),
    (
        "locket_client_cert_file",
        "the certificate that this host shows to Locket",
    ),
    (
        "locket_client_key_file",
        "the key of the certificate that this host shows to Locket",
    ),
];

impl LocketConfig {
    fn read(keys: &mut Keys, uuid: Option<&str>, lookup_timeout: Duration) -> Option<Self> {
        let files = LOCKET_FILES.map(|(key, _)| keys.file(key));
        let mut seconds = |key| {
            keys.count(key)
                .map(|count| Duration::from_secs(count.into()))
        };
        let keepalive_time = seconds("locket_client_keepalive_time");
        let keepalive_timeout = seconds("locket_client_keepalive_timeout");
        let address = keys.text("locket_address")?;
        keys.required(uuid.map(drop), UUID.0, UUID.1);
        let [ca_file, cert_file, key_file] = keys.all_required(files, LOCKET_FILES);
        let tls = CertificateFiles {
            cert_file,
            key_file,
            ca_file,
        };
        Some(Self {
            tls,
            keepalive_time,
            keepalive_timeout,
            lookup_timeout,
            address,
        })
    }
}
