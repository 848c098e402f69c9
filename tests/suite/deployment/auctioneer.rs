//! The configuration keys of the auctioneer: its address and the certificates that it accepts.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use bbs::testing::config::ServerTls;
use bbs::testing::http::{Port, serve_clients};
use bbs::testing::tls::Certificates;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::tasks::definition;

/// An auctioneer that answers 202 to clients with a certificate of the authority in `certs`. Returns a channel of the
/// paths and bodies of its requests.
fn auctioneer(certs: &Path, listener: std::net::TcpListener) -> UnboundedReceiver<(String, String)> {
    let (received, requests) = unbounded_channel();
    let router = Router::new().fallback(move |uri: Uri, body: String| {
        // Fails once the test has dropped the receiver.
        let _ = received.send((uri.path().to_owned(), body));
        async { StatusCode::ACCEPTED }
    });
    let place = |name: &str| certs.join(name);
    let tls = ServerTls { cert_file: place("server.crt"), key_file: place("server.key"), ca_file: place("ca.crt") };
    let certificates = Certificates::read(&tls).expect("the certificates are sound");
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let port = Port { name: "auctioneer", listener, most_connections: 10 };
    tokio::spawn(serve_clients(port, Some(certificates), router, std::future::pending(), Duration::ZERO));
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn task_auction_is_requested_over_mutual_tls() {
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
    let (path, body) = requests.recv().await.expect("the auctioneer receives a request");
    assert_eq!(path, "/v1/tasks");
    let asked: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(asked[0]["TaskGuid"], "some-task");
}
