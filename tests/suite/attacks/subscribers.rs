//! Subscribers that do not read, while large records that they would receive change; changes with
//! a long trace id.

use std::net::SocketAddr;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::half_read;
use crate::api::{desire, lrp};
use crate::harness::database::Kind;
use crate::harness::event_stream::{EventStream, INSTANCES};
use crate::harness::host::Installation;
use crate::harness::server::Server;
use crate::harness::watch::Watch;
use crate::harness::{PATIENCE, modules};

const STALLED: usize = 12;
/// Each changes a record of this size, in bytes, which an event has twice.
const UPDATES: usize = 150;
const RECORD: usize = 900 << 10;

/// Subscribes to the changes of LRPs and reads only the head of the response.
async fn stalled(address: SocketAddr) -> TcpStream {
    half_read(address, &format!("POST {INSTANCES}")).await
}

/// Reads a stream and counts its events with this name, without parsing them.
async fn count_events(connection: TcpStream, name: &str, received: watch::Sender<usize>) {
    let start = format!("event: {name}");
    let mut connection = BufReader::new(connection);
    let mut line = Vec::new();
    while connection
        .read_until(b'\n', &mut line)
        .await
        .is_ok_and(|read| read > 0)
    {
        if line.starts_with(start.as_bytes()) {
            received.send_modify(|received| *received += 1);
        }
        line.clear();
    }
}

async fn called(client: &reqwest::Client, url: String, request: &impl Message) {
    let answer = client
        .post(url)
        .body(request.encode_to_vec())
        .send()
        .await
        .expect("the host answers");
    let body = answer.bytes().await.expect("the answer is whole");
    let answer = proto::DesiredLrpLifecycleResponse::decode(&body[..]).expect("an answer");
    assert_eq!(answer.error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_subscribers_are_disconnected_and_others_receive_every_event() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    let host = installation.serve();
    let watch = Watch::on(&host);
    let (sender, mut received) = watch::channel(0);
    tokio::spawn(count_events(
        stalled(host.address).await,
        "desired_lrp_changed",
        sender,
    ));
    let mut subscribers = Vec::new();
    let client = crate::harness::http_client();
    let variable = proto::EnvironmentVariable {
        name: b"A".to_vec(),
        value: vec![b'x'; RECORD],
    };
    let desired = proto::DesiredLrp {
        environment_variables: vec![variable],
        ..lrp("large")
    };
    let desire = proto::DesireLrpRequest {
        desired_lrp: Some(desired),
    };
    called(&client, host.url("/v1/desired_lrp/desire.r2"), &desire).await;
    for number in 0..UPDATES {
        if number % (UPDATES / STALLED) == 0 {
            subscribers.push(stalled(host.address).await);
        }
        let update = proto::DesiredLrpUpdate {
            annotation: Some(number.to_string().into()),
            ..Default::default()
        };
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: b"large".to_vec(),
            update: Some(update),
        };
        called(&client, host.url("/v1/desired_lrp/update"), &request).await;
        let event = received.wait_for(|received| *received == number + 1);
        let event = tokio::time::timeout(PATIENCE, event)
            .await
            .expect("the event arrives");
        event.expect("a subscriber that reads is not disconnected");
    }
    // The first subscriber was disconnected: its stream breaks off.
    let mut rest = Vec::new();
    let end = subscribers[0].read_to_end(&mut rest).await;
    assert!(
        end.is_err() || !rest.ends_with(b"0\r\n\r\n"),
        "a stream that is cut off does not end cleanly"
    );
    watch.assert_unharmed().await;
}

/// Goal: a call with a long trace id ends no stream. Method: one call removes an LRP with many
/// waiting instances. With the id for each of them, its changes would take half of the bytes that
/// may wait for a subscriber.
#[tokio::test(flavor = "multi_thread")]
async fn removal_with_a_long_trace_id_disconnects_no_subscriber() {
    const WAITING: i32 = 2_000;
    /// A request's head has at most 16 KiB.
    const TRACE_ID_BYTES: usize = 15_000;
    let server = Server::empty(Kind::Sqlite).await;
    let desired = proto::DesiredLrp {
        instances: WAITING,
        ..lrp("guid")
    };
    desire(&server, desired).await;
    let mut events = EventStream::open(server.url(INSTANCES), "").await;
    let request = proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    let trace_id = "x".repeat(TRACE_ID_BYTES);
    let headers = [("X-Vcap-Request-Id", trace_id.as_str())];
    let path = "/v1/desired_lrp/remove";
    let reply = server.send("POST", path, &headers, request.encode_to_vec());
    let answer: proto::DesiredLrpLifecycleResponse = reply.await.message();
    assert_eq!(answer.error, None);
    let event = events.next().await.expect("the removal of the LRP");
    assert_eq!(event.name, "desired_lrp_removed");
    for index in 0..WAITING {
        let event = events.next().await.expect("the stream goes on");
        let removed: proto::ActualLrpInstanceRemovedEvent = event.message();
        let key = removed.actual_lrp.and_then(|lrp| lrp.actual_lrp_key);
        assert_eq!(
            (key.map(|key| key.index), &removed.trace_id[..]),
            (Some(index), &b""[..])
        );
    }
}
