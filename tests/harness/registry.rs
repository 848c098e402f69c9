//! The OCI registry of the tests: Debian's `docker-registry`, with its data in a temporary folder,
//! which requires the harness's user and password. Without TLS, or with a certificate of an
//! authority of its own.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::certificates::{Authority, VALID};
use super::engine::{
    AsUser, Engine, PASSWORD, Recipe, UNPRIVILEGED_USER, USER, output_of, program,
};

static REGISTRY: Recipe = Recipe {
    name: "registry",
    users: &["docker-registry", UNPRIVILEGED_USER],
    initialise,
    version: || output_of(Command::new(find()).arg("--version")),
    command,
    crash_signal: "KILL",
    // A server that has bound its port accepts requests.
    ready: |_: &mut TcpStream| Ok(true),
};

/// The bcrypt hash of [`PASSWORD`].
const HASH: &str = "$2b$04$1D5O1plnENP4PWMqQtHNuOHRr/m9ZH34./IXiLSX1VWzL7Rjkw1o6";
const WITHOUT_TLS: &str = "data/plain.yml";
const WITH_TLS: &str = "data/tls.yml";

/// A running registry, which ends with the test.
pub struct Registry(Engine);

impl Registry {
    pub fn start() -> Self {
        Self(Engine::start(&REGISTRY, &[WITHOUT_TLS]))
    }

    pub fn start_with_tls() -> Self {
        Self(Engine::start(&REGISTRY, &[WITH_TLS]))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The certificate of the authority that issued the registry's certificate.
    pub fn authority(&self) -> PathBuf {
        self.0.folder().join("data/ca.crt")
    }

    /// The file in which the registry has the content with a digest: `sha256:…`.
    pub fn blob(&self, digest: &str) -> PathBuf {
        let digest = digest.strip_prefix("sha256:").expect("a digest of OCI");
        self.0
            .folder()
            .join("data/storage/docker/registry/v2/blobs/sha256")
            .join(&digest[..2])
            .join(digest)
            .join("data")
    }
}

fn find() -> PathBuf {
    program("docker-registry", &["/usr/bin".into()], "docker-registry")
}

fn initialise(folder: &Path, as_user: AsUser<'_>) {
    let data = folder.join("data");
    let mut storage = Command::new("mkdir");
    as_user(storage.arg("-p").arg(data.join("storage")));
    output_of(&mut storage);
    let authority = Authority::new("registry");
    let pair = authority.issue("registry", VALID);
    let configuration = "version: 0.1\nlog:\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: data/storage\n\
                         auth:\n  htpasswd:\n    realm: tests\n    path: data/users\nhttp:\n  secret: tests\n";
    let tls = "  tls:\n    certificate: data/server.crt\n    key: data/server.key\n";
    for (name, content) in [
        ("plain.yml", configuration.to_owned()),
        ("tls.yml", format!("{configuration}{tls}")),
        ("users", format!("{USER}:{HASH}\n")),
        ("ca.crt", authority.certificate()),
        ("server.crt", pair.certificate),
        ("server.key", pair.key),
    ] {
        std::fs::write(data.join(name), content).expect("the new folder can be written");
    }
    assert_eq!(PASSWORD, "secret", "the hash is that of the password");
}

/// The configuration's file is the argument of the start.
fn command(_: &Path, port: u16) -> Vec<OsString> {
    let address = format!("REGISTRY_HTTP_ADDR=127.0.0.1:{port}");
    vec!["env".into(), address.into(), find().into(), "serve".into()]
}
