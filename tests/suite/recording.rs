//! The program that records `bbs migrate watch` for the README.

use std::process::Command;

use serde_json::Value;

use crate::harness::output::succeeded;
use crate::harness::{self, modules, workspace};

#[test]
fn recording_shows_a_migration_from_its_command_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(workspace().join("host/release/record"));
    command.envs(
        harness::command()
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .arg(harness::bbs())
        .arg(modules::modules())
        .arg(folder.path())
        .args(["40", "1"]);
    let output = command
        .output()
        .expect("`ruby` is installed; `tests/run` does that");
    succeeded(output);

    let cast = std::fs::read_to_string(folder.path().join("migrate-watch.cast")).unwrap();
    let mut rows = cast
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(rows.next().unwrap()["version"], 2);
    let events: Vec<_> = rows.collect();
    assert!(events.iter().all(|event| event[1] == "o"), "{events:#?}");
    assert!(
        events.is_sorted_by_key(|event| (event[0].as_f64().unwrap() * 1000.0) as u64),
        "{events:#?}"
    );
    let shown: String = events
        .iter()
        .map(|event| event[2].as_str().unwrap())
        .collect();
    for text in [
        "$ bbs migrate watch",
        "/40 units up from 1722634733",
        "The host serves.",
        "40 desired_lrps",
    ] {
        assert!(shown.contains(text), "{text} is not in {shown}");
    }
    // A phase that counts nothing has no number.
    assert!(
        !shown.contains("fence 0") && !shown.contains("serving 0"),
        "{shown}"
    );

    let picture = std::fs::read_to_string(folder.path().join("migrate-watch.svg")).unwrap();
    let first = picture
        .lines()
        .position(|line| line == "<g>")
        .expect("the frames")
        + 1;
    let frames: Vec<_> = picture
        .lines()
        .skip(first)
        .take_while(|line| *line != "</g>")
        .collect();
    assert!(
        frames[0].contains("bbs migrate watch") && !frames[0].contains("The host serves."),
        "{}",
        frames[0]
    );
    let last = frames.last().unwrap();
    assert!(
        last.contains("The host serves.") && last.contains("40 desired_lrps"),
        "{last}"
    );
}
