//! Examples in documents are compiled: the Rust of the SDK's README is code of its examples, and
//! that of the documentation of crates is code of their tests.

use super::{all_rust_files, assert_none, read, rust_files};
use crate::harness::workspace;

#[test]
fn code_of_the_sdk_readme_is_that_of_an_example() {
    let sdk = workspace().join("sdk");
    let examples: Vec<_> = rust_files(&sdk.join("examples"))
        .iter()
        .map(|file| read(file))
        .collect();
    let readme = read(&sdk.join("README.md"));
    let blocks: Vec<_> = readme
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!blocks.is_empty());
    let elsewhere = blocks
        .into_iter()
        .filter(|block| !examples.iter().any(|example| example.contains(block)));
    assert_none(
        elsewhere
            .map(|block| format!("in no file of sdk/examples:\n{block}"))
            .collect(),
    );
}

/// Examples are compiled with the tests of their crate: `cargo test --doc` for single packages would
/// build what these depend on once more, with other features.
#[test]
fn code_of_the_documentation_is_that_of_a_function() {
    let files: Vec<_> = all_rust_files().iter().map(|file| read(file)).collect();
    let examples: Vec<_> = files.iter().flat_map(|file| examples_in(file)).collect();
    assert!(!examples.is_empty());
    let compiled: Vec<_> = files.iter().map(|file| shown_lines(file)).collect();
    let elsewhere = examples.into_iter().filter(|example| {
        let example = example.as_str();
        !compiled.iter().any(|file| file.contains(example))
    });
    assert_none(
        elsewhere
            .map(|example| format!("in the documentation alone:\n{example}"))
            .collect(),
    );
}

/// The code of Rust in the documentation in a file: each block that no word says to be something
/// else.
fn examples_in(source: &str) -> Vec<String> {
    let lines = source.lines().map(str::trim_start);
    let texts = lines.filter_map(|line| {
        line.strip_prefix("//!")
            .or_else(|| line.strip_prefix("///"))
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    let blocks = text.split("```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.split_once('\n'))
        .filter(|(language, _)| *language != "text")
        .map(|(_, code)| shown_lines(code))
        .collect()
}

/// The lines of code without their indentation, without empty ones and those that documentation
/// hides.
fn shown_lines(code: &str) -> String {
    let lines = code.lines().map(str::trim);
    let shown = lines.filter(|line| !line.is_empty() && !line.starts_with("# "));
    shown.map(|line| format!("{line}\n")).collect()
}
