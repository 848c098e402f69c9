//! Packages of add-ons, installed as BOSH does: a folder each, in which `bbs-modules` is a folder
//! of modules.

use std::path::{Path, PathBuf};

use super::database::Kind;
use super::host::Installation;
use super::modules::{copy_folder, modules};

pub struct Packages(tempfile::TempDir);

impl Packages {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A host with the default modules and those of all packages.
    pub fn installation(&self, kind: Kind) -> Installation {
        self.beside(Installation::new(&modules(), kind))
    }

    /// Adds the modules of all packages to those of an installation.
    pub fn beside(&self, installation: Installation) -> Installation {
        installation.set(
            "modules_dirs",
            vec![self.0.path().join("*/bbs-modules").display().to_string()],
        )
    }

    /// The folder of modules of a package.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.0.path().join(name).join("bbs-modules")
    }

    /// Installs a copy of a folder of modules. Returns where.
    pub fn install(&self, name: &str, modules: &Path) -> PathBuf {
        let folder = self.folder(name);
        copy_folder(modules, &folder);
        folder
    }

    pub fn remove(&self, name: &str) {
        std::fs::rename(self.folder(name), self.removed(name)).expect("the package is installed");
    }

    pub fn put_back(&self, name: &str) {
        std::fs::rename(self.removed(name), self.folder(name)).expect("the package was removed");
    }

    fn removed(&self, name: &str) -> PathBuf {
        self.0.path().join(name).join("removed")
    }
}
