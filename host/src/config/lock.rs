//! The keys that say which lock makes a host the master, and for how long. Owns reading them; locks nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::ConfigError;
use super::duration::GoDuration;

const TTL: Duration = Duration::from_secs(15);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// How long a master that says nothing more is still taken for one.
    pub ttl: Duration,
    /// How often a standby tries again.
    pub retry_interval: Duration,
    /// Who this host is to the others. A new one for each start where absent.
    pub uuid: Option<String>,
    /// Diego's lock service; the database's own lock where absent.
    pub locket: Option<Locket>,
}

impl Default for Lock {
    fn default() -> Self {
        Self { ttl: TTL, retry_interval: RETRY_INTERVAL, uuid: None, locket: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locket {
    /// `host:port`.
    pub address: String,
    pub ca_cert_file: PathBuf,
    pub client_cert_file: PathBuf,
    pub client_key_file: PathBuf,
    pub keepalive_time: Option<Duration>,
    pub keepalive_timeout: Option<Duration>,
}

/// The keys as written.
#[derive(Default, Deserialize)]
pub(super) struct LockKeys {
    lock_ttl: Option<GoDuration>,
    lock_retry_interval: Option<GoDuration>,
    #[serde(default)]
    uuid: String,
    #[serde(default)]
    locket_address: String,
    locket_ca_cert_file: Option<PathBuf>,
    locket_client_cert_file: Option<PathBuf>,
    locket_client_key_file: Option<PathBuf>,
    #[serde(default)]
    locket_client_keepalive_time: u64,
    #[serde(default)]
    locket_client_keepalive_timeout: u64,
}

impl LockKeys {
    pub(super) fn lock(self, base: &Path) -> Result<Lock, ConfigError> {
        let given = |value: Option<GoDuration>| value.map(|value| value.0).filter(|value| !value.is_zero());
        let lock = Lock {
            ttl: given(self.lock_ttl).unwrap_or(TTL),
            retry_interval: given(self.lock_retry_interval).unwrap_or(RETRY_INTERVAL),
            uuid: Some(self.uuid.clone()).filter(|uuid| !uuid.is_empty()),
            locket: self.locket(base)?,
        };
        if lock.ttl < Duration::from_secs(1) {
            return Err(ConfigError::Refused {
                key: "lock_ttl",
                why: "a lock is held for whole seconds; give at least \"1s\"",
            });
        }
        Ok(lock)
    }

    fn locket(self, base: &Path) -> Result<Option<Locket>, ConfigError> {
        if self.locket_address.is_empty() {
            return Ok(None);
        }
        if self.uuid.is_empty() {
            return Err(ConfigError::Missing { key: "uuid", what: "who this host is to Locket" });
        }
        let file = |file: Option<PathBuf>, key, what| {
            file.map(|file| base.join(file)).ok_or(ConfigError::Missing { key, what })
        };
        let seconds = |count: u64| (count > 0).then(|| Duration::from_secs(count));
        Ok(Some(Locket {
            ca_cert_file: file(self.locket_ca_cert_file, "locket_ca_cert_file", "the authority that signed Locket")?,
            client_cert_file: file(
                self.locket_client_cert_file,
                "locket_client_cert_file",
                "the certificate that this host shows to Locket",
            )?,
            client_key_file: file(
                self.locket_client_key_file,
                "locket_client_key_file",
                "the key of the certificate that this host shows to Locket",
            )?,
            keepalive_time: seconds(self.locket_client_keepalive_time),
            keepalive_timeout: seconds(self.locket_client_keepalive_timeout),
            address: self.locket_address,
        }))
    }
}
