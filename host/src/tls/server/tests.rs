//! Certificate files that cannot be used, and the error of each.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::*;

struct CertificateFolder {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl CertificateFolder {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let made = Self {
            folder: tempfile::tempdir().unwrap(),
            authority,
        };
        made.put("ca.crt", &made.authority.pem());
        made.issue((2020, 2100));
        made
    }

    /// A certificate that is valid in these years.
    fn issue(&self, (from, to): (i32, i32)) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        self.put(
            "server.crt",
            &params.signed_by(&key, &self.authority).unwrap().pem(),
        );
        self.put("server.key", &key.serialize_pem());
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self) -> Result<Certificates, TlsError> {
        let path = |name: &str| self.path(name);
        Certificates::read(&CertificateFiles {
            cert_file: path("server.crt"),
            key_file: path("server.key"),
            ca_file: path("ca.crt"),
        })
    }
}

#[test]
fn matching_files_are_used() {
    let config = CertificateFolder::new().read().unwrap().config();
    assert!(
        config.borrow().alpn_protocols.is_empty(),
        "HTTP/2 is not offered"
    );
}

#[test]
fn unusable_files_are_rejected_by_name() {
    let of = |error: TlsError| error.to_string();
    let folder = CertificateFolder::new();
    folder.issue((2020, 2021));
    assert!(of(folder.read().unwrap_err()).contains("that is not now"));
    folder.issue((2090, 2100));
    assert!(of(folder.read().unwrap_err()).contains("that is not now"));

    for name in ["server.crt", "server.key", "ca.crt"] {
        let folder = CertificateFolder::new();
        folder.put(name, "");
        let message = of(folder.read().unwrap_err());
        assert!(message.contains(name), "{message}");
        folder.put(
            name,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        let message = of(folder.read().unwrap_err());
        assert!(message.contains(name), "{message}");
        std::fs::remove_file(folder.path(name)).unwrap();
        let message = of(folder.read().unwrap_err());
        assert!(
            message.contains("cannot read") && message.contains(name),
            "{message}"
        );
    }

    let folder = CertificateFolder::new();
    folder.put("server.key", &KeyPair::generate().unwrap().serialize_pem());
    assert!(matches!(folder.read().unwrap_err(), TlsError::Pair { .. }));
    assert!(folder.path("server.key").exists());
}

/// Its public key could not be compared with the private key, which would be reported as a
/// mismatch.
#[test]
fn certificate_of_version_1_is_rejected_by_its_version() {
    let folder = CertificateFolder::new();
    folder.put(
        "server.crt",
        include_str!("../../../../tests/fixtures/certificates/version-1.crt"),
    );
    folder.put(
        "server.key",
        include_str!("../../../../tests/fixtures/certificates/version-1.key"),
    );
    let message = folder.read().unwrap_err().to_string();
    assert!(
        message.contains("server.crt is of X.509 version 1"),
        "{message}"
    );
}
