//! A typed view of the file's keys with the semantics of Go's decoder, at every depth: key names in
//! any case; `null` means absent, as do `""` in [`Keys::text`], and zero in [`Keys::duration`] and
//! [`Keys::count`]. Owns the faults of keys, which are collected, the list of unread keys, and the
//! base of relative paths; contains no key names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ConfigError;
use super::duration::GoDuration;
use super::values::{ConfigValue, describe};

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

/// The keys of three files, each with its meaning.
pub(super) type FileKeys = [(&'static str, &'static str); 3];

/// The keys that have not been read yet.
pub(super) struct Keys {
    folders: Folders,
    unread: BTreeMap<String, Value>,
    /// Unread keys of sections, as `section.key`.
    left_in_sections: Vec<String>,
    /// Names of the keys that were looked up; `section.key` within a section.
    pub(super) known: BTreeSet<String>,
    /// Names of the keys that have a value, in this object.
    given: BTreeSet<&'static str>,
    /// Keys whose file exists beside the configuration file but not in the working directory.
    pub(super) beside_the_file: Vec<String>,
    /// At most one for each key, in the order in which they were read.
    pub(super) faults: Vec<ConfigError>,
}

impl Keys {
    pub(super) fn new(object: Map<String, Value>, folders: Folders) -> Self {
        let unread = object
            .into_iter()
            .map(|(key, value)| (key.to_ascii_lowercase(), value))
            .collect();
        Self {
            folders,
            unread,
            left_in_sections: Vec::new(),
            known: BTreeSet::new(),
            given: BTreeSet::new(),
            beside_the_file: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Collects a fault, unless the key has one already, which may be its cause.
    pub(super) fn fault(&mut self, fault: ConfigError) {
        if self.faults.iter().all(|known| known.key() != fault.key()) {
            self.faults.push(fault);
        }
    }

    /// Returns the value of a key that has to be there; the default otherwise, with a fault.
    pub(super) fn required<T: Default>(
        &mut self,
        value: Option<T>,
        key: &'static str,
        what: &'static str,
    ) -> T {
        value.unwrap_or_else(|| {
            self.fault(ConfigError::Missing { key, what });
            T::default()
        })
    }

    /// [`Self::required`] for several files.
    pub(super) fn all_required(
        &mut self,
        files: [Option<PathBuf>; 3],
        keys: FileKeys,
    ) -> [PathBuf; 3] {
        let mut keys = keys.into_iter();
        files.map(|file| {
            let (key, what) = keys.next().expect("there are as many keys as files");
            self.required(file, key, what)
        })
    }

    /// Whether a key that was read has a value in the file.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given.contains(key)
    }

    /// Returns a value; none if it is absent, or has another form, which is a fault.
    pub(super) fn take<T: ConfigValue>(&mut self, key: &'static str) -> Option<T> {
        self.take_or(key, |value| ConfigError::Value {
            key,
            value: describe(value),
            form: T::FORM,
        })
    }

    /// [`Self::take`] with a fault of its own.
    pub(super) fn take_or<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        fault: impl FnOnce(&Value) -> ConfigError,
    ) -> Option<T> {
        self.known.insert(key.to_owned());
        let value = self.unread.remove(key).filter(|value| !value.is_null())?;
        if value != "" {
            self.given.insert(key);
        }
        let read = T::deserialize(&value);
        if read.is_err() {
            self.fault(fault(&value));
        }
        read.ok()
    }

    /// Returns a text; `None` if it is empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        self.take::<String>(key).filter(|text| !text.is_empty())
    }

    /// Returns a list of texts; `null` in it is an empty text.
    pub(super) fn texts(&mut self, key: &'static str) -> Vec<String> {
        let texts = self.take::<Vec<Option<String>>>(key).unwrap_or_default();
        texts.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Returns a path that only this host uses, resolved against the configuration file's folder.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key).map(|path| self.folders.file.join(path))
    }

    /// Returns the path of a file that has to exist, such as a certificate. Go resolves it against
    /// the working directory; if it exists only beside the configuration file, that path is used
    /// and the key is recorded for a warning.
    pub(super) fn file(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key).map(|path| self.find(key, Path::new(&path)))
    }

    /// Like [`Keys::file`], for a path that is part of a key's value.
    pub(super) fn find(&mut self, key: &str, path: &Path) -> PathBuf {
        let working = self.folders.working.join(path);
        let beside = self.folders.file.join(path);
        if working.exists() {
            return working;
        }
        if path.is_relative() && beside.exists() {
            self.beside_the_file.push(key.to_owned());
        }
        beside
    }

    /// Returns a duration; `None` if it is absent or zero.
    pub(super) fn duration(&mut self, key: &'static str) -> Option<Duration> {
        Some(self.duration_or(key, Duration::ZERO)).filter(|duration| !duration.is_zero())
    }

    /// Returns a duration, zero included; the default if it is absent.
    pub(super) fn duration_or(&mut self, key: &'static str, default: Duration) -> Duration {
        self.take::<GoDuration>(key)
            .map_or(default, |duration| duration.0)
    }

    /// Returns a count; `None` if it is zero or negative, which Go's code treats alike.
    pub(super) fn count(&mut self, key: &'static str) -> Option<u32> {
        let count = self.take::<i64>(key).filter(|count| *count > 0);
        count.map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    pub(super) fn flag(&mut self, key: &'static str) -> bool {
        self.take(key).unwrap_or_default()
    }

    /// Returns an address to listen on: an IP address and a port, or `:port`, which in Go means all
    /// interfaces.
    pub(super) fn address(&mut self, key: &'static str) -> Option<SocketAddr> {
        let text = self.text(key)?;
        let here = text
            .strip_prefix("localhost:")
            .map(|port| (Ipv4Addr::LOCALHOST, port));
        let everywhere = text
            .strip_prefix(':')
            .map(|port| (Ipv4Addr::UNSPECIFIED, port));
        let address = match here.or(everywhere) {
            Some((ip, port)) => port.parse().ok().map(|port| SocketAddr::from((ip, port))),
            None => text.parse().ok(),
        };
        if address.is_none() {
            self.fault(ConfigError::Address { key, text });
        }
        address
    }

    /// Reads the keys of a nested object, which follow the same rules.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Self) -> T) -> T {
        let object = self.take::<Map<String, Value>>(key).unwrap_or_default();
        let mut section = Self::new(object, self.folders.clone());
        let value = read(&mut section);
        let within = |name: String| format!("{key}.{name}");
        let unread = section.take_unread();
        self.left_in_sections.extend(unread.into_iter().map(within));
        self.known.extend(section.known.into_iter().map(within));
        self.beside_the_file.extend(section.beside_the_file);
        self.faults.extend(section.faults);
        value
    }

    /// The keys that no part has read, sorted; `section.key` within a section.
    pub(super) fn take_unread(&mut self) -> Vec<String> {
        let unread = std::mem::take(&mut self.unread).into_keys();
        let mut names: Vec<_> = unread.chain(self.left_in_sections.drain(..)).collect();
        names.sort();
        names
    }
}
