//! That the keys which name the rest of Diego lead to it: who is asked, with which certificate.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use bbs::config::Tls;
use bbs::http::{Certificates, serve_clients};
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::tasks::definition;

/// Answers 202 to whoever the authority in the folder vouches for; gives paths and bodies.
fn auctioneer(certs: &Path, listener: std::net::TcpListener) -> UnboundedReceiver<(String, String)> {
    let (heard, requests) = unbounded_channel();
    let router = Router::new().fallback(move |uri: Uri, body: String| {
        // A test that has seen enough listens no more.
        let _ = heard.send((uri.path().to_owned(), body));
        async { StatusCode::ACCEPTED }
    });
    let place = |name: &str| certs.join(name);
    let tls = Tls { cert_file: place("server.crt"), key_file: place("server.key"), ca_file: place("ca.crt") };
    let certificates = Certificates::read(&tls).expect("the certificates are sound");
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(serve_clients(listener, Some(certificates), router, std::future::pending(), Duration::ZERO));
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_put_up_for_auction_over_mutual_tls() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let deployment = Deployment::new(Kind::Sqlite).set("auctioneer_address", address);
    let mut requests = auctioneer(&deployment.certs(), listener);
    let host = deployment.serve().await;
    let task = proto::DesireTaskRequest {
        task_definition: Some(definition()),
        task_guid: "some-task".into(),
        domain: "cf-tasks".into(),
    };
    let call = deployment.client().post(format!("https://{}/v1/tasks/desire.r2", host.address));
    let body = call.body(task.encode_to_vec()).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(proto::TaskLifecycleResponse::decode(&body[..]).unwrap().error, None);
    let (path, body) = requests.recv().await.expect("the auctioneer is asked");
    assert_eq!(path, "/v1/tasks");
    let asked: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(asked[0]["TaskGuid"], "some-task");
}
