//! The etcd of the tests: Debian's `etcd-server` with its second API, one member or a cluster of
//! three, with or without TLS that demands a certificate of clients. Owns starting and stopping
//! members, and writing the stores that tests import.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::certificates::{Authority, EXPIRED, VALID};
use super::engine::{AsUser, Engine, Recipe, UNPRIVILEGED_USER, output_of, program};
use super::ports::free_address;
use super::{PATIENCE, pause};

const MEMBERS: usize = 3;
/// Requests in flight while a store is written.
const WRITERS: usize = 32;

const fn recipe(name: &'static str, command: fn(&Path, u16) -> Vec<OsString>) -> Recipe {
    Recipe {
        name,
        users: &["etcd", UNPRIVILEGED_USER],
        initialise,
        version: || output_of(Command::new(find()).arg("--version")),
        command,
        crash_signal: "KILL",
        // A member binds its port before it has found the others.
        ready: |_: &mut TcpStream| Ok(true),
    }
}

static PLAIN: Recipe = recipe("etcd", |_, port| command("http", port, &[]));
static SECURE: Recipe = recipe("etcd-tls", |_, port| {
    let files = [
        "--cert-file=data/server.crt",
        "--key-file=data/server.key",
        "--trusted-ca-file=data/ca.crt",
    ];
    command(
        "https",
        port,
        &[&files[..], &["--client-cert-auth"]].concat(),
    )
});

fn find() -> PathBuf {
    program("etcd", &["/usr/bin".into()], "etcd-server")
}

fn initialise(folder: &Path, as_user: AsUser<'_>) {
    let data = folder.join("data");
    let mut made = Command::new("mkdir");
    as_user(made.arg(&data));
    output_of(&mut made);
    let authority = Authority::new("etcd");
    let other = Authority::new("another");
    authority.issue("etcd", VALID).write(&data, "server");
    authority.issue("bbs", VALID).write(&data, "client");
    authority.issue("bbs", EXPIRED).write(&data, "expired");
    other.issue("bbs", VALID).write(&data, "stranger");
    for (name, authority) in [("ca.crt", &authority), ("other-ca.crt", &other)] {
        std::fs::write(data.join(name), authority.certificate())
            .expect("the new folder can be written");
    }
    // The member runs as another user than the tests.
    output_of(Command::new("chmod").arg("-R").arg("a+rX").arg(&data));
}

fn command(scheme: &str, port: u16, more: &[&str]) -> Vec<OsString> {
    let url = format!("{scheme}://127.0.0.1:{port}");
    let mut command: Vec<OsString> = vec![
        "env".into(),
        "ETCD_UNSUPPORTED_ARCH=arm64".into(),
        find().into(),
    ];
    let arguments = [
        "--data-dir=data/store",
        "--enable-v2=true",
        "--heartbeat-interval=50",
        "--election-timeout=500",
    ];
    command.extend(arguments.iter().chain(more).map(OsString::from));
    command.extend([
        format!("--listen-client-urls={url}").into(),
        format!("--advertise-client-urls={url}").into(),
    ]);
    command
}

/// A running cluster, which ends with the test.
pub struct Etcd {
    members: Vec<Engine>,
    scheme: &'static str,
    client: reqwest::Client,
}

impl Etcd {
    /// One member, without TLS.
    pub async fn start() -> Self {
        Self::run(&PLAIN, 1, "http", &[]).await
    }

    /// One member without TLS, with additional arguments, such as `--enable-v2=false`. Its answers
    /// are not waited for.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::begin(&PLAIN, 1, "http", arguments)
    }

    /// Three members with TLS, which a pause of a busy machine does not part.
    pub async fn start_cluster() -> Self {
        let patience = ["--heartbeat-interval=150", "--election-timeout=1500"];
        Self::run(&SECURE, MEMBERS, "https", &patience).await
    }

    async fn run(
        recipe: &'static Recipe,
        members: usize,
        scheme: &'static str,
        arguments: &[&str],
    ) -> Self {
        let cluster = Self::begin(recipe, members, scheme, arguments);
        cluster.until_healthy().await;
        cluster
    }

    fn begin(
        recipe: &'static Recipe,
        members: usize,
        scheme: &'static str,
        arguments: &[&str],
    ) -> Self {
        let peers: Vec<_> = (0..members)
            .map(|_| format!("http://{}", free_address()))
            .collect();
        let all: Vec<_> = peers
            .iter()
            .enumerate()
            .map(|(number, url)| format!("m{number}={url}"))
            .collect();
        let all = format!("--initial-cluster={}", all.join(","));
        let members: Vec<_> = std::iter::zip(0.., &peers)
            .map(|(number, peer)| {
                let own = [
                    format!("--name=m{number}"),
                    format!("--listen-peer-urls={peer}"),
                    format!("--initial-advertise-peer-urls={peer}"),
                ];
                let own = own
                    .iter()
                    .chain([&all])
                    .map(String::as_str)
                    .chain(arguments.iter().copied());
                Engine::start(recipe, &own.collect::<Vec<_>>())
            })
            .collect();
        bbs::choose_cryptography();
        let builder = reqwest::Client::builder().timeout(Duration::from_secs(20));
        let builder = if scheme == "https" {
            let read = |name: &str| {
                std::fs::read(members[0].folder().join("data").join(name))
                    .expect("the file is there")
            };
            let authority = reqwest::Certificate::from_pem(&read("ca.crt")).expect("an authority");
            let identity = [read("client.crt"), read("client.key")].concat();
            let identity = reqwest::Identity::from_pem(&identity).expect("an identity");
            builder.tls_certs_only([authority]).identity(identity)
        } else {
            // Reading the authorities of the system takes longer than most requests.
            builder.tls_certs_only([])
        };
        Self {
            client: builder.build().expect("a client"),
            members,
            scheme,
        }
    }

    /// Waits until every running member has a leader.
    pub async fn until_healthy(&self) {
        self.until_healthy_from(0).await;
    }

    /// Waits until the members from this one on have a leader.
    pub async fn until_healthy_from(&self, first: usize) {
        let waiting = async {
            for url in self.urls().split_off(first) {
                while !self.is_healthy(&url).await {
                    pause().await;
                }
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, waiting).await;
        in_time.unwrap_or_else(|_| panic!("etcd does not start: {}", self.members[0].log()));
    }

    async fn is_healthy(&self, url: &str) -> bool {
        match self.client.get(format!("{url}/health")).send().await {
            Ok(answer) => answer.text().await.is_ok_and(|text| text.contains("true")),
            Err(_) => false,
        }
    }

    pub fn urls(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| format!("{}://{}", self.scheme, member.address()))
            .collect()
    }

    pub fn address(&self, member: usize) -> SocketAddr {
        self.members[member].address()
    }

    /// A file of the certificates: `ca.crt`, `client.crt` and others that `initialise` makes.
    pub fn file(&self, name: &str) -> PathBuf {
        self.members[0].folder().join("data").join(name)
    }

    /// The keys of a configuration for this cluster.
    pub fn configuration(&self) -> Vec<(&'static str, Value)> {
        let mut keys = vec![("etcd_cluster_urls", json!(self.urls()))];
        if self.scheme == "https" {
            keys.extend([
                ("etcd_ca_file", json!(self.file("ca.crt"))),
                ("etcd_cert_file", json!(self.file("client.crt"))),
                ("etcd_key_file", json!(self.file("client.key"))),
            ]);
        }
        keys
    }

    /// Kills a member.
    pub fn kill(&self, member: usize) {
        self.members[member].crash();
    }

    /// Starts a killed member again.
    pub fn restart(&self, member: usize) {
        self.members[member].restart();
    }

    /// Sets a leaf.
    pub async fn put(&self, key: &str, value: &str, ttl_s: Option<u64>) {
        let ttl = ttl_s.map(|ttl| format!("&ttl={ttl}")).unwrap_or_default();
        let body = format!("value={}{ttl}", url_encoded(value));
        let request = self
            .client
            .put(format!("{}/v2/keys{}", self.urls()[0], path_encoded(key)));
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let answer = request.send().await.expect("etcd answers");
        assert!(
            answer.status().is_success(),
            "{key}: {:?}",
            answer.text().await
        );
    }

    /// Sets many leaves, in no order.
    pub async fn put_all(&self, leaves: impl IntoIterator<Item = (String, String)>) {
        stream::iter(leaves)
            .map(async |(key, value)| self.put(&key, &value, None).await)
            .buffer_unordered(WRITERS)
            .collect::<()>()
            .await;
    }

    pub async fn delete(&self, key: &str) {
        let answer = self
            .client
            .delete(format!("{}/v2/keys{}", self.urls()[0], path_encoded(key)))
            .send()
            .await;
        assert!(answer.expect("etcd answers").status().is_success(), "{key}");
    }

    /// The value of a leaf; `None` if it is absent.
    pub async fn get(&self, key: &str) -> Option<String> {
        let answer = self
            .answer(&format!("{}?quorum=true", path_encoded(key)))
            .await;
        answer["node"]["value"].as_str().map(str::to_owned)
    }

    /// Every leaf with its value and the index of its last change, sorted.
    pub async fn everything(&self) -> Vec<(String, String, u64)> {
        let answer = self.answer("/?recursive=true&quorum=true").await;
        let mut waiting = vec![&answer["node"]];
        let mut leaves = Vec::new();
        while let Some(node) = waiting.pop() {
            waiting.extend(node["nodes"].as_array().into_iter().flatten());
            if let (Some(key), Some(value)) = (node["key"].as_str(), node["value"].as_str()) {
                leaves.push((
                    key.to_owned(),
                    value.to_owned(),
                    node["modifiedIndex"].as_u64().expect("a number"),
                ));
            }
        }
        leaves.sort();
        leaves
    }

    async fn answer(&self, path: &str) -> Value {
        let answer = self
            .client
            .get(format!("{}/v2/keys{path}", self.urls()[0]))
            .send()
            .await
            .expect("etcd answers");
        serde_json::from_str(&answer.text().await.expect("a body")).expect("JSON")
    }
}

fn url_encoded(value: &str) -> String {
    let mut url = reqwest::Url::parse("http://form").expect("a URL");
    url.query_pairs_mut().append_pair("v", value);
    url.query().expect("a query")[2..].to_owned()
}

fn path_encoded(key: &str) -> String {
    let mut url = reqwest::Url::parse("http://path").expect("a URL");
    url.set_path(key);
    url.path().to_owned()
}
