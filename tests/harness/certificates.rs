//! Certificates generated for one test: a certificate authority and the certificates that it
//! issues.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};

/// First and last year of validity, far from any day on which a test may run.
pub const VALID: (i32, i32) = (2020, 2100);
pub const EXPIRED: (i32, i32) = (2019, 2020);

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = distinguished_name(name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a client, or for a server on `localhost`, valid from `years.0`
    /// until `years.1`.
    pub fn issue(&self, name: &str, years: (i32, i32)) -> Pair {
        self.issue_for(name, &["localhost", "127.0.0.1"], years)
    }

    /// Issues a certificate for a server with other DNS names or addresses.
    pub fn issue_for(&self, name: &str, names: &[&str], (from, to): (i32, i32)) -> Pair {
        let names = names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).expect("names of a machine");
        params.distinguished_name = distinguished_name(name);
        params
            .distinguished_name
            .push(DnType::OrganizationalUnitName, "app:42");
        (params.not_before, params.not_after) =
            (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params
            .signed_by(&key, &self.0)
            .expect("a certificate")
            .pem();
        Pair {
            certificate,
            key: key.serialize_pem(),
        }
    }
}

/// A builder of clients that trust only this authority and present this certificate, or none.
pub fn client_builder(authority: &Authority, pair: Option<&Pair>) -> reqwest::ClientBuilder {
    let authority =
        reqwest::Certificate::from_pem(authority.certificate().as_bytes()).expect("an authority");
    let builder = reqwest::Client::builder().tls_certs_only([authority]);
    pair.into_iter()
        .fold(builder, |builder, pair| builder.identity(pair.identity()))
}

fn distinguished_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names.push(DnType::OrganizationName, "Diego");
    names
}

impl Pair {
    /// Writes `<name>.crt` and `<name>.key`.
    pub fn write(&self, folder: &Path, name: &str) {
        replace(&folder.join(format!("{name}.key")), &self.key);
        replace(&folder.join(format!("{name}.crt")), &self.certificate);
    }

    /// The certificate and key as a `reqwest` client presents them.
    pub fn identity(&self) -> reqwest::Identity {
        reqwest::Identity::from_pem(format!("{}{}", self.certificate, self.key).as_bytes())
            .expect("an identity")
    }
}

/// Writes a file atomically: a concurrent reader sees the old content or the new one.
pub fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("the folder can be written");
    std::fs::rename(beside, path).expect("the folder can be written");
}
