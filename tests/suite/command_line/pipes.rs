//! Commands whose output is not read to its end, as by `head`, and a full disk.

use std::io::{BufRead, BufReader, pipe};
use std::process::{Command, Output, Stdio};

use crate::harness::database::Kind;
use crate::harness::fixture::OLDEST;
use crate::harness::host::{Host, Installation};
use crate::harness::modules::modules;
use crate::harness::output::{errors, full_disk};
use crate::harness::{command, workspace};

/// Runs a command whose standard output is a pipe without a reader.
fn run_unread(mut command: Command) -> Output {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    command
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("the executable starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_into_a_closed_pipe_do_their_work_and_succeed() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let folder = modules();
    let folder = folder.to_str().expect("text");
    let configured = [
        &["migrate", "status"][..],
        &["migrate", "status", "--json"],
        &["migrate", "plan"],
        &["migrate", "plan", "--check", "--json"],
        &["migrate", "up"],
        &["migrate", "down", "--to", &OLDEST.to_string()],
        &["migrate", "quarantine", "list"],
        &["migrate", "quarantine", "list", "--json"],
        &["keys", "status"],
        &["keys", "rotate"],
        &["api", "versions"],
        &["drain"],
    ];
    for arguments in configured {
        let output = run_unread(installation.command(arguments));
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            errors(&output)
        );
    }
    assert_eq!(
        installation.data_version(),
        OLDEST,
        "the last migration was complete"
    );
    let module = format!("{folder}/catalog.toml");
    assert!(std::fs::exists(&module).expect("the folder can be read"));
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["serve", "--help"],
        &["api", "versions", folder],
        &["module", "check", folder],
    ] {
        let mut command = command();
        command.args(arguments);
        let output = run_unread(command);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            errors(&output)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_at_standard_output_is_an_error_that_says_so() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let output = installation
        .command(&["migrate", "status"])
        .stdout(full_disk())
        .output()
        .expect("the executable starts");
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("cannot write to standard output") && errors.contains("No space left"),
        "{errors}"
    );
}

/// A host that migrates so slowly that a test ends before.
async fn slow_host() -> (Installation, Host) {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let installation = installation.set("migration_units_per_second", 1);
    let host = Host::start(installation.command(&["serve"]), "listening");
    (installation, host)
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_ends_once_its_reader_has_gone() {
    let (installation, host) = slow_host().await;
    for arguments in [&["migrate", "watch", "--json"][..], &["migrate", "watch"]] {
        let (reader, writer) = pipe().expect("a pipe");
        let errors = writer.try_clone().expect("a pipe");
        let mut command = installation.command(arguments);
        let mut watching = command
            .stdout(writer)
            .stderr(errors)
            .spawn()
            .expect("the executable starts");
        // This process has copies of the ends of the pipe until then.
        drop(command);
        let mut lines = BufReader::new(reader).lines();
        lines.next().expect("a line").expect("text");
        drop(lines);
        assert!(watching.wait().expect("it ends").success(), "{arguments:?}");
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_waits_for_the_end_of_the_host_without_a_reader() {
    let (installation, mut host) = slow_host().await;
    let output = run_unread(installation.command(&["drain", "--json"]));
    assert!(output.status.success(), "{}", errors(&output));
    assert!(host.wait().success());
}

/// Goal: `bbs serve 2>&1 | head -1` leaves a host that serves and ends as requested.
#[tokio::test(flavor = "multi_thread")]
async fn host_whose_log_is_not_read_serves_and_ends_with_0() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let (reader, writer) = pipe().expect("a pipe");
    let mut command = installation.command(&["serve"]);
    let mut host = command
        .stdout(Stdio::null())
        .stderr(writer)
        .spawn()
        .expect("the executable starts");
    drop(command);
    let mut lines = BufReader::new(reader)
        .lines()
        .map(|line| line.expect("text"));
    assert!(
        lines.any(|line| line.contains("data_version")),
        "the host ended"
    );
    drop(lines);
    // Each line of the log fails from now on, that of the reload and that of the end.
    installation.succeed(&["module", "reload"]);
    assert!(
        installation
            .succeed(&["drain"])
            .contains("The host has ended.")
    );
    assert_eq!(host.wait().expect("it ends").code(), Some(0));
}

/// Macros that panic if their output is closed.
#[test]
fn sources_of_the_host_print_by_functions_that_return_errors() {
    let pattern = workspace().join("host/src/**/*.rs");
    let macros = regex::Regex::new(r"\be?print(ln)?!\(").unwrap();
    let mut found = Vec::new();
    for path in glob::glob(pattern.to_str().expect("text"))
        .unwrap()
        .map(Result::unwrap)
    {
        let source = std::fs::read_to_string(&path).expect("a source");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        found.extend(
            macros
                .find(code)
                .map(|found| format!("{}: {}", path.display(), found.as_str())),
        );
    }
    assert!(found.is_empty(), "use `cli::output`: {found:#?}");
}
