//! The host as BOSH installs it: the executable beside its modules, a `bbs.json` as Diego's job
//! renders it, certificates, Locket. Differs from the sample `tests/fixtures/bbs.json` in paths and
//! addresses only.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use bbs_proto::prost::Message;
use serde_json::{Map, Value, json};

use super::certificates::{Authority, Pair, VALID, client_builder};
use super::database::{Kind, TestDatabase};
use super::host::Host;
use super::locket::{Locket, certificate};
use super::modules;
use super::output::text;
use super::ports::free_address;

/// The host's cache of compiled modules, in its folder of caches.
const MODULE_CACHE: &str = "cache/bbs/modules";

pub struct Deployment {
    folder: tempfile::TempDir,
    pub authority: Authority,
    pub database: TestDatabase,
    pub locket: Locket,
    pub health: SocketAddr,
    pub debug: SocketAddr,
    config: Map<String, Value>,
}

impl Deployment {
    /// Creates the files, the database and Locket; does not start the host. Locket runs until the
    /// test's runtime ends.
    pub fn new(kind: Kind) -> Self {
        bbs::choose_cryptography();
        // On the executable's file system, so that hard links work.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
        let sample = include_str!("../fixtures/bbs.json");
        let mut deployment = Self {
            authority: Authority::new("Diego's"),
            database: TestDatabase::new(kind),
            locket: Locket::start(),
            health: free_address(),
            debug: free_address(),
            config: serde_json::from_str(sample).expect("the sample is JSON"),
            folder,
        };
        deployment.install();
        deployment.write_certificates();
        deployment.configure();
        deployment
    }

    /// Fills `bin/bbs`, `modules` and the host's cache of compiled modules.
    fn install(&self) {
        for folder in ["bin", "modules", "config/certs", MODULE_CACHE] {
            std::fs::create_dir_all(self.path(folder)).expect("a folder");
        }
        link(super::bbs(), &self.path("bin/bbs"));
        link_files(&modules::modules(), &self.path("modules"));
        // The host trusts a cache folder only if no other user can write to it, so the files of the
        // shared one are linked.
        link_files(&modules::cache(), &self.path(MODULE_CACHE));
    }

    fn write_certificates(&self) {
        super::certificates::replace(&self.certs().join("ca.crt"), &self.authority.certificate());
        for name in ["server", "client"] {
            self.authority.issue(name, VALID).write(&self.certs(), name);
        }
    }

    fn configure(&mut self) {
        let path = |name: &str| self.certs().join(name).display().to_string();
        let mut changes = json!({
            "access_log_path": self.path("access.log"),
            "listen_address": "127.0.0.1:0",
            "health_address": self.health.to_string(),
            "debug_address": self.debug.to_string(),
            "auctioneer_address": "https://127.0.0.1:1",
            "ca_file": path("ca.crt"), "cert_file": path("server.crt"), "key_file": path("server.key"),
        });
        for peer in ["auctioneer", "rep"] {
            changes[format!("{peer}_ca_cert")] = path("ca.crt").into();
            changes[format!("{peer}_client_cert")] = path("client.crt").into();
            changes[format!("{peer}_client_key")] = path("client.key").into();
        }
        let mut loggregator = self.config["loggregator"].clone();
        loggregator["loggregator_ca_path"] = path("ca.crt").into();
        loggregator["loggregator_cert_path"] = path("client.crt").into();
        loggregator["loggregator_key_path"] = path("client.key").into();
        loggregator["loggregator_api_port"] = free_address().port().into();
        changes["loggregator"] = loggregator;
        for keys in [
            changes,
            self.locket.configuration(),
            self.database.configuration(),
        ] {
            let Value::Object(keys) = keys else {
                panic!("keys are an object")
            };
            self.config.extend(keys);
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn certs(&self) -> PathBuf {
        self.path("config/certs")
    }

    /// Adds or replaces one configuration key.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config.insert(key.to_owned(), value.into());
        self
    }

    /// Adds or replaces one key of the `loggregator` section.
    pub fn set_loggregator(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config["loggregator"][key] = value.into();
        self
    }

    /// Removes one key of the `loggregator` section, which must be in the sample.
    pub fn without_loggregator(mut self, key: &str) -> Self {
        let section = self.config["loggregator"]
            .as_object_mut()
            .expect("the sample has a section");
        section
            .remove(key)
            .unwrap_or_else(|| panic!("{key} is in the sample"));
        self
    }

    /// Clients made from now on use certificates of this authority; the host's files do not change.
    pub fn trusting(mut self, authority: Authority) -> Self {
        self.authority = authority;
        self
    }

    /// Removes one configuration key, which must be in the sample.
    pub fn without(mut self, key: &str) -> Self {
        self.config
            .remove(key)
            .unwrap_or_else(|| panic!("{key} is in the sample"));
        self
    }

    /// Writes the configuration file and builds the command with which `monit` starts the host.
    pub fn command(&self) -> Command {
        let file = self.path("config/bbs.json");
        std::fs::write(&file, Value::Object(self.config.clone()).to_string())
            .expect("the configuration can be written");
        let mut command = Command::new(self.path("bin/bbs"));
        command.arg(format!("-config={}", file.display()));
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
        command
            // The parent of [`MODULE_CACHE`].
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env_remove("CACHE_DIRECTORY")
            // As in `Installation`: fewer than the authorities of the system.
            .env("SSL_CERT_FILE", certificate("ca.crt"))
            .env_remove("SSL_CERT_DIR")
            .env_remove("RUST_LOG");
    }

    /// Runs a command with the configuration, such as `check-config`.
    pub fn run(&self, arguments: &[&str]) -> std::process::Output {
        let written = self.command();
        let file = written
            .get_args()
            .next()
            .and_then(|file| file.to_str())
            .expect("an argument");
        let mut command = Command::new(written.get_program());
        command
            .args(arguments)
            .arg(file.replacen("-config", "--config", 1));
        self.set_environment(&mut command);
        command.output().expect("the executable starts")
    }

    /// Starts the host and waits until it serves.
    pub async fn serve(&self) -> Host {
        let command = self.command();
        tokio::task::spawn_blocking(move || Host::start(command, "bbs.started"))
            .await
            .expect("the host serves")
    }

    /// Runs a host that is expected to exit on its own; returns its exit code and its output.
    pub async fn fail(&self) -> (Option<i32>, String) {
        let mut command = self.command();
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .expect("no panic");
        let output = output.expect("the executable starts");
        (output.status.code(), text(&output))
    }

    /// [`call`] of a host with [`Self::client`].
    pub async fn call<A: Message + Default>(
        &self,
        host: &Host,
        path: &str,
        request: &impl Message,
    ) -> A {
        call(&self.client(), host.address, path, request).await
    }

    /// A client with a certificate that the host accepts, without connection reuse.
    pub fn client(&self) -> reqwest::Client {
        self.client_as(Some(&self.authority.issue("cell-1", VALID)))
    }

    /// A client that supports one TLS version.
    pub fn client_of(&self, version: reqwest::tls::Version) -> reqwest::Client {
        let builder = self.builder(Some(&self.authority.issue("cell-3", VALID)));
        builder
            .tls_version_min(version)
            .tls_version_max(version)
            .build()
            .expect("a client")
    }

    /// A client that reuses its connections.
    pub fn keeping_client(&self) -> reqwest::Client {
        self.builder(Some(&self.authority.issue("cell-2", VALID)))
            .build()
            .expect("a client")
    }

    /// A client that trusts this deployment's authority and presents this certificate, or none.
    pub fn client_as(&self, pair: Option<&Pair>) -> reqwest::Client {
        self.builder(pair)
            .pool_max_idle_per_host(0)
            .build()
            .expect("a client")
    }

    fn builder(&self, pair: Option<&Pair>) -> reqwest::ClientBuilder {
        client_builder(&self.authority, pair)
    }
}

/// Makes a call such as `tasks/desire.r2`, and returns its answer.
pub async fn call<A: Message + Default>(
    client: &reqwest::Client,
    address: SocketAddr,
    path: &str,
    request: &impl Message,
) -> A {
    let call = client
        .post(format!("https://{address}/v1/{path}"))
        .body(request.encode_to_vec());
    let answer = call.send().await.expect("the host answers");
    let body = answer.bytes().await.expect("a whole answer");
    A::decode(body).unwrap_or_else(|fault| panic!("{path}: {fault}"))
}

pub(super) fn link(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).expect("a file can be copied");
    }
}

/// Links the files of a folder into another one.
pub fn link_files(from: &Path, to: &Path) {
    let Ok(files) = std::fs::read_dir(from) else {
        return;
    };
    for file in files {
        let file = file.expect("a folder that can be read");
        // A file that another test is writing has a temporary name that begins with a dot.
        if file.path().is_file() && !file.file_name().to_string_lossy().starts_with('.') {
            link(&file.path(), &to.join(file.file_name()));
        }
    }
}
