//! The check of single modules of a folder against the rest.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::harness::command;
use crate::harness::modules::{copy_folder, modules};
use crate::harness::output::{errors, refused, succeeded};

fn check(folder: &Path, more: &[&str]) -> Output {
    command()
        .args(["module", "check"])
        .arg(folder)
        .args(more)
        .output()
        .unwrap()
}

/// The files that were checked, each with the number of its directions that were run.
fn checked(folder: &Path, only: &[&str]) -> Vec<(String, usize)> {
    let only: Vec<_> = only
        .iter()
        .flat_map(|name| ["--only", name])
        .chain(["--json"])
        .collect();
    let findings: Vec<Value> = serde_json::from_str(&succeeded(check(folder, &only))).unwrap();
    findings
        .iter()
        .map(|finding| {
            (
                finding["file"].as_str().unwrap().to_owned(),
                finding["trials"].as_array().unwrap().len(),
            )
        })
        .collect()
}

#[test]
fn check_of_one_module_runs_it_alone_against_the_rest_of_the_folder() {
    let folder = modules();
    let newest = "1795000010-lrp-definitions.wasm";
    let alone = checked(&folder, &[newest]);
    assert!(
        matches!(alone.as_slice(), [(file, trials)] if file == newest && *trials > 0),
        "{alone:?}"
    );
    for name in ["lrp-definitions", "1795000010"] {
        assert_eq!(checked(&folder, &[name]), alone);
    }
    assert_eq!(
        checked(&folder, &["0.9-to-0.10"]),
        [("0.9-to-0.10.wasm".to_owned(), 0)]
    );
    assert_eq!(checked(&folder, &[newest, "0.9-to-0.10.wasm"]).len(), 2);
    assert!(checked(&folder, &[]).len() > 2);

    let unknown = check(&folder, &["--only", "add-colour"]);
    let message = refused(unknown, "no module \"add-colour\"");
    assert!(message.contains(newest), "{message}");
    let file = check(&folder.join(newest), &["--only", "add-colour"]);
    assert!(
        errors(&file).contains("chooses modules of a folder"),
        "{file:?}"
    );

    // The rest is validated: the module is checked against a folder that a host accepts.
    let altered = tempfile::tempdir().unwrap();
    copy_folder(&folder, altered.path());
    std::fs::write(altered.path().join("0.9-to-0.10.wasm"), b"altered").unwrap();
    let refused = check(altered.path(), &["--only", newest]);
    assert!(!refused.status.success(), "{refused:?}");
}
