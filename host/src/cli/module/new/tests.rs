//! What is taken for a name, and what is made of it.

use super::*;

const NEXT: u64 = 1_900_000_000;

fn command(name: &str, kind: Kind) -> NewCommand {
    NewCommand { name: name.to_owned(), kind: Some(kind), version: None, sdk: None }
}

fn blank(blanks: &Blanks, name: &str) -> String {
    blanks.iter().find(|(blank, _)| *blank == name).expect("a blank of the template").1.clone()
}

#[test]
fn a_migrations_name_gives_its_type_and_column() {
    let command = NewCommand { version: Some(1_800_000_000), ..command("add-colour-2b", Kind::Migration) };
    let error = command.migration(NEXT).unwrap_err().to_string();
    assert!(error.contains("lower-case words joined by `-`"), "a word begins with a letter: {error}");
    let command = NewCommand { name: "add-colour".to_owned(), ..command };
    let blanks = command.migration(NEXT).unwrap();
    assert_eq!(blank(&blanks, "{{type}}"), "AddColour");
    assert_eq!(blank(&blanks, "{{column}}"), "add_colour");
    assert_eq!(blank(&blanks, "{{version}}"), "1_800_000_000");
    assert_eq!(blank(&blanks, "{{package}}"), "migration-1800000000-add-colour");
}

#[test]
fn what_is_no_name_is_refused() {
    for name in ["", "-", "Add", "a_b", "a/b", "../a", "a--b", "a b", "ä", &"a".repeat(41)] {
        assert!(command(name, Kind::Migration).migration(NEXT).is_err(), "{name:?}");
    }
    for name in ["", "add-colour", "0.8", "0.8-to-", "0.9-to-0.8", "0.9-to-0.9", "0.8-to-0.9-to-1.0", "a/0.8-to-0.9"] {
        assert!(command(name, Kind::Translator).translator().is_err(), "{name:?}");
    }
}

#[test]
fn a_version_is_a_timestamp() {
    let zero = NewCommand { version: Some(0), ..command("add-colour", Kind::Migration) };
    assert!(zero.migration(NEXT).unwrap_err().to_string().contains("date +%s"));
    let given = NewCommand { version: Some(1), ..command("0.8-to-0.9", Kind::Translator) };
    assert!(given.translator().unwrap_err().to_string().contains("leave --version out"));
    let blanks = command("add-colour", Kind::Migration).migration(NEXT).unwrap();
    assert_eq!(blank(&blanks, "{{version}}"), "1_900_000_000");
}

#[test]
fn the_next_version_is_later_than_those_of_the_repository() {
    let repository = tempfile::tempdir().unwrap();
    let sdk = repository.path().join("sdk");
    let list = repository.path().join("migrations-wasm/catalog.toml");
    std::fs::create_dir_all(&sdk).unwrap();
    std::fs::create_dir_all(list.parent().unwrap()).unwrap();
    let now = next_version(&sdk);
    assert!(now > 1_600_000_000, "{now}");
    let entry = |folder: &str| format!("[[module]]\ncrate = \"data/{folder}\"\n");
    std::fs::write(&list, entry("1461790966-init_sql") + &entry("api/0.9-to-0.10")).unwrap();
    assert!(next_version(&sdk) >= now);
    std::fs::write(&list, entry("9000000000-far-off") + &entry("1461790966-init_sql")).unwrap();
    assert_eq!(next_version(&sdk), 9_000_000_001);
}

#[test]
fn digits_come_in_groups() {
    for (number, text) in [(1, "1"), (999, "999"), (1_000, "1_000"), (1_234_567, "1_234_567")] {
        assert_eq!(grouped(number), text);
    }
}

#[test]
fn no_template_has_a_blank_left() {
    let mut migration = command("add-colour", Kind::Migration).migration(NEXT).unwrap();
    let mut translator = command("0.8-to-0.9", Kind::Translator).translator().unwrap();
    for blanks in [&mut migration, &mut translator] {
        blanks.extend([("{{sdk}}", "/sdk".to_owned()), ("{{folder}}", "folder".to_owned())]);
    }
    for (template, blanks) in [
        (MIGRATION, &migration),
        (TRANSLATOR, &translator),
        (CARGO_TOML, &migration),
        (CARGO_TOML, &translator),
        (README, &migration),
        (README, &translator),
    ] {
        let filled = fill(template, blanks);
        assert!(!filled.contains("{{"), "{filled}");
    }
}

#[test]
fn two_versions_are_the_name_of_a_translator() {
    let kind = |name: &str| NewCommand { kind: None, ..command(name, Kind::Migration) }.kind();
    for name in ["0.8-to-0.9", "1.0-to-1.1", "0.9-to-0.8", "0.8-to-1"] {
        assert_eq!(kind(name), Kind::Translator, "{name}");
    }
    for name in ["add-colour", "text-to-blob", "2-to-many", "0.8"] {
        assert_eq!(kind(name), Kind::Migration, "{name}");
    }
    let error = command("0.8-to-0.9", Kind::Migration).migration(NEXT).unwrap_err().to_string();
    assert!(error.contains("a translator's name is two versions"), "{error}");
}
