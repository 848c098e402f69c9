//! What the metrics agent and Prometheus are told of a host that BOSH installed: every metric of Diego's, held against
//! `tests/metrics.tsv`, what apps are told, and an agent that does not do its part.

use std::collections::{BTreeMap, BTreeSet};

use bbs::clients::loggregator::messages::envelope::Message;
use bbs::clients::loggregator::messages::{Envelope, LogType};
use bbs_proto::models as proto;
use bbs_proto::prost::Message as _;
use serde_json::json;

use super::upsert_domain;
use crate::api::lrp;
use crate::harness::certificates::Authority;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::deployment::{Deployment, free_address};
use crate::harness::host::Host;
use crate::harness::loggregator::{Loggregator, Manner, NAME, gauge, names};
use crate::harness::until;
use crate::tasks::definition;

const APP: &str = "5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";
const INSTANCE_ID: &str = "5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";
/// What every metric has, whatever else.
const ORIGIN: (&str, &str) = ("origin", "bbs");

struct Row {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    when: &'static str,
    tags: &'static str,
    prometheus: &'static str,
}

fn table() -> Vec<Row> {
    let mut lines = include_str!("../../metrics.tsv").lines();
    assert_eq!(lines.next(), Some("name\tkind\tunit\twhen\ttags\tprometheus"));
    let row = |line: &'static str| {
        let [name, kind, unit, when, tags, prometheus] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not a row: {line}")
        };
        Row { name, kind, unit, when, tags, prometheus }
    };
    lines.map(row).collect()
}

/// A Diego that tells this agent everything in no time.
fn telling(deployment: Deployment, agent: &Loggregator) -> Deployment {
    let routes = json!({ "request_count": ["StartTask", "TaskEventStream"], "request_latency": ["DesireTask"] });
    deployment
        .set_loggregator("loggregator_api_port", agent.address().port())
        .set("report_interval", "100ms")
        .set("convergence_report_interval", "100ms")
        .set("database_report_interval", "100ms")
        .set("converge_repeat_interval", "200ms")
        .set("advanced_metrics", json!({ "enabled": true, "route_config": routes }))
}

async fn call(deployment: &Deployment, host: &Host, path: &str, request: &impl bbs_proto::prost::Message) -> Vec<u8> {
    let call = deployment.client().post(format!("https://{}/v1/{path}", host.address)).body(request.encode_to_vec());
    call.send().await.unwrap().bytes().await.unwrap().to_vec()
}

/// A domain, an instance that waits, a task that ended well on a cell and one that waits.
async fn live(deployment: &Deployment, host: &Host) {
    deployment.locket.show("cell-1", r#"{"cell_id":"cell-1","rep_url":"https://127.0.0.1:1"}"#);
    upsert_domain(&deployment.client(), host.address, "cf-apps").await;
    let request = proto::DesireLrpRequest { desired_lrp: Some(lrp("some-guid")) };
    let answer = call(deployment, host, "desired_lrp/desire.r2", &request).await;
    assert_eq!(proto::DesiredLrpLifecycleResponse::decode(&answer[..]).unwrap().error, None);
    for guid in ["task-1", "task-2"] {
        let (task_guid, domain) = (guid.into(), b"cf-apps".to_vec());
        let request = proto::DesireTaskRequest { task_definition: Some(definition()), task_guid, domain };
        let answer = call(deployment, host, "tasks/desire.r2", &request).await;
        assert_eq!(proto::TaskLifecycleResponse::decode(&answer[..]).unwrap().error, None);
    }
    let request = proto::StartTaskRequest { task_guid: b"task-1".to_vec(), cell_id: b"cell-1".to_vec() };
    let answer = call(deployment, host, "tasks/start", &request).await;
    assert!(proto::StartTaskResponse::decode(&answer[..]).unwrap().should_start);
    let request =
        proto::CompleteTaskRequest { task_guid: b"task-1".to_vec(), cell_id: b"cell-1".to_vec(), ..Default::default() };
    let answer = call(deployment, host, "tasks/complete", &request).await;
    assert_eq!(proto::TaskLifecycleResponse::decode(&answer[..]).unwrap().error, None);
}

fn check(row: &Row, told: &Envelope) {
    let name = row.name;
    assert_eq!((told.source_id.as_str(), told.instance_id.as_str()), ("bbs", INSTANCE_ID), "{name}");
    assert!(told.timestamp > 1_500_000_000_000_000_000, "{name}");
    let tags: BTreeMap<&str, &str> = told.tags.iter().map(|(key, value)| (&**key, &**value)).collect();
    let wanted = match row.tags {
        "-" => BTreeMap::from([ORIGIN]),
        tag => BTreeMap::from([ORIGIN, (tag, "cell-1")]),
    };
    assert_eq!(tags, wanted, "{name}");
    match (row.kind, &told.message) {
        ("counter", Some(Message::Counter(_))) => assert_eq!(row.unit, "-", "{name}"),
        ("gauge", Some(Message::Gauge(gauge))) => assert_eq!(gauge.metrics[name].unit, row.unit, "{name}"),
        (kind, message) => panic!("{name} is no {kind}: {message:?}"),
    }
}

async fn last_value(agent: &Loggregator, name: &str, wanted: f64) {
    until(|| agent.told(name).last().is_some_and(|told| gauge(told, name).0 == wanted)).await;
}

fn added(agent: &Loggregator, name: &str) -> u64 {
    let of = |told: &Envelope| match &told.message {
        Some(Message::Counter(counter)) => counter.delta,
        other => panic!("{name} is no counter but {other:?}"),
    };
    agent.told(name).iter().map(of).sum()
}

on_each_database!(every_metric_of_diegos_is_told_under_its_name);
async fn every_metric_of_diegos_is_told_under_its_name(kind: Kind) {
    let deployment = Deployment::new(kind);
    let agent = Loggregator::start(&deployment.authority, Manner::Takes);
    let metrics = free_address();
    let deployment = telling(deployment, &agent).set("metrics_address", metrics.to_string());
    let host = deployment.serve().await;
    live(&deployment, &host).await;
    let table = table();
    for row in &table {
        if row.kind == "absent" {
            continue;
        }
        until(|| !agent.told(row.name).is_empty()).await;
        for told in agent.told(row.name) {
            check(row, &told);
        }
        if row.when == "once" {
            assert_eq!(agent.told(row.name).len(), 1, "{}", row.name);
        } else {
            // A run is told of once, and everything else again and again.
            until(|| agent.told(row.name).len() > 1).await;
        }
    }
    let known: BTreeSet<&str> = table.iter().filter(|row| row.kind != "absent").map(|row| row.name).collect();
    let told: BTreeSet<String> = agent.envelopes().iter().flat_map(names).collect();
    let unknown: Vec<_> = told.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "not in tests/metrics.tsv: {unknown:?}");
    for (name, value) in [
        ("LockHeld", 1.0),
        ("PresentCells", 1.0),
        ("LRPsDesired", 2.0),
        ("LRPsUnclaimed", 2.0),
        ("LRPsRunning", 0.0),
        ("TasksPending", 1.0),
        ("TasksCompleted", 1.0),
        ("TasksStarted", 1.0),
        ("TasksSucceeded", 1.0),
        ("TasksFailed", 0.0),
    ] {
        last_value(&agent, name, value).await;
    }
    // Nothing is counted twice.
    until(|| added(&agent, "RequestCount") >= 6).await;
    assert_eq!((added(&agent, "RequestCount"), added(&agent, "RequestCount.StartTask")), (6, 1));
    assert!(
        agent.told("RequestLatency.DesireTask").iter().any(|told| gauge(told, "RequestLatency.DesireTask").0 > 0.0)
    );
    scrape(&table, &format!("http://{metrics}/metrics")).await;
    let status = tokio::task::spawn_blocking(move || host.terminate()).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Diego's library has no switch since October 2025, so neither have the files of current releases.
#[tokio::test(flavor = "multi_thread")]
async fn agent_that_is_configured_without_the_removed_switch_is_sent_to() {
    let deployment = Deployment::new(Kind::Sqlite);
    let agent = Loggregator::start(&deployment.authority, Manner::Takes);
    let deployment = telling(deployment, &agent).without_loggregator("loggregator_use_v2_api");
    let host = deployment.serve().await;
    until(|| !agent.told("LockHeld").is_empty()).await;
    drop(host);
}

/// Each with an interval of its own.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_metric_is_told_when_it_is_due_and_no_other() {
    let keys = ["report_interval", "convergence_report_interval", "database_report_interval"];
    let kinds: [(&str, &[&str], &str); 3] = [
        (keys[0], &["report", "host"], "RequestCount"),
        (keys[1], &["convergence"], "LRPsRunning"),
        (keys[2], &["database"], "DBQueriesTotal"),
    ];
    let table = table();
    for (key, kinds, name) in kinds {
        let deployment = Deployment::new(Kind::Sqlite);
        let agent = Loggregator::start(&deployment.authority, Manner::Takes);
        let deployment = telling(deployment, &agent);
        let deployment = keys.iter().fold(deployment, |deployment, key| deployment.set(key, "1h")).set(key, "50ms");
        let host = deployment.serve().await;
        until(|| agent.told(name).len() > 3).await;
        for told in agent.envelopes().iter().flat_map(names) {
            let row = table.iter().find(|row| row.name == told).unwrap_or_else(|| panic!("{told} is in the table"));
            assert!(row.when == "once" || kinds.contains(&row.when), "{told} although only {key} is short");
        }
        drop(host);
    }
}

/// Prometheus finds everything of the table, and no name twice.
async fn scrape(table: &[Row], url: &str) {
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    for row in table.iter().filter(|row| row.prometheus != "-") {
        let is_of = |line: &&str| {
            line.strip_prefix(row.prometheus).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
        };
        assert!(text.lines().any(|line| is_of(&line)), "{} is not in {text}", row.prometheus);
    }
    for line in [
        "bbs_lock_held 1",
        "bbs_master_elected 1",
        "bbs_lrps_desired 2",
        "bbs_tasks_pending 1",
        r#"bbs_domain{domain="cf-apps"} 1"#,
        r#"bbs_tasks_started_total{cell_id="cell-1"} 1"#,
        r#"bbs_requests_total{route="StartTask",status="200"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let families: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    assert_eq!(families.iter().collect::<BTreeSet<_>>().len(), families.len(), "{families:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_is_told_in_its_own_log_what_was_refused_of_it() {
    let deployment = Deployment::new(Kind::Sqlite);
    let agent = Loggregator::start(&deployment.authority, Manner::Takes);
    let deployment = telling(deployment, &agent);
    let host = deployment.serve().await;
    let guid = format!("{APP}-9e2f7a10");
    let desire = proto::DesireLrpRequest { desired_lrp: Some(proto::DesiredLrp { domain: Vec::new(), ..lrp(&guid) }) };
    let answer = call(&deployment, &host, "desired_lrp/desire.r2", &desire).await;
    let error = proto::DesiredLrpLifecycleResponse::decode(&answer[..]).unwrap().error.expect("it is refused");
    let refused = String::from_utf8(error.message).unwrap();
    // Of no app: nobody is told.
    let nobody =
        proto::DesireLrpRequest { desired_lrp: Some(proto::DesiredLrp { domain: Vec::new(), ..lrp("some-guid") }) };
    call(&deployment, &host, "desired_lrp/desire.r2", &nobody).await;
    let update = proto::UpdateDesiredLrpRequest {
        process_guid: guid.clone().into_bytes(),
        update: Some(proto::DesiredLrpUpdate { instances: Some(-1), ..Default::default() }),
    };
    call(&deployment, &host, "desired_lrp/update", &update).await;
    until(|| agent.lines().len() >= 2).await;
    let lines = agent.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for (line, finding) in lines.iter().zip([refused.as_str(), "instances"]) {
        let Some(Message::Log(log)) = &line.message else { unreachable!("a line") };
        let payload = String::from_utf8(log.payload.clone()).unwrap();
        let beginning = format!("Error parsing request for app with guid {APP}, InvalidRequest, ");
        assert!(payload.strip_prefix(&beginning).is_some_and(|rest| rest.contains(finding)), "{payload}");
        assert_eq!(log.r#type(), LogType::Err);
        assert_eq!((line.source_id.as_str(), line.instance_id.as_str()), (APP, ""));
        let tags: BTreeMap<_, _> = line.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(tags, BTreeMap::from([ORIGIN, ("source_id", APP), ("source_type", "DIEGO-API")]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_tells_that_it_lives_and_nothing_else() {
    let deployment = Deployment::new(Kind::Sqlite);
    let agent = Loggregator::start(&deployment.authority, Manner::Takes);
    deployment.locket.give_to("another");
    let deployment = telling(deployment, &agent).set("metrics_address", "127.0.0.1:0");
    let command = deployment.command();
    let host = tokio::task::spawn_blocking(move || Host::start(command, "metrics.listening")).await.unwrap();
    until(|| agent.told("LockHeld").len() > 2).await;
    let told: BTreeSet<String> = agent.envelopes().iter().flat_map(names).collect();
    assert_eq!(
        told.iter().map(String::as_str).collect::<Vec<_>>(),
        ["LockHeld", "OpenFileDescriptors", "numGoRoutines"]
    );
    assert!(agent.told("LockHeld").iter().all(|told| gauge(told, "LockHeld").0 == 0.0));
    let text = reqwest::get(host.url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(text.lines().any(|line| line == "bbs_lock_held 0") && !text.contains("bbs_master_elected"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_do_its_part_costs_metrics_and_nothing_else() {
    for manner in [Manner::Stuck, Manner::Refuses, Manner::Breaks] {
        let deployment = Deployment::new(Kind::Sqlite);
        let agent = Loggregator::start(&deployment.authority, manner);
        let deployment = telling(deployment, &agent);
        let host = deployment.serve().await;
        until(|| agent.streams() > 0).await;
        live(&deployment, &host).await;
        // It comes to itself, and is told what is so by then.
        agent.behave(Manner::Takes);
        last_value(&agent, "TasksSucceeded", 1.0).await;
        agent.behave(manner);
        let status = tokio::task::spawn_blocking(move || host.terminate()).await.unwrap();
        assert_eq!(status.code(), Some(0), "{manner:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_come_late_and_is_told_once_it_is_there() {
    let deployment = Deployment::new(Kind::Sqlite);
    let address = free_address();
    let deployment = deployment.set_loggregator("loggregator_api_port", address.port()).set("report_interval", "100ms");
    let mut host = deployment.serve().await;
    let line = host.wait_for_line(|line| line.contains("loggregator.unreachable"));
    assert!(line.contains("check that the agent runs"), "{line}");
    let agent = Loggregator::start_at(address, NAME, &deployment.authority, Manner::Takes);
    // What happened before waits for it.
    until(|| agent.told("BBSMasterElected").len() == 1 && agent.told("LockHeld").len() > 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_the_agent_is_told_nothing() {
    for (name, is_ours) in [(NAME, false), ("somebody", true)] {
        let deployment = Deployment::new(Kind::Sqlite);
        let strangers = Authority::new("strangers'");
        let authority = if is_ours { &deployment.authority } else { &strangers };
        let agent = Loggregator::start_as(name, authority, Manner::Takes);
        let deployment = telling(deployment, &agent);
        let mut host = deployment.serve().await;
        host.wait_for_line(|line| line.contains("loggregator.unreachable"));
        assert_eq!(agent.streams(), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_the_agent_that_cannot_be_used_end_the_host_with_1() {
    for key in ["loggregator_ca_path", "loggregator_cert_path", "loggregator_key_path"] {
        let deployment = Deployment::new(Kind::Sqlite).set_loggregator(key, "/nonexistent/file");
        let (code, said) = deployment.fail().await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("bbs.failed-to-initialize-metron-client"), "{said}");
        assert!(said.contains("/nonexistent/file") && said.contains("check that the file is there"), "{said}");
    }
    let deployment = Deployment::new(Kind::Sqlite);
    let broken = deployment.path("broken.crt");
    std::fs::write(&broken, "no certificate").unwrap();
    let deployment = deployment.set_loggregator("loggregator_ca_path", broken.to_str().unwrap());
    let (code, said) = deployment.fail().await;
    assert!(code == Some(1) && said.contains("bbs.failed-to-initialize-metron-client"), "{code:?} {said}");
    let deployment = Deployment::new(Kind::Sqlite)
        .set_loggregator("loggregator_ca_path", "/nonexistent/file")
        .set_loggregator("loggregator_use_v2_api", false);
    let host = deployment.serve().await;
    drop(host);
}
