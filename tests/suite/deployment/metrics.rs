//! Metrics of a deployed host, as sent to the metrics agent and read by Prometheus: every metric of
//! Diego's, compared with `tests/metrics.tsv`, log lines for apps, and agents that fail.

use std::collections::{BTreeMap, BTreeSet};

use bbs::testing::clients::loggregator::messages::envelope::EnvelopeMessage;
use bbs::testing::clients::loggregator::messages::{Envelope, LogType};
use bbs_proto::models as proto;
use serde_json::json;

use super::upsert_domain;
use crate::api::lrp;
use crate::harness::certificates::{Authority, VALID};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::deployment::Deployment;
use crate::harness::host::Host;
use crate::harness::loggregator::{AgentBehaviour, Loggregator, NAME, gauge, names};
use crate::harness::ports::free_address;
use crate::harness::until;
use crate::tasks::definition;

const APP: &str = "5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";
const INSTANCE_ID: &str = "5bba2cb1-0d1f-4b2c-8f0b-2a6ee6a1c8f3";
/// The tag of every metric.
const ORIGIN: (&str, &str) = ("origin", "bbs");

struct MetricRow {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    when: &'static str,
    tags: &'static str,
    prometheus: &'static str,
}

fn table() -> Vec<MetricRow> {
    let mut lines = include_str!("../../metrics.tsv").lines();
    assert_eq!(
        lines.next(),
        Some("name\tkind\tunit\twhen\ttags\tprometheus")
    );
    lines
        .map(|line| {
            let [name, kind, unit, when, tags, prometheus] =
                line.split('\t').collect::<Vec<_>>()[..]
            else {
                panic!("not a row: {line}")
            };
            MetricRow {
                name,
                kind,
                unit,
                when,
                tags,
                prometheus,
            }
        })
        .collect()
}

/// A deployment that sends all metrics to this agent at short intervals.
fn with_agent(deployment: Deployment, agent: &Loggregator) -> Deployment {
    let routes = json!({ "request_count": ["StartTask", "TaskEventStream"], "request_latency": ["DesireTask"] });
    deployment
        .set_loggregator("loggregator_api_port", agent.address().port())
        .set("report_interval", "100ms")
        .set("convergence_report_interval", "100ms")
        .set("database_report_interval", "100ms")
        .set("converge_repeat_interval", "200ms")
        .set(
            "advanced_metrics",
            json!({ "enabled": true, "route_config": routes }),
        )
}

/// Creates a domain, an LRP with unclaimed instances, a task that succeeded on a cell, and a
/// pending one.
async fn create_records(deployment: &Deployment, host: &Host) {
    deployment.locket.add_presence(
        "cell-1",
        r#"{"cell_id":"cell-1","rep_url":"https://127.0.0.1:1"}"#,
    );
    upsert_domain(&deployment.client(), host.address, "cf-apps").await;
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp("some-guid")),
    };
    let answer: proto::DesiredLrpLifecycleResponse = deployment
        .call(host, "desired_lrp/desire.r2", &request)
        .await;
    assert_eq!(answer.error, None);
    for guid in ["task-1", "task-2"] {
        let task_guid = guid.into();
        let domain = b"cf-apps".to_vec();
        let request = proto::DesireTaskRequest {
            task_definition: Some(definition()),
            task_guid,
            domain,
        };
        let answer: proto::TaskLifecycleResponse =
            deployment.call(host, "tasks/desire.r2", &request).await;
        assert_eq!(answer.error, None);
    }
    let request = proto::StartTaskRequest {
        task_guid: b"task-1".to_vec(),
        cell_id: b"cell-1".to_vec(),
    };
    let answer: proto::StartTaskResponse = deployment.call(host, "tasks/start", &request).await;
    assert!(answer.should_start);
    let request = proto::CompleteTaskRequest {
        task_guid: b"task-1".to_vec(),
        cell_id: b"cell-1".to_vec(),
        ..Default::default()
    };
    let answer: proto::TaskLifecycleResponse =
        deployment.call(host, "tasks/complete", &request).await;
    assert_eq!(answer.error, None);
}

fn check(row: &MetricRow, envelope: &Envelope) {
    let name = row.name;
    assert_eq!(
        (envelope.source_id.as_str(), envelope.instance_id.as_str()),
        ("bbs", INSTANCE_ID),
        "{name}"
    );
    assert!(envelope.timestamp > 1_500_000_000_000_000_000, "{name}");
    let tags: BTreeMap<&str, &str> = envelope
        .tags
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    let wanted = match row.tags {
        "-" => BTreeMap::from([ORIGIN]),
        tag => BTreeMap::from([ORIGIN, (tag, "cell-1")]),
    };
    assert_eq!(tags, wanted, "{name}");
    match (row.kind, &envelope.message) {
        ("counter", Some(EnvelopeMessage::Counter(_))) => assert_eq!(row.unit, "-", "{name}"),
        ("gauge", Some(EnvelopeMessage::Gauge(gauge))) => {
            assert_eq!(gauge.metrics[name].unit, row.unit, "{name}")
        }
        (kind, message) => panic!("{name} is no {kind}: {message:?}"),
    }
}

async fn last_value(agent: &Loggregator, name: &str, wanted: f64) {
    until(|| {
        agent
            .envelopes_of(name)
            .last()
            .is_some_and(|envelope| gauge(envelope, name).0 == wanted)
    })
    .await;
}

fn added(agent: &Loggregator, name: &str) -> u64 {
    agent
        .envelopes_of(name)
        .iter()
        .map(|envelope| match &envelope.message {
            Some(EnvelopeMessage::Counter(counter)) => counter.delta,
            other => panic!("{name} is no counter but {other:?}"),
        })
        .sum()
}

on_each_database!(every_metric_of_diego_is_sent_under_its_name);
async fn every_metric_of_diego_is_sent_under_its_name(kind: Kind) {
    let deployment = Deployment::new(kind);
    let agent = Loggregator::start(&deployment.authority, AgentBehaviour::Takes);
    let metrics = free_address();
    let deployment = with_agent(deployment, &agent).set("metrics_address", metrics.to_string());
    let host = deployment.serve().await;
    create_records(&deployment, &host).await;
    let table = table();
    for row in &table {
        if row.kind == "absent" {
            continue;
        }
        until(|| !agent.envelopes_of(row.name).is_empty()).await;
        for envelope in agent.envelopes_of(row.name) {
            check(row, &envelope);
        }
        if row.when == "once" {
            assert_eq!(agent.envelopes_of(row.name).len(), 1, "{}", row.name);
        } else {
            // Metrics of a start are sent once, all others repeatedly.
            until(|| agent.envelopes_of(row.name).len() > 1).await;
        }
    }
    let known: BTreeSet<&str> = table
        .iter()
        .filter(|row| row.kind != "absent")
        .map(|row| row.name)
        .collect();
    let sent: BTreeSet<String> = agent.envelopes().iter().flat_map(names).collect();
    let unknown: Vec<_> = sent
        .iter()
        .filter(|name| !known.contains(name.as_str()))
        .collect();
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
    // No request is counted twice.
    until(|| added(&agent, "RequestCount") >= 6).await;
    assert_eq!(
        (
            added(&agent, "RequestCount"),
            added(&agent, "RequestCount.StartTask")
        ),
        (6, 1)
    );
    let latency = "RequestLatency.DesireTask";
    assert!(
        agent
            .envelopes_of(latency)
            .iter()
            .any(|envelope| gauge(envelope, latency).0 > 0.0)
    );
    scrape(&table, &format!("http://{metrics}/metrics")).await;
    host.end().await;
}

/// Diego's library dropped the key in October 2025, so configurations of current releases lack it.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_sent_without_loggregator_use_v2_api() {
    let deployment = Deployment::new(Kind::Sqlite);
    let agent = Loggregator::start(&deployment.authority, AgentBehaviour::Takes);
    let deployment = with_agent(deployment, &agent).without_loggregator("loggregator_use_v2_api");
    let host = deployment.serve().await;
    until(|| !agent.envelopes_of("LockHeld").is_empty()).await;
    drop(host);
}

/// Each of the three intervals is short in turn, and the others are an hour.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_metric_is_sent_at_its_own_interval() {
    let keys = [
        "report_interval",
        "convergence_report_interval",
        "database_report_interval",
    ];
    let kinds: [(&str, &[&str], &str); 3] = [
        (keys[0], &["report", "host"], "RequestCount"),
        (keys[1], &["convergence"], "LRPsRunning"),
        (keys[2], &["database"], "DBQueriesTotal"),
    ];
    let table = table();
    for (key, kinds, name) in kinds {
        let deployment = Deployment::new(Kind::Sqlite);
        let agent = Loggregator::start(&deployment.authority, AgentBehaviour::Takes);
        let deployment = with_agent(deployment, &agent);
        let deployment = keys
            .iter()
            .fold(deployment, |deployment, key| deployment.set(key, "1h"))
            .set(key, "50ms");
        let host = deployment.serve().await;
        until(|| agent.envelopes_of(name).len() > 3).await;
        for sent in agent.envelopes().iter().flat_map(names) {
            let row = table
                .iter()
                .find(|row| row.name == sent)
                .unwrap_or_else(|| panic!("{sent} is not in the table"));
            assert!(
                row.when == "once" || kinds.contains(&row.when),
                "{sent} is sent, but only {key} is short"
            );
        }
        drop(host);
    }
}

/// Asserts that the scrape has every metric of the table, and no metric family twice.
async fn scrape(table: &[MetricRow], url: &str) {
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    for row in table.iter().filter(|row| row.prometheus != "-") {
        let is_of = |line: &&str| {
            line.strip_prefix(row.prometheus)
                .is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
        };
        assert!(
            text.lines().any(|line| is_of(&line)),
            "{} is not in {text}",
            row.prometheus
        );
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
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in {text}"
        );
    }
    let families: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("# TYPE "))
        .collect();
    assert_eq!(
        families.iter().collect::<BTreeSet<_>>().len(),
        families.len(),
        "{families:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_older_versions_are_counted_by_their_certificates() {
    let metrics = free_address();
    let deployment = Deployment::new(Kind::Sqlite).set("metrics_address", metrics.to_string());
    let mut host = deployment.serve().await;
    for (client, path, calls) in [
        ("cell-7", "tasks/list.r2", 3),
        ("cell-8", "tasks/list.r2", 1),
        ("cell-7", "tasks/list.r3", 5),
    ] {
        let certificate = deployment.authority.issue(client, VALID);
        let client = deployment.client_as(Some(&certificate));
        for _ in 0..calls {
            let reply = client
                .post(format!("https://{}/v1/{path}", host.address))
                .send()
                .await
                .unwrap();
            assert_eq!(reply.status(), 200);
        }
    }
    let text = reqwest::get(format!("http://{metrics}/metrics"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let name = "bbs_older_version_requests_total";
    let counted: BTreeSet<&str> = text.lines().filter(|line| line.starts_with(name)).collect();
    let labels =
        |client: &str| format!(r#"{name}{{version="1.0",method="Tasks_r2",client="{client}"}}"#);
    let expected = [
        format!("{} 3", labels("cell-7")),
        format!("{} 1", labels("cell-8")),
    ];
    assert_eq!(counted, expected.iter().map(String::as_str).collect());
    let logged =
        host.wait_for_line(|line| line.contains("client.older-version") && line.contains("cell-8"));
    assert!(logged.contains("Tasks_r2"), "{logged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_request_is_logged_to_the_app() {
    let deployment = Deployment::new(Kind::Sqlite);
    let agent = Loggregator::start(&deployment.authority, AgentBehaviour::Takes);
    let deployment = with_agent(deployment, &agent);
    let host = deployment.serve().await;
    let guid = format!("{APP}-9e2f7a10");
    let desire = proto::DesireLrpRequest {
        desired_lrp: Some(proto::DesiredLrp {
            domain: Vec::new(),
            ..lrp(&guid)
        }),
    };
    let answer: proto::DesiredLrpLifecycleResponse = deployment
        .call(&host, "desired_lrp/desire.r2", &desire)
        .await;
    let error = answer.error.expect("an LRP without a domain is invalid");
    let reason = String::from_utf8(error.message).unwrap();
    // A guid without an app guid is logged to no app.
    let without_app = proto::DesireLrpRequest {
        desired_lrp: Some(proto::DesiredLrp {
            domain: Vec::new(),
            ..lrp("some-guid")
        }),
    };
    deployment
        .call::<()>(&host, "desired_lrp/desire.r2", &without_app)
        .await;
    let update = proto::UpdateDesiredLrpRequest {
        process_guid: guid.clone().into_bytes(),
        update: Some(proto::DesiredLrpUpdate {
            instances: Some(-1),
            ..Default::default()
        }),
    };
    deployment
        .call::<()>(&host, "desired_lrp/update", &update)
        .await;
    until(|| agent.lines().len() >= 2).await;
    let lines = agent.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for (line, finding) in lines.iter().zip([reason.as_str(), "instances"]) {
        let Some(EnvelopeMessage::Log(log)) = &line.message else {
            unreachable!("a line")
        };
        let payload = String::from_utf8(log.payload.clone()).unwrap();
        let beginning = format!("Error parsing request for app with guid {APP}, InvalidRequest, ");
        assert!(
            payload
                .strip_prefix(&beginning)
                .is_some_and(|rest| rest.contains(finding)),
            "{payload}"
        );
        assert_eq!(log.r#type(), LogType::Err);
        assert_eq!(
            (line.source_id.as_str(), line.instance_id.as_str()),
            (APP, "")
        );
        let tags: BTreeMap<_, _> = line
            .tags
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            tags,
            BTreeMap::from([ORIGIN, ("source_id", APP), ("source_type", "DIEGO-API")])
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_sends_only_host_metrics() {
    let deployment = Deployment::new(Kind::Sqlite);
    let agent = Loggregator::start(&deployment.authority, AgentBehaviour::Takes);
    deployment.locket.grant_to("another");
    let deployment = with_agent(deployment, &agent).set("metrics_address", "127.0.0.1:0");
    let command = deployment.command();
    let host = tokio::task::spawn_blocking(move || Host::start(command, "metrics.listening"))
        .await
        .unwrap();
    until(|| agent.envelopes_of("LockHeld").len() > 2).await;
    let sent: BTreeSet<String> = agent.envelopes().iter().flat_map(names).collect();
    assert_eq!(
        sent.iter().map(String::as_str).collect::<Vec<_>>(),
        ["LockHeld", "OpenFileDescriptors", "numGoRoutines"]
    );
    assert!(
        agent
            .envelopes_of("LockHeld")
            .iter()
            .all(|envelope| gauge(envelope, "LockHeld").0 == 0.0)
    );
    let text = reqwest::get(host.url("/metrics"))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        text.lines().any(|line| line == "bbs_lock_held 0") && !text.contains("bbs_master_elected"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_agent_loses_metrics_and_does_not_affect_the_host() {
    for behaviour in [
        AgentBehaviour::Stuck,
        AgentBehaviour::Refuses,
        AgentBehaviour::Breaks,
    ] {
        let deployment = Deployment::new(Kind::Sqlite);
        let agent = Loggregator::start(&deployment.authority, behaviour);
        let deployment = with_agent(deployment, &agent);
        let host = deployment.serve().await;
        until(|| agent.streams() > 0).await;
        create_records(&deployment, &host).await;
        // The agent recovers and receives the current values.
        agent.set_behaviour(AgentBehaviour::Takes);
        last_value(&agent, "TasksSucceeded", 1.0).await;
        agent.set_behaviour(behaviour);
        let status = tokio::task::spawn_blocking(move || host.terminate())
            .await
            .unwrap();
        assert_eq!(status.code(), Some(0), "{behaviour:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_started_late_receives_metrics() {
    let deployment = Deployment::new(Kind::Sqlite);
    let address = free_address();
    let deployment = deployment
        .set_loggregator("loggregator_api_port", address.port())
        .set("report_interval", "100ms");
    let mut host = deployment.serve().await;
    let line = host.wait_for_line(|line| line.contains("loggregator.unreachable"));
    assert!(
        line.contains("check that the agent runs") && line.contains("Connection refused"),
        "{line}"
    );
    assert!(!line.contains("ConnectError"), "{line}");
    let agent = Loggregator::start_at(address, NAME, &deployment.authority, AgentBehaviour::Takes);
    // Metrics from before its start were queued.
    until(|| {
        agent.envelopes_of("BBSMasterElected").len() == 1
            && agent.envelopes_of("LockHeld").len() > 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_agent_receives_no_metrics() {
    for (name, is_ours) in [(NAME, false), ("another", true)] {
        let deployment = Deployment::new(Kind::Sqlite);
        let untrusted = Authority::new("another authority's");
        let authority = if is_ours {
            &deployment.authority
        } else {
            &untrusted
        };
        let agent = Loggregator::start_as(name, authority, AgentBehaviour::Takes);
        let deployment = with_agent(deployment, &agent);
        let mut host = deployment.serve().await;
        host.wait_for_line(|line| line.contains("loggregator.unreachable"));
        assert_eq!(agent.streams(), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_agent_certificates_end_the_start_with_2() {
    for key in [
        "loggregator_ca_path",
        "loggregator_cert_path",
        "loggregator_key_path",
    ] {
        let deployment = Deployment::new(Kind::Sqlite).set_loggregator(key, "/nonexistent/file");
        let (code, output) = deployment.fail().await;
        assert_eq!(code, Some(2), "{output}");
        assert!(
            output.contains("bbs.failed-to-initialize-metron-client"),
            "{output}"
        );
        assert!(
            output.contains("/nonexistent/file") && output.contains("check that the file is there"),
            "{output}"
        );
    }
    let deployment = Deployment::new(Kind::Sqlite);
    let broken = deployment.path("broken.crt");
    std::fs::write(&broken, "no certificate").unwrap();
    let deployment = deployment.set_loggregator("loggregator_ca_path", broken.to_str().unwrap());
    let (code, output) = deployment.fail().await;
    assert!(
        code == Some(2) && output.contains("bbs.failed-to-initialize-metron-client"),
        "{code:?} {output}"
    );
    let deployment = Deployment::new(Kind::Sqlite)
        .set_loggregator("loggregator_ca_path", "/nonexistent/file")
        .set_loggregator("loggregator_use_v2_api", false);
    let host = deployment.serve().await;
    drop(host);
}
