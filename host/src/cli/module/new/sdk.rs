//! The SDK that a new crate depends on: the repository's or an earlier crate's, if there is one in
//! a parent folder; otherwise the sources embedded in the executable, written beside the crate.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use toml::{Table, Value};

/// The SDK's files, which the build script embedded.
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/sdk.rs"));
}

/// The folder that the SDK is written to.
pub(super) const FOLDER: &str = "bbs-sdk";

/// The location of the SDK that a crate depends on.
#[derive(Debug)]
pub(super) struct Sdk {
    pub(super) folder: PathBuf,
    /// Whether it was just written.
    pub(super) is_new: bool,
}

impl Sdk {
    /// Returns the SDK in `given`; else the nearest in `here` and its parent folders; else a new
    /// one in `here`.
    pub(super) fn find_or_write(given: Option<&Path>, here: &Path) -> anyhow::Result<Self> {
        let above = || {
            let mut folders = here
                .ancestors()
                .flat_map(|folder| [folder.join(FOLDER), folder.join("sdk")]);
            folders.find(|folder| is_sdk(folder))
        };
        let found = match given {
            Some(folder) if !is_sdk(folder) => {
                bail!(
                    "{} is not the SDK's folder; name the folder `sdk` of the repository",
                    folder.display()
                )
            }
            Some(folder) => Some(folder.to_owned()),
            None => above(),
        };
        let (folder, is_new) = match found {
            Some(folder) => (folder, false),
            None => (write(&here.join(FOLDER))?, true),
        };
        let folder = folder
            .canonicalize()
            .with_context(|| format!("cannot find {}", folder.display()))?;
        Ok(Self { folder, is_new })
    }

    /// The lock file with the versions of crates that the SDK is tested with.
    pub(super) fn lock(&self) -> Option<PathBuf> {
        ["Cargo.lock", "../Cargo.lock"]
            .map(|file| self.folder.join(file))
            .into_iter()
            .find(|file| file.exists())
    }
}

fn is_sdk(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join("Cargo.toml"))
        .is_ok_and(|text| text.contains("name = \"bbs-sdk\""))
}

/// The relative path between two absolute paths without links.
pub(super) fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from
        .components()
        .zip(to.components())
        .take_while(|(one, other)| one == other)
        .count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

fn write(folder: &Path) -> anyhow::Result<PathBuf> {
    if folder.exists() {
        bail!(
            "{} exists and is not the SDK; move it away, or name the SDK's folder with --sdk",
            folder.display()
        );
    }
    let mut manifest = standalone(embedded::MANIFEST, "")?;
    // The folder may lie inside another workspace. The crates in its folders belong to this one as
    // path dependencies.
    manifest.insert("workspace".to_owned(), Value::Table(Table::new()));
    let manifest = manifest.to_string();
    let of_folder = |text| standalone(text, "../").map(|manifest| manifest.to_string());
    let contract = of_folder(embedded::CONTRACT_MANIFEST)?;
    let go_json = of_folder(embedded::GO_JSON_MANIFEST)?;
    let lens = of_folder(embedded::LENS_MANIFEST)?;
    // Under a temporary name until it is complete, so that no later command uses a partial SDK.
    let parent = folder.parent().unwrap_or(Path::new("."));
    let unfinished = tempfile::tempdir_in(parent)
        .with_context(|| format!("cannot write to {}", parent.display()))?;
    let own = [
        ("Cargo.toml", &*manifest),
        ("contract/Cargo.toml", &*contract),
        ("go-json/Cargo.toml", &*go_json),
        ("lens/Cargo.toml", &*lens),
        ("Cargo.lock", embedded::LOCK),
    ];
    let files = own.iter().chain(embedded::FILES).copied();
    super::write(unfinished.path(), files)?;
    let unfinished = unfinished.keep();
    std::fs::rename(&unfinished, folder)
        .with_context(|| format!("cannot write {}", folder.display()))?;
    make_readable(folder)?;
    Ok(folder.to_owned())
}

/// Temporary folders are accessible to their owner only; the SDK is not secret.
fn make_readable(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change the mode of {}", folder.display()))
}

/// Returns the manifest with everything that it inherits from the repository's workspace written
/// out. The crates that it names by their paths are in folders of the SDK's, to which `to_sdk`
/// leads.
fn standalone(manifest: &str, to_sdk: &str) -> anyhow::Result<Table> {
    let mut manifest: Table = manifest.parse().context("the SDK's manifest is not TOML")?;
    let workspace: Table = embedded::WORKSPACE
        .parse()
        .context("the workspace's manifest is not TOML")?;
    let inherited = |section: &str| {
        workspace["workspace"][section]
            .as_table()
            .cloned()
            .unwrap_or_default()
    };
    write_out(&mut manifest, "package", &inherited("package"));
    let dependencies = inherited("dependencies");
    for section in ["dependencies", "dev-dependencies"] {
        write_out(&mut manifest, section, &dependencies);
    }
    move_paths(&mut manifest, to_sdk);
    if let Some(Value::Table(targets)) = manifest.get_mut("target") {
        for target in targets
            .iter_mut()
            .filter_map(|(_, target)| target.as_table_mut())
        {
            write_out(target, "dependencies", &dependencies);
            move_paths(target, to_sdk);
        }
    }
    manifest.remove("lints");
    Ok(manifest)
}

/// Replaces each `key.workspace = true` of a section with the workspace's value.
fn write_out(manifest: &mut Table, section: &str, inherited: &Table) {
    let Some(Value::Table(section)) = manifest.get_mut(section) else {
        return;
    };
    for (key, value) in section.iter_mut() {
        let is_inherited = value.get("workspace").and_then(Value::as_bool) == Some(true);
        if let Some(own) = inherited.get(key).filter(|_| is_inherited) {
            *value = with_own_keys(own.clone(), value);
        }
    }
}

/// The workspace's value of a dependency, with what a manifest adds to it, such as `optional`.
fn with_own_keys(inherited: Value, value: &Value) -> Value {
    let own = value.as_table().into_iter().flatten();
    let own: Table = own
        .filter(|(key, _)| *key != "workspace")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    match inherited {
        inherited if own.is_empty() => inherited,
        Value::Table(mut all) => {
            all.extend(own);
            Value::Table(all)
        }
        version => {
            let mut all = Table::from_iter([("version".to_owned(), version)]);
            all.extend(own);
            Value::Table(all)
        }
    }
}

/// Leads each dependency that has a path to the folder of that name.
fn move_paths(section: &mut Table, to_sdk: &str) {
    let Some(Value::Table(dependencies)) = section.get_mut("dependencies") else {
        return;
    };
    let paths = dependencies
        .iter_mut()
        .filter_map(|(_, dependency)| dependency.get_mut("path"));
    for path in paths {
        let folder = path.as_str().and_then(|path| path.rsplit('/').next());
        if let Some(folder) = folder {
            *path = Value::String(format!("{to_sdk}{folder}"));
        }
    }
}

#[cfg(test)]
mod tests;
