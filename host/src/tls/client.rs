//! Client-side TLS: builds a configuration from the host's certificate, its key and the authority
//! of the servers. The caller decides when the files are read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::{Client, ClientBuilder};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};

use super::{TlsError, authorities, chain, key, read};
use crate::config::CertificateFiles;

/// All three paths.
pub fn paths(files: &CertificateFiles) -> Vec<PathBuf> {
    [&files.ca_file, &files.cert_file, &files.key_file]
        .map(Clone::clone)
        .into()
}

/// Reads the files. `sessions` is the number of servers whose session is cached; the library's
/// default if absent.
///
/// # Errors
/// A file cannot be read or parsed, or certificate and key do not match.
pub fn config(files: &CertificateFiles, sessions: Option<usize>) -> Result<ClientConfig, TlsError> {
    let roots = authorities(&files.ca_file, &read(&files.ca_file)?)?;
    let mut config = presenting(roots, &files.cert_file, &files.key_file)?;
    if let Some(sessions) = sessions.filter(|sessions| *sessions > 0) {
        config.resumption = Resumption::in_memory_sessions(sessions);
    }
    Ok(config)
}

/// Checks the authority of a server whose client reads the file itself.
///
/// # Errors
/// The file cannot be read or parsed, or has no authority.
pub fn check_authority(ca_file: &Path) -> Result<(), TlsError> {
    authorities(ca_file, &read(ca_file)?).map(drop)
}

/// Checks the certificate and the key that a client presents which reads the files itself.
///
/// # Errors
/// A file cannot be read or parsed, or certificate and key do not match.
pub fn check_pair(cert_file: &Path, key_file: &Path) -> Result<(), TlsError> {
    presenting(RootCertStore::empty(), cert_file, key_file).map(drop)
}

/// The configuration of a client that presents this certificate.
fn presenting(
    roots: RootCertStore,
    cert_file: &Path,
    key_file: &Path,
) -> Result<ClientConfig, TlsError> {
    let chain = chain(cert_file, &read(cert_file)?)?;
    let key = key(key_file, &read(key_file)?)?;
    let pair = |source| TlsError::Pair {
        cert: cert_file.to_owned(),
        key: key_file.to_owned(),
        source,
    };
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(pair)
}

/// A client of other servers than those of a deployment, verified by the authorities of the system.
/// A system without any, such as a container image, has a client for which no TLS connection can be
/// verified; plain HTTP needs none.
///
/// # Errors
/// No connections can be made in this process.
pub fn of_system(client: impl Fn() -> ClientBuilder) -> reqwest::Result<Client> {
    client().build().or_else(|_| plain(client()))
}

/// A client for plain HTTP alone, which reads no authorities.
///
/// # Errors
/// No connections can be made in this process.
pub fn plain(client: ClientBuilder) -> reqwest::Result<Client> {
    client.tls_certs_only([]).build()
}

/// The configuration of a gRPC client. Validates the files first, because tonic reads them only
/// when it connects and reports little.
///
/// # Errors
/// As of [`config`].
pub fn grpc_config(
    files: &CertificateFiles,
) -> Result<tonic::transport::ClientTlsConfig, TlsError> {
    config(files, None)?;
    let authority = tonic::transport::Certificate::from_pem(read(&files.ca_file)?);
    let identity =
        tonic::transport::Identity::from_pem(read(&files.cert_file)?, read(&files.key_file)?);
    Ok(tonic::transport::ClientTlsConfig::new()
        .ca_certificate(authority)
        .identity(identity))
}
