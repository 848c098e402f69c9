//! Keys that name certificates, of the API and of its clients. Owns which files belong together;
//! reads no certificate.

use std::path::PathBuf;

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

/// The keys of [`ServerTls`], each with its meaning.
pub(super) const SERVER_FILES: [(&str, &str); 3] = [
    (
        "cert_file",
        "the certificate that this host shows to its clients",
    ),
    (
        "key_file",
        "the key of the certificate that this host shows to its clients",
    ),
    (
        "ca_file",
        "the authority that signed the certificates of clients",
    ),
];

impl ServerTls {
    /// Returns `None` if none of the files is named.
    pub(super) fn read(keys: &mut Keys) -> Option<Self> {
        let files = SERVER_FILES.map(|(key, _)| keys.file(key));
        if files.iter().all(Option::is_none) {
            return None;
        }
        let [cert_file, key_file, ca_file] = keys.all_required(files, SERVER_FILES);
        Some(Self {
            cert_file,
            key_file,
            ca_file,
        })
    }
}

impl ClientTls {
    /// Returns `None` if one of the three is missing, as Diego does for the keys of reps.
    pub(super) fn whole(
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        ca: Option<PathBuf>,
    ) -> Option<Self> {
        Some(Self {
            cert_file: cert?,
            key_file: key?,
            ca_file: ca?,
        })
    }
}
