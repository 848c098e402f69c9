//! The commands in the `console` blocks of documents, run as a reader enters them.

use std::path::Path;
use std::process::{Command, Output};

use super::modules::{authors_target, modules, without_debug_information};
use super::{bbs, once};

/// Precedes a block that needs more than a program and a folder of modules, with the reason.
const MARK: &str = "<!-- not run by the tests: ";

/// A `console` block.
#[derive(Debug, PartialEq, Eq)]
pub struct ConsoleBlock {
    pub commands: Vec<String>,
    pub is_run: bool,
}

/// The `console` blocks of a document. Each of their lines is a command after `$ `.
pub fn blocks(document: &str) -> Vec<ConsoleBlock> {
    let mut blocks = Vec::new();
    let mut before = "";
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if line == "```console" {
            let commands = lines
                .by_ref()
                .take_while(|line| *line != "```")
                .map(|line| {
                    line.strip_prefix("$ ")
                        .unwrap_or_else(|| panic!("{line:?} in a console block is no command"))
                        .to_owned()
                });
            blocks.push(ConsoleBlock {
                commands: commands.collect(),
                is_run: !before.starts_with(MARK),
            });
        }
        before = line;
    }
    blocks
}

/// Runs the commands in one shell, up to the first that fails, with `bbs` on the path and without
/// network access.
pub fn run(commands: &[String], folder: &Path) -> Output {
    // In braces, because `set -e` does not end a shell where the first command of `a && b` fails.
    let script: String = commands
        .iter()
        .map(|command| format!("{{ {command}\n}} || exit 1\n"))
        .collect();
    let program = bbs().parent().expect("a program is in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(program.to_owned()).chain(std::env::split_paths(&path));
    without_debug_information(&mut Command::new("sh"))
        .args(["-x", "-c", &script])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths).unwrap())
        .env("HOST_MODULES", modules())
        .env("CARGO_TARGET_DIR", authors_target())
        .env("CARGO_NET_OFFLINE", "true")
        // The compiled modules that all tests share, and not those of the user.
        .env("XDG_CACHE_HOME", once::folder())
        // As for the crates that the tests compile themselves, in the same folder.
        .env_remove("RUSTC_BOOTSTRAP")
        .output()
        .unwrap()
}
