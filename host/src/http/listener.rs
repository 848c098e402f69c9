//! The API listener: accepts each connection in a task of its own, so that a slow or stalled handshake delays no other
//! connection. Records the peer's address and certificate names for the access log, and logs rejected handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::middleware::AddExtension;
use axum::{Extension, Router};
use axum_server::accept::Accept;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use futures_util::future::BoxFuture;
use rustls::ServerConfig;
use serde_json::{Map, Value};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tower::Layer;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use super::in_flight::InFlight;
use crate::log_sampling::is_sampled;
use crate::tls::Certificates;

/// TCP keep-alive time: a peer that vanished is detected after about this long.
const KEEP_ALIVE: Duration = Duration::from_secs(180);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const LINGER: Duration = Duration::from_secs(2);

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The names of its certificate's subject and issuer, keyed as in the access log.
    pub(super) certificate: Arc<Map<String, Value>>,
}

const SUBJECT_COMMON_NAME: &str = "peer_cert_subject_common_name";

impl Peer {
    /// The common name of its certificate's subject; empty without one.
    pub(super) fn common_name(&self) -> &str {
        self.certificate.get(SUBJECT_COMMON_NAME).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Serves until `stop`, then gives requests in flight up to `drain` to finish. Plain HTTP without certificates.
///
/// # Errors
/// The listener's socket cannot be configured, or accepting fails.
pub async fn serve_clients(
    listener: TcpListener,
    certificates: Option<Certificates>,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    // Accepted connections inherit both options.
    let socket = SockRef::from(&listener);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 4))?;
    socket.set_tcp_nodelay(true)?;
    let (handle, in_flight) = (Handle::new(), InFlight::default());
    let router = in_flight.counting(router);
    tokio::spawn(end(handle.clone(), in_flight, stop, drain));
    let server = Server::<SocketAddr>::from_listener(listener).handle(handle).http1_only();
    let clients = router.into_make_service();
    match certificates {
        Some(certificates) => server.acceptor(TlsAcceptor::new(&certificates)).serve(clients).await,
        None => server.acceptor(PlainAcceptor).serve(clients).await,
    }
}

/// Waits up to `drain` for requests in flight, then closes the connections. Event streams are not waited for: one that its
/// client no longer reads would take the whole time.
async fn end(handle: Handle<SocketAddr>, in_flight: InFlight, stop: impl Future<Output = ()>, drain: Duration) {
    stop.await;
    handle.graceful_shutdown(None);
    let ended = async {
        while !in_flight.is_none() {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
        }
        // The last answers may still be in socket buffers.
        tokio::time::sleep(LINGER).await;
    };
    // Requests that take longer are cut off.
    let _ = tokio::time::timeout(drain, ended).await;
    handle.shutdown();
}

/// Accepts every client, without TLS.
#[derive(Clone)]
struct PlainAcceptor;

impl<S> Accept<TcpStream, S> for PlainAcceptor {
    type Stream = TcpStream;
    type Service = AddExtension<S, Peer>;
    type Future = std::future::Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepted = stream.peer_addr().map(|address| {
            let peer = Peer { address, certificate: Arc::default() };
            (stream, Extension(peer).layer(service))
        });
        std::future::ready(accepted)
    }
}

/// Accepts clients that have a certificate of the configured authority.
#[derive(Clone)]
struct TlsAcceptor {
    config: watch::Receiver<Arc<ServerConfig>>,
    refused: Arc<AtomicU64>,
}

impl TlsAcceptor {
    fn new(certificates: &Certificates) -> Self {
        Self { config: certificates.config(), refused: Arc::default() }
    }

    /// Any client that reaches the port can cause failures, so the log is sampled.
    fn log_rejection(&self, address: SocketAddr, error: &io::Error) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if is_sampled(refused) {
            tracing::warn!(name: "tls.handshake-failed", %address, %error, refused,
                "a TLS handshake failed, so the client was rejected; the log is sampled");
        }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for TlsAcceptor {
    type Stream = TlsStream<TcpStream>;
    type Service = AddExtension<S, Peer>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let acceptor = self.clone();
        Box::pin(async move {
            let address = stream.peer_addr()?;
            let config = RustlsConfig::from_config(Arc::clone(&acceptor.config.borrow()));
            let handshake = RustlsAcceptor::new(config).handshake_timeout(HANDSHAKE_TIMEOUT);
            let shaken = handshake.accept(stream, service).await;
            let (stream, service) = shaken.inspect_err(|error| acceptor.log_rejection(address, error))?;
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| names(chain.first()?));
            let peer = Peer { address, certificate: Arc::new(certificate.unwrap_or_default()) };
            Ok((stream, Extension(peer).layer(service)))
        })
    }
}

/// The names of a certificate's subject and issuer.
fn names(certificate: &[u8]) -> Option<Map<String, Value>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut names = Map::new();
    for (who, name) in [("subject", certificate.subject()), ("issuer", certificate.issuer())] {
        let texts = |found: Vec<&str>| found.into_iter().map(Value::from).collect::<Vec<_>>();
        let common = name.iter_common_name().filter_map(|part| part.as_str().ok()).last().unwrap_or_default();
        names.insert(format!("peer_cert_{who}_common_name"), common.into());
        names.insert(format!("peer_cert_{who}_organizational_unit"), texts(units(name)).into());
        names.insert(format!("peer_cert_{who}_organization"), texts(organizations(name)).into());
    }
    Some(names)
}

fn units<'a>(name: &'a X509Name<'_>) -> Vec<&'a str> {
    name.iter_organizational_unit().filter_map(|part| part.as_str().ok()).collect()
}

fn organizations<'a>(name: &'a X509Name<'_>) -> Vec<&'a str> {
    name.iter_organization().filter_map(|part| part.as_str().ok()).collect()
}
