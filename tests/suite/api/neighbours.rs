//! The components that calls about instances reach: an auctioneer, one cell's rep, and Locket as far as it knows cells.
//! Each writes down what it is asked, and answers as the test says.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum_server::tls_rustls::RustlsConfig;
use bbs::clients::Clients;
use bbs::config;
use bbs::locket::messages::{FetchRequest, FetchResponse, Resource};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::codegen::{Context, Pin, Poll, Service};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

use crate::harness::locket::certificate;

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

/// Clones are the same neighbours.
#[derive(Clone, Default)]
pub(super) struct Neighbours(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    auctions: Vec<Value>,
    auctioneer_refuses: bool,
    /// Path and trace id of each request to the rep.
    asked_of_rep: Vec<(String, String)>,
    /// The rep's next answers. Then it accepts.
    rep_answers: VecDeque<StatusCode>,
    /// By cell.
    presences: BTreeMap<String, Value>,
    locket_is_down: bool,
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(certificate(name)).expect("a file of the repository")
}

impl Neighbours {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no request panics")
    }

    /// Starts all of them; `cell-a` has the rep. They serve until the test ends.
    pub(super) async fn start() -> (Self, Clients) {
        bbs::tls::choose_cryptography();
        let neighbours = Self::default();
        let auctioneer = neighbours.auctioneer().await;
        let rep = neighbours.rep();
        neighbours.show("cell-a", &format!("https://{rep}"));
        let locket = neighbours.locket();
        let (ca_file, cert_file, key_file) =
            (certificate("ca.crt"), certificate("client.crt"), certificate("client.key"));
        let locket = config::Locket {
            address: locket.to_string(),
            ca_cert_file: ca_file.clone(),
            client_cert_file: cert_file.clone(),
            client_key_file: key_file.clone(),
            keepalive_time: None,
            keepalive_timeout: None,
            lookup_timeout: Duration::from_secs(30),
        };
        let auctioneer = config::Auctioneer { address: format!("http://{auctioneer}"), tls: None, require_tls: false };
        let tls = Some(config::ClientTls { cert_file, key_file, ca_file });
        let config = config::Clients {
            auctioneer: Some(auctioneer),
            rep: config::Rep { tls, session_cache_size: None },
            ..config::Clients::default()
        };
        (neighbours, Clients::new(&config, Some(&locket), None).expect("everybody can be spoken to"))
    }

    /// A cell whose rep is there.
    pub(super) fn show(&self, cell_id: &str, rep_url: &str) {
        let presence = json!({ "cell_id": cell_id, "rep_address": "http://127.0.0.1:1", "rep_url": rep_url });
        self.inner().presences.insert(cell_id.to_owned(), presence);
    }

    pub(super) fn hide(&self, cell_id: &str) {
        self.inner().presences.remove(cell_id);
    }

    pub(super) fn take_locket_down(&self) {
        self.inner().locket_is_down = true;
    }

    pub(super) fn let_auctioneer_refuse(&self) {
        self.inner().auctioneer_refuses = true;
    }

    pub(super) fn let_rep_answer(&self, answers: &[StatusCode]) {
        self.inner().rep_answers.extend(answers);
    }

    /// What the auctioneer was asked for since the last time: process guid and indices.
    pub(super) fn auctions(&self) -> Vec<(String, Value)> {
        let auctions = std::mem::take(&mut self.inner().auctions);
        let starts = auctions.into_iter().flat_map(|body| body.as_array().expect("a list").clone());
        starts.map(|start| (start["process_guid"].as_str().unwrap().to_owned(), start["indices"].clone())).collect()
    }

    /// What the rep was asked since the last time: paths and trace ids.
    pub(super) fn asked_of_rep(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.inner().asked_of_rep)
    }

    async fn auctioneer(&self) -> SocketAddr {
        async fn auction(State(neighbours): State<Neighbours>, request: Request) -> StatusCode {
            assert_eq!(request.uri().path(), "/v1/lrps");
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.expect("a whole body");
            let mut inner = neighbours.inner();
            inner.auctions.push(serde_json::from_slice(&body).expect("JSON"));
            if inner.auctioneer_refuses { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::ACCEPTED }
        }
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("there are free ports");
        let address = listener.local_addr().expect("a listener has an address");
        let router = Router::new().fallback(auction).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    fn rep(&self) -> SocketAddr {
        async fn ask(State(neighbours): State<Neighbours>, request: Request) -> StatusCode {
            let trace_id = request.headers().get("x-vcap-request-id").map_or("", |id| id.to_str().expect("text"));
            let asked = (format!("{} {}", request.method(), request.uri().path()), trace_id.to_owned());
            let mut inner = neighbours.inner();
            inner.asked_of_rep.push(asked);
            inner.rep_answers.pop_front().unwrap_or(StatusCode::ACCEPTED)
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&read("ca.crt")).expect("a certificate")).expect("an authority");
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().expect("an authority");
        let chain = vec![CertificateDer::from_pem_slice(&read("server.crt")).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(&read("server.key")).expect("a key");
        let tls = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .expect("a certificate and its key");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are free ports");
        listener.set_nonblocking(true).expect("a listener of the runtime");
        let address = listener.local_addr().expect("a listener has an address");
        let router = Router::new().fallback(ask).with_state(self.clone());
        let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(tls)));
        tokio::spawn(server.expect("a listener of the runtime").serve(router.into_make_service()));
        address
    }

    fn locket(&self) -> SocketAddr {
        let incoming = TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("there are free ports");
        let address = incoming.local_addr().expect("a listener has an address");
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(read("server.crt"), read("server.key")))
            .client_ca_root(Certificate::from_pem(read("ca.crt")));
        let server = Server::builder().tls_config(tls).expect("the certificates are sound").add_service(self.clone());
        tokio::spawn(server.serve_with_incoming(incoming));
        address
    }

    fn fetch(&self, key: &str) -> Result<FetchResponse, Status> {
        let inner = self.inner();
        if inner.locket_is_down {
            return Err(Status::unavailable("the database is away"));
        }
        let presence = inner.presences.get(key).ok_or_else(|| Status::not_found("no such cell"))?;
        let resource = Resource { key: key.to_owned(), value: presence.to_string(), ..Resource::default() };
        Ok(FetchResponse { resource: Some(resource) })
    }
}

impl NamedService for Neighbours {
    const NAME: &'static str = "models.Locket";
}

impl Service<HttpRequest<Body>> for Neighbours {
    type Response = HttpResponse<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let neighbours = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(Fetch(neighbours), request).await) })
    }
}

struct Fetch(Neighbours);

impl UnaryService<FetchRequest> for Fetch {
    type Response = FetchResponse;
    type Future = Answer<Response<FetchResponse>>;

    fn call(&mut self, request: tonic::Request<FetchRequest>) -> Self::Future {
        let found = self.0.fetch(&request.into_inner().key);
        Box::pin(async move { found.map(Response::new) })
    }
}
