//! The commands of a migration author: `bbs module new`, `build`, `check` and `inspect`.

mod readme;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bbs::testing::modules::catalog::Catalog;
use bbs_lens::transform::Transform;

use crate::harness::modules::{
    AuthorsFolder, authors_target, copy_folder, guest, guests, modules, modules_with_refusing,
    sandbox, without_debug_information, workspace_target,
};
use crate::harness::{bbs, workspace};

fn module(folder: &Path, arguments: &[&str]) -> Output {
    module_in(&authors_target(), folder, arguments)
}

/// Builds crates of `tests/guests` into the folder `modules` of another one.
fn build_guests(folder: &Path, guests: &[&str]) -> Output {
    let crates = guests.iter().map(|name| {
        let guest = workspace().join("tests/guests").join(name);
        guest.display().to_string()
    });
    let crates: Vec<_> = crates.collect();
    let mut arguments = vec!["build", "--into", "modules"];
    arguments.extend(crates.iter().map(String::as_str));
    module_in(&workspace_target(), folder, &arguments)
}

fn module_in(target: &Path, folder: &Path, arguments: &[&str]) -> Output {
    module_command(target, folder, arguments).output().unwrap()
}

fn module_command(target: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = crate::harness::command();
    command
        .arg("module")
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target);
    command
}

#[track_caller]
fn succeed(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(output: Output, words: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the command succeeded");
    for word in words {
        assert!(errors.contains(word), "{word:?} is not in {errors:?}");
    }
}

fn cargo_test(folder: &Path) -> Output {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--offline"]).current_dir(folder);
    without_debug_information(&mut command);
    // `tests/run` sets the variable for this executable; crates would be compiled again because of
    // it.
    command
        .env("CARGO_TARGET_DIR", authors_target())
        .env_remove("RUSTC_BOOTSTRAP")
        .output()
        .unwrap()
}

fn sdk() -> String {
    workspace().join("sdk").display().to_string()
}

#[test]
fn a_new_migration_is_tested_built_checked_and_listed_last() {
    let work = AuthorsFolder::locked();
    let sdk = sdk();
    succeed(module(work.path(), &["new", "add-colour", "--sdk", &sdk]));
    succeed(cargo_test(&work.path().join("add-colour")));

    let folder = work.path().join("modules");
    copy_folder(&modules(), &folder);
    let before = Catalog::load(&folder, &sandbox()).unwrap();
    succeed(module(
        work.path(),
        &["build", "add-colour", "--into", "modules"],
    ));
    let after = Catalog::load(&folder, &sandbox()).unwrap();
    assert_eq!(after.migrations().len(), before.migrations().len() + 1);
    assert_eq!(
        after.migrations().last().unwrap().manifest().name,
        "add-colour"
    );
    assert_eq!(after.translators().len(), before.translators().len());

    let report = succeed(module(work.path(), &["check", "modules"]));
    assert!(
        report.contains("add-colour\n      up: 32 generated units, 0 of them refused"),
        "{report}"
    );
    assert!(!report.contains("BAD"), "{report}");
}

#[test]
fn a_new_translator_is_tested_and_built() {
    let work = AuthorsFolder::locked();
    let sdk = sdk();
    let new = [
        "new",
        "no-zones",
        "--translator",
        "--onto",
        "0.9",
        "--sdk",
        &sdk,
    ];
    succeed(module(work.path(), &new));
    succeed(cargo_test(&work.path().join("no-zones")));
    let report = succeed(module(
        work.path(),
        &["build", "no-zones", "--into", "modules"],
    ));
    assert!(report.contains("0.8-to-0.9.wasm"), "{report}");
    let catalog = Catalog::load(&work.path().join("modules"), &sandbox()).unwrap();
    assert_eq!(catalog.translators().len(), 1);
    let report = succeed(module(work.path(), &["inspect", "modules/0.8-to-0.9.wasm"]));
    for words in [
        "no-zones: API 0.8 in terms of 0.9",
        "instances/list, paged",
        "the events of LRPInstanceEventStream_r1",
    ] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
}

/// Goal: no build replaces or deletes a module that may have run, whatever its name, unless the
/// author says that it has not. Method: a draft changes, under its own name and under another one,
/// and is left out of the list of all modules.
#[test]
fn module_that_may_have_run_is_replaced_only_on_request() {
    let work = AuthorsFolder::locked();
    let sdk = sdk();
    succeed(module(work.path(), &["new", "add-colour", "--sdk", &sdk]));
    let build = ["build", "add-colour", "--into", "modules"];
    succeed(module(work.path(), &build));
    let state = || {
        let catalog = std::fs::read_to_string(work.path().join("modules/catalog.toml")).unwrap();
        let files = std::fs::read_dir(work.path().join("modules")).unwrap();
        let mut files: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        (catalog, files)
    };
    let before = state();
    succeed(module(work.path(), &build));
    assert_eq!(state(), before, "the same module is built again");
    let source = work.path().join("add-colour/src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap();
    for (from, to) in [
        (".summary(\"", ".summary(\"Now it "),
        (", \"add-colour\")", ", \"add-shade\")"),
    ] {
        assert!(text.contains(from), "{text}");
        std::fs::write(&source, text.replace(from, to)).unwrap();
        refused(
            module(work.path(), &build),
            &[
                "add-colour.wasm",
                "another content",
                "a later version",
                "--replace",
            ],
        );
        assert_eq!(state(), before);
    }
    let report = succeed(module(work.path(), &[&build[..], &["--replace"]].concat()));
    assert!(
        report.contains("add-shade.wasm") && !report.contains("add-colour.wasm"),
        "{report}"
    );

    // A repository whose list has another module.
    succeed(module(
        work.path(),
        &[
            "new",
            "no-zones",
            "--translator",
            "--onto",
            "0.9",
            "--sdk",
            &sdk,
        ],
    ));
    std::fs::create_dir(work.path().join("migrations-wasm")).unwrap();
    let list = "[[module]]\ncrate = \"../no-zones\"\n";
    std::fs::write(work.path().join("migrations-wasm/catalog.toml"), list).unwrap();
    let before = state();
    let everything = ["build", "--into", "modules"];
    refused(
        module(work.path(), &everything),
        &[
            "add-shade.wasm",
            "none of the modules to build",
            "--replace",
        ],
    );
    assert_eq!(state(), before);
    let report = succeed(module(
        work.path(),
        &[&everything[..], &["--replace"]].concat(),
    ));
    assert!(
        report.contains("0.8-to-0.9.wasm") && !report.contains("add-shade.wasm"),
        "{report}"
    );

    // A build that was killed before it deleted what it has dropped.
    let modules = work.path().join("modules");
    std::fs::copy(modules.join("0.8-to-0.9.wasm"), modules.join("left.wasm")).unwrap();
    let named = format!("name = \"apps\"\nserial = 7\n{}", state().0);
    std::fs::write(modules.join("catalog.toml"), named).unwrap();
    refused(module(work.path(), &everything), &["left.wasm"]);
    succeed(module(
        work.path(),
        &[&everything[..], &["--replace"]].concat(),
    ));
    let (catalog, files) = state();
    assert!(catalog.contains("\"apps\"") && catalog.contains("serial = 7"));
    assert!(!files.contains(&"left.wasm".to_owned()), "{files:?}");
}

/// Goal: a folder whose catalog is damaged or absent is not taken for an empty one.
#[test]
fn folder_without_a_usable_catalog_is_replaced_only_on_request() {
    let work = AuthorsFolder::locked();
    succeed(module(work.path(), &["new", "add-colour", "--sdk", &sdk()]));
    std::fs::create_dir(work.path().join("migrations-wasm")).unwrap();
    let list = "[[module]]\ncrate = \"../add-colour\"\n";
    std::fs::write(work.path().join("migrations-wasm/catalog.toml"), list).unwrap();
    let everything = ["build", "--into", "modules"];
    succeed(module(work.path(), &everything));
    let path = work.path().join("modules/catalog.toml");
    let catalog = || std::fs::read_to_string(&path).unwrap();
    let whole = catalog();
    let replace = [&everything[..], &["--replace"]].concat();

    std::fs::write(&path, "module = 1").unwrap();
    let words = ["is not a catalog", "restore it"];
    refused(module(work.path(), &everything), &words);
    assert_eq!(catalog(), "module = 1");
    succeed(module(work.path(), &replace));
    assert_eq!(catalog(), whole);

    std::fs::remove_file(&path).unwrap();
    let named = ["build", "add-colour", "--into", "modules"];
    for build in [&everything[..], &named] {
        let words = ["add-colour.wasm", "not in its catalog"];
        refused(module(work.path(), build), &words);
        assert!(!path.exists());
    }
    succeed(module(work.path(), &replace));
    assert_eq!(catalog(), whole);
}

/// Goal: a module that refuses every unit is found by the check, with the reason.
#[test]
fn module_that_refuses_every_unit_fails_the_check() {
    let folder = modules_with_refusing();
    let output = module(&folder, &["check", "."]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in [
        "BAD ",
        "refuses every unit that has rows",
        "the first refusal is: no colour is known",
    ] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
    refused(output, &["1 of", "modules break a rule"]);
}

/// Goal: what a host would refuse at its start is refused before the module is shipped.
/// Method: the stream of a new translator is made of one that the newer version does not have.
#[test]
fn translator_of_a_missing_event_stream_fails_the_check_and_is_not_added() {
    let work = AuthorsFolder::locked();
    for folder in ["modules", "shipped"] {
        copy_folder(&modules(), &work.path().join(folder));
    }
    // The default versions are those beside the oldest one of `modules`.
    succeed(module(
        work.path(),
        &["new", "no-zones", "--translator", "--sdk", &sdk()],
    ));
    let source = work.path().join("no-zones/src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(source, text.replace("LRPInstanceEventStream_r1", "Absent")).unwrap();
    succeed(module(
        work.path(),
        &["build", "no-zones", "--into", "modules"],
    ));
    let words = ["\"Absent\"", "not an event stream of API 0.9"];
    refused(module(work.path(), &["check", "modules"]), &words);
    refused(
        module(
            work.path(),
            &["add", "modules/0.8-to-0.9.wasm", "--into", "shipped"],
        ),
        &words,
    );
    assert!(!work.path().join("shipped/0.8-to-0.9.wasm").exists());
}

#[test]
fn new_does_not_overwrite_an_existing_folder() {
    let work = tempfile::tempdir().unwrap();
    std::fs::create_dir(work.path().join("add-colour")).unwrap();
    refused(
        module(work.path(), &["new", "add-colour", "--sdk", &sdk()]),
        &["add-colour already exists"],
    );
}

#[test]
fn a_migration_older_than_the_first_is_not_built_into_a_folder() {
    let work = tempfile::tempdir().unwrap();
    copy_folder(&modules(), &work.path().join("modules"));
    let before = std::fs::read(work.path().join("modules/catalog.toml")).unwrap();
    let words = [
        "migration 50 is older than 1461790966",
        "give it a later version",
    ];
    refused(build_guests(work.path(), &["things"]), &words);
    assert_eq!(
        std::fs::read(work.path().join("modules/catalog.toml")).unwrap(),
        before
    );
    Catalog::load(&work.path().join("modules"), &sandbox()).expect("the folder is unchanged");
}

#[test]
fn compile_error_shows_cargos_output() {
    let work = AuthorsFolder::locked();
    succeed(module(work.path(), &["new", "add-colour", "--sdk", &sdk()]));
    std::fs::write(work.path().join("add-colour/src/lib.rs"), "fn broken( {}").unwrap();
    refused(
        module(work.path(), &["build", "add-colour", "--into", "modules"]),
        &["cargo failed", "broken"],
    );
}

#[test]
fn a_crate_without_a_module_is_refused() {
    let work = AuthorsFolder::locked();
    succeed(module(work.path(), &["new", "add-colour", "--sdk", &sdk()]));
    std::fs::write(work.path().join("add-colour/src/lib.rs"), "").unwrap();
    let words = ["add-colour", "export macro"];
    refused(
        module(work.path(), &["build", "add-colour", "--into", "modules"]),
        &words,
    );
}

#[test]
fn build_of_a_missing_crate_is_refused() {
    let work = tempfile::tempdir().unwrap();
    refused(
        module(work.path(), &["build", "nowhere", "--into", "modules"]),
        &["nowhere", "cannot be read"],
    );
    refused(
        module(work.path(), &["build", "--into", "modules"]),
        &["has a migrations-wasm/catalog.toml"],
    );
    let nowhere = ["new", "add-colour", "--sdk", "nowhere"];
    refused(
        module(work.path(), &nowhere),
        &["nowhere is not the SDK's folder"],
    );
    assert!(!work.path().join("add-colour").exists());
}

#[test]
fn modules_can_be_created_tested_and_built_outside_the_repository() {
    // Not the folder that the other tests share, so that a build at another place is shown.
    let work = tempfile::tempdir().unwrap();
    let output = succeed(module(work.path(), &["new", "add-colour"]));
    assert!(output.contains("bbs-sdk"), "{output}");
    let manifest = std::fs::read_to_string(work.path().join("add-colour/Cargo.toml")).unwrap();
    assert!(
        manifest.contains("bbs-sdk = { path = \"../bbs-sdk\" }"),
        "{manifest}"
    );
    let build = |folder: &Path, level: &str| {
        let arguments = ["build", "add-colour", "--into", "modules"];
        let mut command = module_command(&authors_target(), folder, &arguments);
        command.env("CARGO_PROFILE_GUEST_OPT_LEVEL", level);
        succeed(command.output().unwrap());
        std::fs::read_to_string(folder.join("modules/catalog.toml")).unwrap()
    };
    let built = build(work.path(), "3");
    // The path to the SDK is relative: crate and SDK can be moved together.
    let moved = work.path().join("elsewhere");
    std::fs::create_dir(&moved).unwrap();
    for folder in ["add-colour", "bbs-sdk"] {
        std::fs::rename(work.path().join(folder), moved.join(folder)).unwrap();
    }
    succeed(cargo_test(&moved.join("add-colour")));
    let output = succeed(module(&moved, &["new", "0.8-to-0.9"]));
    assert!(
        !output.contains("bbs-sdk"),
        "the second crate shares the SDK: {output}"
    );
    succeed(cargo_test(&moved.join("0.8-to-0.9")));
    assert_eq!(
        build(&moved, "s"),
        built,
        "the digest depends neither on the place nor on the environment"
    );
    Catalog::load(&moved.join("modules"), &sandbox())
        .expect_err("its table is created by no module of this folder");
}

/// Goal: a build adds its modules to what the folder has when they are compiled. Method: two builds
/// at once; one of them waits for the other's compiler.
#[test]
fn modules_that_are_built_into_one_folder_at_once_are_both_listed() {
    let work = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for guest in ["things", "chatty-translator"] {
            let folder = work.path();
            scope.spawn(move || succeed(build_guests(folder, &[guest])));
        }
    });
    let catalog = Catalog::load(&work.path().join("modules"), &sandbox()).unwrap();
    assert_eq!(
        (catalog.migrations().len(), catalog.translators().len()),
        (1, 1)
    );
}

/// A toolchain without the WebAssembly target, otherwise like the current one, and a folder of
/// programs for the `PATH`.
struct BareToolchain {
    folder: tempfile::TempDir,
}

impl BareToolchain {
    fn new() -> Self {
        let bare = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let libraries = bare.libraries();
        std::fs::create_dir_all(&libraries).unwrap();
        std::fs::create_dir(bare.path("bin")).unwrap();
        for entry in std::fs::read_dir(sysroot().join("lib/rustlib")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != WASM {
                std::os::unix::fs::symlink(entry.path(), libraries.join(entry.file_name()))
                    .unwrap();
            }
        }
        let rustc = sysroot().join("bin/rustc");
        bare.program(
            "rustc",
            &format!(
                "exec {} --sysroot {} \"$@\"",
                rustc.display(),
                bare.path("").display()
            ),
        );
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

    /// Builds an empty crate, which always fails: with the target, because it exports no module.
    fn build(&self) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let mut command = crate::harness::command();
        command
            .args(["module", "build", "empty", "--into", "modules"])
            .current_dir(self.folder.path());
        command
            .env("PATH", path)
            .env("RUSTC", self.path("bin/rustc"))
            .env("CARGO", sysroot().join("bin/cargo"));
        command.env_remove("CARGO_TARGET_DIR").output().unwrap()
    }
}

const WASM: &str = "wasm32-unknown-unknown";

fn sysroot() -> PathBuf {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = command
        .args(["--print", "sysroot"])
        .current_dir(workspace())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[test]
fn missing_webassembly_target_is_added_with_rustup() {
    let bare = BareToolchain::new();
    let target = sysroot().join("lib/rustlib").join(WASM);
    let called = bare.path("called");
    bare.program(
        "rustup",
        &format!(
            "echo \"$@\" >>{}; ln -s {} {}",
            called.display(),
            target.display(),
            bare.libraries().display()
        ),
    );
    refused(
        bare.build(),
        &[
            "the component built from empty cannot be loaded by this host",
            "export macro",
        ],
    );
    refused(
        bare.build(),
        &[
            "the component built from empty cannot be loaded by this host",
            "export macro",
        ],
    );
    assert_eq!(
        std::fs::read_to_string(called).unwrap(),
        format!("target add {WASM}\n"),
        "rustup is called once"
    );
}

#[test]
fn missing_target_without_rustup_or_network_is_an_error_with_advice() {
    let bare = BareToolchain::new();
    refused(
        bare.build(),
        &[
            "no standard library for WebAssembly",
            "no `rustup` on the PATH",
            WASM,
        ],
    );
    bare.program(
        "rustup",
        "echo 'error: could not download file' >&2; exit 1",
    );
    let words = [
        "`rustup target add wasm32-unknown-unknown` failed",
        "could not download file",
        "where the network",
    ];
    refused(bare.build(), &words);
}

#[test]
fn inspect_of_a_non_wasm_file_fails_with_one_line() {
    let work = tempfile::tempdir().unwrap();
    std::fs::copy(bbs(), work.path().join("program")).unwrap();
    std::fs::write(work.path().join("text"), "\u{0}\u{1}not a module").unwrap();
    for file in ["program", "text"] {
        let output = module(work.path(), &["inspect", file]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            message.lines().count() == 1 && message.is_ascii() && message.len() < 200,
            "{message:?}"
        );
        refused(output, &["is not a WebAssembly file; name a .wasm file"]);
    }
}

#[test]
fn module_with_state_between_calls_and_residue_without_a_record_fails_the_check() {
    let work = tempfile::tempdir().unwrap();
    succeed(build_guests(work.path(), &["things", "keeps-state"]));
    let output = module(work.path(), &["check", "modules"]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in [
        "different results for the same rows",
        "the residue that up leaves would be given to any record",
    ] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
    refused(output, &["1 of 2 modules break a rule"]);
    let output = module(work.path(), &["check", "--json", "modules"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found[0]["trials"], &found[0]["unbound"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    assert!(
        found[1]["trials"][0]["problem"]
            .as_str()
            .unwrap()
            .contains("different results")
    );
}

#[test]
fn a_single_module_is_checked_and_inspected() {
    let file = guest("well-behaved").display().to_string();
    let report = succeed(module(&guests(), &["check", &file]));
    assert!(report.contains("migration 100 well-behaved"), "{report}");
    let report = succeed(module(&guests(), &["inspect", &file]));
    for words in [
        "add things.size",
        "things: reads text; writes size",
        "imports  nothing",
        "sha256",
    ] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
    let json = succeed(module(&guests(), &["inspect", "--json", &file]));
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&found["kind"], &found["manifest"]["version"]),
        (&"migration".into(), &100.into())
    );
    let report = succeed(module(&guests(), &["inspect", "chatty-translator.wasm"]));
    for words in [
        "API 0.9 in terms of 0.10",
        "Once at POST once/do",
        "diego:translator/next@0.1.0#call",
    ] {
        assert!(report.contains(words), "{words:?} is not in {report}");
    }
    refused(
        module(&guests(), &["inspect", "forbidden-import.wasm"]),
        &["wasi:random/random@0.2.0"],
    );
    refused(
        module(&guests(), &["inspect", "nothing.wasm"]),
        &["nothing.wasm cannot be read"],
    );
    let words = [
        "well-behaved is a folder",
        "name a .wasm file",
        "bbs module build CRATE",
    ];
    refused(
        module(
            &workspace().join("tests/guests"),
            &["inspect", "well-behaved"],
        ),
        &words,
    );
}
