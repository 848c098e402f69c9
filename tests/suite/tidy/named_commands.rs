//! The commands that messages and documents name are run by a test, with each option that they
//! name. A unit test of the host shows that the parser accepts each as it stands there.

use std::collections::BTreeSet;

use super::{HOST_CRATES, assert_none, files_with, read, rust_files, workspace};

/// Commands for the own use of the host.
const OF_THE_HOST_ALONE: [&str; 1] = ["compile-component"];
/// The option that every test gives every command with a configuration.
const GIVEN: &str = "--config";
/// The document whose commands a test runs as they stand there.
const RUN_DOCUMENT: &str = "sdk/README.md";

/// A command in backticks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    /// Its words up to the first that is an option or a value.
    words: Vec<String>,
    /// The names of its options.
    options: BTreeSet<String>,
}

/// The commands in a text that have words.
fn named(text: &str) -> BTreeSet<Named> {
    let commands = text
        .match_indices("`bbs ")
        .filter_map(|(start, _)| text[start + 1..].split('`').next());
    let commands = commands.map(|command| {
        let words = command
            .split_whitespace()
            .skip(1)
            .take_while(|word| {
                word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
            })
            .map(str::to_owned)
            .collect();
        let options = command
            .split_whitespace()
            .filter_map(|word| word.split('=').next());
        let options = options
            .filter(|word| word.starts_with("--") && *word != GIVEN)
            .map(str::to_owned)
            .collect();
        Named { words, options }
    });
    commands
        .filter(|command| !command.words.is_empty())
        .collect()
}

/// The text without the ends of lines of comments and of continued strings.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| {
        line.trim()
            .trim_start_matches(['/', '!'])
            .trim_end_matches('\\')
            .trim()
    });
    lines.collect::<Vec<_>>().join(" ")
}

impl Named {
    /// Whether a file of tests has the words and the options as arguments, in a list or in a line.
    fn is_run_in(&self, tests: &str) -> bool {
        let has_words = |words: &[String]| {
            let list = format!("\"{}\"", words.join("\", \""));
            let line = words.split_first().filter(|(first, _)| *first == "module");
            let line = line.is_some_and(|(_, rest)| {
                !rest.is_empty() && tests.contains(&format!("\"{} ", rest.join(" ")))
            });
            tests.contains(&list) || line || tests.contains(&format!("$ bbs {} ", words.join(" ")))
        };
        // The last word may be the name of a crate or of a folder.
        let words = &self.words;
        (has_words(words) || words.len() > 2 && has_words(&words[..words.len() - 1]))
            && self.options.iter().all(|option| {
                ["\"", " "].iter().any(|end| {
                    let ends = ["\"", " "].map(|begin| format!("{begin}{option}{end}"));
                    ends.iter().any(|argument| tests.contains(argument))
                })
            })
    }
}

/// Goal: no operator is the first to run a command that a message or a document names.
#[test]
fn every_command_that_a_message_or_a_document_names_is_run_by_a_test() {
    let mut sources: Vec<_> = HOST_CRATES
        .iter()
        .flat_map(|folder| rust_files(&workspace().join(folder)))
        .collect();
    for folder in ["host", "sdk"] {
        sources.extend(files_with(&workspace().join(folder), "md"));
    }
    sources.push(workspace().join("README.md"));
    let mut tests = rust_files(&workspace().join("tests/suite"));
    tests.retain(|path| !path.ends_with(file!().rsplit('/').next().expect("a name")));
    let mut tests: Vec<_> = tests.iter().map(|path| joined(&read(path))).collect();
    tests.push(read(&workspace().join(RUN_DOCUMENT)));
    let mut found = BTreeSet::new();
    for path in sources
        .iter()
        .filter(|path| !path.ends_with("cli/named_commands.rs"))
    {
        found.extend(named(&joined(&read(path))));
    }
    let retry = ["migrate", "quarantine", "retry"].map(str::to_owned);
    assert!(
        found.iter().any(|command| command.words == retry),
        "{found:?}"
    );
    let is_of_the_host = |command: &Named| OF_THE_HOST_ALONE.contains(&command.words[0].as_str());
    let missing = found.iter().filter(|command| {
        !is_of_the_host(command) && !tests.iter().any(|tests| command.is_run_in(tests))
    });
    assert_none(
        missing
            .map(|Named { words, options }| {
                format!("no test runs `bbs {}` {options:?}", words.join(" "))
            })
            .collect(),
    );
}

#[test]
fn command_without_a_test_is_found() {
    let tests = r#"run(&["migrate", "status", "--json"]); site.succeed("sign modules --key a")"#;
    let command = |text: &str| {
        named(&format!("`bbs {text}`"))
            .pop_first()
            .expect("a command")
    };
    assert_eq!(
        named("with `bbs migrate status --json=x` or `bbs --help`"),
        [command("migrate status --json")].into()
    );
    for run in [
        "migrate status",
        "migrate status --json",
        "migrate status --config c",
        "module sign",
        "module sign x --key k",
    ] {
        assert!(command(run).is_run_in(tests), "{run}");
    }
    for missing in [
        "migrate abort",
        "migrate status --watch",
        "module push",
        "module sign x --name n",
    ] {
        assert!(!command(missing).is_run_in(tests), "{missing}");
    }
}
