//! The client crate against real hosts: all routes, a life of an LRP and of a task, both streams,
//! TLS, and a host that is not ready. The commands that use it are in the files beside.

mod diego;
mod help;
mod lrp;
mod mistakes;
mod task;

use std::collections::BTreeSet;
use std::process::Command;

use bbs::testing::progress::Counted;
use bbs_client::models::error::Type;
use bbs_client::{
    CallError, Client, Identity, LrpInstanceEvent, Options, Retries, TaskEvent, TlsFiles, Version,
    models, routes,
};
use serde_json::Value;

use crate::harness;
use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::host::{Host, Installation};
use crate::harness::modules::modules;
use crate::harness::output::{errors, succeeded};
use crate::harness::ports::free_address;
use crate::harness::server::{Options as ServerOptions, Server};

/// A command that calls the BBS at an address.
fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = harness::command();
    command
        .args(arguments)
        .args(["--url", url])
        .stdin(std::process::Stdio::null());
    command
}

/// Runs a command that has to succeed, and returns its standard output.
#[track_caller]
fn succeed(url: &str, arguments: &[&str]) -> String {
    succeeded(command(url, arguments).output().unwrap())
}

/// [`succeed`] with the result as JSON.
#[track_caller]
fn json(url: &str, arguments: &[&str]) -> Value {
    let text = succeed(url, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
}

fn client(host: &Host) -> Client {
    Client::new(&host.url(""), Options::default()).unwrap()
}

/// A native route, as `bbs api versions` prints it.
type NamedRoute = (String, String);

/// Goal: no method of the API is without a call, and none has another name or path.
#[test]
fn client_has_every_native_route_of_both_versions() {
    let output = harness::command()
        .args(["api", "versions", "--json"])
        .arg(modules())
        .output()
        .unwrap();
    let versions: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_host = |version: &str, root: &str| -> BTreeSet<NamedRoute> {
        let found = versions
            .as_array()
            .unwrap()
            .iter()
            .find(|found| found["version"] == version)
            .expect("a version");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let methods = found["methods"].as_array().unwrap().iter();
        methods
            .map(|method| {
                (
                    text(&method["name"]),
                    text(&method["path"]).replacen(root, "", 1),
                )
            })
            .collect()
    };
    let of_client = |version: Version| -> BTreeSet<NamedRoute> {
        let has = |only: Option<Version>| only.is_none_or(|only| only == version);
        routes()
            .filter(|route| has(route.only))
            .map(|route| (route.name.to_owned(), route.path.to_owned()))
            .collect()
    };
    assert_eq!(of_client(Version::Diego), of_host("1.1", "/v1/"));
    assert_eq!(of_client(Version::Definitions), of_host("1.2", ""));
}

fn hello() -> models::DesiredLrp {
    let source = models::MetricTagValue {
        r#static: b"hello".to_vec(),
        ..Default::default()
    };
    let run = models::RunAction {
        path: b"/bin/true".to_vec(),
        user: b"me".to_vec(),
        ..Default::default()
    };
    models::DesiredLrp {
        process_guid: b"hello".to_vec(),
        domain: b"dev".to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: 1,
        action: Some(models::Action {
            run_action: Some(run),
            ..Default::default()
        }),
        metric_tags: vec![models::MetricTagEntry {
            key: b"source_id".to_vec(),
            value: Some(source),
        }],
        definition_id: b"version-1".to_vec(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lrp_lives_from_desire_to_removal_and_its_events_arrive() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let client = client(&host);
    let newest = client.speaking(Version::Definitions);
    assert!(client.ping(&()).await.unwrap().available);
    let mut events = newest.lrp_instance_events("").await.unwrap();
    let desire = models::DesireLrpRequest {
        desired_lrp: Some(hello()),
    };
    newest.traced("trace-1").desire_lrp(&desire).await.unwrap();
    assert_eq!(
        client.desire_lrp(&desire).await.unwrap_err().kind(),
        Some(Type::ResourceExists)
    );
    match events.next().await.unwrap() {
        Some(LrpInstanceEvent::DesiredLrpCreated(event)) => {
            assert_eq!(
                (&*event.trace_id, event.desired_lrp.unwrap().definition_id),
                (&b"trace-1"[..], b"version-1".to_vec())
            );
        }
        other => panic!("{other:?}"),
    }
    let Some(LrpInstanceEvent::InstanceCreated(created)) = events.next().await.unwrap() else {
        panic!("no instance")
    };
    let key = created.actual_lrp.unwrap().actual_lrp_key.unwrap();

    let by_guid = models::DesiredLrpByProcessGuidRequest {
        process_guid: b"hello".to_vec(),
    };
    let of_diego = client
        .desired_lrp(&by_guid)
        .await
        .unwrap()
        .desired_lrp
        .unwrap();
    assert_eq!(
        of_diego.definition_id, b"",
        "clients of Diego's API get Diego's answers"
    );
    let instance = models::ActualLrpInstanceKey {
        instance_guid: b"instance".to_vec(),
        cell_id: b"cell-1".to_vec(),
    };
    let claim = models::ClaimActualLrpRequest {
        process_guid: key.process_guid.clone(),
        index: key.index,
        actual_lrp_instance_key: Some(instance.clone()),
    };
    client.claim_actual_lrp(&claim).await.unwrap();
    let Some(LrpInstanceEvent::InstanceChanged(changed)) = events.next().await.unwrap() else {
        panic!("no change")
    };
    assert_eq!(changed.after.unwrap().state, b"CLAIMED");

    let status = models::DesiredLrpUpdateStatusRequest {
        process_guid: b"hello".to_vec(),
    };
    let status = client
        .desired_lrp_update_status(&status)
        .await
        .unwrap()
        .status
        .unwrap();
    assert_eq!(
        (&*status.definition_id, status.waiting),
        (&b"version-1"[..], 1)
    );
    let cancel = models::CancelUpdateDesiredLrpRequest {
        process_guid: b"hello".to_vec(),
    };
    let error = client.cancel_update_desired_lrp(&cancel).await.unwrap_err();
    assert_eq!(error.kind(), Some(Type::NoUpdateInProgress));
    client
        .remove_desired_lrp(&models::RemoveDesiredLrpRequest {
            process_guid: b"hello".to_vec(),
        })
        .await
        .unwrap();
    assert_eq!(
        client.desired_lrp(&by_guid).await.unwrap_err().kind(),
        Some(Type::ResourceNotFound)
    );
    host.stop();
    // The rest of the stream, and then its end.
    while let Some(event) = events.next().await.unwrap() {
        assert!(event.name().contains("lrp"), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_lives_from_desire_to_deletion_and_its_events_arrive() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let client = client(&host);
    let mut events = client.task_events().await.unwrap();
    let definition = models::TaskDefinition {
        root_fs: hello().root_fs,
        action: hello().action,
        ..Default::default()
    };
    let desire = models::DesireTaskRequest {
        task_definition: Some(definition),
        task_guid: b"task".to_vec(),
        domain: b"dev".to_vec(),
    };
    client.desire_task(&desire).await.unwrap();
    let start = models::StartTaskRequest {
        task_guid: b"task".to_vec(),
        cell_id: b"cell-1".to_vec(),
    };
    assert!(client.start_task(&start).await.unwrap().should_start);
    let guid = models::TaskGuidRequest {
        task_guid: b"task".to_vec(),
    };
    assert_eq!(
        client.delete_task(&guid).await.unwrap_err().kind(),
        Some(Type::InvalidStateTransition)
    );
    client.cancel_task(&guid).await.unwrap();
    let task = client
        .task(&models::TaskByGuidRequest {
            task_guid: b"task".to_vec(),
        })
        .await
        .unwrap()
        .task
        .unwrap();
    assert!(task.failed);
    client.resolving_task(&guid).await.unwrap();
    client.delete_task(&guid).await.unwrap();
    assert_eq!(
        client
            .tasks(&models::TasksRequest::default())
            .await
            .unwrap()
            .tasks,
        []
    );
    let mut names = Vec::new();
    while names.last() != Some(&"task_removed") {
        let event: TaskEvent = events.next().await.unwrap().expect("an event");
        names.push(event.name());
    }
    assert_eq!(names[0], "task_created");
    assert!(
        names[1..names.len() - 1]
            .iter()
            .all(|name| *name == "task_changed"),
        "{names:?}"
    );
}

/// An action of `levels` actions inside each other, with a message inside of the innermost one.
fn nested(levels: usize) -> models::Action {
    let run = models::RunAction {
        path: b"/bin/true".to_vec(),
        user: b"me".to_vec(),
        env: vec![models::EnvironmentVariable {
            name: b"A".to_vec(),
            value: b"1".to_vec(),
        }],
        ..Default::default()
    };
    let innermost = models::Action {
        run_action: Some(run),
        ..Default::default()
    };
    (1..levels).fold(innermost, |action, _| {
        let serial = models::SerialAction {
            actions: vec![action],
            ..Default::default()
        };
        models::Action {
            serial_action: Some(serial),
            ..Default::default()
        }
    })
}

/// Goal: one record cannot make a list or a stream unreadable. Method: a client whose decoder stops
/// at a hundred messages inside each other writes the deepest actions that are accepted, and reads
/// them in each answer and event that has actions.
#[tokio::test(flavor = "multi_thread")]
async fn deepest_actions_that_are_accepted_can_be_read() {
    const DEEPEST: usize = 40;
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let host = installation.serve();
    let client = client(&host).speaking(Version::Definitions);
    let lrp = |levels| models::DesireLrpRequest {
        desired_lrp: Some(models::DesiredLrp {
            instances: 0,
            sidecars: vec![models::Sidecar {
                action: Some(nested(levels)),
                ..Default::default()
            }],
            ..hello()
        }),
    };
    let task = |levels| models::DesireTaskRequest {
        task_definition: Some(models::TaskDefinition {
            root_fs: hello().root_fs,
            action: Some(nested(levels)),
            ..Default::default()
        }),
        task_guid: b"task".to_vec(),
        domain: b"dev".to_vec(),
    };
    for refused in [
        client.desire_lrp(&lrp(DEEPEST + 1)).await.unwrap_err(),
        client.desire_task(&task(DEEPEST + 1)).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), Some(Type::InvalidRequest), "{refused}");
    }
    let mut lrp_events = client.lrp_instance_events("").await.unwrap();
    let mut task_events = client.task_events().await.unwrap();
    client.desire_lrp(&lrp(DEEPEST)).await.unwrap();
    client.desire_task(&task(DEEPEST)).await.unwrap();
    let guid = models::TaskGuidRequest {
        task_guid: b"task".to_vec(),
    };
    client.cancel_task(&guid).await.unwrap();

    let Some(LrpInstanceEvent::DesiredLrpCreated(created)) = lrp_events.next().await.unwrap()
    else {
        panic!("no desired LRP")
    };
    assert_eq!(created.desired_lrp.unwrap().sidecars.len(), 1);
    for name in ["task_created", "task_changed"] {
        let event = task_events.next().await.unwrap().expect("an event");
        assert_eq!(event.name(), name);
    }
    let all = models::DesiredLrPsRequest::default();
    let lrps = client.desired_lrps(&all).await.unwrap().desired_lrps;
    assert_eq!(lrps[0].sidecars[0].action, Some(nested(DEEPEST)));
    let of_lrp = models::LrpDefinitionsRequest {
        process_guid: b"hello".to_vec(),
    };
    let definitions = client.lrp_definitions(&of_lrp).await.unwrap().definitions;
    let definition = definitions[0].definition.as_ref().unwrap();
    assert_eq!(definition.sidecars, lrps[0].sidecars);
    let all = models::TasksRequest::default();
    let tasks = client.tasks(&all).await.unwrap().tasks;
    let definition = tasks[0].task_definition.as_ref().unwrap();
    assert_eq!(definition.action, Some(nested(DEEPEST)));
}

#[tokio::test(flavor = "multi_thread")]
async fn host_with_tls_answers_clients_with_a_certificate_alone() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let file = |name: &str| deployment.certs().join(name);
    let identity = Some(Identity {
        cert_file: file("client.crt"),
        key_file: file("client.key"),
    });
    let tls = |identity| TlsFiles {
        ca_file: Some(file("ca.crt")),
        identity,
    };
    let connected = |url: &str, tls| {
        let options = Options {
            tls,
            retries: Retries::NONE,
            connect_to: Some(host.address),
            ..Options::default()
        };
        Client::new(url, options).unwrap()
    };
    let url = format!("https://localhost:{}", host.address.port());
    assert!(
        connected(&url, tls(identity.clone()))
            .ping(&())
            .await
            .unwrap()
            .available
    );
    // As a deployment names its BBS, which is not in the certificate here.
    let other = format!("https://bbs.service.cf.internal:{}", host.address.port());
    for client in [connected(&other, tls(identity)), connected(&url, tls(None))] {
        let error = client.ping(&()).await.unwrap_err();
        assert!(matches!(error, CallError::NoAnswer { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_that_does_not_serve_yet_is_reported_with_its_progress() {
    let server = Server::closed(ServerOptions::default()).await;
    server
        .progress
        .enter("copy", "desired_lrps", Some(Counted::Units.total(10)));
    let client = Client::new(
        &server.url(""),
        Options {
            retries: Retries::NONE,
            ..Options::default()
        },
    )
    .unwrap();
    match client.domains(&()).await.unwrap_err() {
        CallError::NotReady {
            retry_after,
            reason,
            ..
        } => {
            assert!(
                retry_after.is_some() && reason.contains("desired_lrps"),
                "{retry_after:?}: {reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    let output = command(&server.url(""), &["domains"]).output().unwrap();
    let error = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for part in [
        "does not serve at the moment",
        "copy: desired_lrps",
        "try again in",
        "`bbs migrate watch`",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    server.gate.open(server.api.clone());
    assert!(client.ping(&()).await.unwrap().available);
}

/// Goal: on a machine of the BBS, its configuration is all that a command needs.
#[tokio::test(flavor = "multi_thread")]
async fn configuration_of_a_host_names_its_address_and_certificates() {
    let address = free_address();
    let deployment = Deployment::new(Kind::Sqlite).set("listen_address", address.to_string());
    deployment.locket.add_presence("cell-1", PRESENCE);
    let host = deployment.serve().await;
    let set = deployment.run(&["domains", "set", "cf-apps", "--ttl", "2m"]);
    assert_eq!(
        String::from_utf8_lossy(&set.stdout),
        "cf-apps is fresh for 2 min 0 s\n",
        "{}",
        errors(&set)
    );
    let cells = deployment.run(&["cells", "--json"]);
    let cells: Value =
        serde_json::from_slice(&cells.stdout).unwrap_or_else(|_| panic!("{}", errors(&cells)));
    assert_eq!(
        cells,
        Value::Array(vec![serde_json::from_str(PRESENCE).unwrap()])
    );

    // The same with options, and with the variables that `cfdot` has.
    let url = format!("https://localhost:{}", host.address.port());
    let file = |name: &str| deployment.certs().join(name);
    let mut given = command(&url, &["cells"]);
    given
        .arg("--ca")
        .arg(file("ca.crt"))
        .arg("--cert")
        .arg(file("client.crt"))
        .arg("--key")
        .arg(file("client.key"));
    let mut inherited = harness::command();
    inherited
        .arg("cells")
        .env("BBS_URL", &url)
        .env("CA_CERT_FILE", file("ca.crt"));
    inherited
        .env("CLIENT_CERT_FILE", file("client.crt"))
        .env("CLIENT_KEY_FILE", file("client.key"));
    for mut command in [given, inherited] {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line: Vec<_> = text
            .lines()
            .nth(1)
            .unwrap_or_else(|| panic!("{}", errors(&output)))
            .split("  ")
            .collect();
        assert!(line[0] == "cell-1" && text.contains("1024 MB"), "{text}");
    }
    let without_authority = command(&url, &["cells"]).output().unwrap();
    assert!(
        errors(&without_authority).contains("has TLS, and there is no authority"),
        "{}",
        errors(&without_authority)
    );
}

/// The presence of a cell as a rep writes it.
const PRESENCE: &str = r#"{"cell_id":"cell-1","rep_address":"http://10.0.0.1:1800","zone":"z1","capacity":{"memory_mb":1024,"disk_mb":2048,"containers":256},"rootfs_provider_list":[{"name":"preloaded","properties":["cflinuxfs4"]}],"rep_url":"https://cell-1.cell.service.cf.internal:1801","annotations":{}}"#;
