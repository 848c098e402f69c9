//! From nothing to a module that a host would run: the commands a migration author uses, as an author uses them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bbs::lens::transform::Transform;
use bbs::modules::catalog::Catalog;

use crate::harness::modules::{guest, guests, modules, sandbox};
use crate::harness::{bbs, workspace};

fn module(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(bbs());
    command.arg("module").args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target()).output().unwrap()
}

/// What crates outside the workspace are built in, so that each test finds the SDK compiled.
fn target() -> PathBuf {
    workspace().join("target/test-modules/authors")
}

#[track_caller]
fn good(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(output: Output, words: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it is refused");
    for word in words {
        assert!(errors.contains(word), "{word:?} is not in {errors:?}");
    }
}

fn cargo_test(folder: &Path) -> Output {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--offline"]).current_dir(folder);
    command.env("CARGO_TARGET_DIR", target()).output().unwrap()
}

fn sdk() -> String {
    workspace().join("sdk").display().to_string()
}

fn copy_of_modules(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    for file in std::fs::read_dir(modules()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
}

#[test]
fn a_new_migration_is_tested_built_checked_and_listed_last() {
    let work = tempfile::tempdir().unwrap();
    let sdk = sdk();
    good(module(work.path(), &["new", "add-colour", "--sdk", &sdk]));
    good(cargo_test(&work.path().join("add-colour")));

    let folder = work.path().join("modules");
    copy_of_modules(&folder);
    let before = Catalog::load(&folder, &sandbox()).unwrap();
    good(module(work.path(), &["build", "add-colour", "--into", "modules"]));
    let after = Catalog::load(&folder, &sandbox()).unwrap();
    assert_eq!(after.migrations().len(), before.migrations().len() + 1);
    assert_eq!(after.migrations().last().unwrap().manifest().name, "add-colour");
    assert_eq!(after.translators().len(), before.translators().len());

    let report = good(module(work.path(), &["check", "modules"]));
    assert!(report.contains("add-colour\n      up: 32 made-up units, 0 of them refused"), "{report}");
    assert!(!report.contains("BAD"), "{report}");
}

#[test]
fn a_new_translator_is_tested_and_built() {
    let work = tempfile::tempdir().unwrap();
    let sdk = sdk();
    good(module(work.path(), &["new", "0.8-to-0.9", "--kind", "translator", "--sdk", &sdk]));
    good(cargo_test(&work.path().join("0.8-to-0.9")));
    let report = good(module(work.path(), &["build", "0.8-to-0.9", "--into", "modules"]));
    assert!(report.contains("0.8-to-0.9.wasm"), "{report}");
    let catalog = Catalog::load(&work.path().join("modules"), &sandbox()).unwrap();
    assert_eq!(catalog.translators().len(), 1);
}

#[test]
fn what_is_there_already_is_not_overwritten() {
    let work = tempfile::tempdir().unwrap();
    std::fs::create_dir(work.path().join("add-colour")).unwrap();
    refused(module(work.path(), &["new", "add-colour", "--sdk", &sdk()]), &["add-colour is there already"]);
}

#[test]
fn a_migration_older_than_the_newest_is_not_built_into_a_folder() {
    let work = tempfile::tempdir().unwrap();
    let things = workspace().join("tests/guests/things").display().to_string();
    copy_of_modules(&work.path().join("modules"));
    let before = std::fs::read(work.path().join("modules/catalog.toml")).unwrap();
    let words = ["migration 50 would come before", "give it a later version"];
    refused(module(work.path(), &["build", &things, "--into", "modules"]), &words);
    assert_eq!(std::fs::read(work.path().join("modules/catalog.toml")).unwrap(), before);
    Catalog::load(&work.path().join("modules"), &sandbox()).expect("the folder is as it was");
}

#[test]
fn what_does_not_compile_is_shown_as_cargo_says_it() {
    let work = tempfile::tempdir().unwrap();
    good(module(work.path(), &["new", "add-colour", "--sdk", &sdk()]));
    std::fs::write(work.path().join("add-colour/src/lib.rs"), "fn broken( {}").unwrap();
    refused(module(work.path(), &["build", "add-colour", "--into", "modules"]), &["cargo refused", "broken"]);
}

#[test]
fn a_crate_without_a_module_is_refused() {
    let work = tempfile::tempdir().unwrap();
    good(module(work.path(), &["new", "add-colour", "--sdk", &sdk()]));
    std::fs::write(work.path().join("add-colour/src/lib.rs"), "").unwrap();
    let words = ["add-colour", "export macro"];
    refused(module(work.path(), &["build", "add-colour", "--into", "modules"]), &words);
}

#[test]
fn what_is_no_crate_is_refused() {
    let work = tempfile::tempdir().unwrap();
    refused(module(work.path(), &["build", "nowhere", "--into", "modules"]), &["nowhere", "cannot be read"]);
    refused(module(work.path(), &["build", "--into", "modules"]), &["has a migrations-wasm/catalog.toml"]);
    refused(module(work.path(), &["new", "add-colour"]), &["--sdk"]);
}

#[test]
fn a_module_that_keeps_state_between_calls_does_not_pass_the_check() {
    let work = tempfile::tempdir().unwrap();
    let crates =
        ["things", "keeps-state"].map(|name| workspace().join("tests/guests").join(name).display().to_string());
    good(module(work.path(), &["build", &crates[0], &crates[1], "--into", "modules"]));
    let output = module(work.path(), &["check", "modules"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("two answers to the same rows"));
    refused(output, &["1 of 2 modules do not keep to the rules"]);
    let output = module(work.path(), &["check", "--json", "modules"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found[0]["trials"], serde_json::json!([]));
    assert!(found[1]["trials"][0]["problem"].as_str().unwrap().contains("two answers"));
}

#[test]
fn a_single_module_is_checked_and_inspected() {
    let file = guest("well-behaved").display().to_string();
    let report = good(module(&guests(), &["check", &file]));
    assert!(report.contains("migration 100 well-behaved"), "{report}");
    let report = good(module(&guests(), &["inspect", &file]));
    for words in ["add things.size", "things: reads text; writes size", "imports  nothing", "sha256"] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
    let json = good(module(&guests(), &["inspect", "--json", &file]));
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&found["kind"], &found["manifest"]["version"]), (&"migration".into(), &100.into()));
    let report = good(module(&guests(), &["inspect", "chatty-translator.wasm"]));
    for words in ["API 0.9 in terms of 0.10", "Once at once/do", "diego:translator/next@0.1.0#call"] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
    refused(module(&guests(), &["inspect", "forbidden-import.wasm"]), &["wasi:random/random@0.2.0"]);
    refused(module(&guests(), &["inspect", "nothing.wasm"]), &["nothing.wasm cannot be read"]);
}
