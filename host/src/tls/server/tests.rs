//! Certificate files that cannot be used, and the error of each; the sessions of clients.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;
use crate::clock::StoppedClock;

/// A time in 2101.
const AFTER_EXPIRY_NS: i64 = 4_133_980_800 * NS_PER_S;

struct CertificateFolder {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl CertificateFolder {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let made = Self {
            folder: tempfile::tempdir().unwrap(),
            authority,
        };
        made.put("ca.crt", &made.authority.pem());
        made.issue((2020, 2100));
        made
    }

    /// A certificate that is valid in these years.
    fn issue(&self, (from, to): (i32, i32)) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        self.put(
            "server.crt",
            &params.signed_by(&key, &self.authority).unwrap().pem(),
        );
        self.put("server.key", &key.serialize_pem());
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn files(&self) -> CertificateFiles {
        let path = |name: &str| self.path(name);
        CertificateFiles {
            cert_file: path("server.crt"),
            key_file: path("server.key"),
            ca_file: path("ca.crt"),
        }
    }

    fn read(&self) -> Result<Certificates, TlsError> {
        Certificates::read(&self.files())
    }

    /// A client of this version with the certificate of the server, which keeps sessions.
    fn client(&self, version: &'static SupportedProtocolVersion) -> TlsConnector {
        let CertificateFiles {
            cert_file,
            key_file,
            ca_file,
        } = self.files();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(authorities(&ca_file, &read(&ca_file).unwrap()).unwrap())
            .with_client_auth_cert(
                chain(&cert_file, &read(&cert_file).unwrap()).unwrap(),
                key(&key_file, &read(&key_file).unwrap()).unwrap(),
            )
            .unwrap();
        TlsConnector::from(Arc::new(config))
    }
}

/// The kind of the next handshake of a client. The client has the tickets of its next sessions
/// then: they precede the byte that it receives.
async fn handshake(server: &ServerTls, client: &TlsConnector) -> HandshakeKind {
    let (client_end, server_end) = tokio::io::duplex(64 << 10);
    let accepting = async {
        let mut stream = server.accept(server_end).await.unwrap();
        stream.write_all(b"!").await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let connecting = async {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = client.connect(name, client_end).await.unwrap();
        stream.read_u8().await.unwrap();
    };
    let (stream, ()) = tokio::join!(accepting, connecting);
    stream.get_ref().1.handshake_kind().unwrap()
}

#[test]
fn matching_files_are_used() {
    let config = CertificateFolder::new().read().unwrap().config();
    assert!(
        config.borrow().config.alpn_protocols.is_empty(),
        "HTTP/2 is not offered"
    );
}

#[test]
fn unusable_files_are_rejected_by_name() {
    let of = |error: TlsError| error.to_string();
    let folder = CertificateFolder::new();
    folder.issue((2020, 2021));
    assert!(of(folder.read().unwrap_err()).contains("that is not now"));
    folder.issue((2090, 2100));
    assert!(of(folder.read().unwrap_err()).contains("that is not now"));

    for name in ["server.crt", "server.key", "ca.crt"] {
        let folder = CertificateFolder::new();
        folder.put(name, "");
        let message = of(folder.read().unwrap_err());
        assert!(message.contains(name), "{message}");
        folder.put(
            name,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        let message = of(folder.read().unwrap_err());
        assert!(message.contains(name), "{message}");
        std::fs::remove_file(folder.path(name)).unwrap();
        let message = of(folder.read().unwrap_err());
        assert!(
            message.contains("cannot read") && message.contains(name),
            "{message}"
        );
    }

    let folder = CertificateFolder::new();
    folder.put("server.key", &KeyPair::generate().unwrap().serialize_pem());
    assert!(matches!(folder.read().unwrap_err(), TlsError::Pair { .. }));
    assert!(folder.path("server.key").exists());
}

#[test]
fn encrypted_missing_and_truncated_keys_are_rejected_as_such() {
    let folder = CertificateFolder::new();
    let whole = std::fs::read_to_string(folder.path("server.key")).unwrap();
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted_in_the_older_form = "-----BEGIN EC PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\r\n\
                                    DEK-Info: AES-128-CBC,00\r\n\r\nAAAA\r\n-----END EC PRIVATE KEY-----\r\n";
    let certificate = folder.authority.pem();
    for (text, reason) in [
        (encrypted, "is encrypted"),
        (encrypted_in_the_older_form, "is encrypted"),
        (certificate.as_str(), "there is no private key in"),
        (
            &whole[..whole.len() / 2],
            "ends within a certificate or key",
        ),
    ] {
        folder.put("server.key", text);
        let message = folder.read().unwrap_err().to_string();
        assert!(
            message.contains(reason) && message.contains("server.key"),
            "{message}"
        );
    }
    folder.put("ca.crt", &certificate[..certificate.len() / 2]);
    folder.put("server.key", &whole);
    let message = folder.read().unwrap_err().to_string();
    assert!(message.contains("ca.crt ends within"), "{message}");
}

/// Its public key could not be compared with the private key, which would be reported as a
/// mismatch.
#[test]
fn certificate_of_version_1_is_rejected_by_its_version() {
    let folder = CertificateFolder::new();
    folder.put(
        "server.crt",
        include_str!("../../../../tests/fixtures/certificates/version-1.crt"),
    );
    folder.put(
        "server.key",
        include_str!("../../../../tests/fixtures/certificates/version-1.key"),
    );
    let message = folder.read().unwrap_err().to_string();
    assert!(
        message.contains("server.crt is of X.509 version 1"),
        "{message}"
    );
}

#[tokio::test]
async fn certificate_of_an_authority_is_named_as_the_reason_of_the_rejection() {
    let folder = CertificateFolder::new();
    let files = folder.files();
    let read = contents(&files).unwrap();
    let server = ServerTls::new(&files, &read, Arc::new(SystemClock)).unwrap();
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &folder.authority).unwrap();
    folder.put("server.crt", &certificate.pem());
    folder.put("server.key", &key.serialize_pem());
    let client = folder.client(&TLS13);
    let (client_end, server_end) = tokio::io::duplex(64 << 10);
    let name = ServerName::try_from("localhost").unwrap();
    let (accepted, _) = tokio::join!(server.accept(server_end), client.connect(name, client_end));
    let Err(error) = accepted else {
        panic!("the client is rejected");
    };
    let reason = handshake_failure(&error);
    assert!(
        reason.contains("marked as that of an authority"),
        "{reason}"
    );
}

/// Method: only the clock of the sessions passes the end of the client's certificate, so that the
/// full handshake succeeds.
#[tokio::test]
async fn session_is_not_resumed_once_the_certificate_of_its_client_has_expired() {
    let folder = CertificateFolder::new();
    let files = folder.files();
    for version in [&TLS12, &TLS13] {
        let clock = Arc::new(StoppedClock::at(0));
        let read = contents(&files).unwrap();
        let server = ServerTls::new(&files, &read, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let client = folder.client(version);
        assert_eq!(handshake(&server, &client).await, HandshakeKind::Full);
        for _ in 0..2 {
            assert_eq!(handshake(&server, &client).await, HandshakeKind::Resumed);
        }
        clock.set(AFTER_EXPIRY_NS);
        for _ in 0..2 {
            let kind = handshake(&server, &client).await;
            assert_eq!(kind, HandshakeKind::Full, "{version:?}");
        }
    }
}
