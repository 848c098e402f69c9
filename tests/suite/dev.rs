//! `bbs dev`, the first command of the README, and a migration from `module new` to a running host.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use bbs_proto::models as proto;
use tokio::sync::watch;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::load::calls::Caller;
use crate::harness::{self, host::Host, host::Installation, modules};

fn dev(data: &Path) -> Host {
    dev_with_cells(data, 1)
}

/// Starts `bbs dev` with this number of simulated cells.
pub(crate) fn dev_with_cells(data: &Path, cells: u16) -> Host {
    Host::start(dev_command(data, cells), "serving diego's api")
}

fn dev_command(data: &Path, cells: u16) -> Command {
    let mut command = harness::command();
    command
        .args(["dev", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .arg("--modules")
        .arg(modules::modules());
    command.args(["--cells", &cells.to_string()]);
    command
}

/// Runs a printed command line: the part before `curl` in a shell; the request of `curl` is sent by
/// this process, because not every machine has curl.
async fn follow(line: &str) -> Vec<u8> {
    let (before, curl) = line.split_once("curl").expect("the line uses curl");
    let body = match before.trim().strip_suffix('|') {
        None => Vec::new(),
        Some(command) => {
            let output = Command::new("sh")
                .args(["-c", command])
                .output()
                .expect("a shell starts");
            assert!(
                output.status.success(),
                "{line}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            output.stdout
        }
    };
    let url = curl
        .split_whitespace()
        .find(|word| word.starts_with("http://"))
        .expect("the line has a URL");
    let response = crate::harness::http_client()
        .post(url)
        .body(body)
        .send()
        .await
        .expect("the host answers");
    assert!(
        response.status().is_success(),
        "{line}: {}",
        response.status()
    );
    response.bytes().await.expect("a complete answer").to_vec()
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_serves_and_the_requests_that_it_prints_work() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev(folder.path());
    let create = host.wait_for_line(|line| line.contains("/v0.9/desired_lrps/create"));
    let list = host.wait_for_line(|line| line.contains("/v1/desired_lrps/list.r3"));
    assert_eq!(
        follow(&create).await,
        b"",
        "an LRP created without an error is an empty response"
    );
    assert!(contains(&follow(&list).await, "hello"));
    let running = host.wait_for_line(|line| line.contains("/v1/actual_lrps/list"));
    wait_for(&mut host, &["dev-cell-1: instance 0 of hello runs"]);
    assert!(contains(&follow(&running).await, "dev-cell-1"));
}

/// The commands of the README's section about updates, in order, without the one that starts the
/// host.
fn commands_of_the_readme() -> Vec<String> {
    let readme = std::fs::read_to_string(harness::workspace().join("README.md")).unwrap();
    let section = readme
        .split("## Update what an LRP runs")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next());
    let lines = section
        .expect("the section")
        .lines()
        .filter_map(|line| line.strip_prefix("    cargo run -- lrp "));
    lines
        .map(|words| format!("cargo run -- lrp {words}"))
        .collect()
}

/// Runs a command of the README as it stands there, in the repository, with the executable that is
/// there already in the place of `cargo run`, and the host at an address of its own.
fn as_a_reader(line: &str, address: &str) -> std::process::Output {
    let script = format!("cargo() {{ shift 2; \"$BBS\" \"$@\"; }}\n{line}");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .current_dir(harness::workspace());
    shell
        .env("BBS", harness::bbs())
        .env("BBS_URL", address)
        .output()
        .expect("a shell starts")
}

/// Goal: what the README says about updates happens.
#[tokio::test(flavor = "multi_thread")]
async fn readme_updates_cancels_and_rolls_back_an_lrp() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev_with_cells(folder.path(), 3);
    let address = host.url("");
    let mut commands = commands_of_the_readme().into_iter();
    let mut next = |expected: &str, code: i32| {
        let line = commands.next().expect("a command");
        assert!(line.contains(expected), "{line}");
        let output = as_a_reader(&line, &address);
        let text = [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat();
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        text
    };
    next("desire", 0);
    next("scale", 0);
    host.wait_for_line(|line| line.ends_with("instance 2 of hello runs"));
    next("version-2.yaml", 0);
    assert!(next("watch", 0).contains("all 3 instances run the definition version-2"));
    host.wait_for_line(|line| line == "hello: the update to the definition version-2 is complete");

    next("version-3.yaml", 0);
    let halted = next("watch", 1);
    assert!(
        halted.contains("is halted: ") && halted.contains("exit status 1"),
        "{halted}"
    );
    host.wait_for_line(|line| {
        line.starts_with("hello: the update to the definition version-3 is halted: ")
    });
    next("cancel", 0);
    assert!(next("watch", 0).contains("all 3 instances run the definition version-2"));

    next("rollback hello version-1", 0);
    let definitions = next("definitions", 0);
    for part in [
        "version-1",
        "version-2",
        "version-3",
        "/bin/true",
        "/bin/cat",
        "/bin/false",
    ] {
        assert!(definitions.contains(part), "{part} is not in {definitions}");
    }
    for index in 0..3 {
        host.wait_for_line(|line| line.ends_with(&format!("instance {index} of hello runs")));
    }
    host.wait_for_line(|line| line == "hello: the update to the definition version-1 is complete");
    assert_eq!(commands.next(), None);
}

/// Goal: without the repository, the modules that were shipped with the executable are used, as by
/// `bbs serve`.
#[test]
fn dev_outside_a_repository_uses_the_modules_beside_the_executable() {
    let shipped = tempfile::tempdir().unwrap();
    let executable = shipped.path().join("bbs");
    std::fs::copy(harness::bbs(), &executable).unwrap();
    let command = || {
        let mut command = std::process::Command::new(&executable);
        let environment = harness::command();
        let variables = environment
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        command
            .envs(variables)
            .args(["dev", "--listen", "127.0.0.1:0", "--cells", "0"])
            .current_dir(shipped.path());
        command
    };
    let output = command().output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("nor any beside the executable") && error.contains("`--modules`"),
        "{error}"
    );
    assert_eq!(output.status.code(), Some(2), "{error}");
    modules::copy_folder(&modules::modules(), &shipped.path().join("modules"));
    drop(Host::start(command(), "serving diego's api"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_keeps_its_database_between_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev(folder.path());
    follow(&host.wait_for_line(|line| line.contains("/v0.9/desired_lrps/create"))).await;
    host.stop();
    let mut host = dev(folder.path());
    let list = host.wait_for_line(|line| line.contains("/v1/desired_lrps/list.r3"));
    assert!(contains(&follow(&list).await, "hello"));
}

#[test]
fn second_dev_in_the_same_folder_ends_and_names_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let host = dev(folder.path());
    let second = Host::begin(dev_command(folder.path(), 1));
    let (status, output) = second.wait_for_end();
    assert_eq!(status.code(), Some(2), "{output}");
    let words = format!("process {}, which serves from", host.pid());
    assert!(output.contains(&words), "{output}");
}

#[test]
fn options_with_which_no_host_can_start_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.yaml");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = occupied.local_addr().unwrap().to_string();
    for (data, listen, part) in [
        (
            file,
            "127.0.0.1:0",
            "is a file; name a folder with `--data`",
        ),
        ("/proc/x", "127.0.0.1:0", "cannot create /proc/x"),
        (data, "0.0.0.0:0", "give `--listen` an address"),
        (data, occupied.as_str(), "or change `--listen`"),
    ] {
        let mut command = harness::command();
        command
            .args(["dev", "--cells", "0", "--data", data, "--listen", listen])
            .arg("--modules")
            .arg(modules::modules());
        let (status, output) = Host::begin(command).wait_for_end();
        assert_eq!(status.code(), Some(2), "{output}");
        assert!(output.contains(part), "{part:?} is not in {output}");
    }
}

fn caller(host: &Host) -> Caller {
    Caller::new(watch::channel(host.url("")).1)
}

fn action(path: &str) -> Option<proto::Action> {
    let run = proto::RunAction {
        path: path.into(),
        user: "me".into(),
        ..Default::default()
    };
    Some(proto::Action {
        run_action: Some(run),
        ..Default::default()
    })
}

async fn desire(host: &Host, process_guid: &str, path: &str, instances: i32) {
    let source = proto::MetricTagValue {
        r#static: process_guid.into(),
        ..Default::default()
    };
    let lrp = proto::DesiredLrp {
        process_guid: process_guid.into(),
        domain: "dev".into(),
        root_fs: "preloaded:cflinuxfs4".into(),
        instances,
        action: action(path),
        ports: vec![8080],
        metric_tags: vec![proto::MetricTagEntry {
            key: "source_id".into(),
            value: Some(source),
        }],
        ..Default::default()
    };
    caller(host).desire(&lrp).await.unwrap();
}

/// Waits until each of these lines was printed, in any order.
#[track_caller]
fn wait_for(host: &mut Host, lines: &[&str]) {
    let mut missing = lines.to_vec();
    while !missing.is_empty() {
        let line = host.wait_for_line(|line| missing.contains(&line));
        missing.retain(|wanted| *wanted != line);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_cells_run_instances_until_they_are_not_desired() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev_with_cells(folder.path(), 2);
    desire(&host, "app", "/bin/app", 3).await;
    host.wait_for_line(|line| line.ends_with("instance 2 of app runs"));
    let update = proto::DesiredLrpUpdate {
        instances: Some(1),
        ..Default::default()
    };
    caller(&host).update(b"app", &update).await.unwrap();
    host.wait_for_line(|line| line.ends_with("instance 2 of app stopped"));
    caller(&host).remove(b"app").await.unwrap();
    host.wait_for_line(|line| line.ends_with("instance 0 of app stopped"));
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_cells_share_instances_and_a_cell_that_is_gone_loses_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev_with_cells(folder.path(), 2);
    desire(&host, "app", "/bin/app", 1).await;
    wait_for(&mut host, &["dev-cell-1: instance 0 of app runs"]);
    desire(&host, "other", "/bin/app", 1).await;
    wait_for(&mut host, &["dev-cell-2: instance 0 of other runs"]);
    host.stop();
    let mut host = dev_with_cells(folder.path(), 1);
    wait_for(
        &mut host,
        &[
            "dev-cell-2: instance 0 of other crashed: its cell does not run any more",
            "dev-cell-1: instance 0 of other runs",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_cells_run_tasks_and_what_runs_bin_false_fails() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev_with_cells(folder.path(), 1);
    desire(&host, "faulty", "/bin/false", 1).await;
    let crash = "dev-cell-1: instance 0 of faulty crashed: /bin/false ended with exit status 1";
    for _ in 0..3 {
        host.wait_for_line(|line| line == crash);
    }
    for (guid, path) in [("sound", "/bin/true"), ("failing", "/bin/false")] {
        let definition = proto::TaskDefinition {
            root_fs: "preloaded:cflinuxfs4".into(),
            action: action(path),
            ..Default::default()
        };
        let request = proto::DesireTaskRequest {
            task_definition: Some(definition),
            task_guid: guid.into(),
            domain: "dev".into(),
        };
        caller(&host)
            .change("tasks/desire.r2", &request)
            .await
            .unwrap();
    }
    wait_for(
        &mut host,
        &[
            "dev-cell-1: task sound completed",
            "dev-cell-1: task failing failed",
        ],
    );
}

on_each_database!(a_new_migration_runs_at_the_next_start_of_the_same_host);
async fn a_new_migration_runs_at_the_next_start_of_the_same_host(kind: Kind) {
    let built = tempfile::tempdir().unwrap();
    modules::copy_folder(&modules::modules(), built.path());
    let installation = Installation::new(built.path(), kind);
    installation.serve().stop();
    let before = status(&installation);

    for (name, content) in files_with_a_new_migration() {
        std::fs::write(built.path().join(name), content).unwrap();
    }

    installation.serve().stop();
    let after = status(&installation);
    assert_ne!(before["newest"], after["newest"]);
    assert_eq!(after["found"]["versioned"]["current"], after["newest"]);
}

/// The files of a folder with the default modules, into which the author of a new migration has
/// built it: once for the tests on all databases.
fn files_with_a_new_migration() -> &'static [(OsString, Vec<u8>)] {
    static FILES: OnceLock<Vec<(OsString, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let workbench = modules::AuthorsFolder::locked();
        let built = workbench.path().join("built");
        modules::copy_folder(&modules::modules(), &built);
        let sdk = harness::workspace().join("sdk");
        module(
            workbench.path(),
            &["new", "add-colour", "--sdk", sdk.to_str().unwrap()],
        );
        let build = ["build", "add-colour", "--into", "built"];
        module(workbench.path(), &build);
        let files = std::fs::read_dir(built).unwrap().map(Result::unwrap);
        files
            .map(|file| (file.file_name(), std::fs::read(file.path()).unwrap()))
            .collect()
    })
}

fn status(installation: &Installation) -> serde_json::Value {
    serde_json::from_str(&installation.succeed(&["migrate", "status", "--json"]))
        .expect("status prints JSON")
}

#[track_caller]
fn module(folder: &Path, arguments: &[&str]) {
    let mut command = harness::command();
    command
        .arg("module")
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", modules::authors_target());
    let output = command.output().expect("the executable starts");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
