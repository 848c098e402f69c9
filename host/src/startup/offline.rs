//! The checks of a start that need no connection, all of them instead of those up to the first
//! fault. Owns their list; each is that of the start itself.

use std::collections::BTreeSet;

use bbs_database::{Address, Database, Tls};
use bbs_encryption::Keyring;
use bbs_work::progress::Progress;

use super::StartupError;
use super::listeners::Front;
use super::prepared::load_modules;
use crate::admin::Socket;
use crate::config::{Config, ExaminedConfig, RepConfig};
use crate::etcd::client::EtcdClient;
use crate::http::AccessLog;
use crate::import::ImportError;
use crate::logs::Redactor;
use crate::tls::{self, TlsError};

/// The faults that keep a host with this configuration from starting, whatever the state of its
/// database: those of its keys, then those of what the other keys name. The files for etcd, which
/// only a start with an empty database reads, are among them. Opens no port. `loading` shows that
/// modules are compiled.
pub async fn faults(examined: ExaminedConfig, loading: &Progress) -> Vec<anyhow::Error> {
    let faulty = examined.faulty_keys();
    let mut config = without(examined.config.clone(), &faulty);
    let of_keys = examined.without_faults().err().map(anyhow::Error::from);
    let has_keys = !is_any_of(&faulty, &["encryption_keys", "active_key_label"]);
    let keyring = || Keyring::new(config.encryption_keys.clone(), &config.active_key_label).err();
    let keyring = has_keys.then(keyring).flatten().map(StartupError::from);
    let redactor = Redactor::new(None, config.logging.redact.as_deref())
        .err()
        .map(anyhow::Error::from);
    let certificates = Front::certificates(&config).err();
    if certificates.is_some() {
        // The client of callbacks uses the same ones.
        config.listeners.tls = None;
    }
    let clients = Front::clients(&config).err().unwrap_or_default();
    let database = Database::check_place(&config.database)
        .err()
        .map(StartupError::from);
    let etcd = config.etcd.as_ref();
    let etcd = etcd.and_then(|etcd| EtcdClient::new(etcd).err());
    let access_log = config.listeners.access_log.as_deref();
    let access_log = access_log.and_then(|path| AccessLog::check_place(path).err());
    let has_modules = !is_any_of(&faulty, &["modules_dir", "modules_dirs"]);
    let modules = if has_modules {
        load_modules(&mut config, loading).await.err()
    } else {
        None
    };
    let of_start = keyring
        .into_iter()
        .chain(certificates)
        .chain(clients.into_iter().map(StartupError::from))
        .chain(database)
        .chain(
            database_files(&config.database)
                .into_iter()
                .map(StartupError::DatabaseTls),
        )
        .chain(etcd.map(|fault| StartupError::from(ImportError::from(fault))))
        .chain(access_log.map(StartupError::from))
        .chain(modules);
    of_keys
        .into_iter()
        .chain(redactor)
        .chain(of_start.map(anyhow::Error::from))
        .collect()
}

/// The faults of the files that secure connections to the database. Its driver reads them for each
/// connection, and reports a missing one as if the server were away.
fn database_files(address: &Address) -> Vec<TlsError> {
    let Address::Server(server) = address else {
        return Vec::new();
    };
    let authority = match &server.tls {
        Tls::Off => return Vec::new(),
        Tls::Verified {
            ca_file: Some(file),
            ..
        } => tls::client::check_authority(file).err(),
        Tls::Preferred | Tls::Required | Tls::Verified { ca_file: None, .. } => None,
    };
    let certificate = server
        .client_certificate
        .as_ref()
        .and_then(|files| tls::client::check_pair(&files.certificate, &files.key).err());
    authority.into_iter().chain(certificate).collect()
}

/// The parts that a host with this configuration would do without.
pub fn warnings(config: &Config) -> Vec<String> {
    let socket = Socket::check_place(&config.admin_socket).err();
    let socket = socket.map(|fault| {
        format!(
            "{fault}. A host works without it, and commands such as `bbs drain` do not reach it"
        )
    });
    socket.into_iter().collect()
}

fn is_any_of(faulty: &BTreeSet<String>, keys: &[&str]) -> bool {
    keys.iter().any(|key| faulty.contains(*key))
}

/// The configuration without the parts that a faulty key belongs to, whose faults would be
/// consequences of that one.
fn without(mut config: Config, faulty: &BTreeSet<String>) -> Config {
    for key in faulty.iter().map(String::as_str) {
        match key {
            "redact_patterns" => config.logging.redact = None,
            "cert_file" | "key_file" | "ca_file" => config.listeners.tls = None,
            // The way back begins at the pinned version.
            "pin_data_version" | "pin_release" => config.migration.rollback_on_drain_to = None,
            _ if key.starts_with("auctioneer_") => config.clients.auctioneer = None,
            _ if key.starts_with("rep_") => config.clients.rep = RepConfig::default(),
            _ if key.starts_with("locket_") => config.lock.locket = None,
            _ if key.starts_with("loggregator") => config.clients.loggregator = None,
            _ if key.starts_with("etcd_") => config.etcd = None,
            _ => {}
        }
    }
    config
}
