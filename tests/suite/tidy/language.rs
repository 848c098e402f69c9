//! The language rules that can be checked: words that personify code, and type names with two
//! meanings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{HOST_CRATES, assert_none, read, rust_files, workspace};

/// Write the noun instead: the client, the writer, the previous master, the caller.
const PERSONS: [&str; 6] = [
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "whoever",
    "whomever",
];
/// Write the operation instead: publish, report, return, receive, record, request, send, require.
const ACTIONS: [&str; 16] = [
    "tell", "tells", "told", "telling", "hear", "hears", "heard", "hearing", "believe", "believes",
    "ask", "asks", "asking", "want", "wants", "wanting",
];

/// Names that many modules may use: each means that of its module.
const SHARED_NAMES: [&str; 2] = ["Error", "Inner"];

/// Goal: comments, identifiers, messages and documents use plain technical terms. Method: every
/// word, also of identifiers in snake case and camel case, of every text file is compared.
#[test]
fn sentences_and_names_do_not_personify_code() {
    let mut problems = Vec::new();
    for path in text_files() {
        for (number, line) in read(&path).lines().enumerate() {
            for word in
                words(line).filter(|word| PERSONS.contains(&&**word) || ACTIONS.contains(&&**word))
            {
                problems.push(format!(
                    "{}:{}: `{word}` in {:?}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    assert_none(problems);
}

#[test]
fn type_name_has_one_definition_in_a_crate() {
    let mut problems = Vec::new();
    for folders in [
        &HOST_CRATES[..],
        &["sdk/src"],
        &["host/lens/src", "sdk/contract/src"],
        &["tests/suite", "tests/harness"],
    ] {
        let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in folders
            .iter()
            .flat_map(|folder| rust_files(&workspace().join(folder)))
        {
            for (number, line) in read(&path).lines().enumerate() {
                if let Some(name) = defined_type(line).filter(|name| !SHARED_NAMES.contains(name)) {
                    let place = format!("{}:{}", path.display(), number + 1);
                    definitions.entry(name.to_owned()).or_default().push(place);
                }
            }
        }
        let twice = definitions
            .into_iter()
            .filter(|(_, places)| places.len() > 1);
        problems.extend(
            twice.map(|(name, places)| format!("`{name}` is defined at {}", places.join(" and "))),
        );
    }
    assert_none(problems);
}

/// Sources and documents, but for this file, which names the rejected words.
fn text_files() -> Vec<PathBuf> {
    let folders =
        ["host", "migrations-wasm", "sdk", "tests"].map(|folder| workspace().join(folder));
    let mut found: Vec<_> = folders
        .iter()
        .flat_map(|folder| files_below(folder))
        .collect();
    found.push(workspace().join("README.md"));
    found.retain(|path| !path.ends_with(Path::new(file!()).file_name().expect("a file")));
    found
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        let is_text = path.extension().is_some_and(|extension| {
            ["rs", "go", "md", "wit", "proto", "toml", "tsv", "template"]
                .iter()
                .any(|known| extension == *known)
        });
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            found.extend(files_below(&path));
        } else if is_text {
            found.push(path);
        }
    }
    found
}

/// The words of a line in lower case: split at every character but letters, and where a capital
/// follows a small letter.
fn words(line: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(line.len());
    let mut after_small_letter = false;
    for c in line.chars() {
        if after_small_letter && c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(if c.is_alphabetic() { c } else { ' ' });
        after_small_letter = c.is_lowercase();
    }
    spaced
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect::<Vec<_>>()
        .into_iter()
}

/// The name of the type that a line begins to define. An alias counts at the top level only:
/// elsewhere it belongs to a trait.
fn defined_type(line: &str) -> Option<&str> {
    let is_nested = line.starts_with(' ');
    let rest = line.trim_start();
    let rest = match rest.strip_prefix("pub") {
        Some(after) if after.starts_with('(') => after.split_once(") ")?.1,
        Some(after) => after.trim_start(),
        None => rest,
    };
    let (keyword, name) = rest.split_once(' ')?;
    let defines = ["struct", "enum", "union", "trait"].contains(&keyword)
        || (keyword == "type" && !is_nested);
    let name = name.split(|c: char| !c.is_alphanumeric()).next()?;
    (defines && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn words_are_found_in_identifiers_and_sentences() {
    let found: Vec<_> = words("fn what_is_Told(x: ToldRow) { // HEARD, 2 retold").collect();
    assert_eq!(
        found,
        [
            "fn", "what", "is", "told", "x", "told", "row", "heard", "retold"
        ]
    );
    assert_eq!(defined_type("pub(super) struct Row<'a> {"), Some("Row"));
    assert_eq!(defined_type("    enum Row {"), Some("Row"));
    assert_eq!(
        (
            defined_type("    type Row = u8;"),
            defined_type("type Row = u8;")
        ),
        (None, Some("Row"))
    );
    assert_eq!(defined_type("let Some(row) = rows"), None);
}
