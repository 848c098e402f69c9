//! Validation of names, and the values that the templates get.

use super::*;

/// The ends of a folder whose newest migration is far in the future.
const ENDS: Ends = Ends {
    newest_data: Some(8_999_999_999),
    oldest_api: ApiVersion::new(0, 9),
};

fn command(name: &str, kind: CrateKind) -> NewCommand {
    NewCommand {
        name: name.to_owned(),
        kind: Some(kind),
        translator: false,
        serves: None,
        onto: None,
        version: None,
        modules: None,
        base: Vec::new(),
        sdk: None,
        bosh: false,
        form: OutputForm::default(),
    }
}

fn placeholder(placeholders: &Placeholders, name: &str) -> String {
    placeholders
        .iter()
        .find(|(placeholder, _)| *placeholder == name)
        .expect("a placeholder of the template")
        .1
        .clone()
}

#[test]
fn migrations_name_determines_type_and_column() {
    let command = NewCommand {
        version: Some(1_800_000_000),
        ..command("add-colour-2b", CrateKind::Migration)
    };
    let error = command.migration(ENDS).unwrap_err().to_string();
    assert!(
        error.contains("lower-case words joined by `-`"),
        "a word begins with a letter: {error}"
    );
    let command = NewCommand {
        name: "add-colour".to_owned(),
        ..command
    };
    let placeholders = command.migration(ENDS).unwrap();
    assert_eq!(placeholder(&placeholders, "{{type}}"), "AddColour");
    assert_eq!(placeholder(&placeholders, "{{column}}"), "add_colour");
    assert_eq!(placeholder(&placeholders, "{{version}}"), "1_800_000_000");
    assert_eq!(
        placeholder(&placeholders, "{{package}}"),
        "migration-1800000000-add-colour"
    );
}

#[test]
fn invalid_names_are_rejected() {
    for name in [
        "",
        "-",
        "Add",
        "a_b",
        "a/b",
        "../a",
        "a--b",
        "a b",
        "ä",
        &"a".repeat(41),
    ] {
        let error = command(name, CrateKind::Migration)
            .migration(ENDS)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("is not a valid name for a migration"),
            "{name:?}: {error}"
        );
    }
    for name in [
        "",
        "Older",
        "0.8",
        "0.8-to-",
        "0.8-to-0.9-to-1.0",
        "a/0.8-to-0.9",
    ] {
        let error = command(name, CrateKind::Translator)
            .translator(ENDS)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("is not a valid name for a translator"),
            "{name:?}: {error}"
        );
    }
    for name in ["0.9-to-0.8", "0.9-to-0.9"] {
        let error = command(name, CrateKind::Translator)
            .translator(ENDS)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not newer than 0.9"), "{name:?}: {error}");
    }
}

/// Goal: every migration that the command makes compiles. Method: the names of types in the code
/// of the template, but for those within others, such as `Direction::Up`.
#[test]
fn names_that_the_template_of_a_migration_uses_are_rejected() {
    for name in USED_NAMES {
        let error = command(name, CrateKind::Migration)
            .migration(ENDS)
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("`add-{name}`")), "{error}");
    }
    let lines = MIGRATION.lines().map(str::trim_start);
    let used = lines
        .filter(|line| !line.starts_with("//") && !line.starts_with('#'))
        .flat_map(|line| line.split('"').step_by(2))
        .flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != ':'))
        .filter_map(|path| path.split("::").next())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()));
    let types = USED_NAMES.map(type_of);
    let missing: Vec<_> = used
        .filter(|name| types.iter().all(|known| known != name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn version_is_a_timestamp_of_migrations_only() {
    let zero = NewCommand {
        version: Some(0),
        ..command("add-colour", CrateKind::Migration)
    };
    assert!(
        zero.migration(ENDS)
            .unwrap_err()
            .to_string()
            .contains("date +%s")
    );
    let given = NewCommand {
        version: Some(1),
        ..command("0.8-to-0.9", CrateKind::Translator)
    };
    assert!(
        given
            .translator(ENDS)
            .unwrap_err()
            .to_string()
            .contains("leave --version out")
    );
    let placeholders = command("add-colour", CrateKind::Migration)
        .migration(ENDS)
        .unwrap();
    assert_eq!(placeholder(&placeholders, "{{version}}"), "9_000_000_000");
}

#[test]
fn digits_are_grouped_by_thousands() {
    for (number, text) in [
        (1, "1"),
        (999, "999"),
        (1_000, "1_000"),
        (1_234_567, "1_234_567"),
    ] {
        assert_eq!(grouped(number), text);
    }
}

#[test]
fn all_placeholders_are_filled() {
    let mut migration = command("add-colour", CrateKind::Migration)
        .migration(ENDS)
        .unwrap();
    let mut translator = command("0.8-to-0.9", CrateKind::Translator)
        .translator(ENDS)
        .unwrap();
    for placeholders in [&mut migration, &mut translator] {
        placeholders.extend([
            ("{{sdk}}", "/sdk".to_owned()),
            ("{{folder}}", "folder".to_owned()),
        ]);
    }
    for (template, placeholders) in [
        (MIGRATION, &migration),
        (&*translator_template(), &translator),
        (CARGO_TOML, &migration),
        (CARGO_TOML, &translator),
        (MIGRATION_README, &migration),
        (TRANSLATOR_README, &translator),
    ] {
        let filled = fill(template, placeholders);
        assert!(!filled.contains("{{"), "{filled}");
    }
}

#[test]
fn name_of_two_versions_is_a_translators() {
    let kind = |name: &str| {
        NewCommand {
            kind: None,
            ..command(name, CrateKind::Migration)
        }
        .kind()
    };
    for name in ["0.8-to-0.9", "1.0-to-1.1", "0.9-to-0.8", "0.8-to-1"] {
        assert_eq!(kind(name), CrateKind::Translator, "{name}");
    }
    for name in ["add-colour", "text-to-blob", "2-to-many", "0.8"] {
        assert_eq!(kind(name), CrateKind::Migration, "{name}");
    }
    let error = command("0.8-to-0.9", CrateKind::Migration)
        .migration(ENDS)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a translator's name may be two versions"),
        "{error}"
    );
}

#[test]
fn versions_of_a_translator_are_in_its_name_or_in_flags() {
    let version = |major, minor| Some(ApiVersion::new(major, minor));
    let versions = |command: &NewCommand| {
        let placeholders = command.translator(ENDS).unwrap();
        ["{{name}}", "{{serves}}", "{{onto}}"].map(|name| placeholder(&placeholders, name))
    };
    let named = command("0.7-to-0.8", CrateKind::Translator);
    assert_eq!(versions(&named), ["api-0-7", "0.7", "0.8"]);
    let by_default = command("no-zones", CrateKind::Translator);
    assert_eq!(versions(&by_default), ["no-zones", "0.8", "0.9"]);
    let flags = NewCommand {
        serves: version(0, 3),
        onto: version(0, 5),
        ..by_default
    };
    assert_eq!(versions(&flags), ["no-zones", "0.3", "0.5"]);
    assert_eq!(
        NewCommand {
            kind: None,
            ..flags
        }
        .kind(),
        CrateKind::Translator
    );
    let twice = NewCommand {
        onto: version(0, 9),
        ..named
    };
    assert!(
        twice
            .translator(ENDS)
            .unwrap_err()
            .to_string()
            .contains("leave --serves and --onto out")
    );
    let migration = NewCommand {
        serves: version(0, 8),
        ..command("add-colour", CrateKind::Migration)
    };
    assert!(
        migration
            .migration(ENDS)
            .unwrap_err()
            .to_string()
            .contains("leave --serves and --onto out")
    );
}

#[test]
fn translator_is_the_example_of_the_sdk_with_its_own_name_and_versions() {
    let source = |name| {
        let placeholders = command(name, CrateKind::Translator).translator(ENDS);
        fill(&translator_template(), &placeholders.unwrap())
    };
    assert_eq!(source("0.8-to-0.9"), EXAMPLE_TRANSLATOR);
    let next = source("0.9-to-1.0");
    for line in [
        "//! Serves clients of API 0.9 in terms of API 1.0. Replace what it converts",
        "(ApiVersion::new(0, 9), ApiVersion::new(1, 0), \"api-0-9\")",
        ".summary(\"Serves API 0.9: ",
        ".paged_method(\"ListInstances_0_9\"",
        "Older::events(\"InstanceEvents_0_9\"",
    ] {
        assert!(next.contains(line), "{line}: {next}");
    }
    for (text, _) in EXAMPLE_TEXTS.iter().filter(|(text, _)| text.contains('8')) {
        assert!(!next.contains(text), "{text}: {next}");
    }
}
