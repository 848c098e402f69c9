//! `bbs dev`, the first command of the README, and a migration from `module new` to a running host.

use std::path::Path;
use std::process::Command;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::{self, host::Host, host::Installation, modules};

fn dev(data: &Path) -> Host {
    let mut command = Command::new(harness::bbs());
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data).arg("--modules").arg(modules::modules());
    // The cache of compiled modules that the tests share.
    command.env("XDG_CACHE_HOME", harness::once::folder()).env_remove("CACHE_DIRECTORY");
    Host::start(command, "serving diego's api")
}

/// Runs a printed command line: the part before `curl` in a shell; the request of `curl` is sent by this process,
/// because not every machine has curl.
async fn follow(line: &str) -> Vec<u8> {
    let (before, curl) = line.split_once("curl").expect("the line uses curl");
    let body = match before.trim().strip_suffix('|') {
        None => Vec::new(),
        Some(command) => {
            let output = Command::new("sh").args(["-c", command]).output().expect("a shell starts");
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        }
    };
    let url = curl.split_whitespace().find(|word| word.starts_with("http://")).expect("the line has a URL");
    let response = crate::harness::http_client().post(url).body(body).send().await.expect("the host answers");
    assert!(response.status().is_success(), "{line}: {}", response.status());
    response.bytes().await.expect("a complete answer").to_vec()
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_serves_and_the_two_requests_it_prints_work() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev(folder.path());
    let create = host.wait_for_line(|line| line.contains("/v0.9/desired_lrps/create"));
    let list = host.wait_for_line(|line| line.contains("/v1/desired_lrps/list.r3"));
    assert_eq!(follow(&create).await, b"", "an LRP created without an error is an empty response");
    assert!(contains(&follow(&list).await, "hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_keeps_its_database_between_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev(folder.path());
    follow(&host.wait_for_line(|line| line.contains("/v0.9/desired_lrps/create"))).await;
    assert!(host.terminate().success());
    let mut host = dev(folder.path());
    let list = host.wait_for_line(|line| line.contains("/v1/desired_lrps/list.r3"));
    assert!(contains(&follow(&list).await, "hello"));
}

on_each_database!(a_new_migration_runs_at_the_next_start_of_the_same_host);
async fn a_new_migration_runs_at_the_next_start_of_the_same_host(kind: Kind) {
    let built = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(modules::modules()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), built.path().join(entry.file_name())).unwrap();
    }
    let installation = Installation::new(built.path(), kind);
    assert!(installation.serve().terminate().success());
    let before = status(&installation);

    let workbench = tempfile::tempdir().unwrap();
    let sdk = harness::workspace().join("sdk");
    module(workbench.path(), &["new", "add-owner", "--sdk", sdk.to_str().unwrap()]);
    module(workbench.path(), &["build", "add-owner", "--into", built.path().to_str().unwrap()]);

    assert!(installation.serve().terminate().success());
    let after = status(&installation);
    assert_ne!(before["newest"], after["newest"]);
    assert_eq!(after["found"]["versioned"]["current"], after["newest"]);
}

fn status(installation: &Installation) -> serde_json::Value {
    serde_json::from_str(&installation.succeed(&["migrate", "status", "--json"])).expect("status prints JSON")
}

#[track_caller]
fn module(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new(harness::bbs());
    command.arg("module").args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", modules::authors_target());
    let output = command.output().expect("the executable starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
