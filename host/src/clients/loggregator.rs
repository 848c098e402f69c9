//! Loggregator's metrics agent: what is sent to it about this host, and the lines for an app's own log. Owns
//! how that becomes envelopes, and how many may wait: an agent that is slow or away costs envelopes, which are counted,
//! and never time.

pub mod messages;
mod sender;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};

use super::files;
use super::fresh::Fresh;
use crate::clock::{Clock, SystemClock};
use crate::config;
use crate::metrics::{Point, Quantity};
use crate::quiet::gets_a_line;
use crate::tls::client::FilesError;
use messages::{Counter, Envelope, Gauge, GaugeValue, Log, LogType, envelope};

/// Envelopes that wait to be sent. A report of a large Diego is a few hundred.
const QUEUE: usize = 4096;
/// What the agents' certificates are all made out to.
const AGENT: &str = "metron";
/// Where app logs say that they come from.
const SOURCE_TYPE: &str = "DIEGO-API";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection over which nothing comes back for so long is given up.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Without an agent nothing is sent. Clones send to the same one.
#[derive(Debug, Clone, Default)]
pub struct Loggregator(Option<Arc<Agent>>);

#[derive(Debug)]
struct Agent {
    queue: mpsc::Sender<Envelope>,
    origin: String,
    source_id: String,
    instance_id: String,
    left_out: AtomicU64,
}

/// Why there is nobody to send to.
#[derive(Debug, thiserror::Error)]
pub enum LoggregatorError {
    #[error("the files that the `loggregator_*_path` keys name cannot be used; correct them")]
    Files(#[from] FilesError),
    #[error(
        "`loggregator_api_host` and `loggregator_api_port` make {address:?}, which is not an address; correct them"
    )]
    Address { address: String, source: tonic::transport::Error },
    #[error("the certificates that the `loggregator_*_path` keys name cannot be used; have them made again, as PEM")]
    Tls(#[source] tonic::transport::Error),
}

impl Loggregator {
    /// Connects when there is something to send, and again whenever it has to. The sending ends with the runtime.
    pub(super) fn new(config: &config::Loggregator) -> Result<Self, LoggregatorError> {
        let files = [&config.tls.ca_file, &config.tls.cert_file, &config.tls.key_file];
        let (tls, address) = (config.tls.clone(), format!("{}:{}", config.api_host, config.api_port));
        let channel = Fresh::new(files.map(Clone::clone).to_vec(), move || connect_later(&tls, &address))?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let batches = sender::Batches::new(waiting, config.batch_max_size, config.batch_flush_interval);
        tokio::spawn(sender::send(channel, batches));
        Ok(Self(Some(Arc::new(Agent {
            queue,
            origin: config.job_origin.clone(),
            source_id: config.source_id.clone(),
            instance_id: config.instance_id.clone(),
            left_out: AtomicU64::new(0),
        }))))
    }

    pub fn send(&self, points: Vec<Point>) {
        let Some(agent) = &self.0 else { return };
        for point in points {
            agent.put(agent.of_point(point));
        }
    }

    /// A line for the log of an app, as something that went wrong.
    pub fn app_error(&self, app_guid: &str, line: &str) {
        let Some(agent) = &self.0 else { return };
        agent.put(agent.of_line(app_guid, line));
    }
}

impl Agent {
    fn of_point(&self, point: Point) -> Envelope {
        let Point { name, quantity, cell_id } = point;
        let message = match quantity {
            Quantity::Added(delta) => envelope::Message::Counter(Counter { name, delta, total: 0 }),
            Quantity::Gauge { value, unit } => {
                let value = GaugeValue { unit: unit.to_owned(), value };
                envelope::Message::Gauge(Gauge { metrics: HashMap::from([(name, value)]) })
            }
        };
        let mut tags = self.tags();
        tags.extend(cell_id.map(|cell_id| ("cell-id".to_owned(), cell_id)));
        let (source_id, instance_id) = (self.source_id.clone(), self.instance_id.clone());
        Envelope { timestamp: SystemClock.now_ns(), source_id, instance_id, tags, message: Some(message) }
    }

    fn of_line(&self, app_guid: &str, line: &str) -> Envelope {
        let mut tags = self.tags();
        tags.insert("source_id".to_owned(), app_guid.to_owned());
        tags.insert("source_type".to_owned(), SOURCE_TYPE.to_owned());
        let log = Log { payload: line.as_bytes().to_vec(), r#type: LogType::Err.into() };
        Envelope {
            timestamp: SystemClock.now_ns(),
            source_id: app_guid.to_owned(),
            instance_id: String::new(),
            tags,
            message: Some(envelope::Message::Log(log)),
        }
    }

    /// Agents add what else they know of this machine.
    fn tags(&self) -> HashMap<String, String> {
        HashMap::from([("origin".to_owned(), self.origin.clone())])
    }

    fn put(&self, envelope: Envelope) {
        if self.queue.try_send(envelope).is_err() {
            let left_out = self.left_out.fetch_add(1, Ordering::Relaxed) + 1;
            if gets_a_line(left_out) {
                tracing::warn!(
                    name: "loggregator.left-out",
                    left_out, "the metrics agent takes less than there is; what finds no place is left out"
                );
            }
        }
    }
}

fn connect_later(tls: &config::ClientTls, address: &str) -> Result<Channel, LoggregatorError> {
    let config = files(tls).grpc_config()?.domain_name(AGENT);
    let refused = |source| LoggregatorError::Address { address: address.to_owned(), source };
    let endpoint = Endpoint::from_shared(format!("https://{address}")).map_err(refused)?;
    let endpoint =
        endpoint.connect_timeout(CONNECT_TIMEOUT).http2_keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE);
    Ok(endpoint.tls_config(config).map_err(LoggregatorError::Tls)?.connect_lazy())
}
