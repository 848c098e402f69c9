//! Keys that name certificates, of the API and of its clients. Owns which files belong together; reads no certificate.

use std::path::PathBuf;

use super::ConfigError;
use super::keys::Keys;

/// The API's certificate, and the authority of its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate that the API presents, as PEM.
    pub cert_file: PathBuf,
    /// The key of that certificate, as PEM.
    pub key_file: PathBuf,
    /// Clients have to present a certificate that this authority signed.
    pub ca_file: PathBuf,
}

/// The host's certificate as a client of another component, and the authority of that component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTls {
    /// The certificate that this host presents, as PEM.
    pub cert_file: PathBuf,
    /// The key of that certificate, as PEM.
    pub key_file: PathBuf,
    /// The component has to present a certificate that this authority signed.
    pub ca_file: PathBuf,
}

impl ServerTls {
    /// Returns `None` if none of the files is named.
    pub(super) fn read(keys: &mut Keys) -> Result<Option<Self>, ConfigError> {
        let (cert, key, ca) = (keys.file("cert_file")?, keys.file("key_file")?, keys.file("ca_file")?);
        if cert.is_none() && key.is_none() && ca.is_none() {
            return Ok(None);
        }
        let named = |path: Option<PathBuf>, key, what| path.ok_or(ConfigError::Missing { key, what });
        Ok(Some(Self {
            cert_file: named(cert, "cert_file", "the certificate that this host shows to its clients")?,
            key_file: named(key, "key_file", "the key of the certificate that this host shows to its clients")?,
            ca_file: named(ca, "ca_file", "the authority that signed the certificates of clients")?,
        }))
    }
}

impl ClientTls {
    /// Returns `None` if one of the three is missing, as Diego does for the keys of reps.
    pub(super) fn whole(cert: Option<PathBuf>, key: Option<PathBuf>, ca: Option<PathBuf>) -> Option<Self> {
        Some(Self { cert_file: cert?, key_file: key?, ca_file: ca? })
    }
}
