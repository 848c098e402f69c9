//! Finds the crates to build, their packages and workspaces. Reads manifests, and has cargo find
//! the workspaces; builds nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::BuildError;
use super::toolchain::program;
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
}

#[derive(Debug, Deserialize)]
struct Package {
    name: Option<String>,
}

/// The output of `cargo metadata --no-deps`: a workspace with all its packages.
#[derive(Debug, Deserialize)]
struct CargoMetadata {
    workspace_root: PathBuf,
    packages: Vec<CargoPackage>,
}

#[derive(Debug, Deserialize)]
struct CargoPackage {
    manifest_path: PathBuf,
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

/// Crates by the folders of the workspaces that they belong to.
pub(super) type Workspaces<'a> = BTreeMap<PathBuf, Vec<&'a PathBuf>>;

/// The workspaces of crates. A crate that belongs to none has its own folder as one. Calls cargo
/// once for each workspace: a call takes as long as reading all its manifests.
pub(super) fn workspaces_of(crates: &[PathBuf]) -> Result<Workspaces<'_>, BuildError> {
    let mut workspaces = Workspaces::new();
    let mut by_manifest = BTreeMap::new();
    for crate_folder in crates {
        // Reports a missing manifest: cargo would look for one in the folders above.
        package_name(crate_folder)?;
        let manifest = canonical(&crate_folder.join("Cargo.toml"))?;
        if !by_manifest.contains_key(&manifest) {
            let CargoMetadata {
                workspace_root,
                packages,
            } = metadata(crate_folder)?;
            let workspace = canonical(&workspace_root)?;
            for package in packages {
                by_manifest.insert(canonical(&package.manifest_path)?, workspace.clone());
            }
        }
        let workspace = by_manifest
            .get(&manifest)
            .expect("cargo names the package of the folder that it is called in");
        workspaces
            .entry(workspace.clone())
            .or_default()
            .push(crate_folder);
    }
    Ok(workspaces)
}

/// The workspace of a crate according to cargo: one above it may exclude it, and its manifest may
/// name one elsewhere.
fn metadata(crate_folder: &Path) -> Result<CargoMetadata, BuildError> {
    let output = Command::new(program("CARGO", "cargo"))
        .current_dir(crate_folder)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|source| BuildError::Cargo { source })?;
    if !output.status.success() {
        return Err(BuildError::Compile {
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    serde_json::from_slice(&output.stdout).map_err(|error| BuildError::Cargo {
        source: error.into(),
    })
}

fn canonical(path: &Path) -> Result<PathBuf, SourceError> {
    path.canonicalize().map_err(|source| SourceError::Read {
        path: path.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_that_a_workspace_excludes_is_one_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let manifest = "[workspace]\nmembers = [\"member\", \"beside\"]\nexclude = [\"other\"]\n";
        std::fs::write(top.join("Cargo.toml"), manifest).unwrap();
        let crates = ["member", "other", "beside", "stray"].map(|name| {
            let crate_folder = top.join(name);
            std::fs::create_dir_all(crate_folder.join("src")).unwrap();
            std::fs::write(crate_folder.join("src/lib.rs"), "").unwrap();
            let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
            std::fs::write(crate_folder.join("Cargo.toml"), manifest).unwrap();
            crate_folder
        });
        let [member, other, beside, _] = &crates;
        let expected = [
            (top.clone(), vec![member, beside]),
            (other.clone(), vec![other]),
        ];
        assert_eq!(
            workspaces_of(&crates[..3]).unwrap(),
            Workspaces::from(expected)
        );
        let error = workspaces_of(&crates).unwrap_err().to_string();
        assert!(error.contains("`workspace.members`"), "{error}");
    }
}
