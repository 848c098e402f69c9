//! Who believes whom: one authority, one certificate that everybody of a simulated Diego shows, and the servers and
//! clients that are built from them. Owns no conversation.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use bbs::config::ClientTls;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use crate::harness::certificates::{Authority, VALID, replace};

/// How long anybody waits for the host.
const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Trust {
    folder: tempfile::TempDir,
}

/// A server of the simulation. It ends, with all its connections, when dropped.
pub struct Listening {
    scheme: &'static str,
    address: SocketAddr,
    handle: Handle<SocketAddr>,
}

impl Trust {
    pub fn new() -> Self {
        bbs::tls::choose_cryptography();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new("Diego's");
        replace(&folder.path().join("ca.crt"), &authority.certificate());
        authority.issue("anybody", VALID).write(folder.path(), "anybody");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("it was written")
    }

    /// The files of the authority, the certificate and its key.
    pub fn files(&self) -> [PathBuf; 3] {
        ["ca.crt", "anybody.crt", "anybody.key"].map(|name| self.path(name))
    }

    /// The same, as the host is told of them.
    pub fn client_tls(&self) -> ClientTls {
        let [ca_file, cert_file, key_file] = self.files();
        ClientTls { cert_file, key_file, ca_file }
    }

    pub fn client(&self) -> reqwest::Client {
        let identity = [self.read("anybody.crt"), self.read("anybody.key")].concat();
        reqwest::Client::builder()
            .identity(reqwest::Identity::from_pem(&identity).expect("a certificate and its key"))
            .tls_certs_only([reqwest::Certificate::from_pem(&self.read("ca.crt")).expect("a certificate")])
            .connect_timeout(TIMEOUT)
            .build()
            .expect("a client")
    }

    /// Serves on a free port whoever has a certificate of the authority.
    pub fn listen(&self, router: Router) -> Listening {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.read("ca.crt")).expect("a certificate")).expect("an authority");
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().expect("an authority");
        let chain = vec![CertificateDer::from_pem_slice(&self.read("anybody.crt")).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(&self.read("anybody.key")).expect("a key");
        let config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .expect("a certificate and its key");
        let (listener, address, handle) = bind();
        let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(config)))
            .expect("a listener of the runtime")
            .handle(handle.clone());
        tokio::spawn(server.serve(router.into_make_service()));
        Listening { scheme: "https", address, handle }
    }
}

/// Serves on a free port whoever comes, without TLS.
pub fn listen_plain(router: Router) -> Listening {
    let (listener, address, handle) = bind();
    let server = axum_server::from_tcp(listener).expect("a listener of the runtime").handle(handle.clone());
    tokio::spawn(server.serve(router.into_make_service()));
    Listening { scheme: "http", address, handle }
}

fn bind() -> (TcpListener, SocketAddr, Handle<SocketAddr>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are free ports");
    listener.set_nonblocking(true).expect("a listener of the runtime");
    let address = listener.local_addr().expect("a listener has an address");
    (listener, address, Handle::new())
}

impl Listening {
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}
