//! The commands that documents, messages and help texts name: the parser accepts each as it stands
//! there, and a test runs each that is in backticks, with each option that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use bbs::testing::cli::{Cli, with_subcommand};
use clap::Parser;
use clap::error::ErrorKind;

use super::{HOST_CRATES, assert_none, files_with, read, rust_files, workspace};

/// Words in the place of a value, one of which is valid in any place.
const VALUES: [&str; 3] = ["1", "0.9", "oci://registry.example.com/modules:1"];
/// Words in the place of a subcommand, which a message may choose.
const SUBCOMMANDS: [&str; 2] = ["up", "down"];
/// Endings of the files that name commands, beside sources.
const DOCUMENTS: [&str; 4] = ["md", "template", "erb", "yml"];
/// Commands for the own use of the host.
const OF_THE_HOST_ALONE: [&str; 1] = ["compile-component"];
/// The option that every test gives every command with a configuration.
const GIVEN: &str = "--config";
/// The document whose commands a test runs as they stand there.
const RUN_DOCUMENT: &str = "sdk/README.md";

/// The text of a source without the signs of comments and of continued strings, so that a command
/// over two lines is one.
pub(super) fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut continues = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let comment = ["///", "//!", "//"]
            .iter()
            .find_map(|sign| trimmed.strip_prefix(sign));
        let line = if continues {
            trimmed
        } else {
            comment.unwrap_or(line)
        };
        let begun = line.strip_suffix('\\');
        joined.push_str(begun.unwrap_or(line));
        continues = begun.is_some();
        if !continues {
            joined.push('\n');
        }
    }
    joined
}

/// The text with one space in the place of each gap.
pub(super) fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn in_backticks(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("`bbs ")
        .filter_map(|(start, _)| text[start + 1..].split('`').next())
}

/// The commands of a text: those in backticks, and lines that begin with one, as in blocks of code
/// and in help texts.
fn named(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        // Text follows a command in a help text after a gap, and prose has no option after its
        // first words.
        line.strip_prefix("bbs ")
            .map(|_| line.split("  ").next().unwrap_or(line))
    });
    in_backticks(text)
        .chain(lines)
        .filter(|command| {
            command.split_whitespace().nth(1).is_some_and(|word| {
                word.starts_with(['-', 'a', 'c', 'd', 'i', 'k', 'l', 'm', 's', 't'])
            })
        })
        .map(|command| {
            let ends = [" | ", " > ", " && ", " # ", ", ", "\\n"];
            let end = ends
                .iter()
                .filter_map(|end| command.find(end))
                .min()
                .unwrap_or(command.len());
            spaced(&command[..end])
        })
        .collect()
}

fn is_placeholder(word: &str) -> bool {
    let is_name = word.chars().all(|c| c.is_ascii_uppercase() || c == '_') && word.len() > 1;
    word.contains(['{', '…', '[']) || is_name
}

/// Why the parser does not accept a command; `None` if it does, or if only values are missing.
fn fault(command: &str) -> Option<ErrorKind> {
    let words: Vec<_> = command.split(' ').collect();
    let mut last = None;
    let subcommands = SUBCOMMANDS
        .into_iter()
        .flat_map(|subcommand| VALUES.map(|value| (subcommand, value)));
    for (subcommand, value) in subcommands.chain(VALUES.map(|value| (value, value))) {
        let filled = words.iter().enumerate().map(|(at, word)| match at {
            _ if !is_placeholder(word) => word.trim_matches(['"', '\'']),
            1 | 2 => subcommand,
            _ => value,
        });
        match Cli::try_parse_from(with_subcommand(filled.map(OsString::from).collect()))
            .map_err(|fault| fault.kind())
        {
            Ok(_)
            | Err(
                ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                | ErrorKind::MissingSubcommand
                | ErrorKind::MissingRequiredArgument,
            ) => return None,
            // An option that is named without its value.
            Err(ErrorKind::InvalidValue)
                if words.last().is_some_and(|word| word.starts_with('-')) =>
            {
                return None;
            }
            Err(kind) => last = Some(kind),
        }
    }
    last
}

/// Commands with the files that name them.
fn all_named() -> BTreeMap<String, Vec<PathBuf>> {
    let mut sources = rust_files(&workspace().join("host/src"));
    sources.extend(["README.md", ".github/CONTRIBUTING.md"].map(|name| workspace().join(name)));
    for folder in ["host", "sdk", "migrations-wasm"].map(|name| workspace().join(name)) {
        sources.extend(
            DOCUMENTS
                .iter()
                .flat_map(|ending| files_with(&folder, ending)),
        );
    }
    let mut commands: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in sources {
        for command in named(&joined(&read(&path))) {
            commands.entry(command).or_default().push(path.clone());
        }
    }
    commands
}

/// Goal: no document, message or help text names a command or an option that does not exist.
#[test]
fn every_named_command_is_accepted_by_the_parser() {
    let commands = all_named();
    assert!(commands.len() > 100, "{}", commands.len());
    let refused = commands.iter().filter_map(|(command, paths)| {
        fault(command).map(|kind| format!("`{command}` in {}: {kind:?}", paths[0].display()))
    });
    assert_none(refused.collect());
}

#[test]
fn commands_are_found_in_documents_messages_and_help_texts() {
    let text = "x `bbs migrate\n/// down --to 5`\n    //!   bbs module check modules   a text\n$ bbs dev --cells 3 # more\nnot `bbs 1.2`";
    let found = named(&joined(text));
    assert_eq!(
        found,
        [
            "bbs migrate down --to 5",
            "bbs module check modules",
            "bbs dev --cells 3"
        ]
    );
    let message = "\"give up with `bbs migrate \\\n        abort --config {config}`\"";
    assert_eq!(
        named(&joined(message)),
        ["bbs migrate abort --config {config}"]
    );
    assert_eq!(fault("bbs migrate abort --config {config}"), None);
    assert_eq!(fault("bbs migrate {} --to {from}"), None);
    assert_eq!(
        fault("bbs migrate abort --now"),
        Some(ErrorKind::UnknownArgument)
    );
    assert_eq!(
        fault("bbs migrate stop"),
        Some(ErrorKind::InvalidSubcommand)
    );
    assert_eq!(fault("bbs serve --log-level"), None);
}

/// A command in backticks that a test has to run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Invocation {
    /// Its words up to the first that is an option or a value.
    words: Vec<String>,
    /// The names of its options.
    options: BTreeSet<String>,
}

/// The commands in backticks that have words.
fn invocations(text: &str) -> BTreeSet<Invocation> {
    let commands = in_backticks(text).map(|command| {
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
        Invocation { words, options }
    });
    commands
        .filter(|command| !command.words.is_empty())
        .collect()
}

impl Invocation {
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
    let mut tests: Vec<_> = tests
        .iter()
        .map(|path| spaced(&joined(&read(path))))
        .collect();
    tests.push(read(&workspace().join(RUN_DOCUMENT)));
    let mut found = BTreeSet::new();
    for path in &sources {
        found.extend(invocations(&joined(&read(path))));
    }
    let retry = ["migrate", "quarantine", "retry"].map(str::to_owned);
    assert!(
        found.iter().any(|command| command.words == retry),
        "{found:?}"
    );
    let is_of_the_host =
        |command: &Invocation| OF_THE_HOST_ALONE.contains(&command.words[0].as_str());
    let missing = found.iter().filter(|command| {
        !is_of_the_host(command) && !tests.iter().any(|tests| command.is_run_in(tests))
    });
    assert_none(
        missing
            .map(|Invocation { words, options }| {
                format!("no test runs `bbs {}` {options:?}", words.join(" "))
            })
            .collect(),
    );
}

#[test]
fn command_without_a_test_is_found() {
    let tests = r#"run(&["migrate", "status", "--json"]); site.succeed("sign modules --key a")"#;
    let command = |text: &str| {
        invocations(&format!("`bbs {text}`"))
            .pop_first()
            .expect("a command")
    };
    assert_eq!(
        invocations("with `bbs migrate status --json=x` or `bbs --help`"),
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
