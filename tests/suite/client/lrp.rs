//! `bbs lrp` against `bbs dev`: a life of an LRP with updates, by the commands alone.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use bbs_client::{Client, models};
use serde_json::{Value, json};

use super::{client, command, errors, json, succeed};
use crate::dev::dev_with_cells;
use crate::harness::host::Host;
use crate::harness::{self, terminal};

fn example(name: &str) -> PathBuf {
    harness::workspace().join("sdk/client/examples").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The lines of a table without its heads, each as its columns.
fn rows(table: &str) -> Vec<Vec<String>> {
    table
        .lines()
        .skip(1)
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .collect()
}

#[test]
fn lrp_is_created_scaled_updated_halted_cancelled_rolled_back_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev_with_cells(folder.path(), 3);
    let url = host.url("");
    create_and_scale(&url, &mut host);
    update_to_the_end(&url);
    update_until_it_halts(&url);
    cancel_and_roll_back(&url);
    assert_eq!(
        json(&url, &["lrp", "remove", "hello", "--yes"]),
        json!({ "process_guid": "hello" })
    );
    host.wait_for_line(|line| line.ends_with("instance 0 of hello stopped"));
    assert_eq!(json(&url, &["lrp", "list"]), json!([]));
}

/// Desires the LRP `hello`, and scales it to three instances.
fn create_and_scale(url: &str, host: &mut Host) {
    assert!(succeed(url, &["lrp", "list"]).contains("`bbs lrp desire --help`"));
    let desired = succeed(url, &["lrp", "desire", text(&example("hello.yaml"))]);
    assert_eq!(
        desired,
        "hello is desired with 1 instance; `bbs lrp show hello` shows it\n"
    );
    assert_eq!(
        json(url, &["lrp", "scale", "hello", "3"]),
        json!({ "process_guid": "hello", "instances": 3 })
    );
    host.wait_for_line(|line| line.ends_with("instance 2 of hello runs"));
    let list = rows(&succeed(url, &["lrp", "list", "--domain", "dev"]));
    assert_eq!(
        list,
        [[
            "hello",
            "dev",
            "3/3",
            "0 MB",
            "0 MB",
            "preloaded:cflinuxfs4"
        ]]
    );
    assert_eq!(json(url, &["lrp", "list", "--domain", "other"]), json!([]));
    let shown = succeed(url, &["lrp", "show", "hello"]);
    for part in [
        "Instances    3 desired, 3 run\n",
        "Definition   version-1\n",
        "Action       /bin/true\n",
        "hello/2   running",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let lrp = json(url, &["lrp", "show", "hello"]);
    assert_eq!(
        (&lrp["definition_id"], &lrp["instances"]),
        (&json!("version-1"), &json!(3))
    );
    let instances = json(url, &["lrp", "instances", "hello", "--cell", "dev-cell-1"]);
    assert_eq!(
        (&instances[0]["cell_id"], &instances[0]["state"]),
        (&json!("dev-cell-1"), &json!("RUNNING"))
    );
}

/// Updates it to a definition whose instances run.
fn update_to_the_end(url: &str) {
    let begun = succeed(
        url,
        &["lrp", "update", "hello", text(&example("version-2.yaml"))],
    );
    assert_eq!(
        begun,
        "the update of hello to the definition version-2 has begun; `bbs lrp watch hello` shows it\n"
    );
    let watched = succeed(url, &["lrp", "watch", "hello"]);
    if watched.starts_with("hello: to the definition version-2: ") {
        assert_update_is_followed(&watched);
    } else {
        // The update may be over when the command looks first.
        assert_eq!(
            watched,
            "hello: no update is under way; all 3 instances run the definition version-2\n"
        );
    }
    let status = succeed(url, &["lrp", "status", "hello"]);
    assert_eq!(
        status,
        "Definition  version-2\nUpdate      none is under way\nInstances   3 of 3 run it\n"
    );
}

fn assert_update_is_followed(watched: &str) {
    assert!(
        watched.ends_with(
            "hello: the update is complete; all 3 instances run the definition version-2\n"
        ),
        "{watched}"
    );
    // That of the first may be gone before the command looks, and that of the last is the end.
    // There is none if the command looks just before the end.
    let last = watched
        .lines()
        .rfind(|line| line.starts_with("  instance "));
    assert!(
        last.is_none_or(|last| {
            last.contains(": version-1 on dev-cell-") && last.ends_with(" is gone")
        }),
        "{watched}"
    );
}

/// Updates it to a definition whose instances crash.
fn update_until_it_halts(url: &str) {
    succeed(
        url,
        &["lrp", "update", "hello", text(&example("version-3.yaml"))],
    );
    let halted = command(url, &["lrp", "watch", "hello"]).output().unwrap();
    assert_eq!(halted.status.code(), Some(1));
    let error = errors(&halted);
    assert!(
        error.starts_with("bbs: the update of hello to the definition version-3 is halted: "),
        "{error}"
    );
    assert!(
        error.contains("exit status 1") && error.contains("`bbs lrp cancel hello`"),
        "{error}"
    );
    let status = json(url, &["lrp", "status", "hello"]);
    assert_eq!(
        (
            &status["running_previous"],
            &status["previous_definition_id"]
        ),
        (&json!(3), &json!("version-2"))
    );
    assert!(succeed(url, &["lrp", "status", "hello"]).contains("\nHalted      since "));
    let refused = command(
        url,
        &["lrp", "update", "hello", text(&example("version-2.yaml"))],
    )
    .output()
    .unwrap();
    assert!(
        errors(&refused).contains("an update of hello is under way"),
        "{}",
        errors(&refused)
    );
}

/// Cancels that update, and rolls back to the first definition.
fn cancel_and_roll_back(url: &str) {
    let cancelled = succeed(url, &["lrp", "cancel", "hello"]);
    assert!(
        cancelled.contains("the definition version-2"),
        "{cancelled}"
    );
    assert!(
        succeed(url, &["lrp", "watch", "hello"])
            .contains("all 3 instances run the definition version-2\n")
    );
    let definitions = rows(&succeed(url, &["lrp", "definitions", "hello"]));
    let ids: Vec<_> = definitions.iter().map(|row| (&*row[0], &*row[1])).collect();
    assert!(
        ids.contains(&("version-2", "current")) && ids.contains(&("version-1", "archived")),
        "{ids:?}"
    );
    let archived = json(url, &["lrp", "definitions", "hello"]);
    let of_first = archived
        .as_array()
        .unwrap()
        .iter()
        .find(|found| found["definition"]["definition_id"] == "version-1");
    assert_eq!(
        of_first.unwrap()["definition"]["action"]["run"]["path"],
        "/bin/true"
    );
    succeed(url, &["lrp", "rollback", "hello", "version-1"]);
    assert!(
        succeed(url, &["lrp", "watch", "hello"])
            .contains("all 3 instances run the definition version-1\n")
    );
}

/// Goal: a program can follow an update.
#[test]
fn watch_prints_each_event_and_each_status_as_a_line_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = dev_with_cells(folder.path(), 1);
    let url = host.url("");
    succeed(&url, &["lrp", "desire", text(&example("hello.yaml"))]);
    host.wait_for_line(|line| line.ends_with("instance 0 of hello runs"));
    let original = std::fs::read_to_string(example("version-2.yaml")).unwrap();
    let watched = |number: u32| {
        let version = format!("version-{number}");
        let file = folder.path().join("update.yaml");
        std::fs::write(&file, original.replace("version-2", &version)).unwrap();
        succeed(&url, &["lrp", "update", "hello", text(&file)]);
        let watched = succeed(&url, &["lrp", "watch", "hello", "--json"]);
        let lines = watched
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON on each line"));
        let lines: Vec<Value> = lines.collect();
        assert_eq!(lines[0]["status"]["definition_id"], version);
        lines
    };
    // The update may be over when the command looks first.
    let lines = (2..8)
        .map(watched)
        .find(|lines| {
            lines[0]["status"]["previous_definition_id"] != ""
                && lines.iter().any(|line| line.get("event").is_some())
        })
        .expect("an update that is under way, with an event");
    let last = lines
        .iter()
        .rfind(|line| line.get("status").is_some())
        .unwrap();
    assert_eq!(
        (
            &last["status"]["previous_definition_id"],
            &last["status"]["running"]
        ),
        (&json!(""), &json!(1))
    );
    let event = lines
        .iter()
        .rfind(|line| line.get("event").is_some())
        .expect("an event");
    assert_eq!(event["event"], "actual_lrp_instance_removed");
    assert!(event["content"].is_object(), "{event}");
}

fn key(index: i32) -> Option<models::ActualLrpKey> {
    Some(models::ActualLrpKey {
        process_guid: b"hello".to_vec(),
        index,
        domain: b"dev".to_vec(),
    })
}

fn container(index: i32) -> Option<models::ActualLrpInstanceKey> {
    Some(models::ActualLrpInstanceKey {
        instance_guid: format!("container-{index}").into(),
        cell_id: b"cell".to_vec(),
    })
}

/// A cell claims an instance of the LRP `hello`.
async fn claim(client: &Client, index: i32) {
    let request = models::ClaimActualLrpRequest {
        process_guid: b"hello".to_vec(),
        index,
        actual_lrp_instance_key: container(index),
    };
    client.claim_actual_lrp(&request).await.unwrap();
}

/// A cell claims an instance of the LRP `hello` and starts it.
async fn start(client: &Client, index: i32) {
    claim(client, index).await;
    let net_info = models::ActualLrpNetInfo {
        address: b"10.0.0.1".to_vec(),
        ..Default::default()
    };
    let request = models::StartActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: container(index),
        actual_lrp_net_info: Some(net_info),
        routable: Some(true),
        ..Default::default()
    };
    client.start_actual_lrp(&request).await.unwrap();
}

/// An instance of the LRP `hello` crashes so often that it is not restarted at once.
async fn crash_three_times(client: &Client, index: i32) {
    for _ in 0..3 {
        claim(client, index).await;
        let request = models::CrashActualLrpRequest {
            actual_lrp_key: key(index),
            actual_lrp_instance_key: container(index),
            error_message: b"exit status 7".to_vec(),
        };
        client.crash_actual_lrp(&request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_without_an_update_fails_if_instances_fail() {
    let folder = tempfile::tempdir().unwrap();
    let host = dev_with_cells(folder.path(), 0);
    let url = host.url("");
    succeed(&url, &["lrp", "desire", text(&example("hello.yaml"))]);
    assert_eq!(
        succeed(&url, &["lrp", "watch", "hello"]),
        "hello: no update is under way; the definition version-1: 0 of 1 run it, 1 do not run yet\n"
    );
    crash_three_times(&client(&host), 0).await;
    let failed = command(&url, &["lrp", "watch", "hello"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&failed.stdout),
        "hello: no update is under way; the definition version-1: 0 of 1 run it, 1 fail\n"
    );
    let error = errors(&failed);
    assert!(
        error.starts_with(
            "bbs: instances of hello fail with the definition version-1: exit status 7 (0 of 1 run it, 1 fail); "
        ),
        "{error}"
    );
}

/// Goal: the advice about a cancelled update that is halted leads out of it.
#[tokio::test(flavor = "multi_thread")]
async fn watch_of_a_halted_cancellation_advises_commands_that_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let host = dev_with_cells(folder.path(), 0);
    let url = host.url("");
    succeed(&url, &["lrp", "desire", text(&example("hello.yaml"))]);
    succeed(&url, &["lrp", "scale", "hello", "2"]);
    succeed(
        &url,
        &["lrp", "update", "hello", text(&example("version-2.yaml"))],
    );
    let cells = client(&host);
    start(&cells, 0).await;
    succeed(&url, &["lrp", "cancel", "hello"]);
    crash_three_times(&cells, 1).await;
    let halted = command(&url, &["lrp", "watch", "hello"]).output().unwrap();
    assert_eq!(halted.status.code(), Some(1));
    let error = errors(&halted);
    assert!(
        error.starts_with(
            "bbs: the cancelled update of hello cannot return to the definition version-1: exit status 7 ("
        ),
        "{error}"
    );
    assert!(
        error.contains("`bbs lrp update`")
            && error.contains("`bbs lrp rollback`")
            && !error.contains("`bbs lrp cancel"),
        "{error}"
    );
    assert_eq!(
        succeed(
            &url,
            &["lrp", "update", "hello", text(&example("version-3.yaml"))]
        ),
        "the update of hello to the definition version-3 has begun; `bbs lrp watch hello` shows it\n"
    );
    let definitions = rows(&succeed(&url, &["lrp", "definitions", "hello"]));
    let states: Vec<_> = definitions.iter().map(|row| (&*row[0], &*row[1])).collect();
    assert_eq!(
        states,
        [
            ("version-3", "current"),
            ("version-1", "previous"),
            ("version-2", "archived")
        ]
    );
}

#[test]
fn file_is_read_from_standard_input_and_the_shown_lrp_can_be_desired_again() {
    let folder = tempfile::tempdir().unwrap();
    let host = dev_with_cells(folder.path(), 0);
    let url = host.url("");
    let desire = |lrp: &[u8]| {
        let mut desire = command(&url, &["lrp", "desire", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        desire.stdin.take().unwrap().write_all(lrp).unwrap();
        assert!(
            desire.wait().unwrap().success(),
            "{}",
            String::from_utf8_lossy(lrp)
        );
    };
    desire(&std::fs::read(example("hello.yaml")).unwrap());
    let shown = json(&url, &["lrp", "show", "hello"]);
    succeed(&url, &["lrp", "remove", "hello"]);
    desire(shown.to_string().as_bytes());
    let again = json(&url, &["lrp", "show", "hello"]);
    // Of the record, not of what is desired.
    let without_tag = |mut lrp: Value| {
        lrp.as_object_mut()
            .unwrap()
            .remove("modification_tag")
            .map(|_| lrp)
    };
    assert_eq!(without_tag(again), without_tag(shown));
    let update = folder.path().join("update.json");
    std::fs::write(&update, r#"{"annotation":"changed","instances":2}"#).unwrap();
    let changed = succeed(&url, &["lrp", "update", "hello", text(&update)]);
    assert_eq!(changed, "hello is changed; `bbs lrp show hello` shows it\n");
    let lrp = json(&url, &["lrp", "show", "hello"]);
    assert_eq!(
        (&lrp["annotation"], &lrp["instances"]),
        (&json!("changed"), &json!(2))
    );
}

#[test]
fn removal_is_confirmed_at_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let host = dev_with_cells(folder.path(), 0);
    let url = host.url("");
    succeed(&url, &["lrp", "desire", text(&example("hello.yaml"))]);
    let remove = command(&url, &["lrp", "remove", "hello"]);
    let refused = terminal::run(&remove, "n");
    assert!(
        !refused.status.success() && refused.output.contains("nothing was done"),
        "{}",
        refused.output
    );
    assert_eq!(
        json(&url, &["lrp", "show", "hello"])["process_guid"],
        "hello"
    );
    let confirmed = terminal::run(&remove, "y");
    assert!(
        confirmed.status.success() && confirmed.output.contains("[y/N]"),
        "{}",
        confirmed.output
    );
    assert_eq!(json(&url, &["lrp", "list"]), json!([]));
}
