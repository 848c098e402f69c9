//! What an operator writes down: one JSON file with Diego's own key names, and a few of ours.
//! Owns parsing and the checks that need no other part; opens nothing.

pub mod dsn;
pub mod duration;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use duration::GoDuration;

/// Keys of Diego's that would change what a client may rely on, were they ignored.
const REFUSED: [(&str, &str); 3] = [
    ("cert_file", "this release serves plain HTTP; remove it and keep the host behind a TLS terminator"),
    ("key_file", "this release serves plain HTTP; remove it and keep the host behind a TLS terminator"),
    ("ca_file", "this release does not verify client certificates; remove it and restrict access to the port"),
];

/// The file, checked. Absent keys have the defaults of [`Config::read`].
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub listen_address: SocketAddr,
    pub health_address: Option<SocketAddr>,
    /// The SQLite database's file.
    pub database: PathBuf,
    pub encryption_keys: BTreeMap<String, String>,
    pub active_key_label: String,
    pub modules_dir: PathBuf,
    /// Compiled modules; safe to delete at any time.
    pub module_cache_dir: PathBuf,
    /// Units that a migration could not transform, sealed, for the SDK to run again.
    pub replay_dir: PathBuf,
    pub lock_retry_interval: Duration,
    /// What becomes of a unit that a migration cannot take.
    pub refused_units: RefusedUnits,
    /// The newest data version to migrate to, where it is not the catalog's newest.
    pub pin_data_version: Option<u64>,
    /// The newest API version to serve, such as `0.10`.
    pub pin_api_version: Option<String>,
    pub log_level: LogLevel,
    /// Keys in the file that have no meaning here, for one warning.
    pub ignored: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Error,
}

/// What becomes of a unit that a migration cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RefusedUnits {
    /// The migration stops and names it.
    #[default]
    Stop,
    /// It is left out and kept whole: see `bbs migrate quarantine`.
    Quarantine,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}; give its path with --config", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration file {} is not the JSON this host expects; correct the key named below", .path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("`{key}` is required: {what}")]
    Missing { key: &'static str, what: &'static str },
    #[error(
        "`database_driver` {0:?} is not served by this release; use \"sqlite\" with a file path as `database_connection_string`"
    )]
    Driver(String),
    #[error("`{key}` cannot be honoured: {why}")]
    Refused { key: &'static str, why: &'static str },
}

/// The file as written. Every key is optional here; `check` says which are not.
#[derive(Debug, Default, Deserialize)]
struct File {
    listen_address: Option<SocketAddr>,
    health_address: Option<SocketAddr>,
    database_driver: Option<String>,
    database_connection_string: Option<PathBuf>,
    #[serde(default)]
    encryption_keys: BTreeMap<String, String>,
    #[serde(default)]
    active_key_label: String,
    modules_dir: Option<PathBuf>,
    module_cache_dir: Option<PathBuf>,
    replay_dir: Option<PathBuf>,
    lock_retry_interval: Option<GoDuration>,
    #[serde(default)]
    refused_units: RefusedUnits,
    pin_data_version: Option<u64>,
    pin_api_version: Option<String>,
    #[serde(default)]
    log_level: LogLevel,
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
}

impl Config {
    /// Reads a file. Relative paths in it are relative to the file, so that it means the same from anywhere.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let file =
            serde_json::from_str(&text).map_err(|source| ConfigError::Parse { path: path.to_owned(), source })?;
        check(file, path.parent().unwrap_or(Path::new(".")))
    }
}

fn check(file: File, base: &Path) -> Result<Config, ConfigError> {
    if let Some((key, why)) = REFUSED.into_iter().find(|(key, _)| file.other.contains_key(*key)) {
        return Err(ConfigError::Refused { key, why });
    }
    match file.database_driver.as_deref() {
        None | Some("sqlite") => {}
        Some(other) => return Err(ConfigError::Driver(other.to_owned())),
    }
    let required = |value: Option<PathBuf>, key, what| value.ok_or(ConfigError::Missing { key, what });
    let database = base.join(required(
        file.database_connection_string,
        "database_connection_string",
        "the path of the SQLite database file",
    )?);
    let modules_dir = base.join(required(file.modules_dir, "modules_dir", "the folder that `bbs module build` wrote")?);
    let beside = |name: &str| database.parent().unwrap_or(base).join(name);
    Ok(Config {
        listen_address: file.listen_address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8889))),
        health_address: file.health_address,
        encryption_keys: file.encryption_keys,
        active_key_label: file.active_key_label,
        module_cache_dir: file.module_cache_dir.map_or_else(|| beside("module-cache"), |dir| base.join(dir)),
        replay_dir: file.replay_dir.map_or_else(|| beside("replay"), |dir| base.join(dir)),
        lock_retry_interval: file.lock_retry_interval.map_or(Duration::from_secs(5), |value| value.0),
        refused_units: file.refused_units,
        pin_data_version: file.pin_data_version,
        pin_api_version: file.pin_api_version,
        log_level: file.log_level,
        ignored: file.other.into_keys().collect(),
        database,
        modules_dir,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Config, ConfigError> {
        check(serde_json::from_str(json).expect("the test's JSON parses"), Path::new("/etc/bbs"))
    }

    const SMALLEST: &str = r#"{"database_connection_string":"data/bbs.db","modules_dir":"modules"}"#;

    #[test]
    fn the_smallest_file_gets_defaults_beside_the_database() {
        let config = read(SMALLEST).unwrap();
        assert_eq!(config.listen_address.to_string(), "127.0.0.1:8889");
        assert_eq!(config.database, Path::new("/etc/bbs/data/bbs.db"));
        assert_eq!(config.modules_dir, Path::new("/etc/bbs/modules"));
        assert_eq!(config.module_cache_dir, Path::new("/etc/bbs/data/module-cache"));
        assert_eq!(config.lock_retry_interval, Duration::from_secs(5));
        assert!(config.ignored.is_empty());
    }

    #[test]
    fn what_has_no_meaning_here_is_named() {
        let json = SMALLEST.replace('}', r#","locket_address":"x","advertise_url":"y"}"#);
        assert_eq!(read(&json).unwrap().ignored, ["advertise_url", "locket_address"]);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for key in ["cert_file", "key_file", "ca_file"] {
            let json = SMALLEST.replace('}', &format!(r#","{key}":"x"}}"#));
            assert!(matches!(read(&json), Err(ConfigError::Refused { key: named, .. }) if named == key));
        }
        let json = SMALLEST.replace('}', r#","database_driver":"mysql"}"#);
        assert!(matches!(read(&json), Err(ConfigError::Driver(driver)) if driver == "mysql"));
    }

    #[test]
    fn what_is_required_is_named_when_absent() {
        let key = |json| match read(json) {
            Err(ConfigError::Missing { key, .. }) => key,
            other => panic!("expected a missing key, got {other:?}"),
        };
        assert_eq!(key("{}"), "database_connection_string");
        assert_eq!(key(r#"{"database_connection_string":"x"}"#), "modules_dir");
    }
}
