//! The other end of a connection: its address, and the names in its certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

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
        let common = texts(name.iter_common_name()).last().unwrap_or_default();
        names.insert(format!("peer_cert_{role}_common_name"), common.into());
        names.insert(
            format!("peer_cert_{role}_organizational_unit"),
            texts(name.iter_organizational_unit()).collect(),
        );
        names.insert(
            format!("peer_cert_{role}_organization"),
            texts(name.iter_organization()).collect(),
        );
    }
    Some(names)
}

/// The parts of a name that are text.
fn texts<'n, 'c: 'n>(
    parts: impl Iterator<Item = &'n AttributeTypeAndValue<'c>>,
) -> impl Iterator<Item = &'c str> {
    parts.filter_map(|part| part.as_str().ok())
}
