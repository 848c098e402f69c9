//! The Go package `sdk/go`: its own tests, and its tests against real hosts. They need Go 1.19 or
//! later; `tests/run` leaves this area out where there is none.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dev::dev_with_cells;
use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::output::succeeded;
use crate::harness::workspace;

fn package() -> PathBuf {
    workspace().join("sdk/go")
}

/// Runs a program that must succeed, and returns its output.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    // Neither another version of Go nor a module is fetched.
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOPROXY", "off")
        .env_remove("GOFLAGS");
    let output = command.output();
    succeeded(
        output.unwrap_or_else(|error| panic!("{command:?}: {error}; install Go 1.19 or later")),
    )
}

fn go(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(folder);
    command
}

/// Runs a test of the package against the host of the variables, which must not be skipped.
#[track_caller]
fn integration(test: &str, variables: &[(&str, String)]) {
    let run = format!("^{test}$");
    let mut command = go(
        &[
            "test",
            "-tags",
            "integration",
            "-count=1",
            "-v",
            "-run",
            &run,
            ".",
        ],
        &package(),
    );
    let output = succeed(command.envs(variables.iter().map(|(name, value)| (name, value))));
    assert!(output.contains(&format!("--- PASS: {test}")), "{output}");
}

#[test]
fn package_is_vetted_and_its_own_tests_pass() {
    succeed(&mut go(
        &["vet", "-tags", "integration", "./..."],
        &package(),
    ));
    let output = succeed(&mut go(&["test", "-count=1", "-v", "./..."], &package()));
    assert!(
        output.contains("--- PASS: TestGeneratedFileIsThatOfTheProtoFiles"),
        "{output}"
    );
    assert!(!output.contains("--- SKIP"), "{output}");
}

/// Goal: the command of the SDK's README makes the package usable from another module.
#[test]
fn module_with_the_command_of_the_readme_builds_with_the_package() {
    let readme = std::fs::read_to_string(workspace().join("sdk/README.md")).unwrap();
    let command = readme
        .lines()
        .find_map(|line| line.strip_prefix("    go mod edit "))
        .expect("the command");
    let command = command.replace("../bbs/sdk/go", &package().display().to_string());
    let module = tempfile::tempdir().unwrap();
    let program = "package main\n\nimport bbs \"bbs/sdk/go\"\n\nfunc main() { _, _ = bbs.New(bbs.Config{}) }\n";
    std::fs::write(module.path().join("main.go"), program).unwrap();
    succeed(&mut go(&["mod", "init", "example.com/app"], module.path()));
    succeed(go(&["mod", "edit"], module.path()).args(command.split_whitespace()));
    succeed(&mut go(&["build", "-o", "app", "."], module.path()));
    assert!(module.path().join("app").exists());
}

/// Goal: clients in Go update, follow, cancel and roll back what an LRP runs.
/// Method: the package's test against `bbs dev`, whose simulated cells run the instances.
#[test]
fn client_updates_cancels_and_rolls_back_an_lrp() {
    let folder = tempfile::tempdir().unwrap();
    let host = dev_with_cells(folder.path(), 3);
    integration("TestUpdates", &[("BBS_URL", host.url(""))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_is_served_over_mutual_tls_and_only_with_its_certificate() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let file = |name: &str| deployment.certs().join(name).display().to_string();
    let variables = [
        ("BBS_URL", format!("https://{}", host.address)),
        ("BBS_CA_FILE", file("ca.crt")),
        ("BBS_CERT_FILE", file("client.crt")),
        ("BBS_KEY_FILE", file("client.key")),
    ];
    integration("TestMutualTLS", &variables);
}
