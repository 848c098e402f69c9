//! The checks of a start that need no connection, all of them instead of those up to the first fault. Owns their list; each is that
//! of the start itself.

use super::StartupError;
use super::listeners::Front;
use super::prepared::load_modules;
use crate::config::Config;
use crate::encryption::Keyring;
use crate::logs::Redactor;

/// The faults that keep a host with this configuration from starting, whatever the state of its database. Opens no port.
pub async fn faults(mut config: Config) -> Vec<anyhow::Error> {
    let keyring = Keyring::new(config.encryption_keys.clone(), &config.active_key_label).err().map(StartupError::from);
    let redactor = Redactor::new(None, config.logging.redact.as_deref()).err().map(anyhow::Error::from);
    let certificates = Front::certificates(&config).err();
    let clients = Front::clients(&config).err();
    let modules = load_modules(&mut config).await.err();
    let of_start = [keyring, certificates, clients, modules].into_iter().flatten().map(anyhow::Error::from);
    redactor.into_iter().chain(of_start).collect()
}
