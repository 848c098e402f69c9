//! The commands that messages and documents name are run by a test. A unit test of the host shows that the parser accepts each as
//! it stands there, with its options.

use std::collections::BTreeSet;

use super::{assert_none, files_with, read, rust_files, workspace};

/// Commands for the own use of the host.
const OF_THE_HOST_ALONE: [&str; 1] = ["compile-component"];

/// The words of each command in backticks, up to the first that is an option or a value.
fn named(text: &str) -> BTreeSet<Vec<String>> {
    let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
    let commands = text.match_indices("`bbs ").filter_map(|(start, _)| text[start + 1..].split('`').next());
    let words =
        commands.map(|command| command.split_whitespace().skip(1).take_while(is_word).map(str::to_owned).collect());
    words.filter(|words: &Vec<String>| !words.is_empty()).collect()
}

/// The text without the ends of lines of comments and of continued strings.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches(['/', '!']).trim_end_matches('\\').trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// Whether a test has the words as arguments, in a list or at the beginning of a line.
fn is_run(words: &[String], tests: &str) -> bool {
    let is_there = |words: &[String]| {
        let list = format!("\"{}\"", words.join("\", \""));
        let line = words.split_first().filter(|(first, _)| *first == "module");
        let line = line.is_some_and(|(_, rest)| !rest.is_empty() && tests.contains(&format!("\"{} ", rest.join(" "))));
        tests.contains(&list) || line
    };
    // The last word may be the name of a crate or of a folder.
    is_there(words) || words.len() > 2 && is_there(&words[..words.len() - 1])
}

/// Goal: no operator is the first to run a command that a message or a document names.
#[test]
fn every_command_that_a_message_or_a_document_names_is_run_by_a_test() {
    let mut sources = rust_files(&workspace().join("host/src"));
    for folder in ["host", "sdk"] {
        sources.extend(files_with(&workspace().join(folder), "md"));
    }
    sources.push(workspace().join("README.md"));
    let tests: Vec<_> = rust_files(&workspace().join("tests/suite")).iter().map(|path| joined(&read(path))).collect();
    let tests = tests.join(" ");
    let mut found = BTreeSet::new();
    for path in &sources {
        found.extend(named(&joined(&read(path))));
    }
    assert!(found.contains(["migrate", "quarantine", "retry"].map(str::to_owned).as_slice()), "{found:?}");
    let is_of_the_host = |words: &Vec<String>| OF_THE_HOST_ALONE.contains(&words[0].as_str());
    let missing = found.iter().filter(|words| !is_of_the_host(words) && !is_run(words, &tests));
    assert_none(missing.map(|words| format!("no test runs `bbs {}`", words.join(" "))).collect());
}

#[test]
fn command_without_a_test_is_found() {
    let tests = r#"run(&["migrate", "status"]); site.succeed("sign modules --key a")"#;
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        named("with `bbs migrate status --json` or `bbs --help`").into_iter().collect::<Vec<_>>(),
        [words("migrate status")]
    );
    assert!(is_run(&words("migrate status"), tests) && is_run(&words("module sign"), tests));
    assert!(is_run(&words("module sign bbs-modules"), tests));
    assert!(!is_run(&words("migrate abort"), tests) && !is_run(&words("module push"), tests));
}
