//! Validation of names, and the values that the templates get.

use super::*;

const NEXT: u64 = 1_900_000_000;

fn command(name: &str, kind: CrateKind) -> NewCommand {
    NewCommand { name: name.to_owned(), kind: Some(kind), version: None, sdk: None }
}

fn placeholder(placeholders: &Placeholders, name: &str) -> String {
    placeholders.iter().find(|(placeholder, _)| *placeholder == name).expect("a placeholder of the template").1.clone()
}

#[test]
fn migrations_name_determines_type_and_column() {
    let command = NewCommand { version: Some(1_800_000_000), ..command("add-colour-2b", CrateKind::Migration) };
    let error = command.migration(NEXT).unwrap_err().to_string();
    assert!(error.contains("lower-case words joined by `-`"), "a word begins with a letter: {error}");
    let command = NewCommand { name: "add-colour".to_owned(), ..command };
    let placeholders = command.migration(NEXT).unwrap();
    assert_eq!(placeholder(&placeholders, "{{type}}"), "AddColour");
    assert_eq!(placeholder(&placeholders, "{{column}}"), "add_colour");
    assert_eq!(placeholder(&placeholders, "{{version}}"), "1_800_000_000");
    assert_eq!(placeholder(&placeholders, "{{package}}"), "migration-1800000000-add-colour");
}

#[test]
fn invalid_names_are_rejected() {
    for name in ["", "-", "Add", "a_b", "a/b", "../a", "a--b", "a b", "ä", &"a".repeat(41)] {
        assert!(command(name, CrateKind::Migration).migration(NEXT).is_err(), "{name:?}");
    }
    for name in ["", "add-colour", "0.8", "0.8-to-", "0.9-to-0.8", "0.9-to-0.9", "0.8-to-0.9-to-1.0", "a/0.8-to-0.9"] {
        assert!(command(name, CrateKind::Translator).translator().is_err(), "{name:?}");
    }
}

#[test]
fn version_is_a_timestamp_of_migrations_only() {
    let zero = NewCommand { version: Some(0), ..command("add-colour", CrateKind::Migration) };
    assert!(zero.migration(NEXT).unwrap_err().to_string().contains("date +%s"));
    let given = NewCommand { version: Some(1), ..command("0.8-to-0.9", CrateKind::Translator) };
    assert!(given.translator().unwrap_err().to_string().contains("leave --version out"));
    let placeholders = command("add-colour", CrateKind::Migration).migration(NEXT).unwrap();
    assert_eq!(placeholder(&placeholders, "{{version}}"), "1_900_000_000");
}

#[test]
fn next_version_is_later_than_those_of_the_repository() {
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
fn digits_are_grouped_by_thousands() {
    for (number, text) in [(1, "1"), (999, "999"), (1_000, "1_000"), (1_234_567, "1_234_567")] {
        assert_eq!(grouped(number), text);
    }
}

#[test]
fn all_placeholders_are_filled() {
    let mut migration = command("add-colour", CrateKind::Migration).migration(NEXT).unwrap();
    let mut translator = command("0.8-to-0.9", CrateKind::Translator).translator().unwrap();
    for placeholders in [&mut migration, &mut translator] {
        placeholders.extend([("{{sdk}}", "/sdk".to_owned()), ("{{folder}}", "folder".to_owned())]);
    }
    for (template, placeholders) in [
        (MIGRATION, &migration),
        (TRANSLATOR, &translator),
        (CARGO_TOML, &migration),
        (CARGO_TOML, &translator),
        (README, &migration),
        (README, &translator),
    ] {
        let filled = fill(template, placeholders);
        assert!(!filled.contains("{{"), "{filled}");
    }
}

#[test]
fn name_of_two_versions_is_a_translators() {
    let kind = |name: &str| NewCommand { kind: None, ..command(name, CrateKind::Migration) }.kind();
    for name in ["0.8-to-0.9", "1.0-to-1.1", "0.9-to-0.8", "0.8-to-1"] {
        assert_eq!(kind(name), CrateKind::Translator, "{name}");
    }
    for name in ["add-colour", "text-to-blob", "2-to-many", "0.8"] {
        assert_eq!(kind(name), CrateKind::Migration, "{name}");
    }
    let error = command("0.8-to-0.9", CrateKind::Migration).migration(NEXT).unwrap_err().to_string();
    assert!(error.contains("a translator's name is two versions"), "{error}");
}
