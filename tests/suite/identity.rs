//! One identity of this source: the version of the program, the newest release in `releases.toml`,
//! the newest version of the catalog and of the API, the changelog and the tag belong together.

use std::process::Command;

use bbs::testing::api::NATIVE;
use bbs::testing::modules::releases::{self, Release};
use serde_json::Value;

use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules::modules;
use crate::harness::workspace;

/// The version of the program, as `bbs --version` prints it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The end of a version between releases.
const DEVELOPMENT: &str = "-dev";

fn text(path: &str) -> String {
    std::fs::read_to_string(workspace().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The releases of this project, oldest first.
fn own_releases() -> Vec<Release> {
    let all = releases::parse(&text("migrations-wasm/releases.toml")).unwrap();
    all.into_iter()
        .filter(|release| !release.name.starts_with("diego"))
        .collect()
}

/// The version of the newest migration of the catalog.
fn newest_migration() -> u64 {
    let list = text("migrations-wasm/catalog.toml");
    let crates = list.lines().filter_map(|line| {
        line.strip_prefix("crate = \"data/")?
            .split('-')
            .next()?
            .parse()
            .ok()
    });
    crates.max().expect("a migration")
}

/// The versions that have a section in the changelog, as they stand there.
fn sections(changelog: &str) -> Vec<&str> {
    changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect()
}

#[test]
fn newest_release_has_the_newest_version_of_the_catalog_and_of_the_api() {
    let own = own_releases();
    let newest = own.last().expect("a release");
    assert_eq!(
        (newest.data, newest.api),
        (newest_migration(), NATIVE),
        "{newest:?}"
    );
    assert!(
        own.is_sorted_by_key(|release| (release.data, release.api)),
        "{own:?}"
    );
}

#[test]
fn program_is_of_the_newest_release_and_in_development_as_that_is() {
    let own = own_releases();
    let newest = own.last().expect("a release");
    assert_eq!(
        releases::minor_version(VERSION),
        Some(&*newest.name),
        "the version of the program is {VERSION}"
    );
    assert_eq!(
        VERSION.ends_with(DEVELOPMENT),
        newest.in_development,
        "{VERSION}: {newest:?}"
    );
    let all = releases::parse(&text("migrations-wasm/releases.toml")).unwrap();
    for release in all.iter().filter(|release| release.in_development) {
        assert_eq!(
            release, newest,
            "no other release than the newest is in development"
        );
    }
}

#[test]
fn changelog_has_a_section_for_each_release_and_one_for_what_is_in_development() {
    let changelog = text("host/CHANGELOG.md");
    let found = sections(&changelog);
    let expected = if VERSION.ends_with(DEVELOPMENT) {
        "Unreleased"
    } else {
        VERSION
    };
    assert_eq!(found.first(), Some(&expected), "{found:?}");
    for release in own_releases()
        .iter()
        .filter(|release| !release.in_development)
    {
        assert!(
            found
                .iter()
                .any(|section| releases::minor_version(section) == Some(&*release.name)),
            "{} has no section: {found:?}",
            release.name
        );
    }
}

/// Goal: a tag names the version of the source that it is at.
#[test]
fn tag_of_this_commit_is_the_version_of_the_program() {
    let git = Command::new("git")
        .args(["tag", "--points-at", "HEAD", "--list", "v*"])
        .current_dir(workspace())
        .output();
    // A source archive has no tags.
    let tags = git
        .ok()
        .filter(|output| output.status.success())
        .map(|output| output.stdout)
        .unwrap_or_default();
    for tag in String::from_utf8(tags).unwrap().lines() {
        assert_eq!(tag, format!("v{VERSION}"));
    }
}

/// Goal: pinning what `bbs --version` prints holds nothing back, and pins no version that the
/// program does not have.
#[test]
fn pin_of_the_version_of_the_program_pins_its_own_versions() {
    let printed = crate::harness::command().arg("--version").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let version = printed.split(' ').nth(1).expect("a version after the name");
    assert_eq!(version, VERSION, "{printed}");
    let installation = Installation::new(&modules(), Kind::Sqlite).set("pin_release", version);
    installation.succeed(&["migrate", "up", "--to", version]);
    assert_eq!(installation.data_version(), newest_migration());
    installation.succeed(&["migrate", "up"]);
    assert_eq!(installation.data_version(), newest_migration());
    let versions: Value =
        serde_json::from_str(&installation.succeed(&["api", "versions", "--json"])).unwrap();
    assert!(
        versions
            .as_array()
            .unwrap()
            .iter()
            .all(|version| version["served"] == true),
        "{versions}"
    );
}
