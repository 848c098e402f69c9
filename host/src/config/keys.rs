//! A typed view of the file's keys with the semantics of Go's decoder, at every depth: key names in any case; `null`, `""`
//! and zero mean the same as absent. Owns errors that name a key, the list of unread keys, and the base of relative paths;
//! contains no key names.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ConfigError;
use super::duration::GoDuration;

/// The folders that relative paths are resolved against.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// The configuration file.
    pub(super) path: PathBuf,
    /// The folder of the configuration file.
    pub(super) file: PathBuf,
    /// The working directory of the process.
    pub(super) working: PathBuf,
}

/// The keys that have not been read yet.
pub(super) struct Keys {
    folders: Folders,
    left: BTreeMap<String, Value>,
    /// Unread keys of sections, as `section.key`.
    left_in_sections: Vec<String>,
    beside_the_file: Vec<String>,
}

/// What remains after every part of the configuration has read its keys.
pub(super) struct Leftover {
    /// Keys that no part has read; `section.key` within a section.
    pub(super) names: Vec<String>,
    /// Keys whose file exists beside the configuration file but not in the working directory.
    pub(super) beside_the_file: Vec<String>,
}

impl Keys {
    pub(super) fn new(object: Map<String, Value>, folders: Folders) -> Self {
        let left = object.into_iter().map(|(key, value)| (key.to_ascii_lowercase(), value)).collect();
        Self { folders, left, left_in_sections: Vec::new(), beside_the_file: Vec::new() }
    }

    pub(super) fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, ConfigError> {
        let value = self.left.remove(key).filter(|value| !value.is_null());
        value.map(serde_json::from_value).transpose().map_err(|source| ConfigError::Value { key, source })
    }

    /// Returns a text; `None` if it is empty.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfigError> {
        Ok(self.take::<String>(key)?.filter(|text| !text.is_empty()))
    }

    /// Returns a list of texts; `null` in it is an empty text.
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Vec<String>, ConfigError> {
        let texts = self.take::<Vec<Option<String>>>(key)?.unwrap_or_default();
        Ok(texts.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Returns texts by name; `null` is an empty text.
    pub(super) fn texts_by_name(&mut self, key: &'static str) -> Result<BTreeMap<String, String>, ConfigError> {
        let texts = self.take::<BTreeMap<String, Option<String>>>(key)?.unwrap_or_default();
        Ok(texts.into_iter().map(|(name, text)| (name, text.unwrap_or_default())).collect())
    }

    /// Returns a path that only this host uses, resolved against the configuration file's folder.
    pub(super) fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.text(key)?.map(|path| self.folders.file.join(path)))
    }

    /// Returns the path of a file that has to exist, such as a certificate. Go resolves it against the working directory; if
    /// it exists only beside the configuration file, that path is used and the key is recorded for a warning.
    pub(super) fn file(&mut self, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.text(key)?.map(|path| self.find(key, Path::new(&path))))
    }

    /// Like [`Keys::file`], for a path that is part of a key's value.
    pub(super) fn find(&mut self, key: &str, path: &Path) -> PathBuf {
        let (working, beside) = (self.folders.working.join(path), self.folders.file.join(path));
        if working.exists() {
            return working;
        }
        if path.is_relative() && beside.exists() {
            self.beside_the_file.push(key.to_owned());
        }
        beside
    }

    /// Returns a duration; `None` if it is absent or zero.
    pub(super) fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, ConfigError> {
        Ok(Some(self.duration_or_zero(key)?).filter(|duration| !duration.is_zero()))
    }

    /// Returns a duration; zero if it is absent. For durations of which zero has a meaning.
    pub(super) fn duration_or_zero(&mut self, key: &'static str) -> Result<Duration, ConfigError> {
        Ok(self.take::<GoDuration>(key)?.map_or(Duration::ZERO, |duration| duration.0))
    }

    /// Returns a count; `None` if it is zero or negative, which Go's code treats alike.
    pub(super) fn count(&mut self, key: &'static str) -> Result<Option<u32>, ConfigError> {
        let count = self.take::<i64>(key)?.filter(|count| *count > 0);
        Ok(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool, ConfigError> {
        Ok(self.take(key)?.unwrap_or_default())
    }

    /// Returns an address to listen on: an IP address and a port, or `:port`, which in Go means all interfaces.
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

    /// Reads the keys of a nested object, which follow the same rules.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let object = self.take::<Map<String, Value>>(key)?.unwrap_or_default();
        let mut section = Self::new(object, self.folders.clone());
        let value = read(&mut section)?;
        let Leftover { names, beside_the_file } = section.leftover();
        self.left_in_sections.extend(names.into_iter().map(|name| format!("{key}.{name}")));
        self.beside_the_file.extend(beside_the_file);
        Ok(value)
    }

    pub(super) fn leftover(self) -> Leftover {
        let mut names: Vec<_> = self.left.into_keys().chain(self.left_in_sections).collect();
        names.sort();
        Leftover { names, beside_the_file: self.beside_the_file }
    }
}
