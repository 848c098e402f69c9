//! `catalog.toml`: the list of a folder's modules, in order, each with its digest. Owns reading, validating and writing
//! the file; opens no module.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CatalogError;
use crate::files;
use crate::layout::manifest::DataVersion;
use crate::lens::transform::Transform;
use crate::modules::module::Module;
use crate::modules::translate::{ApiVersion, Translate};

/// The name of the catalog file in a folder of modules.
pub const CATALOG_FILE: &str = "catalog.toml";

const HEADER: &str = "\
# The modules of this folder, in order. Written by `bbs module build` and `bbs module add`; a host refuses to start
# if a file differs from its entry.

";

/// One module of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogEntry {
    /// Its file name in the folder.
    pub file: String,
    /// The digest of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// Its kind and versions.
    pub position: CatalogPosition,
}

/// The kind of a module and its position in the sequence of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogPosition {
    /// A migration to a data version.
    Migration {
        /// The version that it leads to.
        version: DataVersion,
        /// The version of the migration before it; none for the first.
        follows: Option<DataVersion>,
    },
    /// A translator, which serves an API version in terms of a newer one, `onto`.
    #[allow(missing_docs, reason = "the variant's text describes its fields")]
    Translator { serves: ApiVersion, onto: ApiVersion },
}

impl std::fmt::Display for CatalogPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Migration { version, .. } => write!(f, "migration {version}"),
            Self::Translator { serves, onto } => write!(f, "translator {serves} to {onto}"),
        }
    }
}

impl CatalogEntry {
    /// Creates the entry of a module, with a file name made of its versions and name.
    pub(in crate::modules) fn of(module: &Module, sha256: String) -> Self {
        let (file, position) = match module {
            Module::Migration(module) => {
                let manifest = module.manifest();
                let position = CatalogPosition::Migration { version: manifest.version, follows: None };
                (format!("{}-{}.wasm", manifest.version, manifest.name), position)
            }
            Module::Translator(module) => {
                let (serves, onto) = (module.manifest().serves, module.manifest().onto);
                (format!("{serves}-to-{onto}.wasm"), CatalogPosition::Translator { serves, onto })
            }
        };
        Self { file, sha256, position }
    }
}

/// The serialised form of an entry.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFileEntry {
    kind: ModuleKind,
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
enum ModuleKind {
    Migration,
    Translator,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogFile {
    #[serde(default)]
    module: Vec<CatalogFileEntry>,
}

/// Reads a folder's catalog and validates each entry by itself.
pub(in crate::modules) fn read(folder: &Path) -> Result<Vec<CatalogEntry>, CatalogError> {
    let path = folder.join(CATALOG_FILE);
    let text = match files::read_text(&path) {
        Ok(text) => text,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(CatalogError::NoCatalog { path });
        }
        Err(source) => return Err(CatalogError::Read { path, source }),
    };
    let file: CatalogFile =
        toml::from_str(&text).map_err(|source| CatalogError::Syntax { path: path.clone(), source: source.into() })?;
    let entries = file.module.into_iter().map(|written| entry(&path, written)).collect::<Result<Vec<_>, _>>()?;
    let mut files = BTreeSet::new();
    if let Some(twice) = entries.iter().find(|entry| !files.insert(&entry.file)) {
        return Err(CatalogError::ListedTwice { file: twice.file.clone() });
    }
    Ok(entries)
}

fn entry(path: &Path, written: CatalogFileEntry) -> Result<CatalogEntry, CatalogError> {
    let malformed =
        |what: &'static str| CatalogError::Entry { path: path.to_owned(), file: written.file.clone(), what };
    if !is_file_name(&written.file) {
        return Err(malformed("`file` is the plain name of a .wasm file in the same folder"));
    }
    if written.sha256.len() != 64 || !written.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(malformed("`sha256` is 64 lower-case hexadecimal digits"));
    }
    let position = match (written.kind, written.version, written.follows, written.serves, written.onto) {
        (ModuleKind::Migration, Some(version), follows, None, None) => CatalogPosition::Migration { version, follows },
        (ModuleKind::Translator, None, None, Some(serves), Some(onto)) => CatalogPosition::Translator { serves, onto },
        (ModuleKind::Migration, ..) => {
            return Err(malformed("a migration has `version` and, except the first, `follows`"));
        }
        (ModuleKind::Translator, ..) => return Err(malformed("a translator has `serves` and `onto`")),
    };
    Ok(CatalogEntry { file: written.file, sha256: written.sha256, position })
}

pub(in crate::modules) fn is_file_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    name.ends_with(".wasm") && !name.starts_with('.') && name.bytes().all(plain)
}

/// Writes a catalog atomically: a concurrent reader sees the old or the new one.
pub(in crate::modules) fn write(folder: &Path, entries: &[CatalogEntry]) -> std::io::Result<PathBuf> {
    let module = entries.iter().map(written).collect();
    let text = toml::to_string(&CatalogFile { module }).map_err(std::io::Error::other)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(HEADER.as_bytes())?;
    file.write_all(text.as_bytes())?;
    let path = folder.join(CATALOG_FILE);
    file.as_file().sync_all()?;
    persist_readable(file, &path)?;
    Ok(path)
}

/// Makes a temporary file, which only its owner may read, readable by all, and moves it to its path.
pub(in crate::modules) fn persist_readable(file: tempfile::NamedTempFile, path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}

fn written(entry: &CatalogEntry) -> CatalogFileEntry {
    let (file, sha256) = (entry.file.clone(), entry.sha256.clone());
    match entry.position {
        CatalogPosition::Migration { version, follows } => CatalogFileEntry {
            kind: ModuleKind::Migration,
            file,
            sha256,
            version: Some(version),
            follows,
            serves: None,
            onto: None,
        },
        CatalogPosition::Translator { serves, onto } => CatalogFileEntry {
            kind: ModuleKind::Translator,
            file,
            sha256,
            version: None,
            follows: None,
            serves: Some(serves),
            onto: Some(onto),
        },
    }
}
