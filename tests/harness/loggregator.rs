//! A stub of Loggregator's metrics agent on a free port with mutual TLS. Records the envelopes that
//! it receives; a test sets whether it receives them, stalls, refuses streams or breaks them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use bbs::testing::clients::loggregator::messages::envelope::EnvelopeMessage;
use bbs::testing::clients::loggregator::messages::{
    BATCH_SENDER, BatchSenderResponse, Envelope, EnvelopeBatch,
};
use tonic::body::Body;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::codegen::{Context, Pin, Poll, Service};
use tonic::server::{ClientStreamingService, Grpc, NamedService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::certificates::{Authority, VALID};

/// The DNS name in the agents' certificates.
pub const NAME: &str = "metron";

/// A shared handle.
#[derive(Clone)]
pub struct Loggregator {
    address: SocketAddr,
    state: Arc<Mutex<AgentState>>,
}

struct AgentState {
    behaviour: AgentBehaviour,
    batches: Vec<Vec<Envelope>>,
    /// Number of streams begun so far, also refused and broken ones.
    streams: usize,
}

/// How the agent handles the next stream, and the next batch of each open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentBehaviour {
    Takes,
    /// Reads nothing and answers nothing.
    Stuck,
    Refuses,
    /// Receives one batch, then ends the stream with an error.
    Breaks,
}

impl Loggregator {
    /// Serves clients with a certificate of the authority until the test's runtime ends.
    pub fn start(authority: &Authority, behaviour: AgentBehaviour) -> Self {
        Self::start_as(NAME, authority, behaviour)
    }

    /// [`Self::start`] with another DNS name in the certificate.
    pub fn start_as(name: &str, authority: &Authority, behaviour: AgentBehaviour) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), name, authority, behaviour)
    }

    /// [`Self::start_as`] at a fixed address.
    pub fn start_at(
        address: SocketAddr,
        name: &str,
        authority: &Authority,
        behaviour: AgentBehaviour,
    ) -> Self {
        let incoming = TcpIncoming::bind(address).expect("there are free ports");
        let address = incoming.local_addr().expect("a listener has an address");
        let state = AgentState {
            behaviour,
            batches: Vec::new(),
            streams: 0,
        };
        let agent = Self {
            address,
            state: Arc::new(Mutex::new(state)),
        };
        let pair = authority.issue_for(name, &[name], VALID);
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(pair.certificate, pair.key))
            .client_ca_root(Certificate::from_pem(authority.certificate()));
        let server = Server::builder()
            .tls_config(tls)
            .expect("the certificates are valid")
            .add_service(agent.clone());
        tokio::spawn(server.serve_with_incoming(incoming));
        agent
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn state(&self) -> MutexGuard<'_, AgentState> {
        self.state.lock().expect("no request panics")
    }

    pub fn set_behaviour(&self, behaviour: AgentBehaviour) {
        self.state().behaviour = behaviour;
    }

    pub fn streams(&self) -> usize {
        self.state().streams
    }

    /// All batches received so far, in order.
    pub fn batches(&self) -> Vec<Vec<Envelope>> {
        self.state().batches.clone()
    }

    pub fn envelopes(&self) -> Vec<Envelope> {
        self.state().batches.concat()
    }

    /// All envelopes with a metric of this name.
    pub fn envelopes_of(&self, name: &str) -> Vec<Envelope> {
        self.envelopes()
            .into_iter()
            .filter(|envelope| names(envelope).iter().any(|metric| metric == name))
            .collect()
    }

    /// All log envelopes: lines of app logs.
    pub fn lines(&self) -> Vec<Envelope> {
        self.envelopes()
            .into_iter()
            .filter(|envelope| matches!(envelope.message, Some(EnvelopeMessage::Log(_))))
            .collect()
    }

    /// Receives the batches of a stream as the current behaviour demands.
    async fn take(self, mut stream: Streaming<EnvelopeBatch>) -> Result<(), Status> {
        self.state().streams += 1;
        loop {
            let behaviour = self.state().behaviour;
            match behaviour {
                AgentBehaviour::Refuses => return Err(Status::unavailable("not now")),
                AgentBehaviour::Stuck => {
                    super::until(|| self.state().behaviour != AgentBehaviour::Stuck).await
                }
                AgentBehaviour::Takes | AgentBehaviour::Breaks => {
                    let Some(EnvelopeBatch { batch }) = stream.message().await? else {
                        return Ok(());
                    };
                    self.state().batches.push(batch);
                    if behaviour == AgentBehaviour::Breaks {
                        return Err(Status::internal("broken off"));
                    }
                }
            }
        }
    }
}

/// The names of the metrics in an envelope.
pub fn names(envelope: &Envelope) -> Vec<String> {
    match &envelope.message {
        Some(EnvelopeMessage::Counter(counter)) => vec![counter.name.clone()],
        Some(EnvelopeMessage::Gauge(gauge)) => gauge.metrics.keys().cloned().collect(),
        Some(EnvelopeMessage::Log(_)) | None => Vec::new(),
    }
}

/// The value and unit of a gauge in an envelope.
pub fn gauge(envelope: &Envelope, name: &str) -> (f64, String) {
    match &envelope.message {
        Some(EnvelopeMessage::Gauge(gauge)) => {
            let gauge = gauge.metrics.get(name).expect("a gauge of this name");
            (gauge.value, gauge.unit.clone())
        }
        other => panic!("{name} is no gauge but {other:?}"),
    }
}

impl NamedService for Loggregator {
    const NAME: &'static str = "loggregator.v2.Ingress";
}

impl Service<HttpRequest<Body>> for Loggregator {
    type Response = HttpResponse<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let agent = self.clone();
        Box::pin(async move {
            Ok(if request.uri().path() == BATCH_SENDER {
                Grpc::new(ProstCodec::default())
                    .client_streaming(BatchSender(agent), request)
                    .await
            } else {
                Status::unimplemented("no such method").into_http()
            })
        })
    }
}

struct BatchSender(Loggregator);

impl ClientStreamingService<EnvelopeBatch> for BatchSender {
    type Response = BatchSenderResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<BatchSenderResponse>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<EnvelopeBatch>>) -> Self::Future {
        let agent = self.0.clone();
        Box::pin(async move {
            agent.take(request.into_inner()).await?;
            Ok(Response::new(BatchSenderResponse {}))
        })
    }
}
