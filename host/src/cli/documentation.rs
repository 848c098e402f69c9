//! `bbs documentation`: writes what packages install beside the executable. Owns the names of the
//! files.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context;
use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

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

    fn write(&self) -> io::Result<()> {
        let man = created(self.into.join("man"))?;
        // The commit of the long version would make the pages of each commit others.
        let command = Cli::command().long_version(None);
        let mut command = command.disable_help_subcommand(true);
        command.build();
        write_pages(&command, &man)?;
        let completions = created(self.into.join("completions"))?;
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut without_hidden(), "bbs", &completions)?;
        }
        Ok(())
    }
}

/// Writes the page of a command, and those of the commands below it.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for below in visible(command) {
        write_pages(below, folder)?;
    }
    // An empty argument would not be quoted, so that the next one would be in its place.
    let man = Man::new(command.clone())
        .date(" ")
        .source(concat!("bbs ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8(page).map_err(io::Error::other)?;
    fs::write(folder.join(man.get_filename()), with_lines_of_notes(&page))
}

/// The page with the lines that its last part has in the help text, which would be filled into one
/// paragraph.
fn with_lines_of_notes(page: &str) -> String {
    let Some((before, after)) = page.split_once("\n.SH EXTRA\n") else {
        return page.to_owned();
    };
    let (notes, rest) = after.split_at(after.find("\n.SH ").unwrap_or(after.len()));
    format!(
        "{before}\n.SH NOTES\n{}{rest}",
        notes.replace('\n', "\n.br\n")
    )
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
}

/// The program's command without the hidden ones, which completions would have.
fn without_hidden() -> Command {
    let command = Cli::command();
    Command::new("bbs")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(visible(&command).cloned())
}

fn created(folder: PathBuf) -> io::Result<PathBuf> {
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
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
            assert!(!text.contains("compile-component"), "{name}");
        }
        let page = fs::read_to_string(folder.path().join("man/bbs.1")).unwrap();
        assert!(
            page.contains(env!("CARGO_PKG_VERSION")) && !page.contains("commit"),
            "{page}"
        );
        assert!(page.contains("Exit codes:\n.br\n"), "{page}");
        let page = fs::read_to_string(folder.path().join("man/bbs-migrate-plan.1")).unwrap();
        let title = concat!(
            ".TH bbs-migrate-plan 1 \" \" \"bbs ",
            env!("CARGO_PKG_VERSION"),
            "\" \"User Commands\""
        );
        assert!(page.contains(title), "{page}");
    }
}
