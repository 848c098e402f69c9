//! Server-side TLS: loads the host's certificate and the authority of its clients, reloads them
//! when the files change, and rejects files that cannot work. Authorization of what a connected
//! client does is not its concern.

mod sessions;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::server::{StoresServerSessions, WebPkiClientVerifier};
use rustls::{CertificateError, CipherSuite, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

use self::sessions::ResumableSessions;
use super::{TlsError, authorities, chain, key, read};
use crate::clock::{Clock, SystemClock};
use crate::config::CertificateFiles;

/// How often the files are checked for a replacement.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
const NS_PER_S: i64 = 1_000_000_000;
/// Bytes that are encrypted ahead of what the client reads: one record, as Go's TLS does. A client
/// that does not read, such as a subscriber, keeps this memory for as long as it is connected.
const SENT_AHEAD: usize = 16 << 10;

/// Allowed cipher suites of TLS 1.2; those of TLS 1.3 are all allowed.
const TLS12_SUITES: [CipherSuite; 4] = [
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
];

/// The certificates in use. Clones share them.
#[derive(Debug, Clone)]
pub struct Certificates {
    files: CertificateFiles,
    read: Vec<Vec<u8>>,
    config: watch::Sender<ServerTls>,
}

impl Certificates {
    /// Loads the certificates.
    ///
    /// # Errors
    /// A file cannot be read or parsed, the certificate is not valid now, or certificate and key do
    /// not match.
    pub fn read(files: &CertificateFiles) -> Result<Self, TlsError> {
        let read = contents(files)?;
        let config = watch::Sender::new(ServerTls::new(files, &read, Arc::new(SystemClock))?);
        Ok(Self {
            files: files.clone(),
            read,
            config,
        })
    }

    /// The configuration of new connections.
    pub fn config(&self) -> watch::Receiver<ServerTls> {
        self.config.subscribe()
    }

    /// Reloads the certificates whenever the files change; does not return. Files that cannot be
    /// used are logged once and tried again, since a certificate may not be valid yet; the
    /// certificates in use stay.
    pub async fn watch(mut self) {
        // A file is replaced before the others, so unusable contents are logged only when found
        // twice.
        let mut unusable_once = Vec::new();
        let mut logged = Vec::new();
        let mut failures = 0_u32;
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            let read = match contents(&self.files) {
                Ok(read) => read,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    // A file may be absent while it is being replaced.
                    if failures == 2 {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(name: "tls.not-reloaded", error,
                            "the certificates cannot be read again; the previous ones stay in use");
                    }
                    continue;
                }
            };
            failures = 0;
            if read == self.read {
                continue;
            }
            match ServerTls::new(&self.files, &read, Arc::new(SystemClock)) {
                Ok(config) => {
                    self.config.send_replace(config);
                    tracing::info!(name: "tls.reloaded", cert_file = %self.files.cert_file.display(),
                        "new connections use the new certificates");
                    self.read = read;
                }
                Err(_) if read != unusable_once => unusable_once = read,
                Err(error) if read != logged => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(name: "tls.not-reloaded", error,
                        "the new certificates cannot be used; the previous ones stay in use");
                    logged = read;
                }
                Err(_) => {}
            }
        }
    }
}

/// The configuration of new connections, with the sessions that their clients may resume. Clones
/// share the sessions.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    sessions: Arc<ResumableSessions>,
}

impl ServerTls {
    fn new(
        files: &CertificateFiles,
        read: &[Vec<u8>],
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsError> {
        let sessions = Arc::new(ResumableSessions::new(clock));
        let mut config = server_config(files, read)?;
        config.session_storage = Arc::clone(&sessions) as Arc<dyn StoresServerSessions>;
        Ok(Self {
            config: Arc::new(config),
            sessions,
        })
    }

    /// Performs the handshake with a client.
    ///
    /// # Errors
    /// The client is rejected or has gone; [`handshake_failure`] has the reason.
    pub async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        let began_s = self.sessions.now_s();
        let mut stream = acceptor.accept(stream).await?;
        stream.get_mut().1.set_buffer_limit(Some(SENT_AHEAD));
        let chain = stream.get_ref().1.peer_certificates();
        self.sessions.end_with(chain.unwrap_or_default(), began_s);
        Ok(stream)
    }
}

fn contents(files: &CertificateFiles) -> Result<Vec<Vec<u8>>, TlsError> {
    [&files.cert_file, &files.key_file, &files.ca_file]
        .into_iter()
        .map(|path| read(path))
        .collect()
}

fn server_config(files: &CertificateFiles, read: &[Vec<u8>]) -> Result<ServerConfig, TlsError> {
    let chain = chain(&files.cert_file, &read[0])?;
    check_time(&files.cert_file, &chain[0])?;
    let key = key(&files.key_file, &read[1])?;
    let roots = authorities(&files.ca_file, &read[2])?;
    let mut provider = rustls::crypto::ring::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.tls13().is_some() || TLS12_SUITES.contains(&suite.suite()));
    let provider = Arc::new(provider);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|source| TlsError::Authorities {
                path: files.ca_file.clone(),
                source,
            })?;
    let pair = |source| TlsError::Pair {
        cert: files.cert_file.clone(),
        key: files.key_file.clone(),
        source,
    };
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12, &rustls::version::TLS13])
        .map_err(pair)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(pair)
}

/// The name that webpki, whose errors are not public here, gives to a certificate of version 1 or
/// 2.
const UNSUPPORTED_VERSION: &str = "UnsupportedCertVersion";
/// As above, to a certificate of an authority that a client or a server presents as its own.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// The reason of a failed handshake. Diego accepts client certificates of X.509 version 1, which
/// `openssl` makes of requests without extensions, and those of authorities, which `openssl req
/// -x509` makes; this host does not, and says so.
pub fn handshake_failure(error: &io::Error) -> String {
    let failure = error
        .get_ref()
        .and_then(|failure| failure.downcast_ref::<rustls::Error>());
    let reason = match failure {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(reason))) => {
            reason.to_string()
        }
        _ => return error.to_string(),
    };
    match reason.as_str() {
        UNSUPPORTED_VERSION => {
            "the certificate of the client is of X.509 version 1 or 2, and only version 3 is supported; have it made \
             again, with an extension such as `subjectAltName`"
                .to_owned()
        }
        AUTHORITY => {
            "the certificate of the client is marked as that of an authority (`basicConstraints` with `CA:TRUE`); have it \
             made again without the mark"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Rejects an expired or not yet valid certificate at load time, while an operator is watching:
/// clients would reject it.
fn check_time(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), TlsError> {
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|_| TlsError::NotACertificate {
            path: path.to_owned(),
        })?;
    let valid = parsed.validity();
    let now_s = SystemClock.now_ns() / NS_PER_S;
    if valid.not_before.timestamp() <= now_s && now_s <= valid.not_after.timestamp() {
        return Ok(());
    }
    let from = valid.not_before.to_string();
    let to = valid.not_after.to_string();
    Err(TlsError::NotNow {
        path: path.to_owned(),
        from,
        to,
    })
}

#[cfg(test)]
mod tests;
