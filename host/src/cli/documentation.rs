//! `bbs documentation`: writes what packages install beside the executable. Owns the names of the
//! files.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::Cli;

/// Write man pages and completions for shells, as packages of this program contain them.
#[derive(Debug, Args)]
pub struct DocumentationCommand {
    /// The folder to write to, which gets the folders `man` and `completions`.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
}

impl DocumentationCommand {
    /// Writes the files.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn run(self) -> anyhow::Result<()> {
        self.write()
            .with_context(|| format!("cannot write to {}", self.into.display()))
    }

    fn write(&self) -> std::io::Result<()> {
        let man = created(self.into.join("man"))?;
        // The commit of the long version would make the pages of each commit others.
        clap_mangen::generate_to(Cli::command().long_version(None), man)?;
        let completions = created(self.into.join("completions"))?;
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut Cli::command(), "bbs", &completions)?;
        }
        Ok(())
    }
}

fn created(folder: PathBuf) -> std::io::Result<PathBuf> {
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn each_command_has_a_page_and_each_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        DocumentationCommand {
            into: folder.path().to_owned(),
        }
        .run()
        .unwrap();
        let pages = names(&folder.path().join("man"));
        for page in [
            "bbs.1",
            "bbs-serve.1",
            "bbs-migrate.1",
            "bbs-migrate-quarantine-export.1",
            "bbs-module-build.1",
        ] {
            assert!(
                pages.iter().any(|name| name == page),
                "{page} is not in {pages:?}"
            );
        }
        for hidden in ["bbs-documentation.1", "bbs-compile-component.1"] {
            assert!(
                !pages.iter().any(|name| name == hidden),
                "{hidden} is in {pages:?}"
            );
        }
        let completions = names(&folder.path().join("completions"));
        for name in ["bbs.bash", "_bbs", "bbs.fish"] {
            assert!(
                completions.iter().any(|found| found == name),
                "{name} is not in {completions:?}"
            );
            let text = fs::read_to_string(folder.path().join("completions").join(name)).unwrap();
            assert!(
                text.contains("quarantine") && text.contains("pin-release"),
                "{name}"
            );
        }
        let page = fs::read_to_string(folder.path().join("man/bbs.1")).unwrap();
        assert!(
            page.contains(env!("CARGO_PKG_VERSION")) && !page.contains("commit"),
            "{page}"
        );
    }
}
