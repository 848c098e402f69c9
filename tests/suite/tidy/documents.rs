//! Tables of the documents against the program: the events of its log, and the messages that the
//! operator's guide explains.

use std::collections::BTreeSet;

use regex::Regex;

use super::named_commands::{joined, spaced};
use super::{HOST_CRATES, assert_none, read, rust_files, workspace};

/// The headers of the tables whose first column has messages.
const OF_MESSAGES: [&str; 2] = ["| message | what to do |", "| it stops with | do |"];

/// The sources of the program, without its tests.
fn sources() -> Vec<String> {
    let files = HOST_CRATES
        .iter()
        .flat_map(|folder| rust_files(&workspace().join(folder)));
    files
        .filter(|path| {
            let inside = path
                .strip_prefix(workspace())
                .expect("a file of the workspace");
            !inside.components().any(|part| {
                ["tests", "tests.rs"]
                    .iter()
                    .any(|name| part.as_os_str() == *name)
            })
        })
        .map(|path| read(&path))
        .collect()
}

/// Goal: an operator finds each event of the log on one page, and no others.
#[test]
fn page_of_events_has_each_name_of_the_sources() {
    // A line of lager's own is no event of `tracing`.
    let named = Regex::new(r#"(?:tracing::\w+!\(\s*name: |write_line\()"([^"]+)""#).unwrap();
    let sources = sources();
    let emitted: BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| named.captures_iter(source))
        .map(|found| found.get(1).expect("a name").as_str())
        .collect();
    assert!(emitted.len() > 50, "{emitted:?}");
    let page = read(&workspace().join("host/EVENTS.md"));
    let quoted = Regex::new("`([^`]+)`").unwrap();
    let listed: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split(" | ").next())
        .flat_map(|cell| quoted.captures_iter(cell))
        .map(|found| found.get(1).expect("a name").as_str())
        .collect();
    let missing = emitted
        .difference(&listed)
        .map(|name| format!("the event {name} is not in host/EVENTS.md"));
    let gone = listed
        .difference(&emitted)
        .map(|name| format!("{name} in host/EVENTS.md is no event"));
    assert_none(missing.chain(gone).collect());
}

/// Goal: an operator finds a message of the program by its words. Method: a source has each part of
/// a message between `…`.
#[test]
fn messages_that_the_guide_explains_are_in_the_sources() {
    let guide = read(&workspace().join("host/OPERATING.md"));
    let messages: Vec<&str> = OF_MESSAGES
        .iter()
        .flat_map(|header| {
            let (_, rows) = guide.split_once(header).expect(header);
            rows.lines()
                .skip(2)
                .take_while(|line| line.starts_with('|'))
        })
        .filter_map(|row| row.trim_start_matches("| ").split(" | ").next())
        .collect();
    assert!(messages.len() > 40, "{messages:?}");
    let sources: Vec<_> = sources()
        .iter()
        .map(|source| spaced(&joined(source)))
        .collect();
    let parts = messages
        .iter()
        .flat_map(|message| message.split('…').map(str::trim));
    let missing = parts.filter(|part| !sources.iter().any(|source| source.contains(part)));
    assert_none(
        missing
            .map(|part| format!("{part:?} in host/OPERATING.md is in no source"))
            .collect(),
    );
}
