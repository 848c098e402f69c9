//! Where a module goes among those that are there.

use super::*;
use crate::modules::translate::ApiVersion;

fn migration(version: DataVersion, file: &str) -> Entry {
    Entry { file: file.to_owned(), sha256: String::new(), place: Place::Migration { version, follows: None } }
}

fn translator(serves: u32, onto: u32, file: &str) -> Entry {
    let version = |minor| ApiVersion { major: 0, minor };
    let place = Place::Translator { serves: version(serves), onto: version(onto) };
    Entry { file: file.to_owned(), sha256: String::new(), place }
}

fn files(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.file.as_str()).collect()
}

fn follows(entries: &[Entry]) -> Vec<Option<DataVersion>> {
    let migrations = entries.iter().filter_map(|entry| match entry.place {
        Place::Migration { follows, .. } => Some(follows),
        Place::Translator { .. } => None,
    });
    migrations.collect()
}

#[test]
fn a_newer_migration_comes_last_and_says_what_it_follows() {
    let before = vec![migration(1, "a"), translator(9, 10, "t")];
    let entries = merge(before, [migration(5, "c"), migration(7, "d")].into_iter()).unwrap();
    assert_eq!(files(&entries), ["a", "c", "d", "t"]);
    assert_eq!(follows(&entries), [None, Some(1), Some(5)]);
}

#[test]
fn a_migration_of_a_version_that_is_there_takes_its_place() {
    let before = vec![migration(1, "a"), migration(3, "b"), migration(5, "c")];
    let entries = merge(before, [migration(3, "new-b")].into_iter()).unwrap();
    assert_eq!(files(&entries), ["a", "new-b", "c"]);
    assert_eq!(follows(&entries), [None, Some(1), Some(3)]);
}

#[test]
fn a_migration_older_than_the_newest_is_refused() {
    let before = vec![migration(1, "a"), migration(5, "c")];
    let error = merge(before, [migration(3, "b")].into_iter()).unwrap_err();
    assert_eq!((error.version, error.newest), (3, 5));
}

#[test]
fn a_translator_goes_to_its_place_in_the_line() {
    let before = vec![translator(10, 11, "ten")];
    let built = [translator(9, 10, "nine"), translator(10, 11, "new-ten"), translator(11, 12, "eleven")];
    let entries = merge(before, built.into_iter()).unwrap();
    assert_eq!(files(&entries), ["nine", "new-ten", "eleven"]);
}
