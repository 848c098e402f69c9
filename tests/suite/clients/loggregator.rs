//! The client of the metrics agent: batches, dropped metrics when the agent is too slow, and
//! replaced certificates.

use std::time::Duration;

use bbs::testing::clients::{Clients, Loggregator as Client};
use bbs::testing::config::{self, CertificateFiles};
use bbs::testing::metrics::{Point, Quantity};

use crate::harness::certificates::{Authority, VALID, replace};
use crate::harness::loggregator::{AgentBehaviour, Loggregator, gauge, names};
use crate::harness::until;

struct Installed {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("Loggregator's");
        let installed = Self { folder, authority };
        installed.write(&installed.authority);
        installed
    }

    fn write(&self, authority: &Authority) {
        replace(&self.folder.path().join("ca.crt"), &authority.certificate());
        authority
            .issue("bbs", VALID)
            .write(self.folder.path(), "client");
    }

    fn client(
        &self,
        agent: &Loggregator,
        batch_max_size: usize,
        batch_flush_interval: Duration,
    ) -> Client {
        let place = |name: &str| self.folder.path().join(name);
        let loggregator = config::LoggregatorConfig {
            api_host: agent.address().ip().to_string(),
            api_port: agent.address().port(),
            tls: CertificateFiles {
                ca_file: place("ca.crt"),
                cert_file: place("client.crt"),
                key_file: place("client.key"),
            },
            job_deployment: "cf".to_owned(),
            job_name: "bbs".to_owned(),
            job_index: "0".to_owned(),
            job_ip: "10.0.0.10".to_owned(),
            job_origin: "bbs".to_owned(),
            source_id: "bbs".to_owned(),
            instance_id: "0".to_owned(),
            batch_max_size: Some(batch_max_size),
            batch_flush_interval: Some(batch_flush_interval),
        };
        let config = config::ClientsConfig {
            loggregator: Some(loggregator),
            ..config::ClientsConfig::default()
        };
        Clients::new(&config, None, None).unwrap().loggregator
    }
}

fn points(name: &str, count: usize) -> Vec<Point> {
    (0..count)
        .map(|value| Point {
            name: name.to_owned(),
            quantity: Quantity::Gauge {
                value: value as f64,
                unit: "Metric",
            },
            cell_id: None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_sent_when_full_or_after_the_flush_interval() {
    let installed = Installed::new();
    let agent = Loggregator::start(&installed.authority, AgentBehaviour::Takes);
    // The flush interval never elapses.
    let client = installed.client(&agent, 7, Duration::from_secs(3600));
    client.send(points("full", 15));
    until(|| agent.envelopes().len() == 14).await;
    assert_eq!(
        agent.batches().iter().map(Vec::len).collect::<Vec<_>>(),
        [7, 7]
    );
    let values: Vec<_> = agent
        .envelopes_of("full")
        .iter()
        .map(|envelope| gauge(envelope, "full").0)
        .collect();
    assert!(values.is_sorted(), "in order: {values:?}");
    // Every batch is flushed by the interval.
    let client = installed.client(&agent, 1000, Duration::from_millis(1));
    client.send(points("waited", 3));
    until(|| agent.envelopes_of("waited").len() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn report_with_three_points_for_each_of_2000_cells_is_sent_whole() {
    let installed = Installed::new();
    let agent = Loggregator::start(&installed.authority, AgentBehaviour::Takes);
    let client = installed.client(&agent, 100, Duration::from_millis(1));
    client.send(points("cells", 3 * 2000));
    // Comes after the report, whether that was queued whole or not.
    until(|| {
        client.send(points("after", 1));
        !agent.envelopes_of("after").is_empty()
    })
    .await;
    assert_eq!(agent.envelopes_of("cells").len(), 3 * 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_above_the_queue_are_dropped_without_blocking() {
    let installed = Installed::new();
    let agent = Loggregator::start(&installed.authority, AgentBehaviour::Stuck);
    let client = installed.client(&agent, 100, Duration::from_millis(1));
    client.send(points("first", 1));
    until(|| agent.streams() == 1).await;
    client.send(points("many", 100_000));
    client.app_error("an-app", "a line");
    agent.set_behaviour(AgentBehaviour::Takes);
    until(|| {
        client.send(points("after", 1));
        !agent.envelopes_of("after").is_empty()
    })
    .await;
    let sent = agent.envelopes_of("many").len();
    assert!(sent > 0 && sent < 100_000, "{sent}");
    assert_eq!(agent.envelopes_of("first").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn next_stream_uses_replaced_certificates() {
    let installed = Installed::new();
    let others = Authority::new("another");
    let agent = Loggregator::start(&others, AgentBehaviour::Takes);
    // Client and agent do not trust each other's certificates.
    let client = installed.client(&agent, 100, Duration::from_millis(1));
    client.send(points("trusted", 1));
    installed.write(&others);
    until(|| {
        agent
            .envelopes()
            .iter()
            .flat_map(names)
            .any(|name| name == "trusted")
    })
    .await;
}

#[tokio::test]
async fn without_an_agent_nothing_is_sent() {
    let client = Clients::new(&config::ClientsConfig::default(), None, None)
        .unwrap()
        .loggregator;
    client.send(points("nowhere", 10));
    client.app_error("an-app", "a line");
    assert_eq!(
        format!("{client:?}"),
        "Loggregator(None)",
        "nothing is queued"
    );
}
