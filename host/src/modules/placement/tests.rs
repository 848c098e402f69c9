//! The position of added modules in a catalog.

use super::*;
use crate::modules::translate::ApiVersion;

fn migration(version: DataVersion, file: &str) -> CatalogEntry {
    CatalogEntry {
        file: file.to_owned(),
        sha256: String::new(),
        position: CatalogPosition::Migration { version, follows: None },
    }
}

fn translator(serves: u32, onto: u32, file: &str) -> CatalogEntry {
    let version = |minor| ApiVersion::new(0, minor);
    let position = CatalogPosition::Translator { serves: version(serves), onto: version(onto) };
    CatalogEntry { file: file.to_owned(), sha256: String::new(), position }
}

fn files(entries: &[CatalogEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.file.as_str()).collect()
}

fn follows(entries: &[CatalogEntry]) -> Vec<Option<DataVersion>> {
    let migrations = entries.iter().filter_map(|entry| match entry.position {
        CatalogPosition::Migration { follows, .. } => Some(follows),
        CatalogPosition::Translator { .. } => None,
    });
    migrations.collect()
}

#[test]
fn newer_migration_is_appended_and_names_its_predecessor() {
    let before = vec![migration(1, "a"), translator(9, 10, "t")];
    let entries = merge(before, [migration(5, "c"), migration(7, "d")].into_iter(), None).unwrap();
    assert_eq!(files(&entries), ["a", "c", "d", "t"]);
    assert_eq!(follows(&entries), [None, Some(1), Some(5)]);
}

#[test]
fn migration_of_a_present_version_replaces_it() {
    let before = vec![migration(1, "a"), migration(3, "b"), migration(5, "c")];
    let entries = merge(before, [migration(3, "new-b")].into_iter(), None).unwrap();
    assert_eq!(files(&entries), ["a", "new-b", "c"]);
    assert_eq!(follows(&entries), [None, Some(1), Some(3)]);
}

#[test]
fn migration_older_than_the_newest_is_rejected() {
    let before = vec![migration(1, "a"), migration(5, "c")];
    let error = merge(before, [migration(3, "b")].into_iter(), None).unwrap_err();
    assert_eq!((error.version, error.newest), (3, 5));
}

#[test]
fn translator_is_sorted_into_the_chain() {
    let before = vec![translator(10, 11, "ten")];
    let built = [translator(9, 10, "nine"), translator(10, 11, "new-ten"), translator(11, 12, "eleven")];
    let entries = merge(before, built.into_iter(), None).unwrap();
    assert_eq!(files(&entries), ["nine", "new-ten", "eleven"]);
}
