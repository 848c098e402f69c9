//! Reload of the certificates that the host's clients use: later requests use replaced
//! certificates, and an unusable file is logged and otherwise ignored.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use serde_json::json;

use super::tls::wait_for_api_log;
use crate::harness::certificates::replace;
use crate::harness::database::Kind;
use crate::harness::deployment::{Deployment, call};
use crate::harness::diego::trust::Trust;
use crate::harness::host::Host;
use crate::harness::locket::certificate;
use crate::harness::neighbours::StubServer;
use crate::harness::until_async;
use crate::tasks::definition;

const NAMES: [&str; 3] = ["ca.crt", "client.crt", "client.key"];

/// A client of the host that desires tasks.
struct TaskClient {
    http: reqwest::Client,
    address: SocketAddr,
    tasks: usize,
}

impl TaskClient {
    async fn post<A: Message + Default>(&self, path: &str, request: &impl Message) -> A {
        call(&self.http, self.address, path, request).await
    }

    async fn task_call(&self, path: &str, request: &impl Message) {
        assert_eq!(
            self.post::<proto::TaskLifecycleResponse>(path, request)
                .await
                .error,
            None,
            "{path}"
        );
    }

    /// Desires another task with this callback URL. Returns its guid.
    async fn desire(&mut self, url: &str) -> Vec<u8> {
        self.tasks += 1;
        let task_guid = format!("task-{}", self.tasks).into_bytes();
        let task_definition = Some(proto::TaskDefinition {
            completion_callback_url: url.into(),
            ..definition()
        });
        let domain = b"domain".to_vec();
        let request = proto::DesireTaskRequest {
            task_definition,
            task_guid: task_guid.clone(),
            domain,
        };
        self.task_call("tasks/desire.r2", &request).await;
        task_guid
    }

    async fn start(&mut self, url: &str) -> Vec<u8> {
        let task_guid = self.desire(url).await;
        let request = proto::StartTaskRequest {
            task_guid: task_guid.clone(),
            cell_id: b"cell-a".to_vec(),
        };
        self.task_call("tasks/start", &request).await;
        task_guid
    }

    async fn complete(&mut self, url: &str) {
        let request = proto::CompleteTaskRequest {
            task_guid: self.start(url).await,
            cell_id: b"cell-a".to_vec(),
            ..Default::default()
        };
        self.task_call("tasks/complete", &request).await;
    }
}

fn install(folder: &Path, files: &[PathBuf; 3]) {
    for (name, from) in NAMES.iter().zip(files) {
        replace(
            &folder.join(name),
            &std::fs::read_to_string(from).expect("a file of certificates"),
        );
    }
}

/// A deployment in which the certificates for one of the called components are in a separate
/// folder. `keys` are the configuration keys of its authority, certificate and key.
fn deployment(keys: [&str; 3], good: &[PathBuf; 3]) -> (Deployment, PathBuf) {
    let deployment = Deployment::new(Kind::Sqlite);
    let folder = deployment.certs().join("outgoing");
    std::fs::create_dir(&folder).expect("a folder");
    install(&folder, good);
    let named = keys.iter().zip(NAMES);
    let place = |name: &str| folder.join(name).display().to_string();
    let deployment = named.fold(deployment, |deployment, (key, name)| {
        deployment.set(key, place(name))
    });
    (deployment, folder)
}

async fn serve(deployment: &Deployment) -> (Host, TaskClient) {
    let host = deployment.serve().await;
    let client = TaskClient {
        http: deployment.client(),
        address: host.address,
        tasks: 0,
    };
    (host, client)
}

/// Asserts that certificates written into the folder are used by later requests. `call` makes one
/// and returns whether it was received.
async fn assert_reloaded(
    host: Host,
    folder: &Path,
    good: &[PathBuf; 3],
    mut call: impl AsyncFnMut() -> bool,
) {
    assert!(call().await, "with the certificates of the start");
    install(folder, &Trust::new().files());
    until_async(async || !call().await).await;
    install(folder, good);
    until_async(&mut call).await;
    replace(&folder.join("client.crt"), "this is no certificate");
    assert_unusable_file_is_ignored(host, call).await;
}

/// The host checks its files, and logs the line, at the next request.
async fn assert_unusable_file_is_ignored(mut host: Host, mut call: impl AsyncFnMut() -> bool) {
    let waiting = tokio::task::spawn_blocking(move || {
        host.wait_for_line(|line| line.contains("tls.not-reloaded") && line.contains("client.crt"));
        host
    });
    while !waiting.is_finished() {
        assert!(call().await, "the certificates in use stay");
    }
    let _host = waiting.await.expect("the line is logged");
    assert!(call().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_the_auctioneer_are_reloaded() {
    let trust = Trust::new();
    let auctioneer = StubServer::start(&trust);
    let good = trust.files();
    let keys = [
        "auctioneer_ca_cert",
        "auctioneer_client_cert",
        "auctioneer_client_key",
    ];
    let (deployment, folder) = deployment(keys, &good);
    let deployment = deployment.set("auctioneer_address", auctioneer.url());
    let (host, mut client) = serve(&deployment).await;
    assert_reloaded(host, &folder, &good, async || {
        client.desire("").await;
        !auctioneer.take_requests().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_reps_are_reloaded() {
    let trust = Trust::new();
    let rep = StubServer::start(&trust);
    let good = trust.files();
    let (deployment, folder) =
        deployment(["rep_ca_cert", "rep_client_cert", "rep_client_key"], &good);
    deployment.locket.add_presence(
        "cell-a",
        &json!({ "cell_id": "cell-a", "rep_url": rep.url() }).to_string(),
    );
    let (host, mut client) = serve(&deployment).await;
    assert_reloaded(host, &folder, &good, async || {
        let task_guid = client.start("").await;
        client
            .task_call("tasks/cancel", &proto::TaskGuidRequest { task_guid })
            .await;
        !rep.take_requests().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_locket_are_reloaded() {
    let good = NAMES.map(certificate);
    let keys = [
        "locket_ca_cert_file",
        "locket_client_cert_file",
        "locket_client_key_file",
    ];
    let (deployment, folder) = deployment(keys, &good);
    let (host, client) = serve(&deployment).await;
    assert_reloaded(host, &folder, &good, async || {
        client
            .post::<proto::CellsResponse>("cells/list.r1", &())
            .await
            .error
            .is_none()
    })
    .await;
    assert!(
        deployment.locket.holder().is_some(),
        "the lock has a separate connection"
    );
}

/// Goal: a host whose certificates Locket does not accept any more takes the lock once they are
/// replaced, as when Locket has been restarted with a new authority.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_the_lock_are_read_again_when_locket_refuses_them() {
    let refused = ["ca.crt", "stranger.crt", "stranger.key"].map(certificate);
    let keys = [
        "locket_ca_cert_file",
        "locket_client_cert_file",
        "locket_client_key_file",
    ];
    let (deployment, folder) = deployment(keys, &refused);
    let mut host = Host::begin(deployment.command());
    let waiting = tokio::task::spawn_blocking(move || {
        host.wait_for_line(|line| line.contains("locket-lock.failed-to-acquire-lock"));
        host
    });
    let mut host = waiting.await.expect("the host waits for the lock");
    install(&folder, &NAMES.map(certificate));
    let serving = tokio::task::spawn_blocking(move || {
        host.wait_for_line(|line| line.contains("bbs.started"));
    });
    serving.await.expect("the host serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_callbacks_are_reloaded() {
    let trust = Trust::new();
    let receiver = StubServer::start(&trust);
    let deployment = Deployment::new(Kind::Sqlite);
    let place = |name: &str| deployment.certs().join(name);
    let (mut host, mut client) = serve(&deployment).await;
    client.complete(&receiver.url()).await;
    let mut host = tokio::task::spawn_blocking(move || {
        host.wait_for_line(|line| line.contains("a task callback failed"));
        host
    })
    .await
    .unwrap();
    assert_eq!(
        receiver.take_requests(),
        [],
        "the receiver's authority is not trusted yet"
    );

    // Callbacks use the certificates of the API.
    for (name, from) in ["ca.crt", "server.crt", "server.key"]
        .into_iter()
        .zip(trust.files())
    {
        replace(&place(name), &std::fs::read_to_string(from).unwrap());
    }
    host = wait_for_api_log(host, "tls.reloaded").await;
    client.http = trust.client();
    let url = receiver.url();
    until_async(async || {
        client.complete(&url).await;
        !receiver.take_requests().is_empty()
    })
    .await;
    replace(&place("server.crt"), "this is no certificate");
    let waiting = tokio::task::spawn_blocking(move || {
        // The line of the API's listener has no `files`.
        host.wait_for_line(|line| line.contains("tls.not-reloaded") && line.contains("files"));
        host
    });
    while !waiting.is_finished() {
        client.complete(&url).await;
    }
    let _host = waiting.await.unwrap();
    receiver.take_requests();
    client.complete(&url).await;
    receiver.wait_for_requests(1).await;
}
