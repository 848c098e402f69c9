//! Event streams over HTTP: their bytes, the events of each stream, and every way in which a stream
//! ends.

mod order;

use std::io;
use std::net::SocketAddr;

use bbs_model::TraceId;
use bbs_model::actual_lrp::ActualLrp;
use bbs_model::change::{Cause, RecordChange};
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::slot::Slot;
use bbs_model::task::Task;
use bbs_proto::models as proto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::{lrp, routes, tag};
use crate::harness::database::Kind;
use crate::harness::event_stream::{EventStream, INSTANCES, ReceivedEvent, TASKS};
use crate::harness::host::Installation;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::Server;
use crate::harness::{modules, until};

const RESOLVING: i32 = proto::task::State::Resolving as i32;

fn task(guid: &str) -> Task {
    Task {
        guid: guid.into(),
        domain: b"d".to_vec(),
        state: RESOLVING,
        ..Task::default()
    }
}

fn created(task: Task) -> RecordChange {
    RecordChange::Task {
        before: None,
        after: Some(Box::new(task)),
    }
}

fn row(cell: &str, state: &str, index: i32) -> ActualLrp {
    let instance_guid = if cell.is_empty() {
        Vec::new()
    } else {
        b"instance".to_vec()
    };
    let cell_id = cell.into();
    let state = state.into();
    ActualLrp {
        process_guid: b"guid".to_vec(),
        index,
        instance_guid,
        cell_id,
        state,
        ..ActualLrp::default()
    }
}

fn changed(before: Option<ActualLrp>, after: Option<ActualLrp>) -> RecordChange {
    let slot = |ordinary| {
        Box::new(Slot {
            ordinary,
            ..Slot::default()
        })
    };
    RecordChange::Slot {
        before: slot(before),
        after: slot(after),
        cause: Cause::Other,
        trace_id: TraceId("trace".into()),
    }
}

/// Opens a stream on a connection of its own. Returns the connection and the head of the response.
async fn raw(address: SocketAddr, path: &str) -> (TcpStream, String) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap().into());
    }
    (connection, head.to_lowercase())
}

async fn read_to_last_chunk(connection: &mut TcpStream) -> io::Result<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n0\r\n\r\n") {
        if connection.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8(read).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_bytes_equal_diegos() {
    let server = Server::empty(Kind::Sqlite).await;
    let (mut connection, head) = raw(server.address, TASKS).await;
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    for line in [
        "content-type: text/event-stream; charset=utf-8",
        "cache-control: no-cache, no-store, must-revalidate",
        "connection: keep-alive",
        "transfer-encoding: chunked",
    ] {
        assert!(
            head.contains(&format!("\r\n{line}\r\n")),
            "{line} is not in {head}"
        );
    }
    server.service.events().publish(RecordChange::Task {
        before: Some(Box::new(task("g"))),
        after: None,
    });
    server.service.events().publish(created(task("g")));
    server.gate.end_streams();
    let body = read_to_last_chunk(&mut connection).await.unwrap();
    let expected = "32\r\nid: 0\nevent: task_removed\ndata: CgoKABIBZxoBZDgE\n\n\r\n\
                    32\r\nid: 1\nevent: task_created\ndata: CgoKABIBZxoBZDgE\n\n\r\n\
                    0\r\n\r\n";
    assert_eq!(body, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_changes_become_the_expected_events() {
    let server = Server::empty(Kind::Sqlite).await;
    let events = server.service.events();
    let mut listener = EventStream::open(server.url(INSTANCES), "").await;
    events.publish(changed(None, Some(row("", "UNCLAIMED", 3))));
    let event = listener.next().await.unwrap();
    let message: proto::ActualLrpInstanceCreatedEvent = event.message();
    let instance = message.actual_lrp.unwrap();
    assert_eq!(
        (event.name.as_str(), &message.trace_id[..]),
        ("actual_lrp_instance_created", &b"trace"[..])
    );
    assert_eq!(
        (instance.actual_lrp_key.unwrap().index, &instance.state[..]),
        (3, &b"UNCLAIMED"[..])
    );

    events.publish(changed(
        Some(row("", "UNCLAIMED", 3)),
        Some(row("a", "RUNNING", 3)),
    ));
    let event = listener.next().await.unwrap();
    let message: proto::ActualLrpInstanceChangedEvent = event.message();
    assert_eq!(
        (event.name.as_str(), &message.trace_id[..]),
        ("actual_lrp_instance_changed", &b"trace"[..])
    );
    assert_eq!(message.actual_lrp_key.unwrap().index, 3);
    assert_eq!(message.actual_lrp_instance_key.unwrap().cell_id, b"a");
    let before = message.before.unwrap();
    let after = message.after.unwrap();
    assert_eq!(
        (&before.state[..], &after.state[..]),
        (&b"UNCLAIMED"[..], &b"RUNNING"[..])
    );
    assert!(
        before.actual_lrp_net_info.is_some()
            && before.modification_tag.is_some()
            && after.routable.is_some()
    );

    let crashed = ActualLrp {
        crash_count: 4,
        crash_reason: b"why".to_vec(),
        since_ns: 9,
        ..row("", "CRASHED", 3)
    };
    events.publish(changed(Some(row("a", "RUNNING", 3)), Some(crashed)));
    let event = listener.next().await.unwrap();
    let message: proto::ActualLrpCrashedEvent = event.message();
    assert_eq!(event.name, "actual_lrp_crashed");
    assert_eq!(
        (
            message.crash_count,
            &message.crash_reason[..],
            message.since
        ),
        (4, &b"why"[..], 9)
    );
    assert_eq!(message.actual_lrp_instance_key.unwrap().cell_id, b"a");
    assert_eq!(
        listener.next().await.unwrap().name,
        "actual_lrp_instance_changed"
    );

    events.publish(changed(Some(row("a", "RUNNING", 3)), None));
    let event = listener.next().await.unwrap();
    assert_eq!(event.name, "actual_lrp_instance_removed");
    assert!(
        event
            .message::<proto::ActualLrpInstanceRemovedEvent>()
            .actual_lrp
            .is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_and_desired_lrps_have_separate_streams() {
    let server = Server::empty(Kind::Sqlite).await;
    let events = server.service.events();
    let mut tasks = EventStream::open(server.url(TASKS), "").await;
    let mut lrps = EventStream::open(server.url(INSTANCES), "").await;
    let desired = |annotation: &str| {
        let mut lrp = DesiredLrp::default();
        lrp.scheduling.annotation = annotation.into();
        Some(Box::new(lrp))
    };
    let trace_id = TraceId("trace".into());
    events.publish(created(task("g")));
    events.publish(RecordChange::DesiredLrp {
        before: desired("old"),
        after: desired("new"),
        trace_id: trace_id.clone(),
    });
    let after = Some(Box::new(Task {
        result: b"\xff".to_vec(),
        ..task("g")
    }));
    events.publish(RecordChange::Task {
        before: Some(Box::new(task("g"))),
        after,
    });
    events.publish(RecordChange::DesiredLrp {
        before: desired("new"),
        after: None,
        trace_id,
    });
    let event = lrps.next().await.unwrap();
    let message: proto::DesiredLrpChangedEvent = event.message();
    assert_eq!(
        (event.name.as_str(), &message.trace_id[..]),
        ("desired_lrp_changed", &b"trace"[..])
    );
    assert_eq!(message.before.unwrap().annotation, b"old");
    let after = message.after.unwrap();
    assert!(
        after.routes.is_some() && after.modification_tag.is_some() && after.annotation == b"new"
    );
    assert_eq!(lrps.next().await.unwrap().name, "desired_lrp_removed");
    assert_eq!(tasks.next().await.unwrap().name, "task_created");
    let event = tasks.next().await.unwrap();
    let message: proto::TaskChangedEvent = event.message();
    assert_eq!(
        (event.name.as_str(), message.after.unwrap().result),
        ("task_changed", b"\xff".to_vec())
    );
    assert_eq!(message.before.unwrap().result, b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_of_a_cell_contains_only_its_instances() {
    let server = Server::empty(Kind::Sqlite).await;
    let everything = EventStream::open(server.url(INSTANCES), "").await;
    let here = EventStream::open(server.url(INSTANCES), "here").await;
    let events = server.service.events();
    events.publish(changed(None, Some(row("", "UNCLAIMED", 0))));
    events.publish(changed(
        Some(row("", "UNCLAIMED", 0)),
        Some(row("here", "RUNNING", 0)),
    ));
    events.publish(changed(
        Some(row("", "UNCLAIMED", 1)),
        Some(row("there", "RUNNING", 1)),
    ));
    let after = Some(Box::new(DesiredLrp::default()));
    let trace_id = TraceId::NONE;
    events.publish(RecordChange::DesiredLrp {
        before: None,
        after,
        trace_id,
    });
    events.publish(changed(
        Some(row("here", "RUNNING", 0)),
        Some(row("", "CRASHED", 0)),
    ));
    server.gate.close();
    let names =
        |events: Vec<ReceivedEvent>| Vec::from_iter(events.into_iter().map(|event| event.name));
    let created = "actual_lrp_instance_created";
    let changed = "actual_lrp_instance_changed";
    let desired = "desired_lrp_created";
    let crashed = "actual_lrp_crashed";
    assert_eq!(
        names(everything.rest().await),
        [created, changed, changed, desired, crashed, changed]
    );
    assert_eq!(
        names(here.rest().await),
        [changed, desired, crashed, changed]
    );
}

on_each_layout!(stream_requests_are_answered_as_diego_answers_them);
async fn stream_requests_are_answered_as_diego_answers_them(kind: Kind) {
    let server = Server::empty(kind).await;
    for garbage in [&b"\x00"[..], b"\x0a\x09x", b"\x0d\x01"] {
        let reply = server.post(INSTANCES, garbage).await;
        assert_eq!((reply.status, reply.body.len()), (500, 0));
    }
    // The stream of tasks ignores the body of its request.
    let (_connection, head) = raw(server.address, &format!("{TASKS}?since=1")).await;
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    server.gate.end_streams();
    for path in [INSTANCES, TASKS] {
        let reply = server.post(path, []).await;
        assert_eq!(
            (reply.status, reply.body.len()),
            (500, 0),
            "no stream is opened any more"
        );
    }
    assert_eq!(server.post("/v1/ping", []).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_subscriber_is_dropped_and_others_lose_no_event() {
    let server = Server::empty(Kind::Sqlite).await;
    let (mut slow, _) = raw(server.address, TASKS).await;
    let mut fast = EventStream::open(server.url(TASKS), "").await;
    let events = server.service.events();
    let mut published = 0;
    while events.subscribers() == 2 {
        events.publish(created(Task {
            result: vec![b'x'; 1024],
            ..task(&published.to_string())
        }));
        let event: proto::TaskCreatedEvent = fast.next().await.unwrap().message();
        assert_eq!(
            event.task.unwrap().task_guid,
            published.to_string().as_bytes()
        );
        published += 1;
        assert!(published < 100_000, "the slow subscriber is never dropped");
    }
    let read = read_to_last_chunk(&mut slow)
        .await
        .expect("a dropped stream ends cleanly");
    let numbers: Vec<usize> = read
        .split("id: ")
        .skip(1)
        .map(|event| event.split_once('\n').unwrap().0.parse().unwrap())
        .collect();
    assert!(numbers.len() > bbs::testing::events::QUEUE && numbers.len() < published);
    assert!(
        numbers.iter().enumerate().all(|(at, number)| at == *number),
        "queued events are sent whole and in order"
    );
    events.publish(created(task("last")));
    assert_eq!(fast.next().await.unwrap().name, "task_created");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_stream_is_unsubscribed_without_an_event() {
    let server = Server::empty(Kind::Sqlite).await;
    let listener = EventStream::open(server.url(INSTANCES), "").await;
    let (connection, _) = raw(server.address, TASKS).await;
    assert_eq!(server.service.events().subscribers(), 2);
    drop((listener, connection));
    until(|| server.service.events().subscribers() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_ends_every_stream_cleanly_after_published_events() {
    let server = Server::empty(Kind::Sqlite).await;
    let tasks = EventStream::open(server.url(TASKS), "").await;
    let lrps = EventStream::open(server.url(INSTANCES), "").await;
    server.service.events().publish(created(task("g")));
    server.gate.close();
    assert_eq!((tasks.rest().await.len(), lrps.rest().await.len()), (1, 0));
    assert_eq!(server.post(TASKS, []).await.status, 503);
}

on_each_layout!(event_of_a_call_contains_its_trace_id_and_the_stored_record);
async fn event_of_a_call_contains_its_trace_id_and_the_stored_record(kind: Kind) {
    let server = Server::empty(kind).await;
    let mut listener = EventStream::open(server.url(INSTANCES), "").await;
    let sent = routes(&[("cf-router", r#"[ { "hostnames": ["a&b"] } ]"#)]);
    let mut with_unknown_value = tag("source_id", "source");
    with_unknown_value.value.as_mut().unwrap().dynamic = 3;
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(proto::DesiredLrp {
            routes: Some(sent),
            metric_tags: vec![with_unknown_value],
            placement_tags: vec![b"\xff".to_vec()],
            ..lrp("guid")
        }),
    };
    let body = bbs_proto::prost::Message::encode_to_vec(&request);
    let trace = "7f461654-74d1-1ee5-8367-77d85df2cdab";
    server
        .send(
            "POST",
            "/v1/desired_lrp/desire.r2",
            &[("X-Vcap-Request-Id", trace)],
            body,
        )
        .await;
    let event = listener.next().await.unwrap();
    let message: proto::DesiredLrpCreatedEvent = event.message();
    assert_eq!(
        (event.name.as_str(), &message.trace_id[..]),
        ("desired_lrp_created", trace.as_bytes())
    );
    let published = message.desired_lrp.unwrap();
    let read = crate::api::get(&server, "guid").await;
    assert_eq!(
        (&published.process_guid, &published.modification_tag),
        (&read.process_guid, &read.modification_tag)
    );
    assert_eq!(
        (&published.metric_tags, &published.placement_tags),
        (&read.metric_tags, &read.placement_tags)
    );
    let stored = routes(&[("cf-router", r#"[{"hostnames":["a\u0026b"]}]"#)]);
    assert_eq!(
        (published.routes, read.routes),
        (Some(stored.clone()), Some(stored))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn terminated_host_ends_its_streams_without_waiting() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    let host = installation.serve();
    let listener = EventStream::open(host.url(INSTANCES), "").await;
    let (mut other, _) = raw(host.address, TASKS).await;
    let ended = tokio::task::spawn_blocking(move || host.terminate());
    assert_eq!(listener.rest().await.len(), 0);
    let mut rest = Vec::new();
    other.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"0\r\n\r\n");
    assert!(ended.await.unwrap().success());
}
