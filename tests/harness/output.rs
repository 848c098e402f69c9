//! The output of commands: that of ended ones, and a place that takes none.

use std::fs::File;
use std::process::{Command, Output};

use super::PATIENCE;

/// A standard output for commands that refuses every byte, as a full disk does.
pub fn full_disk() -> File {
    File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux has the device")
}

/// Runs a command that must end by itself.
pub async fn ended(command: Command) -> Output {
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(PATIENCE, output)
        .await
        .expect("the command ends")
        .expect("the executable starts")
}

/// The standard error of a command.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The standard output of a command and, after it, its standard error.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The standard output of a command that must have succeeded.
///
/// # Panics
/// With [`text`] if it failed.
#[track_caller]
pub fn succeeded(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        text(&output)
    );
    String::from_utf8(output.stdout).expect("the standard output is UTF-8")
}

/// The standard error of a command that must have failed, which has these words.
///
/// # Panics
/// With [`text`] if the command succeeded, or failed without the words.
#[track_caller]
pub fn refused(output: Output, words: &str) -> String {
    let errors = errors(&output);
    assert!(
        !output.status.success() && errors.contains(words),
        "{}, expected {words:?}: {}",
        output.status,
        text(&output)
    );
    errors
}
