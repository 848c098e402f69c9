//! The keys of the file as Go reads them: whatever their case, `null`, `""` and zero meaning the same as absent. Owns
//! saying which key is wrong, and which were never asked for; knows no key by name.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ConfigError;
use super::duration::GoDuration;

/// What has not been taken yet.
pub(super) struct Keys {
    /// What relative paths are relative to.
    base: PathBuf,
    left: BTreeMap<String, Value>,
}

impl Keys {
    pub(super) fn new(object: Map<String, Value>, base: &Path) -> Self {
        let left = object.into_iter().map(|(key, value)| (key.to_ascii_lowercase(), value)).collect();
        Self { base: base.to_owned(), left }
    }

    pub(super) fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, ConfigError> {
        let value = self.left.remove(key).filter(|value| !value.is_null());
        value.map(serde_json::from_value).transpose().map_err(|source| ConfigError::Value { key, source })
    }

    /// Nothing where it is empty.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfigError> {
        Ok(self.take::<String>(key)?.filter(|text| !text.is_empty()))
    }

    pub(super) fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.text(key)?.map(|path| self.base.join(path)))
    }

    /// Nothing where it is zero.
    pub(super) fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, ConfigError> {
        Ok(self.take::<GoDuration>(key)?.map(|duration| duration.0).filter(|duration| !duration.is_zero()))
    }

    /// Nothing where it is zero.
    pub(super) fn count(&mut self, key: &'static str) -> Result<Option<u32>, ConfigError> {
        Ok(self.take::<u32>(key)?.filter(|count| *count > 0))
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool, ConfigError> {
        Ok(self.take(key)?.unwrap_or_default())
    }

    /// Where to listen: an IP address and a port, or a port alone, which Go takes for one of every interface.
    pub(super) fn address(&mut self, key: &'static str) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let here = text.strip_prefix("localhost:").map(|port| (Ipv4Addr::LOCALHOST, port));
        let everywhere = text.strip_prefix(':').map(|port| (Ipv4Addr::UNSPECIFIED, port));
        let address = match here.or(everywhere) {
            Some((ip, port)) => port.parse().ok().map(|port| SocketAddr::from((ip, port))),
            None => text.parse().ok(),
        };
        address.map(Some).ok_or(ConfigError::Address { key, text })
    }

    /// The keys of an object within the file.
    pub(super) fn section(&mut self, key: &'static str) -> Result<Self, ConfigError> {
        let object = self.take::<Map<String, Value>>(key)?.unwrap_or_default();
        Ok(Self::new(object, &self.base))
    }

    /// What nobody asked for.
    pub(super) fn into_names(self) -> impl Iterator<Item = String> {
        self.left.into_keys()
    }
}
