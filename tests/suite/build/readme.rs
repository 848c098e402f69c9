//! The commands of the SDK's README, as an author enters them. Each `console` block begins in an empty folder.

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::modules::{authors_target, modules};
use crate::harness::{bbs, workspace};

/// The blocks that need more than a program and a folder of modules.
const NOT_RUN: usize = 1;
/// Precedes such a block, with the reason.
const MARK: &str = "<!-- not run by the tests: ";

/// A `console` block.
#[derive(Debug, PartialEq, Eq)]
struct ConsoleBlock {
    commands: Vec<String>,
    is_run: bool,
}

fn blocks(document: &str) -> Vec<ConsoleBlock> {
    let mut blocks = Vec::new();
    let mut before = "";
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if line == "```console" {
            let commands = lines.by_ref().take_while(|line| *line != "```").map(|line| {
                line.strip_prefix("$ ")
                    .unwrap_or_else(|| panic!("{line:?} in a console block is no command"))
                    .to_owned()
            });
            blocks.push(ConsoleBlock { commands: commands.collect(), is_run: !before.starts_with(MARK) });
        }
        before = line;
    }
    blocks
}

/// Runs the commands in one shell, up to the first that fails, with `bbs` on the path and without network access.
fn run(commands: &[String], folder: &Path) -> Output {
    // In braces, because `set -e` does not end a shell where the first command of `a && b` fails.
    let script: String = commands.iter().map(|command| format!("{{ {command}\n}} || exit 1\n")).collect();
    let program = bbs().parent().expect("a program is in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(program.to_owned()).chain(std::env::split_paths(&path));
    Command::new("sh")
        .args(["-x", "-c", &script])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths).unwrap())
        .env("HOST_MODULES", modules())
        .env("CARGO_TARGET_DIR", authors_target())
        .env("CARGO_NET_OFFLINE", "true")
        .output()
        .unwrap()
}

#[test]
fn commands_of_the_sdk_readme_succeed_in_an_empty_folder() {
    let document = std::fs::read_to_string(workspace().join("sdk/README.md")).unwrap();
    let blocks = blocks(&document);
    assert_eq!(blocks.iter().filter(|block| !block.is_run).count(), NOT_RUN, "blocks that are not run");
    assert_eq!(document.matches("```console").count(), blocks.len(), "blocks that begin in the middle of a line");
    assert_eq!(document.matches("\n$ ").count(), blocks.iter().map(|block| block.commands.len()).sum::<usize>());
    for block in blocks.iter().filter(|block| block.is_run) {
        let work = tempfile::tempdir().unwrap();
        let output = run(&block.commands, work.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:#?}\n{errors}", block.commands);
    }
}

#[test]
fn block_fails_where_any_part_of_a_command_fails() {
    let document = "x\n```console\n$ false && true # a comment\n$ true\n```\n\n<!-- not run by the tests: why -->\n```console\n$ true\n```\n";
    let blocks = blocks(document);
    let block =
        |commands: &[&str], is_run| ConsoleBlock { commands: commands.iter().map(|&c| c.to_owned()).collect(), is_run };
    assert_eq!(blocks, [block(&["false && true # a comment", "true"], true), block(&["true"], false)]);
    let work = tempfile::tempdir().unwrap();
    assert!(!run(&blocks[0].commands, work.path()).status.success());
    assert!(run(&blocks[1].commands, work.path()).status.success());
    assert!(run(&["mkdir a && cd a".to_owned(), "cd ../a".to_owned()], work.path()).status.success());
}
