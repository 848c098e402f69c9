//! The metrics agent of a machine, Loggregator's, on a free port with mutual TLS. Owns what it was told; a test decides
//! whether it takes what comes, takes nothing, refuses, or goes away in the middle.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use bbs::clients::loggregator::messages::envelope::Message;
use bbs::clients::loggregator::messages::{BATCH_SENDER, BatchSenderResponse, Envelope, EnvelopeBatch};
use tonic::body::Body;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::codegen::{Context, Pin, Poll, Service};
use tonic::server::{ClientStreamingService, Grpc, NamedService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::certificates::{Authority, VALID};

/// What the certificates of agents are made out to.
pub const NAME: &str = "metron";

#[derive(Clone)]
pub struct Loggregator {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    manner: Manner,
    batches: Vec<Vec<Envelope>>,
    /// Streams that were begun, whatever became of them.
    streams: usize,
}

/// How the next stream is dealt with, and the next batch of each stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Takes,
    /// Reads nothing and says nothing.
    Stuck,
    Refuses,
    /// Ends the stream with the first batch.
    Breaks,
}

impl Loggregator {
    /// Serves those whom the authority vouches for until the runtime of the test ends.
    pub fn start(authority: &Authority, manner: Manner) -> Self {
        Self::start_as(NAME, authority, manner)
    }

    /// The same with a certificate that is made out to somebody.
    pub fn start_as(name: &str, authority: &Authority, manner: Manner) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), name, authority, manner)
    }

    /// The same at a port that somebody was told of before.
    pub fn start_at(address: SocketAddr, name: &str, authority: &Authority, manner: Manner) -> Self {
        let incoming = TcpIncoming::bind(address).expect("there are free ports");
        let address = incoming.local_addr().expect("a listener has an address");
        let state = State { manner, batches: Vec::new(), streams: 0 };
        let agent = Self { address, state: Arc::new(Mutex::new(state)) };
        let pair = authority.issue_for(name, &[name], VALID);
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(pair.certificate, pair.key))
            .client_ca_root(Certificate::from_pem(authority.certificate()));
        let server = Server::builder().tls_config(tls).expect("the certificates are sound").add_service(agent.clone());
        tokio::spawn(server.serve_with_incoming(incoming));
        agent
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no request panics")
    }

    pub fn behave(&self, manner: Manner) {
        self.state().manner = manner;
    }

    pub fn streams(&self) -> usize {
        self.state().streams
    }

    /// As they came.
    pub fn batches(&self) -> Vec<Vec<Envelope>> {
        self.state().batches.clone()
    }

    pub fn envelopes(&self) -> Vec<Envelope> {
        self.state().batches.concat()
    }

    /// What it was told under a name.
    pub fn told(&self, name: &str) -> Vec<Envelope> {
        self.envelopes().into_iter().filter(|envelope| names(envelope).iter().any(|told| told == name)).collect()
    }

    /// Everything but metrics: the lines of apps.
    pub fn lines(&self) -> Vec<Envelope> {
        self.envelopes().into_iter().filter(|envelope| matches!(envelope.message, Some(Message::Log(_)))).collect()
    }

    /// Takes the batches of a stream, for as long as it behaves so.
    async fn take(self, mut stream: Streaming<EnvelopeBatch>) -> Result<(), Status> {
        self.state().streams += 1;
        loop {
            let manner = self.state().manner;
            match manner {
                Manner::Refuses => return Err(Status::unavailable("not now")),
                Manner::Stuck => super::until(|| self.state().manner != Manner::Stuck).await,
                Manner::Takes | Manner::Breaks => {
                    let Some(EnvelopeBatch { batch }) = stream.message().await? else { return Ok(()) };
                    self.state().batches.push(batch);
                    if manner == Manner::Breaks {
                        return Err(Status::internal("broken off"));
                    }
                }
            }
        }
    }
}

/// Of the metrics in an envelope.
pub fn names(envelope: &Envelope) -> Vec<String> {
    match &envelope.message {
        Some(Message::Counter(counter)) => vec![counter.name.clone()],
        Some(Message::Gauge(gauge)) => gauge.metrics.keys().cloned().collect(),
        Some(Message::Log(_)) | None => Vec::new(),
    }
}

/// The value of a gauge and its unit.
pub fn gauge(envelope: &Envelope, name: &str) -> (f64, String) {
    match &envelope.message {
        Some(Message::Gauge(gauge)) => {
            let gauge = gauge.metrics.get(name).expect("the gauge of that name");
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
                Grpc::new(ProstCodec::default()).client_streaming(BatchSender(agent), request).await
            } else {
                Status::unimplemented("no such method").into_http()
            })
        })
    }
}

struct BatchSender(Loggregator);

impl ClientStreamingService<EnvelopeBatch> for BatchSender {
    type Response = BatchSenderResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<BatchSenderResponse>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<EnvelopeBatch>>) -> Self::Future {
        let agent = self.0.clone();
        Box::pin(async move {
            agent.take(request.into_inner()).await?;
            Ok(Response::new(BatchSenderResponse {}))
        })
    }
}
