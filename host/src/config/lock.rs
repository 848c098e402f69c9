//! The keys that say which lock makes a host the master, and for how long. Owns reading them; locks nothing.

use std::path::PathBuf;
use std::time::Duration;

use super::ConfigError;
use super::keys::Keys;

const TTL: Duration = Duration::from_secs(15);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Where Diego's zero would end every look-up before it began.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// How long looking up a cell, or all, may take.
    pub lookup_timeout: Duration,
}

impl Lock {
    /// `lookup_timeout` is what the file says of the database's connections, which bounds looking cells up as well.
    pub(super) fn read(keys: &mut Keys, lookup_timeout: Option<Duration>) -> Result<Self, ConfigError> {
        let uuid = keys.text("uuid")?;
        let lock = Self {
            ttl: keys.duration("lock_ttl")?.unwrap_or(TTL),
            retry_interval: keys.duration("lock_retry_interval")?.unwrap_or(RETRY_INTERVAL),
            locket: Locket::read(keys, uuid.is_some(), lookup_timeout.unwrap_or(LOOKUP_TIMEOUT))?,
            uuid,
        };
        if lock.ttl < Duration::from_secs(1) {
            return Err(ConfigError::Refused {
                key: "lock_ttl",
                why: "a lock is held for whole seconds; give at least \"1s\"",
            });
        }
        Ok(lock)
    }
}

impl Locket {
    fn read(keys: &mut Keys, has_uuid: bool, lookup_timeout: Duration) -> Result<Option<Self>, ConfigError> {
        let (ca, cert, key) = (
            keys.file("locket_ca_cert_file")?,
            keys.file("locket_client_cert_file")?,
            keys.file("locket_client_key_file")?,
        );
        let mut seconds = |key| Ok::<_, ConfigError>(keys.count(key)?.map(|count| Duration::from_secs(count.into())));
        let keepalive_time = seconds("locket_client_keepalive_time")?;
        let keepalive_timeout = seconds("locket_client_keepalive_timeout")?;
        let Some(address) = keys.text("locket_address")? else { return Ok(None) };
        if !has_uuid {
            return Err(ConfigError::Missing { key: "uuid", what: "who this host is to Locket" });
        }
        let named = |path: Option<PathBuf>, key, what| path.ok_or(ConfigError::Missing { key, what });
        Ok(Some(Self {
            ca_cert_file: named(ca, "locket_ca_cert_file", "the authority that signed Locket")?,
            client_cert_file: named(cert, "locket_client_cert_file", "the certificate that this host shows to Locket")?,
            client_key_file: named(
                key,
                "locket_client_key_file",
                "the key of the certificate that this host shows to Locket",
            )?,
            keepalive_time,
            keepalive_timeout,
            lookup_timeout,
            address,
        }))
    }
}
