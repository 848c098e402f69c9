//! Output for people and for machines: help, colours on a terminal, the options of the log, and
//! messages of failed starts.

use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::command;
use crate::harness::database::{Kind, TestDatabase, on_each_server};
use crate::harness::host::Installation;
use crate::harness::modules::modules;
use crate::harness::output::errors;

const ESCAPE: char = '\u{1b}';

/// A start that logs and then fails, because its keys do not open the records.
async fn failing_installation() -> Installation {
    let wrong = serde_json::json!({ "key-2024": "wrong" });
    Installation::of_small_diego(&modules(), Kind::Sqlite)
        .await
        .set("encryption_keys", wrong)
}

/// Runs a command on a terminal, and returns what it shows.
fn on_terminal(command: &Command, variable: Option<(&str, &str)>) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| format!("'{}'", word.to_str().expect("text")))
        .collect();
    let mut terminal = Command::new("script");
    terminal
        .args(["-q", "-e", "-c", &words.join(" "), "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    terminal
        .env_remove("CLICOLOR_FORCE")
        .env_remove("RUST_LOG")
        .envs(variable);
    let output = terminal.output().expect("`script` is part of Debian");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn log_on_a_terminal_has_colours_unless_they_are_turned_off() {
    let installation = failing_installation().await;
    let serve = installation.command(&["serve"]);
    let shown = on_terminal(&serve, None);
    assert!(
        shown.contains("starting") && shown.contains(ESCAPE),
        "{shown:?}"
    );
    for (arguments, variable) in [
        (&["serve"][..], Some(("NO_COLOR", "1"))),
        (&["serve", "--color", "never"], None),
    ] {
        let shown = on_terminal(&installation.command(arguments), variable);
        assert!(
            shown.contains("starting") && !shown.contains(ESCAPE),
            "{arguments:?} {shown:?}"
        );
    }
    let forced = on_terminal(
        &installation.command(&["serve", "--color=always"]),
        Some(("NO_COLOR", "1")),
    );
    assert!(forced.contains(ESCAPE), "{forced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_can_be_turned_on_without_a_terminal() {
    let installation = failing_installation().await;
    let plain = installation.run(&["serve"]);
    assert!(
        errors(&plain).contains("starting") && !errors(&plain).contains(ESCAPE),
        "{}",
        errors(&plain)
    );
    let coloured = installation.run(&["--color", "always", "serve"]);
    assert!(errors(&coloured).contains(ESCAPE), "{}", errors(&coloured));
    let unknown = |color: &str| {
        command()
            .args(["--color", color, "nope"])
            .output()
            .expect("the executable starts")
    };
    assert!(errors(&unknown("always")).contains(ESCAPE));
    assert!(errors(&unknown("never")).starts_with("error: unrecognized subcommand 'nope'"));
}

fn lines_of_lager(output: &Output) -> Vec<Value> {
    let lines = std::str::from_utf8(&output.stdout).expect("text").lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_serve_choose_level_and_format_of_the_log() {
    let installation = failing_installation().await;
    let output = installation.run(&["serve", "--log-format", "lager"]);
    let lines = lines_of_lager(&output);
    assert_eq!(lines[0]["message"], "bbs.starting");
    assert!(
        lines.iter().all(|line| line["log_level"] != 0),
        "no level was chosen"
    );
    let output = installation.run(&["serve", "--log-format", "lager", "--log-level", "fatal"]);
    let fatal = lines_of_lager(&output);
    assert!(
        !fatal.is_empty() && fatal.iter().all(|line| line["log_level"] == 3),
        "{output:?}"
    );
    let installation = installation.set("log_level", "fatal");
    let output = installation.run(&["serve", "--log-format", "lager", "--log-level", "info"]);
    assert_eq!(lines_of_lager(&output)[0]["message"], "bbs.starting");
    let installation = installation.set("log_level", "info");

    let diegos = installation.set("session_name", "bbs");
    assert_eq!(
        lines_of_lager(&diegos.run(&["serve"]))[0]["message"],
        "bbs.starting"
    );
    let text = diegos.run(&["serve", "--log-format", "text"]);
    assert!(
        text.stdout.is_empty() && errors(&text).contains(" INFO "),
        "{text:?}"
    );
    assert!(
        !errors(&diegos.run(&["serve", "--log-format", "text", "--log-level", "error"]))
            .contains(" INFO ")
    );
    let unknown = diegos.run(&["serve", "--log-level", "loud"]);
    assert!(
        unknown.status.code() == Some(2) && errors(&unknown).contains("debug, info, error, fatal"),
        "{unknown:?}"
    );
}

on_each_server!(failed_start_is_described_once_in_the_words_of_the_server);
async fn failed_start_is_described_once_in_the_words_of_the_server(kind: Kind) {
    let installation = Installation::on(TestDatabase::new(kind), &modules());
    let connection = installation.database.configuration()["database_connection_string"].clone();
    let connection = connection.as_str().expect("text");
    let (server, name) = connection.rsplit_once('/').expect("it ends with a name");
    let parameters = name
        .split_once('?')
        .map(|(_, parameters)| format!("?{parameters}"))
        .unwrap_or_default();
    let installation = installation.set(
        "database_connection_string",
        format!("{server}/nowhere{parameters}"),
    );
    let output = tokio::task::spawn_blocking(move || installation.run(&["serve"]))
        .await
        .expect("it ends");
    let errors = errors(&output);
    let sentence = match kind {
        Kind::Postgres => "database \"nowhere\" does not exist",
        _ => "database 'nowhere'",
    };
    assert_eq!(errors.matches(sentence).count(), 1, "{errors}");
    assert!(
        !errors.contains(" at line ") && !errors.contains("error.sources"),
        "{errors}"
    );
    assert_eq!(errors.matches("bbs: ").count(), 1, "{errors}");
}

#[test]
fn help_of_the_program_describes_the_program() {
    let help = command()
        .arg("--help")
        .output()
        .expect("the executable starts");
    let help = String::from_utf8(help.stdout).expect("text");
    let (about, _) = help.split_once("\n\n").expect("paragraphs");
    assert!(
        about.ends_with("are sandboxed WebAssembly modules"),
        "{about}"
    );
    assert!(!help.contains("parsed command line"), "{help}");
}

on_each_server!(status_names_the_kind_of_the_server);
async fn status_names_the_kind_of_the_server(kind: Kind) {
    let installation = Installation::of_small_diego(&modules(), kind).await;
    let status = tokio::task::spawn_blocking(move || installation.succeed(&["migrate", "status"]))
        .await
        .unwrap();
    let name = match kind {
        Kind::Sqlite => "SQLite",
        Kind::Postgres => "PostgreSQL",
        Kind::Mariadb => "MariaDB",
        Kind::Mysql => "MySQL",
    };
    assert!(
        status.starts_with(&format!("Database   {name} ")),
        "{status}"
    );
}
