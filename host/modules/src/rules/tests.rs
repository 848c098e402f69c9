//! Each rule of a manifest, satisfied and violated.

use super::*;
use crate::translate::{AnswerForm, ApiVersion, Method};

fn migration() -> Manifest {
    Manifest::new(1, "add-colour-2").summary("Adds a colour.")
}

fn method(name: &str, path: &str) -> Method {
    Method {
        name: name.to_owned(),
        verb: Verb::Post,
        path: path.to_owned(),
        answer: AnswerForm::Message,
    }
}

fn translator() -> TranslatorManifest {
    TranslatorManifest {
        serves: ApiVersion::new(0, 9),
        onto: ApiVersion::new(0, 10),
        name: "older".to_owned(),
        summary: "Serves older clients.".to_owned(),
        methods: vec![method("A", "a/b"), method("B", "b")],
        hides: vec![],
    }
}

#[test]
fn valid_manifests_pass() {
    assert_eq!(check_migration(&migration()), Ok(()));
    assert_eq!(check_translator(&translator()), Ok(()));
}

#[test]
fn name_is_words_joined_by_hyphens() {
    for wrong in [
        "",
        "-",
        "a-",
        "-a",
        "a--b",
        "Add",
        "a_b",
        "a b",
        "a.b",
        "ä",
        "a/b",
        &"a".repeat(65),
    ] {
        let name = wrong.to_owned();
        let error = Err(ManifestError::Name { name: name.clone() });
        assert_eq!(
            check_migration(&Manifest {
                name: name.clone(),
                ..migration()
            }),
            error
        );
        assert_eq!(
            check_translator(&TranslatorManifest {
                name,
                ..translator()
            }),
            error
        );
    }
    assert_eq!(
        check_migration(&Manifest {
            name: "a".repeat(64),
            ..migration()
        }),
        Ok(())
    );
}

#[test]
fn names_and_paths_are_lines_of_limited_length() {
    for wrong in ["t\u{1b}[31m", "two\nlines", &"a".repeat(201)] {
        let is_text = |error| matches!(error, Err(ManifestError::Text { .. }));
        assert!(
            is_text(check_migration(&migration().drop_table(wrong))),
            "{wrong:?}"
        );
        for manifest in [
            TranslatorManifest {
                methods: vec![method(wrong, "a")],
                ..translator()
            },
            TranslatorManifest {
                methods: vec![method("A", wrong)],
                ..translator()
            },
            TranslatorManifest {
                hides: vec![wrong.to_owned()],
                ..translator()
            },
        ] {
            assert!(is_text(check_translator(&manifest)), "{wrong:?}");
        }
    }
}

#[test]
fn summary_is_one_line() {
    for wrong in ["", "two\nlines", "colours \u{1b}[31m", &"a".repeat(201)] {
        let summary = wrong.to_owned();
        let is_summary = |error| matches!(error, Err(ManifestError::Summary { .. }));
        assert!(
            is_summary(check_migration(&migration().summary(wrong))),
            "{wrong:?}"
        );
        assert!(
            is_summary(check_translator(&TranslatorManifest {
                summary,
                ..translator()
            })),
            "{wrong:?}"
        );
    }
    assert_eq!(
        check_migration(&migration().summary(&"a".repeat(200))),
        Ok(())
    );
}

#[test]
fn manifest_is_bounded_in_size() {
    let longest = "t".repeat(TEXT_BYTES);
    let drops = |names| (0..names).fold(migration(), |manifest, _| manifest.drop_table(&longest));
    let too_large = Err(ManifestError::TooLarge);
    assert_eq!(
        check_migration(&drops(MANIFEST_BYTES / TEXT_BYTES)),
        too_large
    );
    assert_eq!(check_migration(&drops(200)), Ok(()));
    assert_eq!(
        check_migration(&migration().summary(&"s".repeat(MANIFEST_BYTES))),
        too_large
    );
    let many = vec![method("A", "a"); MANIFEST_BYTES / 50];
    assert_eq!(
        check_translator(&TranslatorManifest {
            methods: many,
            ..translator()
        }),
        too_large
    );
}

#[test]
fn version_that_no_column_holds_is_rejected() {
    let largest = i64::MAX as u64;
    for version in [0, largest + 1, u64::MAX] {
        let manifest = Manifest {
            version,
            ..migration()
        };
        let error = Err(ManifestError::Version { version });
        assert_eq!(check_migration(&manifest), error);
    }
    let manifest = Manifest {
        version: largest,
        ..migration()
    };
    assert_eq!(check_migration(&manifest), Ok(()));
}

#[test]
fn translator_onto_an_older_version_is_rejected() {
    let version = |major, minor| ApiVersion::new(major, minor);
    for (serves, onto) in [((0, 10), (0, 9)), ((0, 9), (0, 9)), ((1, 0), (0, 11))] {
        let manifest = TranslatorManifest {
            serves: version(serves.0, serves.1),
            onto: version(onto.0, onto.1),
            ..translator()
        };
        assert!(
            matches!(
                check_translator(&manifest),
                Err(ManifestError::Backwards { .. })
            ),
            "{serves:?} {onto:?}"
        );
    }
}

#[test]
fn side_shape_is_written_in_terms_of_its_version() {
    let version = |text: &str| ApiVersion::parse(text).unwrap();
    let side = |serves: &str, onto: &str| {
        check_translator(&TranslatorManifest {
            serves: version(serves),
            onto: version(onto),
            ..translator()
        })
    };
    assert_eq!(side("1.1-acme", "1.1"), Ok(()));
    for onto in ["1.0", "1.2", "1.1-other"] {
        assert!(
            matches!(side("1.1-acme", onto), Err(ManifestError::Backwards { .. })),
            "{onto}"
        );
    }
}

#[test]
fn path_is_below_the_root_of_its_version_or_of_diego() {
    let with = |path: &str| {
        let mut manifest = translator();
        manifest.methods[0].path = path.to_owned();
        check_translator(&manifest)
    };
    for path in ["a", "a/b.r2", "/v1/a/b.r2"] {
        assert_eq!(with(path), Ok(()), "{path}");
    }
    for path in ["/", "/a", "/v2/a", "/v1/", "/v1//a"] {
        assert!(
            matches!(with(path), Err(ManifestError::Path { .. })),
            "{path}"
        );
    }
}

#[test]
fn methods_are_unique_and_complete() {
    for (index, name, path) in [(0, "B", "a/b"), (1, "", "b"), (1, "C", "")] {
        let mut manifest = translator();
        manifest.methods[index] = method(name, path);
        assert!(
            matches!(
                check_translator(&manifest),
                Err(ManifestError::Method { .. })
            ),
            "{name:?} {path:?}"
        );
    }
}

#[test]
fn each_method_has_a_verb_and_path_of_its_own() {
    let mut manifest = translator();
    manifest.methods[1].path = "/v1/a/b".to_owned();
    let error = check_translator(&manifest).unwrap_err();
    assert_eq!(
        error,
        ManifestError::SameRoute {
            verb: Verb::Post,
            path: "/v1/a/b".to_owned()
        }
    );
    manifest.methods[1].verb = Verb::Get;
    assert_eq!(check_translator(&manifest), Ok(()));
}

#[test]
fn name_of_an_event_is_one_line() {
    let named = |name: &str| TranslatedEvent {
        name: name.to_owned(),
        payload: vec![],
        cells: None,
    };
    let checked = |name: &str| check_events::<String>(Ok(vec![named("first"), named(name)]));
    assert_eq!(
        checked("actual_lrp_created"),
        Ok(Ok(vec![named("first"), named("actual_lrp_created")]))
    );
    for wrong in ["", "a\ndata: forged", "a\r", &"a".repeat(101)] {
        assert!(
            matches!(checked(wrong), Err(CallError::Flaw { .. })),
            "{wrong:?}"
        );
    }
    assert_eq!(
        check_events(Err("a fault".to_owned())),
        Ok(Err("a fault".to_owned()))
    );
}
