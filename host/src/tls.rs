//! TLS of this process: certificates and their reload, and the configuration of the server and of
//! clients. Owns the errors of the files and the one cryptography provider; connections are made by
//! `http`, `clients` and `locket`.

pub mod client;
pub mod reloading;
mod server;

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::VerifierBuilderError;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Version};

pub use server::{Certificates, ServerTls, handshake_failure};

/// Why certificates cannot be used; each names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}; check that the file is there and that this host may read it", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("there is no certificate in {}; it has to hold at least one, as PEM", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("what is in {} cannot be read; it has to be PEM", .path.display())]
    Pem { path: PathBuf, source: pem::Error },
    #[error("{} ends within a certificate or key; copy it again", .path.display())]
    CutOff { path: PathBuf },
    #[error("there is no private key in {}; it has to hold one, as PEM", .path.display())]
    NoKey { path: PathBuf },
    #[error(
        "the key in {} is encrypted, and this host has no passphrase for it; decrypt the key with `openssl pkey`",
        .path.display()
    )]
    EncryptedKey { path: PathBuf },
    #[error("there is no certificate that can be read in {}; have it made again", .path.display())]
    NotACertificate { path: PathBuf },
    #[error("the certificate in {} is valid from {from} to {to}, and that is not now; have it made again", .path.display())]
    NotNow {
        path: PathBuf,
        from: String,
        to: String,
    },
    #[error(
        "a certificate in {} is of X.509 version {version}, and only version 3 is supported; have it made again, with an \
         extension such as `subjectAltName`",
        .path.display()
    )]
    OldVersion { path: PathBuf, version: u32 },
    #[error("a CA certificate in {} is not valid; replace it by one in PEM format", .path.display())]
    Authority {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("the authorities in {} cannot verify client certificates; it has to hold a certificate authority", .path.display())]
    Authorities {
        path: PathBuf,
        source: VerifierBuilderError,
    },
    #[error("the certificate in {} and the key in {} cannot be used together", .cert.display(), .key.display())]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

/// Lines of a key that is encrypted with a passphrase: in the form of PKCS #8, and in the older
/// forms.
const ENCRYPTED_KEY: [&[u8]; 2] = [
    b"-----BEGIN ENCRYPTED PRIVATE KEY-----",
    b"Proc-Type: 4,ENCRYPTED",
];

/// Installs the provider as the process default, for libraries that use the default. Idempotent.
pub fn choose_cryptography() {
    // An error means that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    bbs_files::read(path, bbs_files::TEXT_BYTES).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|fault| malformed(path, fault))?;
    if found.is_empty() {
        Err(TlsError::NoCertificate {
            path: path.to_owned(),
        })
    } else {
        Ok(found)
    }
}

/// The certificate of this host, and those of its issuers.
fn chain(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = certificates(path, text)?;
    let version = |certificate: &CertificateDer<'_>| {
        Some(X509Certificate::from_der(certificate).ok()?.1.version())
    };
    // Those of issuers are not used by this host.
    match chain
        .first()
        .and_then(version)
        .filter(|version| *version != X509Version::V3)
    {
        Some(X509Version(number)) => Err(TlsError::OldVersion {
            path: path.to_owned(),
            version: number + 1,
        }),
        None => Ok(chain),
    }
}

/// The first DNS name that a server's certificate is made out to; `None` if it has addresses alone.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn name_of_server(cert_file: &Path) -> Result<Option<String>, TlsError> {
    let chain = chain(cert_file, &read(cert_file)?)?;
    let names = chain.first().and_then(|certificate| {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let names = &certificate
            .subject_alternative_name()
            .ok()??
            .value
            .general_names;
        names.iter().find_map(|name| match name {
            // A wildcard is no name of a machine.
            GeneralName::DNSName(name) if !name.starts_with('*') => Some((*name).to_owned()),
            _ => None,
        })
    });
    Ok(names)
}

fn authorities(path: &Path, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, text)? {
        roots.add(authority).map_err(|source| TlsError::Authority {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(roots)
}

fn key(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let mut lines = text.split(|byte| matches!(byte, b'\r' | b'\n'));
    if lines.any(|line| ENCRYPTED_KEY.contains(&line)) {
        return Err(TlsError::EncryptedKey {
            path: path.to_owned(),
        });
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|fault| malformed(path, fault))
}

/// The error of a file that is not what it has to be, without the bytes that the parser names.
fn malformed(path: &Path, fault: pem::Error) -> TlsError {
    let path = path.to_owned();
    match fault {
        pem::Error::MissingSectionEnd { .. } => TlsError::CutOff { path },
        // A file without certificates is no error of the parser.
        pem::Error::NoItemsFound => TlsError::NoKey { path },
        source => TlsError::Pem { path, source },
    }
}
