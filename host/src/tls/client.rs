//! Client-side TLS: builds a configuration from the host's certificate, its key and the authority of the servers. The caller
//! decides when the files are read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The paths of a certificate, its key, and the authority of the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Why the files cannot be used; each names the file.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("cannot read {}; check that the file is there and that this host may read it", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("there is no certificate in {}; it has to hold at least one, as PEM", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("what is in {} cannot be read; it has to be PEM", .path.display())]
    Pem { path: PathBuf, source: pem::Error },
    #[error("an authority in {} cannot be used; have it made again", .path.display())]
    Authority { path: PathBuf, source: rustls::Error },
    #[error("the certificate in {} and the key in {} cannot be used together", .cert.display(), .key.display())]
    Pair { cert: PathBuf, key: PathBuf, source: rustls::Error },
}

impl TlsFiles {
    /// All three paths.
    pub fn paths(&self) -> [&Path; 3] {
        [&self.ca, &self.cert, &self.key]
    }

    /// Reads the files. `sessions` is the number of servers whose session is cached; the library's default if absent.
    ///
    /// # Errors
    /// A file cannot be read or parsed, or certificate and key do not match.
    pub fn config(&self, sessions: Option<usize>) -> Result<ClientConfig, FilesError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.ca)? {
            roots.add(authority).map_err(|source| FilesError::Authority { path: self.ca.clone(), source })?;
        }
        let chain = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|source| FilesError::Pem { path: self.key.clone(), source })?;
        let pair = |source| FilesError::Pair { cert: self.cert.clone(), key: self.key.clone(), source };
        let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(pair)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(pair)?;
        if let Some(sessions) = sessions.filter(|sessions| *sessions > 0) {
            config.resumption = Resumption::in_memory_sessions(sessions);
        }
        Ok(config)
    }

    /// The same for gRPC. Validates the files first, because tonic reads them only when it connects and reports little.
    ///
    /// # Errors
    /// As of [`Self::config`].
    pub fn grpc_config(&self) -> Result<tonic::transport::ClientTlsConfig, FilesError> {
        self.config(None)?;
        let authority = tonic::transport::Certificate::from_pem(read(&self.ca)?);
        let identity = tonic::transport::Identity::from_pem(read(&self.cert)?, read(&self.key)?);
        Ok(tonic::transport::ClientTlsConfig::new().ca_certificate(authority).identity(identity))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FilesError> {
    std::fs::read(path).map_err(|source| FilesError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FilesError> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|source| FilesError::Pem { path: path.to_owned(), source })?;
    if found.is_empty() { Err(FilesError::NoCertificate { path: path.to_owned() }) } else { Ok(found) }
}
