//! Results as JSON: one value on standard output, whatever the exit code is.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::database::Kind;
use crate::harness::engine::{PASSWORD, USER};
use crate::harness::fixture::{OLDEST, VERSION};
use crate::harness::host::Installation;
use crate::harness::layouts::NEWEST;
use crate::harness::modules::{cache, copy_folder, modules, modules_with_split, workspace_target};
use crate::harness::registry::Registry;
use crate::harness::workspace;
use crate::quarantine::{Damaged, REASON};

/// The result of a command, and its exit code.
fn result(output: &Output) -> (Value, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    (value, output.status.code())
}

fn of(installation: &Installation, arguments: &[&str]) -> (Value, Option<i32>) {
    result(&installation.run(&[arguments, &["--json"]].concat()))
}

/// The result of a command that needs no configuration, and its exit code. It has the account of
/// the tests' registry.
fn run_in_folder(folder: &Path, arguments: &[&str]) -> (Value, Option<i32>) {
    let mut command = crate::harness::command();
    command
        .args(arguments)
        .arg("--json")
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", workspace_target());
    command
        .env("BBS_REGISTRY_USERNAME", USER)
        .env("BBS_REGISTRY_PASSWORD", PASSWORD)
        .env("NO_PROXY", "127.0.0.1");
    result(&command.output().unwrap())
}

/// The result of a command that needs no configuration and succeeds.
#[track_caller]
fn in_folder(folder: &Path, arguments: &[&str]) -> Value {
    let (value, code) = run_in_folder(folder, arguments);
    assert_eq!(code, Some(0), "bbs {arguments:?}: {value}");
    value
}

#[tokio::test]
async fn migrations_and_rotations_have_their_results_as_json() {
    let installation = Installation::of_diego(&modules(), Kind::Sqlite).await;
    let (usable, code) = of(&installation, &["check-config"]);
    assert_eq!(
        (&usable["usable"], &usable["faults"], code),
        (&json!(true), &json!([]), Some(0))
    );
    let (part, code) = of(&installation, &["migrate", "up", "--max-count", "10"]);
    let partial = json!({ "from": VERSION, "to": NEWEST, "total": 300, "migrated": 10 });
    assert_eq!(
        (part, code),
        (
            json!({ "outcome": { "partial": partial }, "quarantined": 0 }),
            Some(3)
        )
    );
    let given_up = json!({ "given_up": { "from": VERSION, "to": NEWEST } });
    assert_eq!(
        of(&installation, &["migrate", "abort"]),
        (given_up, Some(0))
    );
    assert_eq!(
        of(&installation, &["migrate", "abort"]),
        (json!({ "given_up": null }), Some(0))
    );
    let (planned, code) = of(
        &installation,
        &["migrate", "down", "--to", &OLDEST.to_string(), "--dry-run"],
    );
    assert_eq!((&planned["to"], code), (&json!(OLDEST), Some(0)));
    assert!(planned["check"]["migrations"].is_array(), "{planned}");
    let (down, code) = of(
        &installation,
        &["migrate", "down", "--to", &OLDEST.to_string()],
    );
    let done = json!({ "done": { "begin": { "from": VERSION, "to": OLDEST } } });
    assert_eq!((&down["outcome"], code), (&done, Some(0)));

    let keys = json!({ "key-2024": "correct horse battery staple", "new": "another passphrase" });
    let rotating = installation
        .set("encryption_keys", keys)
        .set("active_key_label", "new");
    let (would, code) = of(&rotating, &["keys", "rotate", "--dry-run"]);
    assert_eq!(
        (&would["active_key_label"], &would["unreadable"], code),
        (&json!("new"), &json!(0), Some(0))
    );
    assert_eq!(of(&rotating, &["keys", "rotate"]), (would, Some(0)));
    let broken = rotating.set("modules_dir", "/nowhere");
    let (unusable, code) = of(&broken, &["check-config"]);
    assert_eq!((&unusable["usable"], code), (&json!(false), Some(2)));
    assert!(
        unusable["faults"][0].as_str().unwrap().contains("/nowhere"),
        "{unusable}"
    );
    let (misspelt, code) = of(&broken.set("migration_mod", "online"), &["check-config"]);
    assert_eq!((&misspelt["usable"], code), (&json!(false), Some(2)));
    assert!(
        misspelt["faults"][0]
            .as_str()
            .unwrap()
            .contains("write `migration_mode`"),
        "{misspelt}"
    );
    assert!(
        !misspelt["warnings"].to_string().contains("migration_mod"),
        "a fault is no warning: {misspelt}"
    );
}

#[test]
fn commands_of_modules_have_their_results_as_json() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let host = modules();
    let newest = "1795000010-lrp-definitions.wasm";
    std::fs::create_dir(folder.join("copy")).unwrap();
    for file in std::fs::read_dir(&host)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
    {
        std::fs::copy(&file, folder.join("copy").join(file.file_name().unwrap())).unwrap();
    }
    let removed = in_folder(
        folder,
        &["module", "remove", newest, "--from", "copy", "--never-ran"],
    );
    assert_eq!(
        (&removed["removed"]["file"], &removed["folder"]),
        (&json!(newest), &json!("copy"))
    );
    let file = host.join(newest).display().to_string();
    let added = in_folder(folder, &["module", "add", &file, "--into", "copy"]);
    assert_eq!(
        (&added["added"], &added["present"]),
        (&json!([newest]), &json!([]))
    );
    let modules = added["modules"].as_array().unwrap().len();
    assert_eq!(removed["modules"], modules - 1);
    let saved = in_folder(folder, &["module", "bundle", "save", "copy", "copy.tar"]);
    assert_eq!(
        (&saved["place"], &saved["modules"]),
        (&json!("copy.tar"), &json!(modules))
    );
    let loaded = in_folder(
        folder,
        &["module", "bundle", "load", "copy.tar", "--into", "loaded"],
    );
    assert_eq!(
        (&loaded["digest"], &loaded["place"]),
        (&saved["digest"], &json!("loaded"))
    );
    let shared = cache().display().to_string();
    let compile = ["module", "compile", "loaded", "--into", &shared];
    let compiled = in_folder(folder, &compile);
    let number = |key: &str| compiled[key].as_u64().expect("a number");
    assert_eq!(number("compiled") + number("present"), modules as u64);
    let created = in_folder(folder, &["module", "new", "add-owner", "--bosh"]);
    assert_eq!(
        created,
        json!({ "crate": "add-owner", "created": true, "release": "add-owner/bosh" })
    );
}

#[test]
fn modules_are_built_and_verified_with_results_as_json() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    let base = modules().display().to_string();
    let source = |name: &str| {
        workspace()
            .join("sdk/examples")
            .join(name)
            .display()
            .to_string()
    };
    let add_on = source("add-colour");
    let other = source("api-0-8");
    let built = in_folder(
        folder,
        &[
            "module", "build", &add_on, "--into", "built", "--base", &base,
        ],
    );
    assert_eq!(
        (&built["folder"], &built["built"], &built["signature"]),
        (&json!("built"), &json!(1), &json!("unaffected"))
    );
    let [module] = &built["modules"].as_array().unwrap()[..] else {
        panic!("{built}")
    };
    let file = &module["file"];
    let sha256 = &module["sha256"];
    assert!(
        folder.join("built").join(file.as_str().unwrap()).is_file(),
        "{built}"
    );

    let verified = in_folder(folder, &["module", "verify", "built", "--rebuild", &add_on]);
    assert_eq!(
        verified,
        json!([{ "file": file, "sha256": sha256, "outcome": "equal" }])
    );
    let verified = run_in_folder(folder, &["module", "verify", "built", "--rebuild", &other]);
    assert_eq!(
        verified,
        (
            json!([{ "file": file, "sha256": sha256, "outcome": "no_source" }]),
            Some(1)
        )
    );
}

#[test]
fn modules_are_signed_with_the_result_as_json() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    copy_folder(&modules(), &folder.join("modules"));
    let key = ["-G", "-W", "-p", "author.pub", "-s", "author.key"];
    let made = Command::new("minisign")
        .args(key)
        .current_dir(folder)
        .output();
    assert!(
        made.expect("`minisign` is installed; `tests/run` does that")
            .status
            .success()
    );
    let signed = in_folder(
        folder,
        &[
            "module",
            "sign",
            "modules",
            "--key",
            "author.key",
            "--name",
            "host",
        ],
    );
    let public_key = std::fs::read_to_string(folder.join("author.pub")).unwrap();
    assert_eq!(
        (
            &signed["folder"],
            &signed["name"],
            signed["public_key"].as_str()
        ),
        (&json!("modules"), &json!("host"), public_key.lines().nth(1))
    );
    assert!(
        signed["serial"].is_u64() && signed["modules"].is_u64(),
        "{signed}"
    );
    let comment = public_key.lines().next().unwrap();
    assert_eq!(
        signed["key"].as_str(),
        comment.rsplit(' ').next(),
        "{comment}"
    );
}

#[test]
fn modules_are_pushed_and_pulled_with_results_as_json() {
    let work = tempfile::tempdir().unwrap();
    let registry = Registry::start();
    let folder = work.path();
    copy_folder(&modules(), &folder.join("modules"));
    let reference = format!("oci://{}/diego/modules:1.0", registry.address());
    let pushed = in_folder(
        folder,
        &["module", "push", "modules", &reference, "--insecure-http"],
    );
    assert_eq!(pushed["place"], json!(reference));
    let pulled = in_folder(
        folder,
        &[
            "module",
            "pull",
            &reference,
            "--into",
            "pulled",
            "--insecure-http",
        ],
    );
    let expected =
        json!({ "place": "pulled", "modules": pushed["modules"], "digest": pushed["digest"] });
    assert_eq!(pulled, expected);
}

#[tokio::test]
async fn unit_is_replayed_with_the_result_as_json() {
    let damaged = Damaged::at(Kind::Sqlite, &[49]).await;
    damaged.refused(&["migrate", "up"]);
    let failed = json!({
        "unit": damaged.units[0],
        "version": 1_795_000_200_u64,
        "module": "image-credentials",
        "direction": "up",
        "same_module": true,
        "failed": REASON,
        "fails_now": REASON,
    });
    let same = modules_with_split()
        .join("1795000200-image-credentials.wasm")
        .display()
        .to_string();
    for module in [&[][..], &["--module", &same]] {
        let replay = [&["module", "replay", &*damaged.units[0]], module].concat();
        assert_eq!(
            of(&damaged.installation, &replay),
            (failed.clone(), Some(1))
        );
    }
}
