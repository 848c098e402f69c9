//! Finds the crates to build, their packages and workspaces, and the packages that they use from
//! elsewhere. Reads manifests; builds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use crate::text::ModuleText;

/// Why a list of crates or a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
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
    package_name_in(&path, &read(&path)?)
}

fn package_name_in(path: &Path, manifest: &Table) -> Result<String, SourceError> {
    let package = manifest.get("package");
    let name = package.and_then(|package| package.get("name")?.as_str());
    name.map(str::to_owned)
        .ok_or_else(|| SourceError::NoPackage {
            path: path.to_owned(),
        })
}

/// The folder of the workspace that a crate belongs to; the crate's own folder if it belongs to
/// none.
pub(super) fn workspace_of(crate_folder: &Path) -> Result<PathBuf, SourceError> {
    let crate_folder = canonical(crate_folder)?;
    for folder in crate_folder.ancestors() {
        let path = folder.join("Cargo.toml");
        if path.exists() && read::<Table>(&path)?.contains_key("workspace") {
            return Ok(folder.to_owned());
        }
    }
    Ok(crate_folder)
}

/// The packages outside of a workspace that its crates use by their paths, directly or through each
/// other: their names by folder, spelled as cargo passes it to rustc. Packages that only tests use
/// are left out.
pub(super) fn packages_outside(
    workspace: &Path,
    crates: &[&PathBuf],
) -> Result<BTreeMap<PathBuf, String>, SourceError> {
    let mut outside = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut unvisited = crates
        .iter()
        .map(|folder| canonical(folder))
        .collect::<Result<Vec<_>, _>>()?;
    while let Some(folder) = unvisited.pop() {
        let path = folder.join("Cargo.toml");
        // Cargo reports a package that is not there.
        if !seen.insert(folder.clone()) || !path.exists() {
            continue;
        }
        let manifest: Table = read(&path)?;
        unvisited.extend(path_dependencies(&folder, &manifest)?);
        if !folder.starts_with(workspace) {
            outside.insert(folder, package_name_in(&path, &manifest)?);
        }
    }
    Ok(outside)
}

/// The folders of the packages that a manifest names by their paths, itself or as those of its
/// workspace.
fn path_dependencies(folder: &Path, manifest: &Table) -> Result<Vec<PathBuf>, SourceError> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets
        .into_iter()
        .flat_map(|targets| targets.values().filter_map(Value::as_table));
    let sections = std::iter::once(manifest)
        .chain(targets)
        .flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")]);
    let mut found = Vec::new();
    for (name, dependency) in sections.flatten().filter_map(Value::as_table).flatten() {
        if let Some(path) = path_of(dependency) {
            found.push(normalized(&folder.join(path)));
        } else if dependency.get("workspace").and_then(Value::as_bool) == Some(true) {
            let workspace = workspace_of(folder)?;
            let root: Table = read(&workspace.join("Cargo.toml"))?;
            let inherited = root
                .get("workspace")
                .and_then(|workspace| workspace.get("dependencies")?.get(name));
            found.extend(
                inherited
                    .and_then(path_of)
                    .map(|path| normalized(&workspace.join(path))),
            );
        }
    }
    Ok(found)
}

fn path_of(dependency: &Value) -> Option<&str> {
    dependency.get("path")?.as_str()
}

/// A path without `.` and `..`, as cargo makes it: links are not followed.
fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_outside_of_the_workspace_are_found_through_each_other() {
        let work = tempfile::tempdir().unwrap();
        let root = work.path().canonicalize().unwrap();
        let package = |folder: &str, rest: &str| {
            let name = folder.rsplit('/').next().unwrap();
            let manifest = format!("[package]\nname = \"the-{name}\"\n{rest}");
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join("Cargo.toml"), manifest).unwrap();
        };
        package(
            "a",
            "[dependencies]\nsdk = { path = \"../lib/./sdk\" }\nserde = \"1\"\n\
             [target.'cfg(unix)'.dependencies]\nb = { path = \"../b\" }\n\
             [dev-dependencies]\nt = { path = \"../t\" }\n[workspace]\n",
        );
        package("a/own", "");
        package("b", "[build-dependencies]\ngone = { path = \"../gone\" }\n");
        package("t", "");
        package(
            "lib/sdk",
            "[dependencies]\ncontract.workspace = true\nown = { path = \"../../a/own\" }\n",
        );
        package("lib/contract", "");
        let inherited =
            "[workspace]\n[workspace.dependencies]\ncontract = { path = \"contract\" }\n";
        std::fs::write(root.join("lib/Cargo.toml"), inherited).unwrap();

        let found = packages_outside(&root.join("a"), &[&root.join("a")]).unwrap();
        let expected = ["b", "lib/contract", "lib/sdk"]
            .map(|folder| (root.join(folder), folder.replace("lib/", "")))
            .map(|(folder, name)| (folder, format!("the-{name}")));
        assert_eq!(found, BTreeMap::from(expected));
    }
}
