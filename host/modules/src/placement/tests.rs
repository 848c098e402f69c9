//! The position of added modules in a catalog.

use super::*;
use crate::translate::ApiVersion;

fn migration(version: DataVersion, file: &str) -> CatalogEntry {
    CatalogEntry {
        file: file.to_owned(),
        sha256: String::new(),
        position: CatalogPosition::Migration {
            version,
            follows: None,
        },
    }
}

fn translator(serves: u32, onto: u32, file: &str) -> CatalogEntry {
    let version = |minor| ApiVersion::new(0, minor);
    let position = CatalogPosition::Translator {
        serves: version(serves),
        onto: version(onto),
    };
    CatalogEntry {
        file: file.to_owned(),
        sha256: String::new(),
        position,
    }
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
    let entries = merge(
        before,
        [migration(5, "c"), migration(7, "d")],
        &MigrationSet::default(),
    )
    .unwrap();
    assert_eq!(files(&entries), ["a", "c", "d", "t"]);
    assert_eq!(follows(&entries), [None, Some(1), Some(5)]);
}

#[test]
fn migration_of_a_present_version_replaces_it() {
    let before = vec![migration(1, "a"), migration(3, "b"), migration(5, "c")];
    let entries = merge(before, [migration(3, "new-b")], &MigrationSet::default()).unwrap();
    assert_eq!(files(&entries), ["a", "new-b", "c"]);
    assert_eq!(follows(&entries), [None, Some(1), Some(3)]);
}

#[test]
fn migration_between_others_is_inserted_at_its_version() {
    let before = vec![migration(1, "a"), migration(5, "c"), translator(9, 10, "t")];
    let entries = merge(
        before,
        [migration(7, "d"), migration(3, "b")],
        &MigrationSet::default(),
    )
    .unwrap();
    assert_eq!(files(&entries), ["a", "b", "c", "d", "t"]);
    assert_eq!(follows(&entries), [None, Some(1), Some(3), Some(5)]);
}

#[test]
fn migrations_of_an_add_on_follow_those_of_its_base_in_between() {
    let base = [1, 5, 8].into_iter().collect();
    let entries = merge(
        vec![migration(3, "b")],
        [migration(9, "d"), migration(4, "c")],
        &base,
    )
    .unwrap();
    assert_eq!(files(&entries), ["b", "c", "d"]);
    assert_eq!(follows(&entries), [Some(1), Some(3), Some(8)]);
}

#[test]
fn migration_whose_predecessor_is_in_no_folder_is_rejected() {
    let base = [5].into_iter().collect();
    let entries = chain(
        vec![migration(7, "b"), migration(9, "d"), translator(9, 10, "t")],
        &base,
    );
    let check =
        |present: &[DataVersion]| check_predecessors(&entries, &present.iter().copied().collect());
    assert!(check(&[5, 7, 9]).is_ok());
    let error = check(&[7, 9]).unwrap_err();
    assert_eq!((&*error.file, error.version, error.missing), ("b", 7, 5));
    let first = chain(vec![migration(7, "b")], &MigrationSet::default());
    assert!(check_predecessors(&first, &MigrationSet::default()).is_ok());
}

#[test]
fn migration_older_than_the_first_is_rejected() {
    let before = || vec![migration(3, "a"), migration(5, "c")];
    let error = merge(before(), [migration(2, "b")], &MigrationSet::default()).unwrap_err();
    assert_eq!((error.version, error.first), (2, 3));
    let base = [1].into_iter().collect();
    assert!(merge(before(), [migration(2, "b")].into_iter(), &base).is_ok());
}

#[test]
fn insertions_need_a_migration_above_those_that_were_there() {
    let set = |versions: &[DataVersion]| versions.iter().copied().collect::<MigrationSet>();
    let before = set(&[1, 5, 8]);
    for (after, inserted, refused_at) in [
        (
            set(&[1, 3, 5, 6, 8]),
            vec![(3, vec![5, 8]), (6, vec![8])],
            Some(8),
        ),
        (set(&[1, 3, 5, 8, 9]), vec![(3, vec![5, 8])], None),
        (set(&[1, 5, 8, 9]), vec![], None),
        (set(&[1, 5, 8]), vec![], None),
    ] {
        let migrations = inserted
            .into_iter()
            .map(|(version, below)| Insertion { version, below })
            .collect();
        assert_eq!(
            Insertions::between(&before, &after),
            Insertions {
                migrations,
                refused_at
            }
        );
    }
    assert_eq!(
        Insertions::between(&MigrationSet::default(), &before),
        Insertions::default()
    );
}

#[test]
fn translator_is_sorted_into_the_chain() {
    let before = vec![translator(10, 11, "ten")];
    let built = [
        translator(9, 10, "nine"),
        translator(10, 11, "new-ten"),
        translator(11, 12, "eleven"),
    ];
    let entries = merge(before, built, &MigrationSet::default()).unwrap();
    assert_eq!(files(&entries), ["nine", "new-ten", "eleven"]);
}

#[test]
fn two_modules_of_one_version_are_refused_unless_they_are_the_same() {
    let one = migration(2, "2-one.wasm");
    let other = CatalogEntry {
        sha256: "other".to_owned(),
        ..migration(2, "2-other.wasm")
    };
    let older = translator(9, 10, "0.9.wasm");
    refuse_twins(&[one.clone(), older.clone(), one.clone()]).unwrap();
    let refusal = refuse_twins(&[one, other]).unwrap_err().to_string();
    assert!(
        refusal.contains("2-other.wasm leads to version 2"),
        "{refusal}"
    );
    let other = CatalogEntry {
        sha256: "other".to_owned(),
        ..older.clone()
    };
    let refusal = refuse_twins(&[older, other]).unwrap_err().to_string();
    assert!(
        refusal.contains("0.9.wasm serves API version 0.9"),
        "{refusal}"
    );
}

const COMPONENT: &[u8] = b"a component";

fn names_in(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Goal: a folder whose modules cannot be placed, or whose catalog cannot be written, is what it
/// was. Method: a folder in the place of the last file, and a catalog that fails.
#[test]
fn files_are_as_before_if_a_later_file_or_the_catalog_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("b.wasm"), "before").unwrap();
    std::fs::write(path("c.wasm"), COMPONENT).unwrap();
    std::fs::create_dir(path("d.wasm")).unwrap();
    let place = |names: &[&str], write_catalog: &dyn Fn() -> io::Result<()>| {
        let entries: Vec<_> = names.iter().map(|name| migration(1, name)).collect();
        let modules = entries.iter().map(|entry| (entry, COMPONENT));
        super::place(folder.path(), modules, write_catalog)
    };
    let fails = || -> io::Result<()> { Err(io::Error::other("no catalog")) };
    for (names, error) in [
        (&["a.wasm", "b.wasm", "c.wasm", "d.wasm"][..], None),
        (&["a.wasm", "b.wasm", "c.wasm"][..], Some("no catalog")),
    ] {
        let failed = place(names, &fails).expect_err("a failure").to_string();
        assert!(error.is_none_or(|error| failed == error), "{failed}");
        assert_eq!(names_in(folder.path()), ["b.wasm", "c.wasm", "d.wasm"]);
        assert_eq!(std::fs::read(path("b.wasm")).unwrap(), b"before");
        assert_eq!(std::fs::read(path("c.wasm")).unwrap(), COMPONENT);
    }
    place(&["a.wasm", "b.wasm"], &|| Ok(())).unwrap();
    for name in ["a.wasm", "b.wasm", "c.wasm"] {
        assert_eq!(std::fs::read(path(name)).unwrap(), COMPONENT, "{name}");
    }
}
