//! TLS of a simulated Diego: one authority, one certificate that all components share, and the HTTP
//! servers and clients built from them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use bbs::testing::config::CertificateFiles;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::certificates::{Authority, VALID, replace};

/// Connect timeout of the clients.
const TIMEOUT: Duration = Duration::from_secs(30);
/// More than the requests that a host makes at once: others would be delayed by a second.
const BACKLOG: u32 = 1024;

pub struct Trust {
    folder: tempfile::TempDir,
}

/// An HTTP server on a free port. Stops and closes its connections when dropped.
pub struct HttpServer {
    scheme: &'static str,
    address: SocketAddr,
    handle: Handle<SocketAddr>,
}

impl Trust {
    pub fn new() -> Self {
        bbs::choose_cryptography();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new("Diego's");
        replace(&folder.path().join("ca.crt"), &authority.certificate());
        authority
            .issue("component", VALID)
            .write(folder.path(), "component");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("it was written")
    }

    /// The paths of the authority's certificate, the shared certificate and its key.
    pub fn files(&self) -> [PathBuf; 3] {
        ["ca.crt", "component.crt", "component.key"].map(|name| self.path(name))
    }

    /// The paths as the host's configuration of a TLS client.
    pub fn client_tls(&self) -> CertificateFiles {
        let [ca_file, cert_file, key_file] = self.files();
        CertificateFiles {
            cert_file,
            key_file,
            ca_file,
        }
    }

    pub fn client(&self) -> reqwest::Client {
        let identity = [self.read("component.crt"), self.read("component.key")].concat();
        reqwest::Client::builder()
            .identity(reqwest::Identity::from_pem(&identity).expect("a certificate and its key"))
            .tls_certs_only([
                reqwest::Certificate::from_pem(&self.read("ca.crt")).expect("a certificate")
            ])
            .connect_timeout(TIMEOUT)
            .build()
            .expect("a client")
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(&self.read("ca.crt")).expect("a certificate"))
            .expect("an authority");
        roots
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(&self.read("component.crt")).expect("a certificate")]
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(&self.read("component.key")).expect("a key")
    }

    /// Connects to a server with mutual TLS, for bytes that need not be HTTP.
    ///
    /// # Errors
    /// The server does not accept the connection.
    pub async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(self.roots())
            .with_client_auth_cert(self.chain(), self.key())
            .expect("a certificate and its key");
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::from(address.ip()), stream)
            .await
    }

    /// Serves `router` with mutual TLS: clients need a certificate of the authority.
    pub fn listen(&self, router: Router) -> HttpServer {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots()))
            .build()
            .expect("an authority");
        let config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain(), self.key())
            .expect("a certificate and its key");
        let (listener, address, handle) = bind();
        let server =
            axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(config)))
                .expect("a listener of the runtime")
                .handle(handle.clone());
        tokio::spawn(server.serve(router.into_make_service()));
        HttpServer {
            scheme: "https",
            address,
            handle,
        }
    }
}

/// Serves `router` without TLS.
pub fn listen_plain(router: Router) -> HttpServer {
    let (listener, address, handle) = bind();
    let server = axum_server::from_tcp(listener)
        .expect("a listener of the runtime")
        .handle(handle.clone());
    tokio::spawn(server.serve(router.into_make_service()));
    HttpServer {
        scheme: "http",
        address,
        handle,
    }
}

fn bind() -> (TcpListener, SocketAddr, Handle<SocketAddr>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind((Ipv4Addr::LOCALHOST, 0).into())
        .expect("there are free ports");
    let listener = socket.listen(BACKLOG).expect("a listener");
    let listener = listener.into_std().expect("a listener of the runtime");
    let address = listener.local_addr().expect("a listener has an address");
    (listener, address, Handle::new())
}

impl HttpServer {
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}
