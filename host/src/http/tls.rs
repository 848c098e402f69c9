//! Server-side TLS: loads the host's certificate and the authority of its clients, reloads them when the files change, and
//! rejects files that cannot work. Authorization of what a connected client does is not its concern.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CipherSuite, RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clock::{Clock, SystemClock};
use crate::config::ServerTls;

/// How often the files are checked for a replacement.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
const NS_PER_S: i64 = 1_000_000_000;

/// Allowed cipher suites of TLS 1.2; those of TLS 1.3 are all allowed.
const TLS12_SUITES: [CipherSuite; 4] = [
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
];

/// Why certificates cannot be used; each names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}; check that the file is there and that this host may read it", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("there is no certificate in {}; it has to hold at least one, as PEM", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("what is in {} cannot be read; it has to be PEM", .path.display())]
    Pem { path: PathBuf, source: pem::Error },
    #[error("there is no certificate that can be read in {}; have it made again", .path.display())]
    NotACertificate { path: PathBuf },
    #[error("the certificate in {} is valid from {from} to {to}, and that is not now; have it made again", .path.display())]
    NotNow { path: PathBuf, from: String, to: String },
    #[error("an authority in {} cannot be used; have it made again", .path.display())]
    Authority { path: PathBuf, source: rustls::Error },
    #[error("the authorities in {} cannot verify client certificates; it has to hold a certificate authority", .path.display())]
    Authorities { path: PathBuf, source: VerifierBuilderError },
    #[error("the certificate in {} and the key in {} cannot be used together", .cert.display(), .key.display())]
    Pair { cert: PathBuf, key: PathBuf, source: rustls::Error },
}

/// The certificates in use. Clones share them.
#[derive(Debug, Clone)]
pub struct Certificates {
    files: ServerTls,
    read: Vec<Vec<u8>>,
    config: RustlsConfig,
}

impl Certificates {
    /// Loads the certificates.
    ///
    /// # Errors
    /// A file cannot be read or parsed, the certificate is not valid now, or certificate and key do not match.
    pub fn read(files: &ServerTls) -> Result<Self, TlsError> {
        let read = contents(files)?;
        let config = RustlsConfig::from_config(Arc::new(server_config(files, &read)?));
        Ok(Self { files: files.clone(), read, config })
    }

    pub(super) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Reloads the certificates whenever the files change; does not return. Files that cannot be used are logged once, and
    /// the certificates in use stay.
    pub async fn watch(mut self) {
        // A file is replaced before the others, so unusable contents are logged only when found twice.
        let (mut unusable_once, mut rejected) = (Vec::new(), Vec::new());
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            // A file may be absent while it is being replaced.
            let Ok(read) = contents(&self.files) else { continue };
            if read == self.read || read == rejected {
                continue;
            }
            match server_config(&self.files, &read) {
                Ok(config) => {
                    self.config.reload_from_config(Arc::new(config));
                    tracing::info!(name: "tls.reloaded", cert_file = %self.files.cert_file.display(),
                        "new connections use the new certificates");
                    self.read = read;
                }
                Err(_) if read != unusable_once => unusable_once = read,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(name: "tls.not-reloaded", error,
                        "the new certificates cannot be used; the previous ones stay in use");
                    rejected = read;
                }
            }
        }
    }
}

fn contents(files: &ServerTls) -> Result<Vec<Vec<u8>>, TlsError> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source });
    [&files.cert_file, &files.key_file, &files.ca_file].into_iter().map(read).collect()
}

fn server_config(files: &ServerTls, read: &[Vec<u8>]) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.cert_file, &read[0])?;
    check_time(&files.cert_file, &chain[0])?;
    let key = PrivateKeyDer::from_pem_slice(&read[1])
        .map_err(|source| TlsError::Pem { path: files.key_file.clone(), source })?;
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.ca_file, &read[2])? {
        roots.add(authority).map_err(|source| TlsError::Authority { path: files.ca_file.clone(), source })?;
    }
    let mut provider = rustls::crypto::ring::default_provider();
    let is_allowed =
        |suite: &rustls::SupportedCipherSuite| suite.tls13().is_some() || TLS12_SUITES.contains(&suite.suite());
    provider.cipher_suites.retain(is_allowed);
    let provider = Arc::new(provider);
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|source| TlsError::Authorities { path: files.ca_file.clone(), source })?;
    let pair = |source| TlsError::Pair { cert: files.cert_file.clone(), key: files.key_file.clone(), source };
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12, &rustls::version::TLS13])
        .map_err(pair)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(pair)
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
    if found.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(found) }
}

/// Rejects an expired or not yet valid certificate at load time, while an operator is watching: clients would reject it.
fn check_time(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), TlsError> {
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|_| TlsError::NotACertificate { path: path.to_owned() })?;
    let (valid, now_s) = (parsed.validity(), SystemClock.now_ns() / NS_PER_S);
    if valid.not_before.timestamp() <= now_s && now_s <= valid.not_after.timestamp() {
        return Ok(());
    }
    let (from, to) = (valid.not_before.to_string(), valid.not_after.to_string());
    Err(TlsError::NotNow { path: path.to_owned(), from, to })
}

#[cfg(test)]
mod tests;
