//! Certificates made for one test: an authority, and whom it vouches for.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, date_time_ymd,
};

/// Far enough from any day that a test may run on.
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
        params.distinguished_name = named(name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// For a server of this machine or a client, valid in these years.
    pub fn issue(&self, name: &str, years: (i32, i32)) -> Pair {
        self.issue_for(name, &["localhost", "127.0.0.1"], years)
    }

    /// The same for a server that is known by other names.
    pub fn issue_for(&self, name: &str, names: &[&str], (from, to): (i32, i32)) -> Pair {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).expect("names of a machine");
        params.distinguished_name = named(name);
        params.distinguished_name.push(DnType::OrganizationalUnitName, "app:42");
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

fn named(name: &str) -> DistinguishedName {
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

    /// What a client shows.
    pub fn identity(&self) -> reqwest::Identity {
        reqwest::Identity::from_pem(format!("{}{}", self.certificate, self.key).as_bytes()).expect("an identity")
    }
}

/// A file is whole at any moment.
pub fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("the folder can be written");
    std::fs::rename(beside, path).expect("the folder can be written");
}
