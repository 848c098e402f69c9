//! The help of the client's commands: the files that it shows can be used as they stand.

use super::{json, succeed};
use crate::harness;
use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules::modules;
use crate::harness::output::succeeded;

fn help(arguments: &[&str]) -> String {
    let mut command = harness::command();
    succeeded(command.args(arguments).arg("--help").output().unwrap())
}

/// The file in the help of a command: its first indented lines.
fn shown_file(arguments: &[&str]) -> String {
    let help = help(arguments);
    let lines = help
        .lines()
        .skip_while(|line| !line.starts_with("  "))
        .take_while(|line| line.starts_with("  "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn files_in_the_help_can_be_used_as_they_stand() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let url = host.url("");
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        std::fs::write(&path, shown_file(arguments)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    succeed(
        &url,
        &["lrp", "desire", &written("lrp.yaml", &["lrp", "desire"])],
    );
    succeed(
        &url,
        &[
            "lrp",
            "update",
            "hello",
            &written("update.yaml", &["lrp", "update"]),
        ],
    );
    assert_eq!(
        json(&url, &["lrp", "status", "hello"])["definition_id"],
        "version-2"
    );
    succeed(
        &url,
        &["task", "desire", &written("task.yaml", &["task", "desire"])],
    );
    assert_eq!(json(&url, &["task", "show", "hello"])["state"], "Pending");
    let commands = help(&["lrp"]);
    for command in [
        "list", "show", "desire", "update", "scale", "cancel", "rollback", "status", "watch",
        "remove",
    ] {
        assert!(
            commands.contains(&format!("\n  {command} ")),
            "{command} is not in {commands}"
        );
    }
}
