//! Sends envelopes to the agent in batches, over a stream that is reopened whenever it ends.
//! Decides when a batch is full, and samples the warnings about an unreachable agent. An envelope
//! leaves the queue only when a stream takes it.

use std::sync::Arc;
use std::time::Duration;

use bbs_work::log_sampling::is_sampled;
use futures_util::{Stream, stream};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::LoggregatorError;
use super::messages::{BATCH_SENDER, BatchSenderResponse, Envelope, EnvelopeBatch};
use crate::tls::reloading::Reloading;

/// The defaults of Loggregator's own client.
const BATCH_SIZE: usize = 100;
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// The largest answer, in bytes.
const LARGEST_ANSWER: usize = 4 << 10;
/// Delay before the stream is reopened.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A stream that lasted for longer than this resets the count of failures.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// The queue, as batches. Clones take from the same queue, one at a time.
#[derive(Debug, Clone)]
pub(super) struct Batches {
    waiting: Arc<Mutex<mpsc::Receiver<Envelope>>>,
    size: usize,
    flush_interval: Duration,
}

impl Batches {
    pub(super) fn new(
        waiting: mpsc::Receiver<Envelope>,
        size: Option<usize>,
        flush_interval: Option<Duration>,
    ) -> Self {
        Self {
            waiting: Arc::new(Mutex::new(waiting)),
            size: size.filter(|size| *size > 0).unwrap_or(BATCH_SIZE),
            flush_interval: flush_interval.unwrap_or(FLUSH_INTERVAL),
        }
    }

    /// The next batch: full, or the flush interval has passed. `None` when the queue is closed and
    /// empty.
    async fn next(&self) -> Option<EnvelopeBatch> {
        let mut waiting = self.waiting.lock().await;
        let mut batch = vec![waiting.recv().await?];
        let deadline = Instant::now() + self.flush_interval;
        while batch.len() < self.size {
            match tokio::time::timeout_at(deadline, waiting.recv()).await {
                Ok(Some(envelope)) => batch.push(envelope),
                Ok(None) | Err(_) => break,
            }
        }
        Some(EnvelopeBatch { batch })
    }

    fn stream(&self) -> impl Stream<Item = EnvelopeBatch> + Send + 'static {
        stream::unfold(self.clone(), |batches| async move {
            Some((batches.next().await?, batches))
        })
    }
}

/// Sends batches until the queue is closed.
pub(super) async fn send(channel: Reloading<Channel, LoggregatorError>, batches: Batches) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let ended = send_batches(channel.get(), &batches).await;
        if batches.waiting.lock().await.is_closed() {
            return;
        }
        if began.elapsed() > STABLE_AFTER {
            failures = 0;
        }
        if let Err(status) = ended {
            failures += 1;
            if is_sampled(failures) {
                tracing::warn!(
                    name: "loggregator.unreachable",
                    failures,
                    reason = reason(&status),
                    "metrics cannot be sent; check that the agent runs, and that its certificates and the `loggregator_*_path` files match"
                );
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// The reason of a failed call: that of the system, if there is one. The texts between are those of
/// libraries' types.
fn reason(status: &Status) -> String {
    let cause =
        std::iter::successors(std::error::Error::source(status), |cause| (*cause).source()).last();
    cause.map_or_else(
        || format!("{}: {}", status.code(), status.message()),
        ToString::to_string,
    )
}

/// Sends batches until the agent ends the stream or the connection fails.
async fn send_batches(channel: Channel, batches: &Batches) -> Result<(), Status> {
    // The answer has no fields.
    let mut grpc = Grpc::new(channel).max_decoding_message_size(LARGEST_ANSWER);
    grpc.ready()
        .await
        .map_err(|fault| Status::from_error(fault.into()))?;
    let path = PathAndQuery::from_static(BATCH_SENDER);
    let codec = ProstCodec::<EnvelopeBatch, BatchSenderResponse>::default();
    grpc.client_streaming(Request::new(batches.stream()), path, codec)
        .await
        .map(drop)
}
