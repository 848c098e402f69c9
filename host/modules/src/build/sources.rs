//! Finds the crates to build, their packages and workspaces. Reads manifests; builds nothing.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Table;

use crate::text::ModuleText;

/// Why a list of crates or a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{} cannot be read; name a folder with a Cargo.toml, or run this inside the workspace", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is not valid; correct its {reason}", .path.display())]
    Syntax { path: PathBuf, reason: ModuleText },
    #[error("no folder from {} upwards has a {LIST}; run this inside the repository, or name crates", .folder.display())]
    NoList { folder: PathBuf },
    #[error("{} has no `package.name`; name the folder of one crate", .path.display())]
    NoPackage { path: PathBuf },
}

/// The path of the list within a repository.
const LIST: &str = "migrations-wasm/catalog.toml";

/// The list of the repository's modules, oldest first. Entries are only ever added at its ends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceList {
    module: Vec<SourceEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceEntry {
    #[serde(rename = "crate")]
    folder: PathBuf,
}

#[derive(Debug, Deserialize)]
struct CargoManifest {
    package: Option<Package>,
    workspace: Option<Table>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: Option<String>,
}

/// Returns the crates that a list (such as `migrations-wasm/catalog.toml`) names, in its order.
///
/// # Errors
/// If the list cannot be read or parsed.
pub fn listed_crates(list: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let entries: SourceList = read(list)?;
    let folder = list.parent().unwrap_or(Path::new("."));
    Ok(entries
        .module
        .into_iter()
        .map(|entry| folder.join(entry.folder))
        .collect())
}

/// Returns the crates of a source: those that its list names if it is a repository with one,
/// otherwise the folder itself.
///
/// # Errors
/// If the list cannot be read or parsed.
pub fn crates_of(source: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let list = source.join(LIST);
    if list.exists() {
        listed_crates(&list)
    } else {
        Ok(vec![source.to_owned()])
    }
}

/// Finds the list of the repository that the current folder belongs to.
pub(super) fn find_list() -> Result<PathBuf, SourceError> {
    let here = Path::new(".");
    let folder = here.canonicalize().map_err(|source| SourceError::Read {
        path: here.to_owned(),
        source,
    })?;
    let found = folder
        .ancestors()
        .map(|folder| folder.join(LIST))
        .find(|list| list.exists());
    found.ok_or(SourceError::NoList { folder })
}

pub(super) fn package_name(crate_folder: &Path) -> Result<String, SourceError> {
    let path = crate_folder.join("Cargo.toml");
    let manifest: CargoManifest = read(&path)?;
    manifest
        .package
        .and_then(|package| package.name)
        .ok_or(SourceError::NoPackage { path })
}

/// The folder of the workspace that a crate belongs to; the crate's own folder if it belongs to
/// none.
pub(super) fn workspace_of(crate_folder: &Path) -> Result<PathBuf, SourceError> {
    let crate_folder = canonical(crate_folder)?;
    for folder in crate_folder.ancestors() {
        let path = folder.join("Cargo.toml");
        if path.exists() && read::<CargoManifest>(&path)?.workspace.is_some() {
            return Ok(folder.to_owned());
        }
    }
    Ok(crate_folder)
}

fn canonical(crate_folder: &Path) -> Result<PathBuf, SourceError> {
    crate_folder
        .canonicalize()
        .map_err(|source| SourceError::Read {
            path: crate_folder.to_owned(),
            source,
        })
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, SourceError> {
    let text = bbs_files::read_text(path).map_err(|source| SourceError::Read {
        path: path.to_owned(),
        source,
    })?;
    toml::from_str(&text).map_err(|error| {
        let reason = ModuleText::of_toml(&text, &error);
        SourceError::Syntax {
            path: path.to_owned(),
            reason,
        }
    })
}
