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

    /// The SDK's path in a manifest in `crate_folder`: relative, so that the two folders can be
    /// moved together.
    pub(super) fn path_from(&self, crate_folder: &Path) -> PathBuf {
        relative(crate_folder, &self.folder)
    }
}

fn is_sdk(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join("Cargo.toml"))
        .is_ok_and(|text| text.contains("name = \"bbs-sdk\""))
}

/// The relative path between two absolute paths without links.
fn relative(from: &Path, to: &Path) -> PathBuf {
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
    let mut manifest = standalone(embedded::MANIFEST)?;
    // The folder may lie inside another workspace. The crate in `go-json` belongs to this one as a
    // path dependency.
    manifest.insert("workspace".to_owned(), Value::Table(Table::new()));
    let manifest = manifest.to_string();
    let go_json = standalone(embedded::GO_JSON_MANIFEST)?.to_string();
    // Under a temporary name until it is complete, so that no later command uses a partial SDK.
    let parent = folder.parent().unwrap_or(Path::new("."));
    let unfinished = tempfile::tempdir_in(parent)
        .with_context(|| format!("cannot write to {}", parent.display()))?;
    let own = [
        ("Cargo.toml", &*manifest),
        ("go-json/Cargo.toml", &*go_json),
        ("Cargo.lock", embedded::LOCK),
    ];
    for (name, text) in own.iter().chain(embedded::FILES) {
        let path = unfinished.path().join(name);
        let written = std::fs::create_dir_all(path.parent().expect("a file is in a folder"))
            .and_then(|()| std::fs::write(&path, text));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
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
/// out.
fn standalone(manifest: &str) -> anyhow::Result<Table> {
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
    if let Some(Value::Table(targets)) = manifest.get_mut("target") {
        for (_, target) in targets.iter_mut() {
            target
                .as_table_mut()
                .into_iter()
                .for_each(|target| write_out(target, "dependencies", &dependencies));
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
            *value = own.clone();
        }
    }
}

#[cfg(test)]
mod tests;
