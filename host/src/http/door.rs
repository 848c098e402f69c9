//! How connections come in: each in a task of its own from its first byte, so that one whose handshake is slow, or never
//! ends, holds up nobody. Owns what is known of whoever is at the other end, and what is said of those who were not let
//! in.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::middleware::AddExtension;
use axum::{Extension, Router};
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use axum_server::{Handle, Server};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tower::Layer;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use super::tls::Certificates;
use crate::quiet::gets_a_line;

/// A client that vanished without a word is noticed after about this long.
const KEEP_ALIVE: Duration = Duration::from_secs(180);
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Whoever is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// What their certificate says of them and of who signed it, as the access log names it.
    pub(super) certificate: Arc<Map<String, Value>>,
}

/// Answers until `stop`, and then for so long what has begun. Without certificates it speaks plain HTTP.
pub async fn serve_clients(
    listener: TcpListener,
    certificates: Option<Certificates>,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
    drain: Duration,
) -> io::Result<()> {
    // Accepted connections inherit both.
    let socket = SockRef::from(&listener);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 4))?;
    socket.set_tcp_nodelay(true)?;
    let handle = Handle::new();
    tokio::spawn({
        let handle = handle.clone();
        async move {
            stop.await;
            handle.graceful_shutdown(Some(drain));
        }
    });
    let server = Server::<SocketAddr>::from_listener(listener).handle(handle).http1_only();
    let clients = router.into_make_service();
    match certificates {
        Some(certificates) => server.acceptor(Guarded::new(&certificates)).serve(clients).await,
        None => server.acceptor(Open).serve(clients).await,
    }
}

/// Lets everybody in.
#[derive(Clone)]
struct Open;

impl<S> Accept<TcpStream, S> for Open {
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

/// Lets in who has a certificate of the authority's.
#[derive(Clone)]
struct Guarded {
    handshake: RustlsAcceptor,
    refused: Arc<AtomicU64>,
}

impl Guarded {
    fn new(certificates: &Certificates) -> Self {
        let handshake = RustlsAcceptor::new(certificates.config()).handshake_timeout(HANDSHAKE);
        Self { handshake, refused: Arc::default() }
    }

    /// Whoever can reach the port can fail at it, so not each gets a line.
    fn refuse(&self, address: SocketAddr, error: &io::Error) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if gets_a_line(refused) {
            tracing::warn!(name: "tls.handshake-failed", %address, %error, refused,
                "a client was not let in; not each is logged");
        }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Guarded {
    type Stream = TlsStream<TcpStream>;
    type Service = AddExtension<S, Peer>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let door = self.clone();
        Box::pin(async move {
            let address = stream.peer_addr()?;
            let shaken = door.handshake.accept(stream, service).await;
            let (stream, service) = shaken.inspect_err(|error| door.refuse(address, error))?;
            let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| names(chain.first()?));
            let peer = Peer { address, certificate: Arc::new(certificate.unwrap_or_default()) };
            Ok((stream, Extension(peer).layer(service)))
        })
    }
}

/// What a certificate says of its subject and its issuer.
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
