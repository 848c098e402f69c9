//! The other end of a connection: its address, and the names in its certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

const SUBJECT_COMMON_NAME: &str = "peer_cert_subject_common_name";

/// Request extension: the client.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// The names of its certificate's subject and issuer, keyed as in the access log.
    pub(super) certificate: Arc<Map<String, Value>>,
}

impl Peer {
    /// A client at this address, with this certificate if it has one.
    pub(super) fn new(address: SocketAddr, certificate: Option<&[u8]>) -> Self {
        Self {
            address,
            certificate: Arc::new(certificate.and_then(names).unwrap_or_default()),
        }
    }

    /// The common name of its certificate's subject; empty without one.
    pub(super) fn common_name(&self) -> &str {
        self.certificate
            .get(SUBJECT_COMMON_NAME)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// The names of a certificate's subject and issuer.
fn names(certificate: &[u8]) -> Option<Map<String, Value>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut names = Map::new();
    for (role, name) in [
        ("subject", certificate.subject()),
        ("issuer", certificate.issuer()),
    ] {
        let texts = |found: Vec<&str>| found.into_iter().map(Value::from).collect::<Vec<_>>();
        let common = name
            .iter_common_name()
            .filter_map(|part| part.as_str().ok())
            .last()
            .unwrap_or_default();
        names.insert(format!("peer_cert_{role}_common_name"), common.into());
        names.insert(
            format!("peer_cert_{role}_organizational_unit"),
            texts(units(name)).into(),
        );
        names.insert(
            format!("peer_cert_{role}_organization"),
            texts(organizations(name)).into(),
        );
    }
    Some(names)
}

fn units<'a>(name: &'a X509Name<'_>) -> Vec<&'a str> {
    name.iter_organizational_unit()
        .filter_map(|part| part.as_str().ok())
        .collect()
}

fn organizations<'a>(name: &'a X509Name<'_>) -> Vec<&'a str> {
    name.iter_organization()
        .filter_map(|part| part.as_str().ok())
        .collect()
}
