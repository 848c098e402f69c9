//! The commands of the SDK's README, as an author enters them. Each `console` block begins in an
//! empty folder.

use crate::harness::console::{ConsoleBlock, blocks, run};
use crate::harness::modules::AuthorsFolder;
use crate::harness::workspace;

/// The blocks that need more than a program and a folder of modules.
const NOT_RUN: usize = 1;
#[test]
fn commands_of_the_sdk_readme_succeed_in_an_empty_folder() {
    let document = std::fs::read_to_string(workspace().join("sdk/README.md")).unwrap();
    let blocks = blocks(&document);
    assert_eq!(
        blocks.iter().filter(|block| !block.is_run).count(),
        NOT_RUN,
        "blocks that are not run"
    );
    assert_eq!(
        document.matches("```console").count(),
        blocks.len(),
        "blocks that begin in the middle of a line"
    );
    assert_eq!(
        document.matches("\n$ ").count(),
        blocks
            .iter()
            .map(|block| block.commands.len())
            .sum::<usize>()
    );
    for block in blocks.iter().filter(|block| block.is_run) {
        let work = AuthorsFolder::locked();
        let output = run(&block.commands, work.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:#?}\n{errors}", block.commands);
    }
}

#[test]
fn block_fails_where_any_part_of_a_command_fails() {
    let document = "x\n```console\n$ false && true # a comment\n$ true\n```\n\n<!-- not run by the tests: why -->\n```console\n$ true\n```\n";
    let blocks = blocks(document);
    let block = |commands: &[&str], is_run| ConsoleBlock {
        commands: commands.iter().map(|&c| c.to_owned()).collect(),
        is_run,
    };
    assert_eq!(
        blocks,
        [
            block(&["false && true # a comment", "true"], true),
            block(&["true"], false)
        ]
    );
    let work = tempfile::tempdir().unwrap();
    assert!(!run(&blocks[0].commands, work.path()).status.success());
    assert!(run(&blocks[1].commands, work.path()).status.success());
    assert!(
        run(
            &["mkdir a && cd a".to_owned(), "cd ../a".to_owned()],
            work.path()
        )
        .status
        .success()
    );
}
