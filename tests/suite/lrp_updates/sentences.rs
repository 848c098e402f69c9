//! The sentences of the specification of definitions, numbered in `tests/definitions.tsv`: each
//! names a test that exists.

use crate::harness::workspace;

const FILE: &str = "tests/definitions.tsv";
const HEADER: &str = "number\tsentence\ttest";

/// The sections of the specification whose sentences state something that can be tested.
const SECTIONS: [&str; 4] = ["A", "M", "L", "E"];

/// The numbers of a section ascend without a gap, so that no sentence is skipped; the specification
/// is not in this repository.
#[test]
fn every_sentence_of_the_specification_has_a_test() {
    let path = workspace().join(FILE);
    let table = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let mut found = SECTIONS.map(|_| 0);
    for line in lines {
        let [number, sentence, test] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?} is not a number, a sentence and a test")
        };
        let section = SECTIONS
            .iter()
            .position(|section| number.starts_with(section));
        let section =
            section.unwrap_or_else(|| panic!("{number} is of none of the sections {SECTIONS:?}"));
        found[section] += 1;
        assert_eq!(
            number,
            format!("{}{}", SECTIONS[section], found[section]),
            "the numbers have a gap"
        );
        assert!(
            !sentence.is_empty() && is_test(test),
            "{number}: there is no test {test}"
        );
    }
    assert!(!found.contains(&0), "sentences of {SECTIONS:?}: {found:?}");
}

/// Whether a path such as `lrp_updates::calls::name`, `bbs_model::desired_lrp::tests::name` for
/// a unit test of the model, or `migration::name` for one of the module is that of a function which
/// runs as a test.
fn is_test(test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").expect("a path of a test");
    let file = |folder: &str, module: &str| {
        workspace()
            .join(folder)
            .join(format!("{}.rs", module.replace("::", "/")))
    };
    let file = match (module, module.strip_prefix("bbs_model::")) {
        ("migration", _) => file(
            "migrations-wasm/data/1795000010-lrp_definitions/src",
            "tests",
        ),
        (_, Some(unit)) => file(
            "host/model/src",
            unit.strip_suffix("::tests")
                .expect("unit tests are in a module `tests`"),
        ),
        (_, None) => file("tests/suite", module),
    };
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else {
        return false;
    };
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    attributes.contains("#[test]")
        || attributes.contains("#[tokio::test")
        || attributes.contains(&format!("!({name});"))
}
