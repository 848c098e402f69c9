//! `bbs task`, `bbs cells` and `bbs domains` against a host.

use bbs_client::models;
use serde_json::json;

use super::{client, command, errors, json, succeed};
use crate::harness::database::Kind;
use crate::harness::host::Installation;
use crate::harness::modules::modules;

const TASK: &str = "task_guid: hello\ndomain: dev\nrootfs: preloaded:cflinuxfs4\naction:\n  run: { path: /bin/true, user: me }\n";

#[test]
fn task_is_created_cancelled_and_deleted() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let url = host.url("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("task.yaml");
    std::fs::write(&file, TASK).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(
        succeed(&url, &["task", "list"]),
        "There are no such tasks.\n"
    );
    assert_eq!(
        json(&url, &["task", "desire", file]),
        json!({ "task_guid": "hello" })
    );
    let list = succeed(&url, &["task", "list", "--domain", "dev"]);
    assert!(
        list.lines()
            .nth(1)
            .unwrap()
            .starts_with("hello      dev     pending"),
        "{list}"
    );
    assert_eq!(json(&url, &["task", "list", "--cell", "cell-1"]), json!([]));
    let shown = succeed(&url, &["task", "show", "hello"]);
    assert!(
        shown.contains("Action     /bin/true\n") && shown.contains("State      pending\n"),
        "{shown}"
    );
    let refused = command(&url, &["task", "delete", "hello"])
        .output()
        .unwrap();
    assert!(
        errors(&refused).contains("`bbs task cancel`"),
        "{}",
        errors(&refused)
    );
    assert_eq!(
        succeed(&url, &["task", "cancel", "hello"]),
        "the task hello is cancelled\n"
    );
    let task = json(&url, &["task", "show", "hello"]);
    assert_eq!(
        (&task["state"], &task["failed"]),
        (&json!("Completed"), &json!(true))
    );
    assert_eq!(
        succeed(&url, &["task", "delete", "hello", "--yes"]),
        "the task hello is deleted\n"
    );
    let missing = command(&url, &["task", "show", "hello"]).output().unwrap();
    assert_eq!(
        errors(&missing),
        "bbs: there is no task hello; `bbs task list` lists those that there are\n"
    );
}

/// Goal: a deletion that ended between its two steps can be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn task_that_is_resolving_already_is_deleted() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let url = host.url("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("task.yaml");
    std::fs::write(&file, TASK).unwrap();
    succeed(&url, &["task", "desire", file.to_str().unwrap()]);
    succeed(&url, &["task", "cancel", "hello"]);
    let request = models::TaskGuidRequest {
        task_guid: b"hello".to_vec(),
    };
    client(&host).resolving_task(&request).await.unwrap();
    let task = json(&url, &["task", "show", "hello"]);
    assert_eq!(task["state"], "Resolving");
    assert_eq!(
        succeed(&url, &["task", "delete", "hello", "--yes"]),
        "the task hello is deleted\n"
    );
    assert_eq!(
        succeed(&url, &["task", "list"]),
        "There are no such tasks.\n"
    );
}

#[test]
fn domains_are_set_and_listed() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let url = host.url("");
    assert_eq!(succeed(&url, &["domains"]), "No domain is fresh.\n");
    assert_eq!(
        json(&url, &["domains", "set", "cf-short", "--ttl", "1500ms"]),
        json!({ "domain": "cf-short", "ttl": 2 })
    );
    succeed(&url, &["domains", "set", "cf-apps", "--ttl", "1h"]);
    assert_eq!(
        succeed(&url, &["domains", "set", "cf-tasks", "--ttl", "0"]),
        "cf-tasks is fresh for ever\n"
    );
    let listed: Vec<String> = serde_json::from_value(json(&url, &["domains"])).unwrap();
    // The one of two seconds may be there, too.
    assert!(
        ["cf-apps", "cf-tasks"]
            .map(str::to_owned)
            .iter()
            .all(|domain| listed.contains(domain)),
        "{listed:?}"
    );
    let wrong = command(&url, &["domains", "set", "cf-apps", "--ttl", "2"])
        .output()
        .unwrap();
    assert!(
        errors(&wrong).contains("write it as in 10s"),
        "{}",
        errors(&wrong)
    );
    // Cells are Locket's, which this host has none of.
    assert_eq!(succeed(&url, &["cells"]), "There are no cells.\n");
}
