//! Client of Loggregator's metrics agent: sends metrics of this host and lines for the logs of
//! apps. Bounds the queue: if the agent is slow or away, envelopes are dropped and counted, and
//! callers never wait.

pub mod messages;
mod sender;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bbs_work::log_sampling::LineLimit;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};

use crate::clock::{Clock, SystemClock};
use crate::config;
use crate::metrics::{Point, Quantity};
use crate::tls::reloading::Reloading;
use crate::tls::{TlsError, client};
use messages::{Counter, Envelope, Gauge, GaugeValue, Log, LogType, envelope};

/// Envelopes in the queue. The reports of a period come at once, with three points for each cell
/// that has had tasks: 10,000 cells are counted at most.
const QUEUE: usize = 32 * 1024;
/// Envelopes in the queue above which no lines are added: those may have 16 KiB each.
const QUEUE_WITH_LINES: usize = 4096;
/// The server name in the certificates of all agents.
const AGENT: &str = "metron";
/// The source type of app log lines.
const SOURCE_TYPE: &str = "DIEGO-API";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Not configured, nothing is sent. Clones share the agent.
#[derive(Debug, Clone, Default)]
pub struct Loggregator(Option<Arc<Agent>>);

#[derive(Debug)]
struct Agent {
    queue: mpsc::Sender<Envelope>,
    origin: String,
    source_id: String,
    instance_id: String,
    /// Limit of the lines about envelopes that are dropped.
    dropped: LineLimit,
}

/// Why the connection to the agent cannot be set up.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum LoggregatorError {
    #[error("the files that the `loggregator_*_path` keys name cannot be used; correct them")]
    Files(#[from] TlsError),
    #[error(
        "`loggregator_api_host` and `loggregator_api_port` make {address:?}, which is not an address; correct them"
    )]
    Address {
        address: String,
        source: tonic::transport::Error,
    },
    #[error(
        "the certificates that the `loggregator_*_path` keys name cannot be used; have them made again, as PEM"
    )]
    Tls(#[source] tonic::transport::Error),
}

impl Loggregator {
    /// Connects when there is something to send, and reconnects as needed. Sending ends with the
    /// runtime.
    pub(super) fn new(config: &config::LoggregatorConfig) -> Result<Self, LoggregatorError> {
        let tls = config.tls.clone();
        let address = format!("{}:{}", config.api_host, config.api_port);
        let channel = Reloading::new(client::paths(&config.tls), move || {
            connect_later(&tls, &address)
        })?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let batches =
            sender::Batches::new(waiting, config.batch_max_size, config.batch_flush_interval);
        tokio::spawn(sender::send(channel, batches));
        Ok(Self(Some(Arc::new(Agent {
            queue,
            origin: config.job_origin.clone(),
            source_id: config.source_id.clone(),
            instance_id: config.instance_id.clone(),
            dropped: LineLimit::default(),
        }))))
    }

    /// Queues metrics; never waits.
    pub fn send(&self, points: Vec<Point>) {
        let Some(agent) = &self.0 else { return };
        for point in points {
            agent.put(agent.of_point(point), QUEUE);
        }
    }

    /// Queues an error line for the log of an app; never waits. The caller bounds its length.
    pub fn app_error(&self, app_guid: &str, line: &str) {
        let Some(agent) = &self.0 else { return };
        agent.put(agent.of_line(app_guid, line), QUEUE_WITH_LINES);
    }
}

impl Agent {
    fn of_point(&self, point: Point) -> Envelope {
        let Point {
            name,
            quantity,
            cell_id,
        } = point;
        let message = match quantity {
            Quantity::Added(delta) => envelope::EnvelopeMessage::Counter(Counter {
                name,
                delta,
                total: 0,
            }),
            Quantity::Gauge { value, unit } => {
                let value = GaugeValue {
                    unit: unit.to_owned(),
                    value,
                };
                envelope::EnvelopeMessage::Gauge(Gauge {
                    metrics: HashMap::from([(name, value)]),
                })
            }
        };
        let mut tags = self.tags();
        tags.extend(cell_id.map(|cell_id| ("cell-id".to_owned(), cell_id)));
        let source_id = self.source_id.clone();
        let instance_id = self.instance_id.clone();
        Envelope {
            timestamp: SystemClock.now_ns(),
            source_id,
            instance_id,
            tags,
            message: Some(message),
        }
    }

    fn of_line(&self, app_guid: &str, line: &str) -> Envelope {
        let mut tags = self.tags();
        tags.insert("source_id".to_owned(), app_guid.to_owned());
        tags.insert("source_type".to_owned(), SOURCE_TYPE.to_owned());
        let log = Log {
            payload: line.as_bytes().to_vec(),
            r#type: LogType::Err.into(),
        };
        Envelope {
            timestamp: SystemClock.now_ns(),
            source_id: app_guid.to_owned(),
            instance_id: String::new(),
            tags,
            message: Some(envelope::EnvelopeMessage::Log(log)),
        }
    }

    /// Agents add tags of their machine.
    fn tags(&self) -> HashMap<String, String> {
        HashMap::from([("origin".to_owned(), self.origin.clone())])
    }

    /// Queues an envelope unless `most` wait.
    fn put(&self, envelope: Envelope, most: usize) {
        let has_room = QUEUE - self.queue.capacity() < most;
        let is_queued = has_room && self.queue.try_send(envelope).is_ok();
        if !is_queued && let Some(left_out) = self.dropped.admit() {
            tracing::warn!(
                name: "loggregator.left-out",
                left_out, "the queue for the metrics agent is full; metrics are dropped"
            );
        }
    }
}

fn connect_later(
    tls: &config::CertificateFiles,
    address: &str,
) -> Result<Channel, LoggregatorError> {
    // Bounds the handshake, too: a channel whose peer is silent then would never connect again.
    let config = client::grpc_config(tls)?
        .domain_name(AGENT)
        .timeout(CONNECT_TIMEOUT);
    let refused = |source| LoggregatorError::Address {
        address: address.to_owned(),
        source,
    };
    let endpoint = Endpoint::from_shared(format!("https://{address}")).map_err(refused)?;
    // Without pings: a gRPC server in Go closes a connection with more than one in five minutes. The
    // agent is on this machine, whose system closes the connections of one that ends.
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tls_config(config)
        .map_err(LoggregatorError::Tls)?
        .connect_lazy())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose envelopes stay in the queue.
    fn queueing_client() -> (Loggregator, mpsc::Receiver<Envelope>) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let agent = Agent {
            queue,
            origin: String::new(),
            source_id: String::new(),
            instance_id: String::new(),
            dropped: LineLimit::default(),
        };
        (Loggregator(Some(Arc::new(agent))), waiting)
    }

    /// Goal: a full queue is noticed after months, whatever the number of envelopes dropped before.
    #[tokio::test(start_paused = true)]
    async fn full_queue_is_logged_each_minute_after_any_number_of_dropped_envelopes() {
        let (client, _waiting) = queueing_client();
        let not_logged = || client.0.as_ref().map(|agent| agent.dropped.left_out());
        (0..QUEUE_WITH_LINES + 5000).for_each(|_| client.app_error("an-app", "a line"));
        assert_eq!(not_logged(), Some(4990));
        tokio::time::advance(Duration::from_secs(60)).await;
        client.app_error("an-app", "a line");
        assert_eq!(not_logged(), Some(0));
    }

    #[test]
    fn lines_take_only_a_part_of_the_queue() {
        let (client, mut waiting) = queueing_client();
        (0..QUEUE).for_each(|_| client.app_error("an-app", "a line"));
        client.send(vec![Point {
            name: "a metric".to_owned(),
            quantity: Quantity::Added(1),
            cell_id: None,
        }]);
        let queued = std::iter::from_fn(|| waiting.try_recv().ok()).count();
        assert_eq!(queued, QUEUE_WITH_LINES + 1);
    }
}
