//! The Rust of the SDK's README is code of its examples, which are compiled and tested.

use super::{assert_none, read, rust_files};
use crate::harness::workspace;

#[test]
fn code_of_the_sdk_readme_is_that_of_an_example() {
    let sdk = workspace().join("sdk");
    let examples: Vec<_> = rust_files(&sdk.join("examples")).iter().map(|file| read(file)).collect();
    let readme = read(&sdk.join("README.md"));
    let blocks: Vec<_> = readme.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    let elsewhere = blocks.into_iter().filter(|block| !examples.iter().any(|example| example.contains(block)));
    assert_none(elsewhere.map(|block| format!("in no file of sdk/examples:\n{block}")).collect());
}
