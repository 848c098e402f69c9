//! Several folders of modules: the catalogs of a host and of add-ons, merged into one sequence.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use bbs::testing::signatures::TrustedKeys;

use super::*;
use crate::harness::database::on_each_database;
use crate::harness::modules::{
    ADD_ON_VERSION, SORTED_TAGS_SOURCE, add_ons_at_places_of_their_own, migration_add_on, modules,
    modules_with_next_diego, translator_add_on,
};
use crate::harness::output::{self, errors, succeeded};
use crate::harness::packages::Packages;
use crate::harness::workspace;

/// A digest of no file: sequences are checked before files are opened.
const SOME_DIGEST: &str = "00000000000000000000000000000000000000000000000000000000000000aa";

fn host() -> Folder {
    Folder::new().with("things", "50-things.wasm", "version = 50")
}

fn add_on() -> Folder {
    Folder::new().with(
        "well-behaved",
        "100-well-behaved.wasm",
        "version = 100\nfollows = 50",
    )
}

fn listed(file: &str, lines: &str) -> Folder {
    let folder = Folder::new().listing(file, SOME_DIGEST, lines);
    std::fs::write(folder.path().join(file), "").unwrap();
    folder
}

fn merge(folders: &[&Folder]) -> Result<Catalog, CatalogError> {
    let paths: Vec<_> = folders
        .iter()
        .map(|folder| folder.path().to_owned())
        .collect();
    for folder in folders {
        std::fs::write(folder.path().join("catalog.toml"), &folder.catalog).unwrap();
    }
    Catalog::merge(&paths, &TrustedKeys::default(), &sandbox())
}

#[track_caller]
fn refused(folders: &[&Folder], files: &[(usize, &str)], words: &[&str]) {
    let error = chain(&merge(folders).expect_err("the folders do not fit together"));
    assert_contains(&error, words);
    for (folder, file) in files {
        let path = folders[*folder].path().join(file).display().to_string();
        assert!(error.contains(&path), "{path} is not in {error:?}");
    }
}

#[test]
fn catalogs_are_merged_along_the_versions_that_they_follow() {
    let translator = Folder::new().with(
        "chatty-translator",
        "0.9-to-0.10.wasm",
        "serves = \"0.9\"\nonto = \"0.10\"",
    );
    let host = host();
    let add_on = add_on();
    for folders in [[&host, &add_on, &translator], [&translator, &add_on, &host]] {
        let catalog = merge(&folders).unwrap_or_else(|error| panic!("{}", chain(&error)));
        let versions: Vec<_> = catalog
            .migrations()
            .iter()
            .map(|module| module.manifest().version)
            .collect();
        assert_eq!((versions, catalog.translators().len()), (vec![50, 100], 1));
    }
}

#[test]
fn module_in_two_folders_is_listed_once() {
    let both = host().with(
        "well-behaved",
        "100-well-behaved.wasm",
        "version = 100\nfollows = 50",
    );
    assert_eq!(
        merge(&[&host(), &add_on(), &both])
            .unwrap()
            .migrations()
            .len(),
        2
    );
}

#[test]
fn two_modules_of_one_version_are_refused_with_both_names() {
    let other = listed("100-other.wasm", "version = 100\nfollows = 50");
    refused(
        &[&host(), &add_on(), &other],
        &[(1, "100-well-behaved.wasm"), (2, "100-other.wasm")],
        &[
            "migration 100",
            "remove the package of one",
            "another version",
        ],
    );
    let serves = "serves = \"0.9\"\nonto = \"0.10\"";
    let one = listed("one.wasm", serves);
    let other = Folder::new().with("chatty-translator", "two.wasm", serves);
    refused(
        &[&host(), &one, &other],
        &[(1, "one.wasm"), (2, "two.wasm")],
        &["translator 0.9 to 0.10"],
    );
}

#[test]
fn second_migration_that_follows_nothing_is_refused_with_both_names() {
    let second = listed("60-second.wasm", "version = 60");
    refused(
        &[&host(), &second],
        &[(0, "50-things.wasm"), (1, "60-second.wasm")],
        &[
            "both built to follow nothing",
            "migration 60",
            "build it again on top",
        ],
    );
}

#[test]
fn gap_within_one_of_several_folders_is_refused() {
    let gap = add_on().listing("200-other.wasm", SOME_DIGEST, "version = 200\nfollows = 50");
    std::fs::write(gap.path().join("200-other.wasm"), "").unwrap();
    let words = [
        "200-other.wasm (migration 200) was built to follow 50",
        "follows 100",
        "restore the migrations",
    ];
    refused(&[&host(), &gap], &[(1, "200-other.wasm")], &words);
}

/// Goal: add-ons whose authors do not know of each other run together, each at the place of its
/// version.
#[test]
fn migrations_of_add_ons_are_inserted_at_their_versions() {
    let load = |folders: &[PathBuf]| {
        let catalog = Catalog::merge(folders, &TrustedKeys::default(), &sandbox());
        let catalog = catalog.unwrap_or_else(|error| panic!("{}", chain(&error)));
        catalog
            .migrations()
            .iter()
            .map(|module| module.manifest().version)
            .collect::<Vec<_>>()
    };
    let [gpu, tags, newest] = add_ons_at_places_of_their_own();
    let together = load(&[modules_with_next_diego()]);
    for folders in [
        [modules(), gpu.clone(), tags.clone(), newest.clone()],
        [newest, tags.clone(), modules(), gpu],
    ] {
        assert_eq!(load(&folders), together);
    }
    let without = together
        .into_iter()
        .filter(|version| ![1_789_335_377, 1_795_000_020].contains(version));
    assert_eq!(load(&[tags, modules()]), without.collect::<Vec<_>>());
}

on_each_database!(add_on_below_the_newest_version_runs_on_the_way_to_a_version_above);
async fn add_on_below_the_newest_version_runs_on_the_way_to_a_version_above(kind: Kind) {
    let packages = Packages::new();
    let installation = packages.installation(kind);
    installation.serve().stop();
    let [_, tags, newest] = add_ons_at_places_of_their_own();
    packages.install("sorted-tags", &tags);
    let refused = installation.run(&["serve"]);
    assert!(!refused.status.success());
    let words = [
        "1790000000-sort-placement-tags did not run",
        "above 1795000010",
        "an empty one suffices",
    ];
    assert_contains(&errors(&refused), &words);

    packages.install("after-gpu", &newest);
    let plan = installation.succeed(&["migrate", "plan"]);
    assert_contains(&plan, &["1790000000"]);
    installation.serve().stop();
    assert_eq!(installation.data_version(), 1_795_000_020);
}

/// Goal: the author and the operator read which migrations an add-on is inserted below, and what it
/// takes for it to run.
#[test]
fn commands_for_an_add_on_name_the_migrations_above_it() {
    let work = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = command();
        command
            .arg("module")
            .args(arguments)
            .current_dir(work.path());
        succeeded(command.output().unwrap())
    };
    let source = workspace().join(SORTED_TAGS_SOURCE).display().to_string();
    let base = modules().display().to_string();
    let built = run(&["build", &source, "--into", "add-on", "--base", &base]);
    let check = [
        "check",
        "add-on",
        "--base",
        &base,
        "--only",
        "sort-placement-tags",
    ];
    for report in [&built, &run(&check)] {
        assert_contains(
            report,
            &["migration 1790000000 is inserted below 1795000000, 1795000010\n"],
        );
        assert_contains(
            report,
            &[
                "that are at 1795000010, the newest version, refuse",
                "an empty one suffices",
            ],
        );
    }
    let findings: serde_json::Value =
        serde_json::from_str(&run(&[&check[..], &["--json"]].concat())).unwrap();
    assert_eq!(
        findings[0]["inserted_below"],
        serde_json::json!([1_795_000_000, 1_795_000_010])
    );
}

/// Goal: a change of an add-on does not make its first migration follow nothing, with which hosts
/// refuse it. Method: migrations that a host would load without the folder that they continue.
#[test]
fn add_on_is_not_changed_without_the_folder_that_it_continues() {
    let changed = |folder: &Folder, arguments: &[&str]| {
        let catalog = folder.path().join("catalog.toml");
        std::fs::write(&catalog, &folder.catalog).unwrap();
        let path = folder.path().display().to_string();
        let mut change = command();
        change.arg("module").args(arguments).arg(path);
        let words =
            "50-things.wasm (migration 50) follows migration 40, which the folder does not have";
        let errors = output::refused(change.output().unwrap(), words);
        assert_contains(&errors, &["`--base`"]);
        assert_eq!(std::fs::read_to_string(catalog).unwrap(), folder.catalog);
    };
    let first = Folder::new().with("things", "50-things.wasm", "version = 50\nfollows = 40");
    let second = guest("well-behaved").display().to_string();
    changed(&first, &["add", &second, "--into"]);
    let both = first.with(
        "well-behaved",
        "100-well-behaved.wasm",
        "version = 100\nfollows = 50",
    );
    let remove = ["remove", "100-well-behaved.wasm", "--never-ran", "--from"];
    changed(&both, &remove);
    assert!(both.path().join("100-well-behaved.wasm").exists());
}

#[test]
fn migration_whose_predecessor_is_missing_is_refused() {
    let other = listed("200-other.wasm", "version = 200\nfollows = 150");
    refused(
        &[&host(), &add_on(), &other],
        &[(2, "200-other.wasm")],
        &[
            "follow migration 150, which no folder of modules has",
            "install the package",
        ],
    );
}

#[test]
fn migration_older_than_the_one_it_follows_is_refused() {
    let other = listed("40-other.wasm", "version = 40\nfollows = 50");
    refused(
        &[&host(), &other],
        &[],
        &[
            "40-other.wasm (migration 40) was built to follow 50",
            "follows nothing",
        ],
    );
}

on_each_database!(add_on_migrates_the_database_and_cannot_be_removed_before_going_down);
async fn add_on_migrates_the_database_and_cannot_be_removed_before_going_down(kind: Kind) {
    let packages = Packages::new();
    let installation = packages.installation(kind);
    packages.install("colours", &migration_add_on());
    packages.install("api-0-8", &translator_add_on());
    let host = installation.serve();
    assert_eq!(installation.data_version(), ADD_ON_VERSION);
    let ping = crate::harness::http_client()
        .post(host.url("/v0.8/ping"))
        .send()
        .await
        .unwrap();
    assert_eq!(ping.status(), 200, "the translator of the add-on serves");
    host.stop();

    packages.remove("colours");
    let refused = installation.run(&["serve"]);
    assert!(!refused.status.success());
    let words = [
        "an add-on that is missing here",
        "Put those modules back",
        "bbs migrate down --to",
    ];
    assert_contains(&errors(&refused), &words);

    packages.put_back("colours");
    let newest = Catalog::load(&modules(), &sandbox())
        .unwrap()
        .layout_history()
        .newest();
    installation.succeed(&["migrate", "down", "--to", &newest.to_string()]);
    packages.remove("colours");
    installation.serve().stop();
    assert_eq!(installation.data_version(), newest);
}

/// Root may read every folder, so the command runs without root's rights, as the owner of the
/// folder.
#[test]
fn pattern_with_a_folder_that_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("*/bbs-modules").display().to_string();
    let installation =
        Installation::new(&modules(), Kind::Sqlite).set("modules_dirs", vec![pattern.clone()]);
    let serve = installation.command(&["serve"]);
    let set_mode = |mode| {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap()
    };
    set_mode(0o300);
    let refused = Command::new("unshare")
        .arg("--user")
        .arg(serve.get_program())
        .args(serve.get_args())
        .output()
        .unwrap();
    set_mode(0o700);
    assert!(!refused.status.success());
    assert_contains(
        &errors(&refused),
        &[
            "`modules_dirs`",
            &pattern,
            "cannot be read; check its permissions",
        ],
    );
}

#[test]
fn folder_that_is_named_without_a_wildcard_must_exist() {
    let installation =
        Installation::new(&modules(), Kind::Sqlite).set("modules_dirs", vec!["absent"]);
    output::refused(
        installation.run(&["serve"]),
        "absent/catalog.toml is not there",
    );
}
