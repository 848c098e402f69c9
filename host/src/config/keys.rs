//! The keys of the file as Go reads them, at every depth: whatever their case, `null`, `""` and zero meaning the same as
//! absent. Owns saying which key is wrong, which were not asked for, and what a relative path is relative to; knows no
//! key by name.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ConfigError;
use super::duration::GoDuration;

/// The folders that a relative path can be relative to.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// Of the configuration file.
    pub(super) file: PathBuf,
    /// Of the process.
    pub(super) working: PathBuf,
}

/// What has not been taken yet.
pub(super) struct Keys {
    folders: Folders,
    left: BTreeMap<String, Value>,
    /// Keys of the sections that were read, as `section.key`.
    left_in_sections: Vec<String>,
    beside_the_file: Vec<String>,
}

/// What is left once every part of the configuration has taken its keys.
pub(super) struct Leftover {
    /// Keys without a reader; `section.key` within a section.
    pub(super) names: Vec<String>,
    /// Keys whose file was found beside the configuration file and not in the working directory.
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

    /// Nothing where it is empty.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfigError> {
        Ok(self.take::<String>(key)?.filter(|text| !text.is_empty()))
    }

    /// A `null` among them is an empty text.
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Vec<String>, ConfigError> {
        let texts = self.take::<Vec<Option<String>>>(key)?.unwrap_or_default();
        Ok(texts.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Texts by name. A `null` among them is an empty text.
    pub(super) fn texts_by_name(&mut self, key: &'static str) -> Result<BTreeMap<String, String>, ConfigError> {
        let texts = self.take::<BTreeMap<String, Option<String>>>(key)?.unwrap_or_default();
        Ok(texts.into_iter().map(|(name, text)| (name, text.unwrap_or_default())).collect())
    }

    /// A path that this host writes to or that only it knows: relative to the configuration file.
    pub(super) fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.text(key)?.map(|path| self.folders.file.join(path)))
    }

    /// A file that has to exist, such as a certificate. Go opens it relative to the working directory; one that is
    /// only beside the configuration file is found there, and the key remembered for a warning.
    pub(super) fn file(&mut self, key: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.text(key)?.map(|path| self.find(key, Path::new(&path))))
    }

    /// [`Keys::file`] for a path that is a part of the key's value.
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

    /// The default where it is absent or zero.
    pub(super) fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, ConfigError> {
        Ok(Some(self.duration_or_zero(key)?).filter(|duration| !duration.is_zero()))
    }

    /// Zero where it is absent, for durations of which zero means something.
    pub(super) fn duration_or_zero(&mut self, key: &'static str) -> Result<Duration, ConfigError> {
        Ok(self.take::<GoDuration>(key)?.map_or(Duration::ZERO, |duration| duration.0))
    }

    /// Nothing where it is zero or less, which Go takes for the same.
    pub(super) fn count(&mut self, key: &'static str) -> Result<Option<u32>, ConfigError> {
        let count = self.take::<i64>(key)?.filter(|count| *count > 0);
        Ok(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
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

    /// The keys of an object within the file, which follow the same rules.
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
