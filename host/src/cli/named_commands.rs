//! The commands that documents, messages and help texts name: the parser accepts each as it stands
//! there. A test of the suite shows that each is also run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::*;

/// Words in the place of a value, one of which is valid in any place.
const VALUES: [&str; 3] = ["1", "0.9", "oci://registry.example.com/modules:1"];
/// Words in the place of a subcommand, which a message may choose.
const SUBCOMMANDS: [&str; 2] = ["up", "down"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the host is in a folder of the repository")
        .to_owned()
}

/// Files below a folder with one of these endings.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() && name != "target" {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
    found
}

/// The text of a source without the signs of comments and of continued strings, so that a command
/// over two lines is one.
fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut continues = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let comment = ["///", "//!", "//"]
            .iter()
            .find_map(|sign| trimmed.strip_prefix(sign));
        let (line, is_continued) = match (if continues {
            trimmed
        } else {
            comment.unwrap_or(line)
        })
        .strip_suffix('\\')
        {
            Some(begun) => (begun, true),
            None => (
                if continues {
                    trimmed
                } else {
                    comment.unwrap_or(line)
                },
                false,
            ),
        };
        joined.push_str(line);
        if !is_continued {
            joined.push('\n');
        }
        continues = is_continued;
    }
    joined
}

/// The commands of a text: those in backticks, and lines that begin with one, as in blocks of code
/// and in help texts.
fn named(text: &str) -> Vec<String> {
    let in_backticks = text
        .match_indices("`bbs ")
        .filter_map(|(start, _)| text[start + 1..].split('`').next());
    let lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        // Text follows a command in a help text after a gap, and prose has no option after its
        // first words.
        line.strip_prefix("bbs ")
            .map(|_| line.split("  ").next().unwrap_or(line))
    });
    in_backticks
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
            command[..end]
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
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
    let repository = repository();
    let mut documents = vec![
        repository.join("README.md"),
        repository.join(".github/CONTRIBUTING.md"),
    ];
    for folder in ["host", "sdk", "migrations-wasm"] {
        documents.extend(files(
            &repository.join(folder),
            &[".md", ".template", ".erb", ".yml"],
        ));
    }
    let mut commands: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let sources = files(&repository.join("host/src"), &[".rs"]);
    for path in documents
        .into_iter()
        .chain(sources)
        .filter(|path| !path.ends_with(file!()))
    {
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
        for command in named(&joined(&text)) {
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
    let refused: Vec<_> = refused.collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
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
