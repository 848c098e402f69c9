//! From nothing to a module that a host would run: the commands a migration author uses, as an author uses them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bbs::lens::transform::Transform;
use bbs::modules::catalog::Catalog;

use crate::harness::modules::{authors_target, guest, guests, modules, sandbox};
use crate::harness::{bbs, workspace};

fn module(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(bbs());
    command
        .arg("module")
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", authors_target())
        .output()
        .unwrap()
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
    command.env("CARGO_TARGET_DIR", authors_target()).output().unwrap()
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
    let nowhere = ["new", "add-colour", "--sdk", "nowhere"];
    refused(module(work.path(), &nowhere), &["nowhere is not the SDK's folder"]);
    assert!(!work.path().join("add-colour").exists());
}

#[test]
fn a_module_is_begun_tested_and_built_away_from_the_repository() {
    let work = tempfile::tempdir().unwrap();
    let said = good(module(work.path(), &["new", "add-colour"]));
    assert!(said.contains("bbs-sdk"), "{said}");
    let manifest = std::fs::read_to_string(work.path().join("add-colour/Cargo.toml")).unwrap();
    assert!(manifest.contains("bbs-sdk = { path = \"../bbs-sdk\" }"), "{manifest}");
    // Both may be kept in a repository of the author's, wherever that is checked out.
    let moved = work.path().join("elsewhere");
    std::fs::create_dir(&moved).unwrap();
    for folder in ["add-colour", "bbs-sdk"] {
        std::fs::rename(work.path().join(folder), moved.join(folder)).unwrap();
    }
    good(cargo_test(&moved.join("add-colour")));
    let said = good(module(&moved, &["new", "0.8-to-0.9"]));
    assert!(!said.contains("bbs-sdk"), "the second crate shares it: {said}");
    good(cargo_test(&moved.join("0.8-to-0.9")));
    good(module(&moved, &["build", "add-colour", "--into", "modules"]));
    Catalog::load(&moved.join("modules"), &sandbox()).expect_err("it adds to a table that no module makes");
}

/// A toolchain with all that this one has but the WebAssembly target, and a folder of programs for the PATH.
struct Bare {
    folder: tempfile::TempDir,
}

impl Bare {
    fn new() -> Self {
        let bare = Self { folder: tempfile::tempdir().unwrap() };
        let libraries = bare.libraries();
        std::fs::create_dir_all(&libraries).unwrap();
        std::fs::create_dir(bare.path("bin")).unwrap();
        for entry in std::fs::read_dir(sysroot().join("lib/rustlib")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != WASM {
                std::os::unix::fs::symlink(entry.path(), libraries.join(entry.file_name())).unwrap();
            }
        }
        let rustc = sysroot().join("bin/rustc");
        bare.program("rustc", &format!("exec {} --sysroot {} \"$@\"", rustc.display(), bare.path("").display()));
        let manifest = "[package]\nname = \"empty\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n\
                        [profile.guest]\ninherits = \"release\"\n[workspace]\n";
        std::fs::create_dir_all(bare.path("empty/src")).unwrap();
        std::fs::write(bare.path("empty/Cargo.toml"), manifest).unwrap();
        std::fs::write(bare.path("empty/src/lib.rs"), "").unwrap();
        bare
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn libraries(&self) -> PathBuf {
        self.path("lib/rustlib")
    }

    fn program(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Builds an empty crate, which is refused in any case: at the latest for exporting no module.
    fn build(&self) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let mut command = Command::new(bbs());
        command.args(["module", "build", "empty", "--into", "modules"]).current_dir(self.folder.path());
        command.env("PATH", path).env("RUSTC", self.path("bin/rustc")).env("CARGO", sysroot().join("bin/cargo"));
        command.env_remove("CARGO_TARGET_DIR").output().unwrap()
    }
}

const WASM: &str = "wasm32-unknown-unknown";

fn sysroot() -> PathBuf {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = command.args(["--print", "sysroot"]).current_dir(workspace()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[test]
fn the_webassembly_target_is_added_where_it_is_absent() {
    let bare = Bare::new();
    let target = sysroot().join("lib/rustlib").join(WASM);
    let called = bare.path("called");
    bare.program(
        "rustup",
        &format!("echo \"$@\" >>{}; ln -s {} {}", called.display(), target.display(), bare.libraries().display()),
    );
    refused(bare.build(), &["what empty builds is not a module", "export macro"]);
    refused(bare.build(), &["what empty builds is not a module", "export macro"]);
    assert_eq!(std::fs::read_to_string(called).unwrap(), format!("target add {WASM}\n"), "it is asked for once");
}

#[test]
fn without_rustup_or_network_the_error_says_what_to_do_for_the_target() {
    let bare = Bare::new();
    refused(bare.build(), &["no standard library for WebAssembly", "no `rustup` on the PATH", WASM]);
    bare.program("rustup", "echo 'error: could not download file' >&2; exit 1");
    let words = ["`rustup target add wasm32-unknown-unknown` failed", "could not download file", "where the network"];
    refused(bare.build(), &words);
}

#[test]
fn a_file_that_is_no_module_is_named_in_a_sentence() {
    let work = tempfile::tempdir().unwrap();
    std::fs::copy(bbs(), work.path().join("program")).unwrap();
    std::fs::write(work.path().join("text"), "\u{0}\u{1}not a module").unwrap();
    for file in ["program", "text"] {
        let output = module(work.path(), &["inspect", file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.lines().count() == 1 && said.is_ascii() && said.len() < 200, "{said:?}");
        refused(output, &["is not a WebAssembly file; name a .wasm file"]);
    }
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
