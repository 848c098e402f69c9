//! Mistakes in paths and files of a configuration: each message names the mistake and its
//! correction.

use std::path::Path;
use std::process::Output;

use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules::modules;
use crate::harness::output::errors;

/// The errors of a command that fails with an exit code.
#[track_caller]
fn fails(output: &Output, code: i32, parts: &[&str]) {
    let errors = errors(output);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    parts
        .iter()
        .for_each(|part| assert!(errors.contains(part), "{part:?} is not in {errors}"));
}

fn run_with(config: &Path, arguments: &[&str]) -> Output {
    crate::harness::command()
        .args(arguments)
        .arg("--config")
        .arg(config)
        .output()
        .expect("the executable starts")
}

#[test]
fn file_that_is_no_configuration_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bbs.json");
    for (content, reason) in [
        ("", "it is empty"),
        (" \n", "it is empty"),
        (
            "\u{feff}{}",
            "it begins with a byte order mark; save it without one",
        ),
        ("[]", "it is a list"),
        ("listen_address: 127.0.0.1:8889", "line 1 column 1"),
        (
            "{\"modules_dir\": \"modules\",}",
            "trailing comma at line 1 column 27",
        ),
    ] {
        std::fs::write(&file, content).unwrap();
        for arguments in [&["check-config"][..], &["serve"], &["migrate", "status"]] {
            fails(
                &run_with(&file, arguments),
                2,
                &["bbs.json is not a JSON object", reason],
            );
        }
    }
    std::fs::write(&file, b"{\"uuid\": \"\xe9\"}").unwrap();
    fails(
        &run_with(&file, &["check-config"]),
        2,
        &["bbs.json; save it as UTF-8"],
    );
    let missing = folder.path().join("nowhere.json");
    fails(
        &run_with(&missing, &["check-config"]),
        2,
        &["nowhere.json; give its path with --config", "No such file"],
    );
    fails(
        &run_with(folder.path(), &["check-config"]),
        2,
        &["cannot read", "it is not a regular file"],
    );
}

#[tokio::test]
async fn database_file_that_cannot_be_where_it_is_configured_is_found_without_opening_it() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let folder = installation.folder().to_owned();
    std::fs::create_dir(folder.join("folder")).unwrap();
    std::fs::write(
        folder.join("notes.txt"),
        "These are notes and not a database.\n".repeat(40),
    )
    .unwrap();
    let at = |installation: Installation, name: &str| {
        installation.set(
            "database_connection_string",
            folder.join(name).display().to_string(),
        )
    };
    let mut installation = installation;
    for (name, reason) in [
        ("folder", "it is a folder"),
        ("nowhere/bbs.db", "its folder does not exist"),
    ] {
        installation = at(installation, name);
        let parts = [name, reason, "correct `database_connection_string`"];
        fails(&installation.run(&["check-config"]), 2, &parts);
        fails(&installation.run(&["serve"]), 2, &parts);
        fails(&installation.run(&["migrate", "up"]), 1, &parts);
    }
    let other = at(installation, "notes.txt");
    let parts = ["notes.txt is not a database of SQLite; correct `database_connection_string`"];
    fails(&other.run(&["migrate", "up"]), 1, &parts);
    fails(&other.run(&["migrate", "status"]), 1, &parts);
}

#[tokio::test]
async fn migration_to_an_unknown_version_makes_no_database() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let file = installation.folder().join("new.db");
    let installation = installation.set("database_connection_string", file.display().to_string());
    for to in ["17", "tomorrow"] {
        fails(
            &installation.run(&["migrate", "up", "--to", to]),
            1,
            &["`--to`", to],
        );
        assert!(!file.exists(), "{to}: the file of a database was made");
    }
}

#[tokio::test]
async fn file_in_the_place_of_a_folder_of_modules_is_refused_as_such() {
    let installation = Installation::new(&modules().join("catalog.toml"), Kind::Sqlite);
    fails(
        &installation.run(&["check-config"]),
        2,
        &["catalog.toml is not a folder; name one that"],
    );
}

#[tokio::test]
async fn label_that_no_key_can_have_is_refused() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    installation.succeed(&["migrate", "up"]);
    let label = "l".repeat(300);
    fails(
        &installation.run(&["keys", "verify", "--label", &label]),
        1,
        &["no key has a label of 300 bytes", "127"],
    );
}

#[tokio::test]
async fn empty_database_has_nothing_to_rotate_or_to_verify() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    installation.database.open().await.close().await;
    for arguments in [
        &["keys", "rotate"][..],
        &["keys", "rotate", "--dry-run"],
        &["keys", "verify", "--label", "old"],
    ] {
        fails(
            &installation.run(arguments),
            1,
            &["this database is empty, so nothing in it is under a key"],
        );
    }
}
