//! What an operator writes down: one JSON file with Diego's own key names, and a few of ours.
//! Owns parsing and the checks that need no other part; opens nothing.

mod database;
mod dsn;
pub mod duration;
mod lock;
mod migration;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use dsn::DsnError;
pub use lock::{Lock, Locket};
pub use migration::{Migration, MigrationMode, OnUnreadable};

use crate::database::Address;
use database::DatabaseKeys;
use lock::LockKeys;
use migration::MigrationKeys;

/// Keys of Diego's that would change what a client may rely on, were they ignored.
const REFUSED: [(&str, &str); 3] = [
    ("cert_file", "this release serves plain HTTP; remove it and keep the host behind a TLS terminator"),
    ("key_file", "this release serves plain HTTP; remove it and keep the host behind a TLS terminator"),
    ("ca_file", "this release does not verify client certificates; remove it and restrict access to the port"),
];

/// The file, checked. Absent keys have the defaults of [`Config::read`].
#[derive(Clone, PartialEq)]
pub struct Config {
    pub listen_address: SocketAddr,
    pub health_address: Option<SocketAddr>,
    /// Where Prometheus may ask; nowhere if absent.
    pub metrics_address: Option<SocketAddr>,
    /// Where `bbs migrate pause` and the like reach a running host.
    pub admin_socket: PathBuf,
    pub database: Address,
    pub lock: Lock,
    pub migration: Migration,
    pub encryption_keys: BTreeMap<String, String>,
    pub active_key_label: String,
    pub modules_dir: PathBuf,
    /// Compiled modules; safe to delete at any time.
    pub module_cache_dir: PathBuf,
    /// Units that a migration could not transform, sealed, for the SDK to run again.
    pub replay_dir: PathBuf,
    /// The newest data version to migrate to, where it is not the catalog's newest.
    pub pin_data_version: Option<u64>,
    /// The newest API version to serve, such as `0.10`.
    pub pin_api_version: Option<String>,
    pub log_level: LogLevel,
    /// Keys in the file that have no meaning here, for one warning.
    pub ignored: Vec<String>,
}

/// Without the passphrases.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("listen_address", &self.listen_address)
            .field("database", &self.database)
            .field("active_key_label", &self.active_key_label)
            .field("modules_dir", &self.modules_dir)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Error,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}; give its path with --config", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration file {} is not the JSON this host expects; correct the key named below", .path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("`{key}` is required: {what}")]
    Missing { key: &'static str, what: &'static str },
    #[error("`database_driver` {0:?} is not served; use \"sqlite\", \"postgres\" or \"mysql\" (also for MariaDB)")]
    Driver(String),
    #[error("`database_connection_string` cannot be used; write it as {form}")]
    ConnectionString { form: &'static str, source: DsnError },
    #[error("`{key}` cannot be honoured: {why}")]
    Refused { key: &'static str, why: &'static str },
}

/// The file as written. Every key is optional here; `check` says which are not.
#[derive(Default, Deserialize)]
struct File {
    listen_address: Option<SocketAddr>,
    health_address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    admin_socket: Option<PathBuf>,
    #[serde(flatten)]
    database: DatabaseKeys,
    #[serde(flatten)]
    lock: LockKeys,
    #[serde(flatten)]
    migration: MigrationKeys,
    #[serde(default)]
    encryption_keys: BTreeMap<String, String>,
    #[serde(default)]
    active_key_label: String,
    modules_dir: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    module_cache_dir: Option<PathBuf>,
    replay_dir: Option<PathBuf>,
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

    /// What a file with nothing but these says.
    pub fn smallest(database: Address, modules_dir: PathBuf, data_dir: &Path) -> Self {
        Self {
            listen_address: SocketAddr::from(([127, 0, 0, 1], 8889)),
            health_address: None,
            metrics_address: None,
            admin_socket: data_dir.join("admin.sock"),
            database,
            lock: Lock::default(),
            migration: Migration::default(),
            encryption_keys: BTreeMap::new(),
            active_key_label: String::new(),
            modules_dir,
            module_cache_dir: data_dir.join("module-cache"),
            replay_dir: data_dir.join("replay"),
            pin_data_version: None,
            pin_api_version: None,
            log_level: LogLevel::Info,
            ignored: Vec::new(),
        }
    }
}

fn check(file: File, base: &Path) -> Result<Config, ConfigError> {
    if let Some((key, why)) = REFUSED.into_iter().find(|(key, _)| file.other.contains_key(*key)) {
        return Err(ConfigError::Refused { key, why });
    }
    let lock = file.lock.lock(base)?;
    let (database, ignored_parameters) = file.database.address(base, &lock)?;
    let what = "the folder that `bbs module build` wrote";
    let modules_dir = file.modules_dir.ok_or(ConfigError::Missing { key: "modules_dir", what })?;
    let data_dir = match (&file.data_dir, &database) {
        (Some(folder), _) => base.join(folder),
        (None, Address::Sqlite(path)) => path.parent().unwrap_or(base).to_owned(),
        (None, Address::Server(_)) => base.to_owned(),
    };
    let default = Config::smallest(database, base.join(modules_dir), &data_dir);
    let or = |path: Option<PathBuf>, default| path.map_or(default, |path| base.join(path));
    Ok(Config {
        listen_address: file.listen_address.unwrap_or(default.listen_address),
        health_address: file.health_address,
        metrics_address: file.metrics_address,
        admin_socket: or(file.admin_socket, default.admin_socket),
        lock,
        migration: file.migration.migration()?,
        encryption_keys: file.encryption_keys,
        active_key_label: file.active_key_label,
        module_cache_dir: or(file.module_cache_dir, default.module_cache_dir),
        replay_dir: or(file.replay_dir, default.replay_dir),
        pin_data_version: file.pin_data_version,
        pin_api_version: file.pin_api_version,
        log_level: file.log_level,
        ignored: ignored_parameters.into_iter().chain(file.other.into_keys()).collect(),
        ..default
    })
}

#[cfg(test)]
mod tests;
