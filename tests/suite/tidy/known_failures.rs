//! The tests that are known to fail on MySQL, in `tests/mysql-known-failures.tsv`: each exists, and
//! has a reason and the file that is to be mended. `tests/run` runs them too, and fails if one of
//! them passes, so that the list only shrinks.

use std::collections::BTreeSet;

use super::{assert_none, read, test_names};
use crate::harness::workspace;

const FILE: &str = "tests/mysql-known-failures.tsv";
const HEADER: &str = "test\treason\tto be mended in";

#[test]
fn known_failures_on_mysql_name_a_test_a_reason_and_a_file() {
    let table = read(&workspace().join(FILE));
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some(HEADER));
    let mut tests = test_names();
    tests.retain(|name| name.ends_with("::mysql"));
    let mut names = BTreeSet::new();
    let mut problems = Vec::new();
    for line in lines {
        let [test, reason, file] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?} is not a test, a reason and a file")
        };
        if !tests.contains(test) {
            problems.push(format!("{test}: there is no such test on MySQL"));
        }
        if !names.insert(test) {
            problems.push(format!("{test}: is there twice"));
        }
        if reason.is_empty() || !workspace().join(file).is_file() {
            problems.push(format!("{test}: has no reason, or {file:?} is no file"));
        }
    }
    assert_none(problems);
}
