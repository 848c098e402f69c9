//! The configuration: one JSON file with Diego's key names and a few of this project's own. Owns
//! parsing, defaults and the checks that need no other part; opens no file but its own, and no
//! connection.

mod clients;
mod database;
mod dsn;
pub mod duration;
mod etcd;
mod folders;
mod keys;
mod listeners;
mod lock;
mod logging;
mod migration;
mod names;
mod tls;
mod updates;
mod values;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use zeroize::Zeroizing;

pub use clients::{AuctioneerConfig, ClientsConfig, LoggregatorConfig, RepConfig};
pub use database::RaisedConnections;
pub use dsn::DsnError;
pub use duration::GoDuration;
pub use etcd::EtcdConfig;
pub use folders::{
    ModuleFoldersError, modules as found_modules, shared_module_cache, shipped_module_cache,
};
pub use listeners::{HealthCheck, Listeners};
pub use lock::{Lock, LocketConfig};
pub use logging::{LogFormat, LogLevel, Logging, TimeFormat};
pub use migration::{MigrationConfig, MigrationMode, OnUnreadable};
pub use tls::CertificateFiles;
pub use updates::Updates;
pub use work::{Convergence, Tasks};

use bbs_database::Address;

use bbs_modules::signatures::{TrustedKeyError, TrustedKeys, is_catalog_name};
use database::{ConfiguredAddress, DatabaseKeys};
use keys::{Folders, Keys};
use lock::{LOCKET_FILES, UUID};
use names::WITHOUT_MEANING;
use tls::SERVER_FILES;

/// Some editors write it at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// The name in the data folder.
const ADMIN_SOCKET: &str = "admin.sock";

/// The parsed and validated configuration file. Absent keys have the defaults documented in
/// `host/OPERATING.md`.
#[derive(Clone, PartialEq)]
pub struct Config {
    pub listeners: Listeners,
    /// Whether the host is a BOSH job: bpm kills it 15 s after a signal.
    pub is_bosh_job: bool,
    /// The Unix socket through which `bbs migrate pause` and similar commands reach a running host.
    pub admin_socket: PathBuf,
    pub database: Address,
    pub lock: Lock,
    pub clients: ClientsConfig,
    pub tasks: Tasks,
    pub convergence: Convergence,
    /// Updates of desired LRPs to another definition.
    pub updates: Updates,
    pub migration: MigrationConfig,
    /// The store to import from, once, if the database is empty.
    pub etcd: Option<EtcdConfig>,
    /// Passphrases by key label, zeroized when they are dropped.
    pub encryption_keys: BTreeMap<String, Zeroizing<String>>,
    /// The label of the key that new records are sealed with; empty without encryption.
    pub active_key_label: String,
    /// The folder that `bbs module build` wrote.
    pub modules_dir: PathBuf,
    /// Further folders of modules, those of add-ons; each a path or a glob pattern.
    pub add_on_dirs: Vec<PathBuf>,
    /// The public keys that may sign each catalog. With any, every catalog has to be signed.
    pub trusted_keys: TrustedKeys,
    /// Names of catalogs that may be older than one that the database remembers.
    pub accept_older_catalogs: Vec<String>,
    /// Folders for compiled modules, in order of preference; safe to delete at any time.
    pub module_caches: Vec<PathBuf>,
    /// The data version to migrate to, instead of the catalog's newest.
    pub pin_data_version: Option<u64>,
    /// The newest API version to serve, such as `0.10`.
    pub pin_api_version: Option<String>,
    /// The release whose data and API versions are pinned, instead of naming the two.
    pub pin_release: Option<String>,
    pub logging: Logging,
    /// Keys in the file that have no effect, for one warning.
    pub ignored: Ignored,
    /// Keys whose relative path exists beside the file but not in the working directory, where
    /// Diego's BBS looks; for one warning.
    pub beside_the_file: Vec<String>,
    /// The limit of database connections, if it is too low; for one warning.
    pub raised_connections: Option<RaisedConnections>,
}

/// A configuration file whose keys may have faults.
#[derive(Debug)]
pub struct ExaminedConfig {
    /// Keys with a fault have their defaults.
    pub config: Config,
    /// All faults of its keys.
    pub faults: Vec<ConfigError>,
    path: PathBuf,
}

impl ExaminedConfig {
    /// Reads a file as [`Config::read`] does.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let path = path.to_owned();
        let text = bbs_files::read_text(&path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        // It has passphrases.
        let text = Zeroizing::new(text);
        let file = parse(&text).map_err(|reason| ConfigError::Parse {
            path: path.clone(),
            reason,
        })?;
        let file_folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        let working = std::env::current_dir().unwrap_or_default();
        Ok(examine(
            file,
            Folders {
                path,
                file: file_folder,
                working,
            },
        ))
    }

    /// The keys that have a fault, or may be meant by one that is misspelt.
    pub fn faulty_keys(&self) -> BTreeSet<String> {
        let meant = self.faults.iter().filter_map(|fault| match fault {
            ConfigError::Misspelt { meant, .. } => Some(*meant),
            _ => None,
        });
        self.faults
            .iter()
            .filter_map(ConfigError::key)
            .chain(meant)
            .map(str::to_owned)
            .collect()
    }

    /// The configuration, if no key has a fault.
    ///
    /// # Errors
    /// All faults of keys.
    pub fn without_faults(mut self) -> Result<Config, ConfigError> {
        match self.faults.len() {
            0 => Ok(self.config),
            1 => Err(self.faults.remove(0)),
            _ => Err(ConfigError::Faults {
                path: self.path,
                faults: self.faults,
            }),
        }
    }
}

/// Keys that have no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Diego's keys that this host ignores on purpose.
    pub known: Vec<String>,
    /// All other keys.
    pub unknown: Vec<String>,
    /// For those of them that resemble one of Diego's keys, that key.
    pub resembled: BTreeMap<String, String>,
}

/// Prints no passphrases.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("listeners", &self.listeners)
            .field("database", &self.database)
            .field("active_key_label", &self.active_key_label)
            .field("modules_dir", &self.modules_dir)
            .finish_non_exhaustive()
    }
}

/// Why a configuration cannot be used. Each message names the key and the correction.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}; {}", .path.display(), advice(.source))]
    Read { path: PathBuf, source: io::Error },
    #[error("the configuration file {} is not a JSON object: {reason}", .path.display())]
    Parse {
        path: PathBuf,
        reason: serde_json::Error,
    },
    #[error("the configuration file {} has {} faults:{}", .path.display(), .faults.len(), list(.faults))]
    Faults {
        path: PathBuf,
        faults: Vec<ConfigError>,
    },
    #[error("`{key}` is {value}; write {form}")]
    Value {
        key: &'static str,
        value: String,
        form: &'static str,
    },
    #[error(
        "`{key}` is not an address to listen on: {text:?}; write it as IP:port, such as \"127.0.0.1:8889\""
    )]
    Address { key: &'static str, text: String },
    #[error("`{key}` is required: {what}")]
    Missing {
        key: &'static str,
        what: &'static str,
    },
    #[error(
        "`modules_dir` is required: there is no folder of modules in {places}; name the one that `bbs module build` wrote"
    )]
    NoModules { places: String },
    #[error(
        "`database_driver` {0:?} is not served; use \"sqlite\", \"postgres\" or \"mysql\" (also for MariaDB)"
    )]
    Driver(String),
    #[error("`database_connection_string` cannot be used: {reason}; write it as {form}")]
    ConnectionString {
        form: &'static str,
        reason: DsnError,
    },
    #[error(
        "`{written}` is not a key of the configuration; write `{meant}`, which it resembles, or take it out of the file"
    )]
    Misspelt {
        written: String,
        meant: &'static str,
    },
    #[error("`{key}` has catalogs that cannot be used: {reason}")]
    Catalogs {
        key: &'static str,
        reason: TrustedKeyError,
    },
    #[error("`{key}` cannot be honoured: {why}")]
    Refused {
        key: &'static str,
        why: &'static str,
    },
}

impl ConfigError {
    /// The key at fault, of the faults of one key.
    fn key(&self) -> Option<&str> {
        match self {
            Self::Read { .. } | Self::Parse { .. } | Self::Faults { .. } => None,
            Self::Value { key, .. }
            | Self::Address { key, .. }
            | Self::Missing { key, .. }
            | Self::Catalogs { key, .. }
            | Self::Refused { key, .. } => Some(key),
            Self::NoModules { .. } => Some("modules_dir"),
            Self::Driver(_) => Some("database_driver"),
            Self::ConnectionString { .. } => Some("database_connection_string"),
            Self::Misspelt { written, .. } => Some(written),
        }
    }
}

/// The correction for a file that could not be read.
fn advice(fault: &io::Error) -> &'static str {
    match fault.kind() {
        ErrorKind::PermissionDenied => "check that this user may read it, and enter its folders",
        ErrorKind::InvalidData => "save it as UTF-8",
        _ => "give its path with --config",
    }
}

fn list(faults: &[ConfigError]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

impl Config {
    /// Reads a file. Relative paths in it are relative to the file, so that they do not depend on
    /// the working directory; except those of certificates and keys, which are first looked up in
    /// the working directory, as Diego's BBS does.
    ///
    /// # Errors
    /// If the file cannot be read or parsed; or with all keys that are missing, misspelt or have a
    /// value that cannot be used.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        ExaminedConfig::read(path)?.without_faults()
    }

    /// Peculiarities of the file that keep no host from starting, in sentences: keys without effect
    /// that are none of Diego's, and values that are not used as they are.
    pub fn warnings(&self) -> Vec<String> {
        let unknown =
            self.ignored
                .unknown
                .iter()
                .map(|written| match self.ignored.resembled.get(written) {
                    Some(meant) => format!(
                        "`{written}` has no meaning here and is ignored; it resembles `{meant}`"
                    ),
                    None => format!("`{written}` has no meaning here and is ignored"),
                });
        let beside = self.beside_the_file.iter().map(|key| {
            format!(
                "the file that `{key}` names is not in the working directory, where Diego's BBS looks for it, and was found \
                 beside the configuration file; write an absolute path"
            )
        });
        let raised = self.raised_connections.map(|RaisedConnections { configured, used }| {
            format!(
                "`max_open_database_connections` is {configured}, and this host needs {used} connections to this database; it \
                 opens up to {used}. Set at least that"
            )
        });
        unknown.chain(beside).chain(raised).collect()
    }

    /// The folders of modules that exist now: the host's own, and those of add-ons.
    ///
    /// # Errors
    /// A pattern cannot be used.
    pub fn module_folders(&self) -> Result<Vec<PathBuf>, ModuleFoldersError> {
        folders::expand(&self.modules_dir, &self.add_on_dirs)
    }

    /// The configuration of a file that has only these keys.
    pub fn smallest(database: Address, modules_dir: PathBuf, data_dir: &Path) -> Self {
        Self {
            listeners: Listeners::default(),
            is_bosh_job: false,
            admin_socket: data_dir.join(ADMIN_SOCKET),
            database,
            lock: Lock::default(),
            clients: ClientsConfig::default(),
            tasks: Tasks::default(),
            convergence: Convergence::default(),
            updates: Updates::default(),
            migration: MigrationConfig::default(),
            etcd: None,
            encryption_keys: BTreeMap::new(),
            active_key_label: String::new(),
            modules_dir,
            add_on_dirs: Vec::new(),
            trusted_keys: TrustedKeys::default(),
            accept_older_catalogs: Vec::new(),
            module_caches: folders::module_caches(data_dir),
            pin_data_version: None,
            pin_api_version: None,
            pin_release: None,
            logging: Logging::default(),
            ignored: Ignored::default(),
            beside_the_file: Vec::new(),
            raised_connections: None,
        }
    }
}

/// Keys without which a host that is part of a Diego would start, but never run anything that
/// clients desire; each with its meaning, beside [`SERVER_FILES`], [`LOCKET_FILES`] and [`UUID`].
const REQUIRED_IN_A_DIEGO: [(&str, &str); 4] = [
    (
        "database_driver",
        "\"postgres\", or \"mysql\" (also for MariaDB)",
    ),
    (
        "auctioneer_address",
        "the URL of the auctioneer, which places LRPs and tasks on cells",
    ),
    (
        "locket_address",
        "the address of Locket, which has the master lock and the presences of cells",
    ),
    (
        "health_address",
        "the address at which a supervisor checks the health of this host",
    ),
];

/// Validates that the configuration of a host that is part of a Diego is complete.
fn check_completeness(config: &Config, keys: &mut Keys) {
    if config.listeners.tls.is_none() && config.clients.auctioneer.is_none() {
        return;
    }
    for (key, what) in SERVER_FILES
        .into_iter()
        .chain(REQUIRED_IN_A_DIEGO)
        .chain(LOCKET_FILES)
        .chain([UUID])
    {
        keys.required(keys.is_given(key).then_some(()), key, what);
    }
}

/// Parses the first JSON value of the text and ignores what follows it, as Go's decoder does.
fn parse(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    if text.starts_with(BYTE_ORDER_MARK) {
        return Err(serde::de::Error::custom(
            "it begins with a byte order mark; save it without one",
        ));
    }
    match serde_json::Deserializer::from_str(text)
        .into_iter()
        .next()
        .transpose()?
    {
        Some(Value::Object(file)) => Ok(file),
        Some(other) => Err(serde::de::Error::custom(format!(
            "it is {}",
            values::describe(&other)
        ))),
        None => Err(serde::de::Error::custom("it is empty")),
    }
}

/// The configuration, and all faults of its keys.
fn examine(file: Map<String, Value>, folders: Folders) -> ExaminedConfig {
    let base = &folders.file.clone();
    let path = folders.path.clone();
    let mut keys = Keys::new(file, folders);
    let database = DatabaseKeys::read(&mut keys);
    let lock = Lock::read(&mut keys, database.connection_timeout());
    let ConfiguredAddress {
        address: database,
        ignored: ignored_parameters,
        raised_connections,
    } = database.address(&mut keys, base, &lock);
    let default = default_config(database, &mut keys, &path, base);
    let mut config = Config {
        listeners: Listeners::read(&mut keys),
        is_bosh_job: folders::bosh(base).is_some(),
        lock,
        clients: ClientsConfig::read(&mut keys),
        tasks: Tasks::read(&mut keys),
        convergence: Convergence::read(&mut keys),
        updates: Updates::read(&mut keys),
        migration: MigrationConfig::read(&mut keys),
        etcd: EtcdConfig::read(&mut keys),
        encryption_keys: encryption_keys(&mut keys),
        active_key_label: keys.take("active_key_label").unwrap_or_default(),
        add_on_dirs: keys
            .texts("modules_dirs")
            .into_iter()
            .map(|folder| base.join(folder))
            .collect(),
        trusted_keys: trusted_keys(&mut keys),
        accept_older_catalogs: accept_older_catalogs(&mut keys),
        module_caches: keys
            .path("module_cache_dir")
            .map_or(default.module_caches, |folder| vec![folder]),
        pin_data_version: keys.take_or("pin_data_version", |value| ConfigError::Value {
            key: "pin_data_version",
            value: values::describe(value),
            form: "a whole number, or name a release with `pin_release`",
        }),
        pin_api_version: keys.text("pin_api_version"),
        pin_release: keys.text("pin_release"),
        logging: Logging::read(&mut keys),
        raised_connections,
        ..default
    };
    check_completeness(&config, &mut keys);
    let faults = take_leftover(keys, &mut config);
    config.ignored.unknown.extend(ignored_parameters);
    ExaminedConfig {
        config,
        faults,
        path,
    }
}

/// The configuration of a file without any other keys, with the folders that `keys` name or else
/// the default ones of the file at `path` in the folder `base`.
fn default_config(database: Address, keys: &mut Keys, path: &Path, base: &Path) -> Config {
    let data_dir = keys
        .path("data_dir")
        .unwrap_or_else(|| folders::data(path, base, &database));
    let modules_dir = keys
        .path("modules_dir")
        .map_or_else(folders::modules, Ok)
        .unwrap_or_else(|fault| {
            keys.fault(fault);
            PathBuf::new()
        });
    let mut default = Config::smallest(database, modules_dir, &data_dir);
    if let Some(socket) = keys.path("admin_socket") {
        default.admin_socket = socket;
    }
    default
}

/// Enters the keys that no part has read as ignored ones, and returns all faults of the file.
fn take_leftover(mut keys: Keys, config: &mut Config) -> Vec<ConfigError> {
    let (known, others): (Vec<_>, Vec<_>) = keys
        .take_unread()
        .into_iter()
        .partition(|key| WITHOUT_MEANING.contains(&&**key));
    let mut unknown = Vec::new();
    for written in others {
        match names::resembled(&written, names::OURS) {
            Some(meant) => keys.faults.push(ConfigError::Misspelt { written, meant }),
            None => unknown.push(written),
        }
    }
    config.ignored = Ignored {
        resembled: resembled(&unknown, &keys.known),
        known,
        unknown,
    };
    config.beside_the_file = keys.beside_the_file;
    keys.faults
}

/// The unknown keys that resemble a known one, with that key. Diego's BBS ignores them, so they are
/// no faults.
fn resembled(unknown: &[String], known: &BTreeSet<String>) -> BTreeMap<String, String> {
    let candidates = || known.iter().map(String::as_str).chain(WITHOUT_MEANING);
    unknown
        .iter()
        .filter_map(|written| {
            Some((
                written.clone(),
                names::resembled(written, candidates())?.to_owned(),
            ))
        })
        .collect()
}

/// The fault does not have the value, unlike others: it may be a passphrase.
fn encryption_keys(keys: &mut Keys) -> BTreeMap<String, Zeroizing<String>> {
    let key = "encryption_keys";
    let why = "it is an object of labels and passphrases, all of them texts";
    let texts: Option<BTreeMap<String, Option<String>>> =
        keys.take_or(key, |_| ConfigError::Refused { key, why });
    let texts = texts.unwrap_or_default().into_iter();
    texts
        .map(|(label, passphrase)| (label, Zeroizing::new(passphrase.unwrap_or_default())))
        .collect()
}

fn trusted_keys(keys: &mut Keys) -> TrustedKeys {
    let key = "trusted_keys";
    let texts = keys
        .take::<BTreeMap<String, Option<Vec<Option<String>>>>>(key)
        .unwrap_or_default();
    let texts = texts
        .into_iter()
        .map(|(name, keys)| {
            let keys = keys.unwrap_or_default();
            (
                name,
                keys.into_iter().map(Option::unwrap_or_default).collect(),
            )
        })
        .collect();
    TrustedKeys::parse(texts).unwrap_or_else(|reason| {
        keys.fault(ConfigError::Catalogs { key, reason });
        TrustedKeys::default()
    })
}

fn accept_older_catalogs(keys: &mut Keys) -> Vec<String> {
    let key = "accept_older_catalogs";
    let names = keys.texts(key);
    if let Some(name) = names.iter().find(|name| !is_catalog_name(name)) {
        keys.fault(ConfigError::Catalogs {
            key,
            reason: TrustedKeyError::Name { name: name.clone() },
        });
    }
    names
}

#[cfg(test)]
mod tests;
