//! Functions of production code are short enough to be read on one screen. Functions of tests are
//! bounded by clippy alone, whose limit is in `.clippy.toml`.

use std::path::Path;

use super::{all_rust_files, assert_none, read};
use crate::harness::workspace;

const LONGEST_FUNCTION: usize = 70;

/// A function with the lines of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FunctionLength {
    name: String,
    /// The number of its first line, from 1 on.
    first_line: usize,
    lines: usize,
}

/// The name of the function that a line begins, whatever stands before `fn`.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(restricted) => restricted.split_once(')')?.1,
            None => after,
        }
        .trim_start();
    }
    for qualifier in ["default ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(qualifier).unwrap_or(rest);
    }
    if let Some(after) = rest.strip_prefix("extern \"") {
        rest = after.split_once("\" ")?.1;
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
        .filter(|name| !name.is_empty())
}

/// The functions of a formatted source: each ends at the first closing brace with the indentation
/// of its beginning.
fn functions(source: &str) -> Vec<FunctionLength> {
    let lines: Vec<_> = source.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indentation = &line[..line.len() - line.trim_start().len()];
        let last = if line.ends_with('}') || line.ends_with(';') {
            0
        } else {
            lines[index..]
                .iter()
                .position(|end| {
                    // A declaration of a trait whose parameters take several lines has no braces.
                    end.strip_prefix(indentation)
                        .is_some_and(|end| end == "}" || end.starts_with(')') && end.ends_with(';'))
                })
                .unwrap_or_else(|| panic!("{name} has no end"))
        };
        found.push(FunctionLength {
            name: name.to_owned(),
            first_line: index + 1,
            lines: last + 1,
        });
    }
    found
}

/// The part of a file that is no test; empty for a file of tests.
fn production(path: &Path, text: &str) -> String {
    let inside = path
        .strip_prefix(workspace())
        .expect("a file of the workspace");
    let is_test = inside.components().any(|part| {
        ["tests", "tests.rs", "benches", "fuzz"]
            .iter()
            .any(|name| part.as_os_str() == *name)
    });
    if is_test {
        return String::new();
    }
    match text.split_once("#[cfg(test)]\nmod tests {") {
        Some((production, _)) => production.to_owned(),
        None => text.to_owned(),
    }
}

#[test]
fn functions_of_production_code_are_short() {
    let mut problems = Vec::new();
    for path in all_rust_files() {
        for function in functions(&production(&path, &read(&path))) {
            if function.lines > LONGEST_FUNCTION {
                problems.push(format!(
                    "{}:{}: `{}` has {} lines, more than {LONGEST_FUNCTION}; divide it",
                    path.display(),
                    function.first_line,
                    function.name,
                    function.lines
                ));
            }
        }
    }
    assert_none(problems);
}

#[test]
fn functions_are_found_whatever_stands_before_them() {
    let body = "\n    1\n}\n";
    for before in [
        "",
        "pub ",
        "pub(super) ",
        "pub(in crate::modules) ",
        "async ",
        "pub const ",
        "pub(crate) async unsafe ",
        "unsafe extern \"C\" ",
    ] {
        let source = format!("{before}fn name<T>() -> usize {{{body}");
        let expected = FunctionLength {
            name: "name".to_owned(),
            first_line: 1,
            lines: 3,
        };
        assert_eq!(functions(&source), [expected], "{before:?}");
    }
    let declared = "trait T {\n    fn one(&self);\n    fn two(\n        &self,\n    ) -> usize;\n    fn three(&self) {\n    }\n}\n";
    let lengths: Vec<_> = functions(declared)
        .into_iter()
        .map(|function| (function.name, function.lines))
        .collect();
    let expected = [("one", 1), ("two", 3), ("three", 2)].map(|(name, lines)| (name.into(), lines));
    assert_eq!(lengths, expected);
    assert_eq!(function_name("    let published = 1;"), None);
    assert_eq!(function_name("// fn comment"), None);
}
