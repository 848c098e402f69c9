//! The limit of all waits of a call together. Another call holds the lock of its record, and the
//! clock is moved while the call waits.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bbs::testing::api::{Answer, LONGEST_WAIT, Request};
use bbs::testing::modules::translate::Verb;
use bbs::testing::progress::TAKEOVER;
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout};

use crate::harness::database::Kind;
use crate::harness::server::{Options, Server};

/// In each of some rounds, this runtime reads and writes the sockets that are ready.
const ROUNDS: u32 = 10;
const ROUND: Duration = Duration::from_millis(20);

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn removal() -> proto::RemoveDesiredLrpRequest {
    proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    }
}

/// Whether an answer is still missing after all that is under way without a wait.
async fn still_waits(mut answer: Pin<&mut impl Future>) -> bool {
    for _ in 0..ROUNDS {
        if timeout(ROUND, answer.as_mut()).await.is_ok() {
            return false;
        }
    }
    true
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn wait_for_a_takeover_shortens_the_wait_for_earlier_calls() {
    /// Less than the longest wait for a takeover.
    const TAKING_OVER: Duration = Duration::from_secs(3);
    let server = Server::closed(Options::on(Kind::Sqlite)).await;
    server.progress.enter(TAKEOVER, "", None);
    let _earlier = server.service.lock_key(b"guid").await.unwrap();
    let request = removal();
    let began = Instant::now();
    let mut call = pin!(server.call("/v1/desired_lrp/remove", &request));
    assert!(still_waits(call.as_mut()).await);
    pass(TAKING_OVER).await;
    assert!(still_waits(call.as_mut()).await, "the takeover goes on");
    server.gate.open(Arc::clone(&server.api));
    assert!(still_waits(call.as_mut()).await, "an earlier call goes on");
    pass(LONGEST_WAIT - TAKING_OVER - Duration::from_secs(1)).await;
    let reply = call.await;
    let waited = began.elapsed();
    assert!(reply.repeat_reason().contains("earlier calls"));
    assert!(
        (LONGEST_WAIT..LONGEST_WAIT + TAKING_OVER).contains(&waited),
        "{waited:?}"
    );
}

#[tokio::test]
async fn time_in_which_a_client_sends_its_body_is_no_wait_of_the_call() {
    /// After it, a call whose body counts would wait for the shortest time for which calls wait.
    const SENDING: Duration = LONGEST_WAIT;
    /// Longer than that shortest time.
    const WAITING: Duration = Duration::from_secs(3);
    let server = Server::empty(Kind::Sqlite).await;
    let earlier = server.service.lock_key(b"guid").await.unwrap();
    let body = removal().encode_to_vec();
    let length = body.len();
    let head = format!(
        "POST /v1/desired_lrp/remove HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\
         Expect: 100-continue\r\nConnection: close\r\n\r\n"
    );
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut interim = vec![0; CONTINUE.len()];
    connection.read_exact(&mut interim).await.unwrap();
    assert_eq!(interim, CONTINUE, "the body is read");
    pass(SENDING).await;
    connection.write_all(&body).await.unwrap();
    let mut answer = Vec::new();
    {
        let mut answered = pin!(connection.read_to_end(&mut answer));
        assert!(still_waits(answered.as_mut()).await);
        pass(WAITING).await;
        assert!(still_waits(answered.as_mut()).await, "it has 8 s");
        drop(earlier);
        answered.await.unwrap();
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Method: reads that have begun are not polled again and keep their permits. The next one may not
/// wait.
#[tokio::test]
async fn reads_of_lists_and_large_records_are_bounded() {
    /// As `api/reads.rs` has it for each of the two.
    const AT_ONCE: usize = 16;
    let server = Server::empty(Kind::Sqlite).await;
    for path in ["tasks/get_by_task_guid.r3", "desired_lrps/list.r3"] {
        let (_, target) = server.api.find(None, Verb::Post, path).expect("a method");
        let call = || {
            let request = Request {
                body: Vec::new().into(),
                trace_id: TraceId::NONE,
                abandoned: Default::default(),
                waits_until: Instant::now(),
            };
            Box::pin(server.api.call(target.clone(), request))
        };
        let mut reads: Vec<_> = (0..AT_ONCE).map(|_| call()).collect();
        for read in &mut reads {
            // Otherwise a read may wait because the test has done much at once.
            let begun = unconstrained(read.as_mut()).now_or_never();
            assert!(begun.is_none(), "{path}");
        }
        let refused = call().await;
        assert!(matches!(refused, Answer::Busy), "{path}: {refused:?}");
        drop(reads);
        let answered = call().await;
        assert!(matches!(answered, Answer::Whole(_)), "{path}: {answered:?}");
    }
}
