//! Proxies that the environment of the host names, as that of a virtual machine may for downloads.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use serde_json::json;

use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::diego::trust::Trust;
use crate::harness::host::Host;
use crate::harness::neighbours::{ReceivedRequest, StubServer};
use crate::harness::ports::free_address;
use crate::tasks::definition;

const TASK: &[u8] = b"some-task";
const CELL: &str = "some-cell";

/// A deployment with this auctioneer and a present cell, whose certificates are those of `trust`.
fn deployment(trust: &Trust, auctioneer: &StubServer, rep: &StubServer) -> Deployment {
    let mut deployment = Deployment::new(Kind::Sqlite)
        .set("auctioneer_address", auctioneer.url())
        .set("converge_repeat_interval", "1h");
    for component in ["auctioneer", "rep"] {
        let keys = ["ca_cert", "client_cert", "client_key"];
        for (key, file) in keys.into_iter().zip(trust.files()) {
            let path = file.display().to_string();
            deployment = deployment.set(&format!("{component}_{key}"), path);
        }
    }
    let presence = json!({ "cell_id": CELL, "rep_url": rep.url() });
    deployment.locket.add_presence(CELL, &presence.to_string());
    deployment
}

/// Starts a host whose environment names a proxy that does not run.
async fn serve(deployment: &Deployment) -> Host {
    let mut command = deployment.command();
    let proxy = format!("http://{}", free_address());
    for variable in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(variable, &proxy);
    }
    for variable in ["NO_PROXY", "no_proxy"] {
        command.env_remove(variable);
    }
    tokio::task::spawn_blocking(move || Host::start(command, "bbs.started"))
        .await
        .expect("the host serves")
}

async fn call(deployment: &Deployment, host: &Host, path: &str, request: &impl Message) {
    let answer: proto::TaskLifecycleResponse = deployment.call(host, path, request).await;
    assert_eq!(answer.error, None, "{path}");
}

fn paths(requests: Vec<ReceivedRequest>) -> Vec<String> {
    requests.into_iter().map(|request| request.path).collect()
}

/// Method: the host makes a request to each component for one task, which is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn requests_to_other_components_use_no_proxy_of_the_environment() {
    let trust = Trust::new();
    let [auctioneer, rep] = [(); 2].map(|()| StubServer::start(&trust));
    let receiver = StubServer::start_plain();
    let deployment = deployment(&trust, &auctioneer, &rep);
    let host = serve(&deployment).await;
    let desire = proto::DesireTaskRequest {
        task_definition: Some(proto::TaskDefinition {
            completion_callback_url: format!("{}/completed", receiver.url()).into(),
            ..definition()
        }),
        task_guid: TASK.to_vec(),
        domain: b"domain".to_vec(),
    };
    call(&deployment, &host, "tasks/desire.r2", &desire).await;
    assert_eq!(paths(auctioneer.take_requests()), ["/v1/tasks"]);
    let start = proto::StartTaskRequest {
        task_guid: TASK.to_vec(),
        cell_id: CELL.into(),
    };
    call(&deployment, &host, "tasks/start", &start).await;
    let cancel = proto::TaskGuidRequest {
        task_guid: TASK.to_vec(),
    };
    call(&deployment, &host, "tasks/cancel", &cancel).await;
    let cancelled = paths(rep.take_requests());
    assert_eq!(cancelled, ["/v1/tasks/some-task/cancel"]);
    let posted = paths(receiver.wait_for_requests(1).await);
    assert_eq!(posted, ["/completed"]);
}
