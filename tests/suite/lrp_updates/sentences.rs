//! The sentences of the specification of definitions, numbered in `tests/definitions.tsv`: each names a test that exists.

use std::collections::BTreeSet;

use crate::harness::workspace;

const FILE: &str = "tests/definitions.tsv";
const HEADER: &str = "number\tsentence\ttest";

/// Sections of the specification, and how many of their sentences state something that can be tested.
const SECTIONS: [(&str, usize); 4] = [("A", 14), ("M", 11), ("L", 5), ("E", 2)];

#[test]
fn every_sentence_of_the_specification_has_a_test() {
    let path = workspace().join(FILE);
    let table = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    let expected = SECTIONS.iter().flat_map(|(section, last)| (1..=*last).map(move |at| format!("{section}{at}")));
    let found: BTreeSet<_> = rows.iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(expected.collect::<BTreeSet<_>>(), found);
    for row in rows {
        let [number, sentence, test] = row[..] else { panic!("{row:?} is not a number, a sentence and a test") };
        assert!(!sentence.is_empty() && exists(test), "{number}: there is no test {test}");
    }
}

/// Whether a test function of this path exists, such as `lrp_updates::calls::name`, `bbs::model::desired_lrp::tests::name` for
/// a unit test of the host, or `migration::name` for one of the module.
fn exists(test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").expect("a path of a test");
    let file = |folder: &str, module: &str| workspace().join(folder).join(format!("{}.rs", module.replace("::", "/")));
    let file = match (module, module.strip_prefix("bbs::")) {
        ("migration", _) => file("migrations-wasm/data/1795000010-lrp_definitions/src", "tests"),
        (_, Some(unit)) => file("host/src", unit.strip_suffix("::tests").expect("unit tests are in a module `tests`")),
        (_, None) => file("tests/suite", module),
    };
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.contains(&format!("fn {name}("))
}
