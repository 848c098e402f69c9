//! The workflows of the repository: their containers run as another user than that of the checkout.

use super::{assert_none, files_with, read};
use crate::harness::workspace;

/// Without it git refuses every command in a checkout of another user.
const SAFE_DIRECTORY: &str = r#"git config --global --add safe.directory "$PWD""#;
const FULL_HISTORY: &str = "fetch-depth: 0";
/// The workflows that need tags: one compares with the last release, the other builds one.
const WITH_TAGS: [&str; 2] = ["nightly.yml", "release.yml"];

#[test]
fn workflows_can_use_git_in_their_checkout() {
    let files = files_with(&workspace().join(".github/workflows"), "yml");
    assert!(files.len() > WITH_TAGS.len(), "{files:?}");
    let mut problems = Vec::new();
    for path in files {
        let text = read(&path);
        let needs_tags = WITH_TAGS.iter().any(|name| path.ends_with(name));
        for (is_needed, setting) in [(true, SAFE_DIRECTORY), (needs_tags, FULL_HISTORY)] {
            if is_needed && !text.contains(setting) {
                problems.push(format!("{}: {setting} is missing", path.display()));
            }
        }
    }
    assert_none(problems);
}

#[test]
fn nightly_script_has_no_option_that_the_go_of_its_container_lacks() {
    let script = read(&workspace().join(".ci/nightly"));
    assert!(script.contains("go test -fuzz"), "{script}");
    assert!(!script.contains("go -C"), "Debian 12 has Go 1.19");
}
