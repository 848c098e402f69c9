//! The keys that name certificates: those by which this host is known, and those by which it knows others. Owns which
//! of them belong together; reads no certificate.

use std::path::PathBuf;

use super::ConfigError;
use super::keys::Keys;

/// What the API's clients see, and whom it believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    /// Whoever calls has to have a certificate of this authority.
    pub ca_file: PathBuf,
}

/// Who this host is to another component, and whom it takes for that component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTls {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    pub ca_file: PathBuf,
}

impl Tls {
    /// Nothing where none of the files is named.
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
    /// Nothing where one of the three is missing: that is how Diego takes the keys of reps.
    pub(super) fn whole(cert: Option<PathBuf>, key: Option<PathBuf>, ca: Option<PathBuf>) -> Option<Self> {
        Some(Self { cert_file: cert?, key_file: key?, ca_file: ca? })
    }
}
