//! The configuration keys of the auctioneer: its address and the certificates that it accepts.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{StatusCode, Uri};
use bbs::testing::config::CertificateFiles;
use bbs::testing::http::{Port, serve_clients};
use bbs::testing::tls::Certificates;
use bbs_proto::models as proto;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::tasks::definition;

/// An auctioneer that answers clients with a certificate of the authority in `certs`, the first
/// ones with `failures` and all others with 202. Returns a channel of the paths and bodies of its
/// requests.
fn auctioneer(
    certs: &Path,
    listener: std::net::TcpListener,
    failures: &'static [StatusCode],
) -> UnboundedReceiver<(String, String)> {
    let (received, requests) = unbounded_channel();
    let failures = Arc::new(Mutex::new(failures.iter()));
    let router = Router::new().fallback(move |uri: Uri, body: String| {
        // Fails once the test has dropped the receiver.
        let _ = received.send((uri.path().to_owned(), body));
        let status = failures
            .lock()
            .unwrap()
            .next()
            .copied()
            .unwrap_or(StatusCode::ACCEPTED);
        async move { status }
    });
    let place = |name: &str| certs.join(name);
    let tls = CertificateFiles {
        cert_file: place("server.crt"),
        key_file: place("server.key"),
        ca_file: place("ca.crt"),
    };
    let certificates = Certificates::read(&tls).expect("the certificates are sound");
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let port = Port {
        name: "auctioneer",
        listener,
        most_connections: 10,
    };
    tokio::spawn(serve_clients(
        port,
        Some(certificates),
        router,
        std::future::pending(),
    ));
    requests
}

/// Desires a task at a host whose auctioneer fails like this at first. Returns the requests that
/// the auctioneer receives.
async fn requests_for_a_task(
    failures: &'static [StatusCode],
) -> UnboundedReceiver<(String, String)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let deployment = Deployment::new(Kind::Sqlite)
        .set("auctioneer_address", address)
        .set("auctioneer_require_tls", true)
        .set("converge_repeat_interval", "1h");
    let requests = auctioneer(&deployment.certs(), listener, failures);
    let host = deployment.serve().await;
    let task = proto::DesireTaskRequest {
        task_definition: Some(definition()),
        task_guid: "some-task".into(),
        domain: "cf-tasks".into(),
    };
    let answer: proto::TaskLifecycleResponse =
        deployment.call(&host, "tasks/desire.r2", &task).await;
    assert_eq!(answer.error, None);
    requests
}

#[tokio::test(flavor = "multi_thread")]
async fn task_auction_is_requested_over_mutual_tls() {
    let mut requests = requests_for_a_task(&[]).await;
    let (path, body) = requests
        .recv()
        .await
        .expect("the auctioneer receives a request");
    assert_eq!(path, "/v1/tasks");
    let received: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(received[0]["TaskGuid"], "some-task");
    assert!(requests.try_recv().is_err(), "it was accepted");
}

/// The call has been answered, and the next convergence is an hour away.
#[tokio::test(flavor = "multi_thread")]
async fn auctioneer_that_fails_gets_the_same_request_again() {
    let mut requests = requests_for_a_task(&[
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::INTERNAL_SERVER_ERROR,
    ])
    .await;
    let first = requests
        .try_recv()
        .expect("the auctioneer received a request");
    for _ in 0..2 {
        assert_eq!(requests.try_recv().as_ref(), Ok(&first));
    }
    assert!(requests.try_recv().is_err(), "the third one was accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn auctioneer_that_goes_on_failing_gets_a_request_three_times() {
    let mut requests = requests_for_a_task(&[StatusCode::SERVICE_UNAVAILABLE; 9]).await;
    let mut received = 0;
    while requests.try_recv().is_ok() {
        received += 1;
    }
    assert_eq!(received, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_the_auctioneer_rejects_is_not_repeated() {
    let mut requests = requests_for_a_task(&[StatusCode::BAD_REQUEST; 9]).await;
    requests
        .try_recv()
        .expect("the auctioneer received a request");
    assert!(requests.try_recv().is_err());
}
