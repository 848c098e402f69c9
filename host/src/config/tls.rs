//! Keys that name certificates, of the API and of its clients. Owns which files belong together;
//! reads no certificate.

use std::path::PathBuf;

use super::keys::{FileKeys, Keys};

/// A certificate and the authority of the other side, as files of PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate that this host presents, to clients or to another component.
    pub cert_file: PathBuf,
    /// The key of that certificate.
    pub key_file: PathBuf,
    /// The other side has to present a certificate that this authority signed.
    pub ca_file: PathBuf,
}

/// The keys of the API's files.
pub(super) const SERVER_FILES: FileKeys = [
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

impl CertificateFiles {
    /// Returns `None` if none of the files is named. The keys are those of certificate, key and
    /// authority.
    pub(super) fn all_or_none(keys: &mut Keys, names: FileKeys) -> Option<Self> {
        let files = names.map(|(key, _)| keys.file(key));
        let is_named = files.iter().any(Option::is_some);
        is_named.then(|| Self::required(keys, files, names))
    }

    /// The certificate, the key and the authority, all of which have to be named.
    pub(super) fn required(keys: &mut Keys, files: [Option<PathBuf>; 3], names: FileKeys) -> Self {
        let [cert_file, key_file, ca_file] = keys.all_required(files, names);
        Self {
            cert_file,
            key_file,
            ca_file,
        }
    }
}
