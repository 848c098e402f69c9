//! Examples in documents are compiled: the Rust of the SDK's README is code of its examples, and
//! `tests/run` names the packages whose documentation has some.

use std::collections::BTreeSet;
use std::path::Path;

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

#[test]
fn packages_with_examples_are_those_that_are_compiled_for_them() {
    let found: BTreeSet<_> = all_rust_files()
        .iter()
        .filter(|file| has_example(&read(file)))
        .map(|file| package(file))
        .collect();
    let run = read(&workspace().join("tests/run"));
    let named = run
        .lines()
        .find_map(|line| line.strip_prefix("examples=\"")?.strip_suffix('"'))
        .expect("the packages");
    assert_eq!(found, named.split(' ').map(str::to_owned).collect());
}

/// Whether the documentation in a file has code of Rust: a block that no word says to be something
/// else.
fn has_example(source: &str) -> bool {
    let lines = source.lines().map(str::trim_start);
    let texts = lines.filter_map(|line| {
        line.strip_prefix("//!")
            .or_else(|| line.strip_prefix("///"))
    });
    let fences = texts.filter_map(|text| text.trim_start().strip_prefix("```"));
    fences.step_by(2).any(|language| language != "text")
}

/// The name of the package that a file belongs to.
fn package(file: &Path) -> String {
    let manifests = file.ancestors().map(|folder| folder.join("Cargo.toml"));
    let manifest = manifests
        .into_iter()
        .find(|manifest| manifest.exists())
        .expect("a package");
    let name = read(&manifest).lines().find_map(|line| {
        Some(
            line.strip_prefix("name = \"")?
                .strip_suffix('"')?
                .to_owned(),
        )
    });
    name.expect("a package has a name")
}
