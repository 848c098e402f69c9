//! Folders of modules are carried to other machines, in bundles and through registries, and
//! verified against their sources. What arrives is the folder that was sent, or an error, and then
//! the target is as before.

mod bundle;
mod rebuild;
mod registry;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use bbs::testing::modules::catalog::Catalog;

use crate::harness::engine::{PASSWORD, USER};
use crate::harness::modules::{modules, sandbox, workspace_target};
use crate::harness::output::{errors, succeeded};

/// A temporary folder with a copy of the default modules in `modules`, where commands run.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(site.path("modules")).unwrap();
        for (name, content) in content(&modules())
            .into_iter()
            .filter(|(name, _)| name != ".done")
        {
            std::fs::write(site.path("modules").join(name), content).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command of `bbs module` with the account of the tests' registry.
    fn command(&self, line: &str) -> Command {
        let mut command = crate::harness::command();
        command
            .arg("module")
            .args(line.split(' '))
            .current_dir(self.0.path());
        command
            .env("BBS_REGISTRY_USERNAME", USER)
            .env("BBS_REGISTRY_PASSWORD", PASSWORD);
        command
            .env("NO_PROXY", "127.0.0.1")
            .env_remove("SSL_CERT_FILE")
            .env("CARGO_TARGET_DIR", workspace_target());
        command
    }

    #[track_caller]
    fn succeed(&self, line: &str) -> String {
        succeeded(self.command(line).output().unwrap())
    }

    #[track_caller]
    fn refused(&self, line: &str, words: &[&str]) -> String {
        self.refused_command(self.command(line), words)
    }

    /// Asserts that a command fails with a message that has these words, and changes no file of the
    /// site. Returns its standard output.
    #[track_caller]
    fn refused_command(&self, mut command: Command, words: &[&str]) -> String {
        let before = files_below(self.0.path());
        let output = command.output().unwrap();
        let errors = errors(&output);
        assert!(!output.status.success(), "{command:?} succeeded");
        for word in words {
            assert!(errors.contains(word), "{word:?} is not in {errors}");
        }
        assert!(
            files_below(self.0.path()) == before,
            "{command:?} changed a file"
        );
        String::from_utf8(output.stdout).expect("the standard output is UTF-8")
    }

    /// The end of a command's line about a folder or an artifact with the modules of the site.
    fn has_its_modules(&self) -> String {
        format!(
            "has {} modules",
            Catalog::entries(&self.path("modules"), &[]).unwrap().len()
        )
    }

    /// Asserts that a folder has the modules of the site, which a host can load.
    #[track_caller]
    fn assert_arrived(&self, folder: &str) {
        assert!(
            content(&self.path(folder)) == content(&self.path("modules")),
            "{folder} differs"
        );
        Catalog::load(&self.path(folder), &sandbox()).unwrap();
    }
}

/// The files of a folder, by name.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    files
        .map(|file| {
            (
                file.file_name().into_string().unwrap(),
                std::fs::read(file.path()).unwrap(),
            )
        })
        .collect()
}

/// The paths of all files and folders below a folder, each file with its content.
fn files_below(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_below(&path));
            found.insert(path, None);
        } else {
            found.insert(path.clone(), std::fs::read(path).ok());
        }
    }
    found
}

/// The digest that a command printed.
#[track_caller]
fn printed_digest(output: &str) -> String {
    let digest = output
        .split_whitespace()
        .find(|word| word.starts_with("sha256:"));
    digest
        .unwrap_or_else(|| panic!("no digest in {output}"))
        .to_owned()
}
