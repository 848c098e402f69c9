//! Hints for command lines that the parser refuses. Owns where a command is that was looked for
//! among those of another one.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory};

use super::Cli;

/// Adds to an error about an unknown command the commands of that name elsewhere: `bbs migrate
/// quarantine` for `bbs quarantine`.
pub(super) fn with_hint(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let found = named(&Cli::command(), "bbs", unknown);
    if !found.is_empty() {
        let found: Vec<_> = found.iter().map(|command| format!("`{command}`")).collect();
        let hint = format!(
            "there is a command of that name elsewhere: {}",
            found.join(", or ")
        );
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![hint.into()]),
        );
    }
    error
}

/// The commands of a name below a command, each with its words.
fn named(command: &Command, words: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        let words = format!("{words} {}", below.get_name());
        found.extend(named(below, &words, name));
        if below.get_name() == name {
            found.push(words);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn hinted(line: &str) -> String {
        with_hint(Cli::try_parse_from(line.split(' ')).unwrap_err()).to_string()
    }

    #[test]
    fn unknown_command_is_found_below_another_one() {
        for (line, hint) in [
            ("bbs quarantine", "elsewhere: `bbs migrate quarantine`\n"),
            (
                "bbs quarantine list --config bbs.json",
                "elsewhere: `bbs migrate quarantine`\n",
            ),
            ("bbs up --config bbs.json", "elsewhere: `bbs migrate up`\n"),
            ("bbs plan", "elsewhere: `bbs migrate plan`\n"),
            ("bbs history", "elsewhere: `bbs migrate history`\n"),
            ("bbs rotate", "elsewhere: `bbs keys rotate`\n"),
            ("bbs pull oci://a", "elsewhere: `bbs module pull`\n"),
            ("bbs keys plan", "elsewhere: `bbs migrate plan`\n"),
            (
                "bbs status",
                "elsewhere: `bbs migrate status`, or `bbs keys status`, or `bbs lrp status`\n",
            ),
        ] {
            assert!(hinted(line).contains(hint), "{line}: {}", hinted(line));
        }
    }

    #[test]
    fn command_that_is_nowhere_has_no_hint() {
        for line in [
            "bbs nothing",
            "bbs compile-componen",
            "bbs --nothing",
            "bbs migrate up",
        ] {
            assert!(
                !hinted(line).contains("elsewhere"),
                "{line}: {}",
                hinted(line)
            );
        }
    }
}
