//! `catalog.toml`: the file that says which modules a folder has, in order, and what each must be.
//! Owns its reading, its rules and its writing; opens no module.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CatalogError;
use crate::layout::manifest::DataVersion;
use crate::lens::transform::Transform;
use crate::modules::module::Module;
use crate::modules::translate::{ApiVersion, Translate};

pub const CATALOG_FILE: &str = "catalog.toml";

const HEADER: &str = "\
# The modules of this folder, in order. Written by `bbs module build` and `bbs module add`; the host refuses to start
# where a file differs from what is written here.

";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub file: String,
    pub sha256: String,
    pub place: Place,
}

/// Where a module stands in its version line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Migration {
        version: DataVersion,
        /// The migration before it; none for the first.
        follows: Option<DataVersion>,
    },
    Translator {
        serves: ApiVersion,
        onto: ApiVersion,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Migration { version, .. } => write!(f, "migration {version}"),
            Self::Translator { serves, onto } => write!(f, "translator {serves} to {onto}"),
        }
    }
}

impl Entry {
    /// How a catalog lists a module, under the name that says what it is.
    pub(in crate::modules) fn of(module: &Module, sha256: String) -> Self {
        let (file, place) = match module {
            Module::Migration(module) => {
                let manifest = module.manifest();
                let place = Place::Migration { version: manifest.version, follows: None };
                (format!("{}-{}.wasm", manifest.version, manifest.name), place)
            }
            Module::Translator(module) => {
                let (serves, onto) = (module.manifest().serves, module.manifest().onto);
                (format!("{serves}-to-{onto}.wasm"), Place::Translator { serves, onto })
            }
        };
        Self { file, sha256, place }
    }
}

/// An entry as the file spells it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: Kind,
    file: String,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<DataVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<DataVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serves: Option<ApiVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    onto: Option<ApiVersion>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Migration,
    Translator,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    module: Vec<Written>,
}

/// Reads the entries of a folder's catalog and checks what can be checked without opening a module.
pub(in crate::modules) fn read(folder: &Path) -> Result<Vec<Entry>, CatalogError> {
    let path = folder.join(CATALOG_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(CatalogError::NoCatalog { path });
        }
        Err(source) => return Err(CatalogError::Read { path, source }),
    };
    let file: File =
        toml::from_str(&text).map_err(|source| CatalogError::Syntax { path: path.clone(), source: source.into() })?;
    let entries = file.module.into_iter().map(|written| entry(&path, written)).collect::<Result<Vec<_>, _>>()?;
    let mut files = BTreeSet::new();
    if let Some(twice) = entries.iter().find(|entry| !files.insert(&entry.file)) {
        return Err(CatalogError::ListedTwice { file: twice.file.clone() });
    }
    Ok(entries)
}

fn entry(path: &Path, written: Written) -> Result<Entry, CatalogError> {
    let malformed =
        |what: &'static str| CatalogError::Entry { path: path.to_owned(), file: written.file.clone(), what };
    if !is_file_name(&written.file) {
        return Err(malformed("`file` is the plain name of a .wasm file in the same folder"));
    }
    if written.sha256.len() != 64 || !written.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(malformed("`sha256` is 64 lower-case hexadecimal digits"));
    }
    let place = match (written.kind, written.version, written.follows, written.serves, written.onto) {
        (Kind::Migration, Some(version), follows, None, None) => Place::Migration { version, follows },
        (Kind::Translator, None, None, Some(serves), Some(onto)) => Place::Translator { serves, onto },
        (Kind::Migration, ..) => return Err(malformed("a migration has `version` and, but for the first, `follows`")),
        (Kind::Translator, ..) => return Err(malformed("a translator has `serves` and `onto`")),
    };
    Ok(Entry { file: written.file, sha256: written.sha256, place })
}

pub(in crate::modules) fn is_file_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    name.ends_with(".wasm") && !name.starts_with('.') && name.bytes().all(plain)
}

/// Writes a catalog so that whoever reads it meanwhile sees the old one or the new one.
pub(in crate::modules) fn write(folder: &Path, entries: &[Entry]) -> std::io::Result<PathBuf> {
    let module = entries.iter().map(written).collect();
    let text = toml::to_string(&File { module }).map_err(std::io::Error::other)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(HEADER.as_bytes())?;
    file.write_all(text.as_bytes())?;
    let path = folder.join(CATALOG_FILE);
    file.as_file().sync_all()?;
    persist_readable(file, &path)?;
    Ok(path)
}

/// Temporary files are for their owner alone; what replaces one here is for everybody to read.
pub(in crate::modules) fn persist_readable(file: tempfile::NamedTempFile, path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}

fn written(entry: &Entry) -> Written {
    let (file, sha256) = (entry.file.clone(), entry.sha256.clone());
    match entry.place {
        Place::Migration { version, follows } => {
            Written { kind: Kind::Migration, file, sha256, version: Some(version), follows, serves: None, onto: None }
        }
        Place::Translator { serves, onto } => Written {
            kind: Kind::Translator,
            file,
            sha256,
            version: None,
            follows: None,
            serves: Some(serves),
            onto: Some(onto),
        },
    }
}
