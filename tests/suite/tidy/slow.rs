//! The tests that take more than five seconds on a quiet machine, in `tests/slow.tsv`: each exists,
//! and has a reason. `tests/run` prints the names of those that take as long and are not there.

use std::collections::BTreeSet;

use super::{assert_none, read, test_names};
use crate::harness::workspace;

const FILE: &str = "tests/slow.tsv";
const HEADER: &str = "test, without its database\treason";

#[test]
fn slow_tests_exist_and_have_a_reason() {
    let table = read(&workspace().join(FILE));
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let tests = test_names();
    let mut names = BTreeSet::new();
    let mut problems = Vec::new();
    for line in lines {
        let Some((name, reason)) = line.split_once('\t') else {
            panic!("{line:?} is not a test and a reason")
        };
        let names_a_test = tests.iter().any(|test| {
            test.strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        });
        if !names_a_test {
            problems.push(format!("{name}: there is no such test"));
        }
        if !names.insert(name) {
            problems.push(format!("{name}: is there twice"));
        }
        if reason.is_empty() {
            problems.push(format!("{name}: has no reason"));
        }
    }
    assert_none(problems);
}
