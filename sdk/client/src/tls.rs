//! The TLS configuration of a client, from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Files with certificates, as PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority of the server. Required for a server with TLS.
    pub ca_file: Option<PathBuf>,
    /// The certificate of the client, and its key, which the BBS of a Diego requires.
    pub identity: Option<Identity>,
}

/// The certificate of a client, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those of its issuers.
    pub cert_file: PathBuf,
    /// The key of the certificate.
    pub key_file: PathBuf,
}

/// Why certificates cannot be used; each names the file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum TlsFilesError {
    /// A file cannot be read, or is no PEM.
    #[error("cannot read {}; it has to be a file of PEM that this user may read", .path.display())]
    Read { path: PathBuf, source: pem::Error },
    /// A file that lacks its end.
    #[error("{} ends within a certificate or key; copy it again", .path.display())]
    CutOff { path: PathBuf },
    /// A key that only its passphrase opens.
    #[error(
        "the key in {} is encrypted, and there is no passphrase for it; decrypt the key with `openssl pkey`",
        .path.display()
    )]
    EncryptedKey { path: PathBuf },
    /// A file without a certificate.
    #[error("there is no certificate in {}; it has to hold at least one, as PEM", .path.display())]
    NoCertificate { path: PathBuf },
    /// An authority cannot be used.
    #[error("an authority in {} cannot be used", .path.display())]
    Authority {
        path: PathBuf,
        source: rustls::Error,
    },
    /// Certificate and key do not match.
    #[error("the certificate in {} and the key in {} cannot be used together", .cert.display(), .key.display())]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
    /// The library refuses its defaults.
    #[error("TLS cannot be set up in this process")]
    Defaults(#[source] rustls::Error),
}

/// Lines of a key that is encrypted with a passphrase: in the form of PKCS #8, and in the older
/// forms.
const ENCRYPTED_KEY: [&str; 2] = [
    "-----BEGIN ENCRYPTED PRIVATE KEY-----",
    "Proc-Type: 4,ENCRYPTED",
];

/// Reads the files.
pub(crate) fn config(files: &TlsFiles) -> Result<ClientConfig, TlsFilesError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &files.ca_file {
        for authority in certificates(path)? {
            roots
                .add(authority)
                .map_err(|source| TlsFilesError::Authority {
                    path: path.clone(),
                    source,
                })?;
        }
    }
    // Named, so that the process need not have a default.
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsFilesError::Defaults)?
            .with_root_certificates(roots);
    let Some(Identity {
        cert_file,
        key_file,
    }) = &files.identity
    else {
        return Ok(builder.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|fault| {
        if is_encrypted(key_file) {
            let path = key_file.clone();
            TlsFilesError::EncryptedKey { path }
        } else {
            unreadable(key_file, fault)
        }
    })?;
    builder
        .with_client_auth_cert(certificates(cert_file)?, key)
        .map_err(|source| TlsFilesError::Pair {
            cert: cert_file.clone(),
            key: key_file.clone(),
            source,
        })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|fault| unreadable(path, fault))?;
    if found.is_empty() {
        Err(TlsFilesError::NoCertificate {
            path: path.to_owned(),
        })
    } else {
        Ok(found)
    }
}

fn is_encrypted(key_file: &Path) -> bool {
    std::fs::read_to_string(key_file)
        .is_ok_and(|text| text.lines().any(|line| ENCRYPTED_KEY.contains(&line)))
}

/// The error of a file that the parser refuses, which names a missing end by its bytes.
fn unreadable(path: &Path, fault: pem::Error) -> TlsFilesError {
    let path = path.to_owned();
    match fault {
        pem::Error::MissingSectionEnd { .. } => TlsFilesError::CutOff { path },
        source => TlsFilesError::Read { path, source },
    }
}
