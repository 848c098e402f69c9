//! The client against servers that answer with given bytes, as a BBS, a router or a proxy may.

mod json;

use std::io::ErrorKind;
use std::time::Duration;

use bbs_proto::prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate as bbs_client;
use crate::models::error::Type;
use crate::*;

/// The example of the crate's documentation.
#[expect(dead_code, reason = "it is compiled alone: a BBS would have to answer")]
async fn example() -> Result<(), Box<dyn std::error::Error>> {
    use bbs_client::{Client, Options, models};

    let client = Client::new("http://127.0.0.1:8889", Options::default())?;
    let all = models::DesiredLrPsRequest::default();
    let lrps = client.desired_lrps(&all).await?.desired_lrps;
    println!("there are {} LRPs", lrps.len());
    let by_guid = models::DesiredLrpUpdateStatusRequest {
        process_guid: b"hello".to_vec(),
    };
    let update = client.desired_lrp_update_status(&by_guid).await?;
    let running = update.status.unwrap_or_default().running;
    println!("hello has {running} current instances");

    let mut events = client.lrp_instance_events("").await?;
    while let Some(event) = events.next().await? {
        println!("{event:?}");
    }
    Ok(())
}

/// A server that answers each connection with the next of these texts, and returns the requests.
async fn server(answers: Vec<Vec<u8>>) -> (Client, JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            requests.push(request(&mut connection).await);
            connection.write_all(&answer).await.unwrap();
        }
        requests
    });
    let retries = Retries {
        pause: Duration::from_millis(1),
        ..Retries::default()
    };
    (
        Client::new(
            &url,
            Options {
                retries,
                ..Options::default()
            },
        )
        .unwrap(),
        serving,
    )
}

/// Head and body of a request.
async fn request(connection: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&received).to_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next());
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            let body = received.len()
                - received
                    .windows(4)
                    .position(|end| end == b"\r\n\r\n")
                    .unwrap()
                - 4;
            if body >= length {
                return received;
            }
        }
        match connection.read_buf(&mut received).await {
            Ok(0) => return received,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.to_vec()].concat()
}

fn message(body: &impl Message) -> Vec<u8> {
    answer(
        "200 OK",
        "Content-Type: application/x-protobuf\r\n",
        &body.encode_to_vec(),
    )
}

fn refusal(kind: Type, text: &str) -> models::Error {
    models::Error {
        r#type: kind.into(),
        message: text.into(),
    }
}

#[tokio::test]
async fn call_sends_the_message_to_the_path_and_returns_the_answer() {
    let found = models::DomainsResponse {
        error: None,
        domains: vec![b"cf-apps".to_vec()],
    };
    let (client, serving) = server(vec![message(&found), message(&found)]).await;
    assert_eq!(client.domains(&()).await.unwrap(), found);
    let upsert = models::UpsertDomainRequest {
        domain: b"cf-apps".to_vec(),
        ttl: 120,
    };
    // The error is in the same field of every answer, and this one has none.
    client
        .traced("trace-1")
        .upsert_domain(&upsert)
        .await
        .unwrap();
    let requests = serving.await.unwrap();
    let heads: Vec<_> = requests
        .iter()
        .map(|request| String::from_utf8_lossy(request).to_lowercase())
        .collect();
    assert!(
        heads[0].starts_with("post /v1/domains/list http/1.1\r\n"),
        "{}",
        heads[0]
    );
    assert!(
        heads[0].contains("\r\ncontent-type: application/x-protobuf\r\n"),
        "{}",
        heads[0]
    );
    assert!(
        heads[1].contains("\r\nx-vcap-request-id: trace-1\r\n"),
        "{}",
        heads[1]
    );
    assert!(requests[1].ends_with(&upsert.encode_to_vec()));
}

#[tokio::test]
async fn version_is_named_by_the_path_where_a_method_needs_or_has_it() {
    let empty = || message(&models::DesiredLrpLifecycleResponse::default());
    let (client, serving) = server(vec![empty(), empty(), empty(), empty()]).await;
    client
        .desire_lrp(&models::DesireLrpRequest::default())
        .await
        .unwrap();
    client
        .cancel_update_desired_lrp(&models::CancelUpdateDesiredLrpRequest::default())
        .await
        .unwrap();
    let client = client.speaking(Version::Definitions);
    client
        .desire_lrp(&models::DesireLrpRequest::default())
        .await
        .unwrap();
    client
        .desired_lrp_scheduling_infos(&models::DesiredLrPsRequest::default())
        .await
        .unwrap();
    let requests = serving.await.unwrap();
    let path = |request: &Vec<u8>| {
        String::from_utf8_lossy(request)
            .split(' ')
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        requests.iter().map(path).collect::<Vec<_>>(),
        [
            "/v1/desired_lrp/desire.r2",
            "/v1.2/desired_lrp/cancel_update",
            "/v1.2/desired_lrp/desire.r2",
            "/v1/desired_lrp_scheduling_infos/list"
        ]
    );
}

#[tokio::test]
async fn error_of_the_bbs_is_typed_and_not_tried_again() {
    let error = Some(refusal(
        Type::ResourceNotFound,
        "the requested resource could not be found",
    ));
    let (client, serving) =
        server(vec![message(&models::TaskResponse { error, task: None })]).await;
    let error = client
        .task(&models::TaskByGuidRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(Type::ResourceNotFound));
    assert_eq!(
        error.to_string(),
        "the requested resource could not be found (ResourceNotFound)"
    );
    assert_eq!(serving.await.unwrap().len(), 1);
}

#[tokio::test]
async fn error_beside_records_wins() {
    let answer = models::DesiredLrPsResponse {
        error: Some(refusal(Type::UnknownError, "the list is not complete")),
        desired_lrps: vec![models::DesiredLrp::default()],
    };
    let (client, _) = server(vec![message(&answer)]).await;
    let error = client
        .desired_lrps(&models::DesiredLrPsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(Type::UnknownError));
}

/// The answer of Diego's BBS to a cell whose request it cannot read.
#[tokio::test]
async fn evacuation_says_beside_an_error_whether_to_keep_the_container() {
    let error = Some(refusal(
        Type::InvalidRequest,
        "the request received is invalid",
    ));
    let answer = models::EvacuationResponse {
        error,
        keep_container: true,
    };
    let (client, _) = server(vec![message(&answer)]).await;
    let request = models::EvacuateClaimedActualLrpRequest::default();
    assert_eq!(
        client
            .exchange(methods::EVACUATE_CLAIMED_ACTUAL_LRP, &request)
            .await
            .unwrap(),
        answer
    );
}

#[tokio::test]
async fn lost_answer_is_requested_again_until_the_third_attempt() {
    let found = models::PingResponse { available: true };
    let (client, _) = server(vec![
        Vec::new(),
        b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(),
        message(&found),
    ])
    .await;
    assert!(client.ping(&()).await.unwrap().available);
    let (client, _) = server(vec![Vec::new(), Vec::new(), Vec::new(), message(&found)]).await;
    let error = client.ping(&()).await.unwrap_err();
    assert!(matches!(error, CallError::NoAnswer { .. }), "{error:?}");
    assert_eq!(error.kind(), None);
}

#[tokio::test]
async fn migrating_host_is_reported_with_its_time_and_progress() {
    let busy = answer(
        "503 Service Unavailable",
        "Retry-After: 5\r\n",
        br#"{"phase":"copying"}"#,
    );
    let (client, serving) = server(vec![busy.clone(), busy.clone(), busy]).await;
    match client.domains(&()).await.unwrap_err() {
        CallError::NotReady {
            retry_after,
            reason,
            ..
        } => {
            assert_eq!(
                (retry_after, &*reason),
                (Some(Duration::from_secs(5)), r#"{"phase":"copying"}"#)
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(serving.await.unwrap().len(), 3);
}

#[tokio::test]
async fn method_that_the_bbs_does_not_have_is_not_tried_again() {
    let (client, serving) = server(vec![answer("404 Not Found", "", b"404 page not found")]).await;
    let error = client
        .lrp_definitions(&models::LrpDefinitionsRequest::default())
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NotServed { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .ends_with("is not served by this BBS (404 page not found)"),
        "{error}"
    );
    assert_eq!(serving.await.unwrap().len(), 1);
}

#[tokio::test]
async fn answers_of_routers_and_proxies_are_no_answers_of_the_bbs() {
    let client =
        |answer: Vec<u8>| async { server(vec![answer]).await.0.with_retries(Retries::NONE) };
    let router = answer("404 Not Found", "X-Cf-Routererror: unknown_route\r\n", b"");
    let error = client(router).await.domains(&()).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Router { reason, .. } if reason == "unknown_route"),
        "{error:?}"
    );
    let page = answer("200 OK", "Content-Type: text/html\r\n", b"<html>");
    let error = client(page).await.domains(&()).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Status { status: 200, .. }),
        "{error:?}"
    );
    let garbage = answer(
        "200 OK",
        "Content-Type: application/x-protobuf\r\n",
        &[0xff],
    );
    let error = client(garbage).await.domains(&()).await.unwrap_err();
    assert!(matches!(&error, CallError::Undecodable { .. }), "{error:?}");
}

#[tokio::test]
async fn message_is_an_answer_at_any_status() {
    let error = models::DomainsResponse {
        error: Some(refusal(Type::Deadlock, "deadlock")),
        domains: Vec::new(),
    };
    let body = error.encode_to_vec();
    let head = "Content-Type: application/x-protobuf; charset=utf-8\r\n";
    let (client, _) = server(vec![answer("500 Internal Server Error", head, &body)]).await;
    assert_eq!(
        client.domains(&()).await.unwrap_err().kind(),
        Some(Type::Deadlock)
    );
}

#[tokio::test]
async fn events_are_read_from_any_pieces_and_unknown_ones_are_skipped() {
    // The last is the event that Diego's stream documents: base64 of a TaskRemovedEvent.
    let text = ": a comment\n\nid: 0\nevent: other_event\ndata: CgA=\n\nid: 1\nevent: task_removed\ndata: CgoKABIBZxoBZDgE\n\n";
    let mut chunked =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for byte in text.bytes() {
        chunked.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let (client, _) = server(vec![chunked]).await;
    let mut events = client.task_events().await.unwrap();
    let Some(TaskEvent::Removed(event)) = events.next().await.unwrap() else {
        panic!("no event")
    };
    let task = event.task.unwrap();
    assert_eq!(
        (&*task.task_guid, &*task.domain, task.state()),
        (&b"g"[..], &b"d"[..], models::task::State::Resolving)
    );
    assert_eq!(events.next().await.unwrap(), None);
}

#[tokio::test]
async fn event_without_content_and_broken_stream_are_errors() {
    let stream = |text: &str| {
        answer(
            "200 OK",
            "Content-Type: text/event-stream\r\n",
            text.as_bytes(),
        )
    };
    let failure = async |text: &str| {
        let (client, _) = server(vec![stream(text)]).await;
        let mut events = client.task_events().await.unwrap();
        events.next().await.unwrap_err().to_string()
    };
    let error = failure("event: task_created\ndata: \n\n").await;
    assert!(error.ends_with("task_created has no content"), "{error}");
    // The answer is complete, and the last event is not.
    let error = failure("event: other_event\ndata: CgA=\n\nid: 1\nevent: task_removed\n").await;
    assert!(error.ends_with("the stream ends within it"), "{error}");
    let mut cut_off = stream("id: 0\n");
    cut_off.truncate(cut_off.len() - 1);
    let (client, _) = server(vec![cut_off]).await;
    let error = client
        .lrp_instance_events("")
        .await
        .unwrap()
        .next()
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NoAnswer { .. }), "{error:?}");
}

#[tokio::test]
async fn answer_of_another_media_type_is_no_event_stream() {
    for (headers, words) in [
        ("Content-Type: text/html\r\n", "status 200 and text/html"),
        ("", "status 200 and no media type"),
        (
            "Content-Type: application/x-protobuf\r\n",
            "status 200 and application/x-protobuf",
        ),
    ] {
        let (client, _) = server(vec![answer("200 OK", headers, b"")]).await;
        let client = client.with_retries(Retries::NONE);
        let error = client.task_events().await.unwrap_err();
        assert!(
            matches!(&error, CallError::NotAStream { .. }) && error.to_string().contains(words),
            "{error:?}"
        );
    }
}

/// A client of a listener, with a time limit and a single attempt.
fn limited_client(listener: &TcpListener, timeout: Duration) -> Client {
    let options = Options {
        retries: Retries::NONE,
        timeout: Some(timeout),
        ..Options::default()
    };
    let url = format!("http://{}", listener.local_addr().unwrap());
    Client::new(&url, options).unwrap()
}

/// Method: a listener whose connections wait, and a clock that runs ahead while nothing else does.
#[tokio::test(start_paused = true)]
async fn opening_of_an_event_stream_has_the_time_limit() {
    const LIMIT: Duration = Duration::from_secs(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = limited_client(&listener, LIMIT);
    let begin = Instant::now();
    let opened = tokio::time::timeout(LIMIT * 60, client.task_events()).await;
    let error = opened.expect("it has a limit").unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error:?}");
    assert!(begin.elapsed() < LIMIT * 2, "{:?}", begin.elapsed());
}

/// Method: a server whose stream has its first event after the clock was moved beyond the limit.
#[tokio::test]
async fn open_event_stream_has_no_time_limit() {
    const LIMIT: Duration = Duration::from_secs(60);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = limited_client(&listener, LIMIT);
    let (send_event, is_due) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        request(&mut connection).await;
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        connection.write_all(head).await.unwrap();
        is_due.await.unwrap();
        let event = b"event: task_removed\ndata: CgoKABIBZxoBZDgE\n\n";
        connection.write_all(event).await.unwrap();
    });
    let mut events = client.task_events().await.unwrap();
    tokio::time::pause();
    tokio::time::advance(LIMIT * 2).await;
    send_event.send(()).unwrap();
    let event = events.next().await.unwrap();
    assert!(matches!(event, Some(TaskEvent::Removed(_))), "{event:?}");
    serving.await.unwrap();
}

#[test]
fn address_and_certificates_are_checked_before_the_first_call() {
    for url in [
        "",
        "bbs.example.com",
        "ftp://bbs.example.com",
        "http://",
        "127.0.0.1:8889",
        "http://127.0.0.1:8889/?a=b",
        "http://127.0.0.1:8889/#a",
    ] {
        let error = Client::new(url, Options::default()).unwrap_err();
        assert!(
            matches!(error, ConnectError::Url { .. }),
            "{url}: {error:?}"
        );
    }
    let error = Client::new("https://bbs.example.com:8889", Options::default()).unwrap_err();
    assert!(
        matches!(error, ConnectError::NoAuthority { .. }),
        "{error:?}"
    );
    let tls = TlsFiles {
        ca_file: Some("absent.crt".into()),
        identity: None,
    };
    let error = Client::new(
        "https://bbs.example.com",
        Options {
            tls,
            ..Options::default()
        },
    )
    .unwrap_err();
    assert!(
        error.to_string().starts_with("cannot read absent.crt"),
        "{error}"
    );
}

#[test]
fn names_and_paths_are_unique_and_agree_on_the_revision() {
    let routes: Vec<_> = routes().collect();
    for (at, route) in routes.iter().enumerate() {
        assert!(
            routes[at + 1..]
                .iter()
                .all(|other| other.name != route.name && other.path != route.path),
            "{route:?}"
        );
        let revision = |text: &str, mark: &str| {
            text.rsplit_once(mark)
                .and_then(|(_, n)| n.parse::<u32>().ok())
        };
        assert_eq!(
            revision(route.name, "_r"),
            revision(route.path, ".r"),
            "{route:?}"
        );
    }
}
