//! Components that the host calls and that answer without end, too much or too slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bbs::testing::clients::Clients;
use bbs::testing::config;
use bbs_model::task::Task;
use bbs_proto::models as proto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::locket::Locket;
use crate::harness::{PATIENCE, pause, until};

/// The host's `communication_timeout` where it has to end a call.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes that sockets hold without the host reading them, and those that it reads.
const MOST_SENT: u64 = 32 << 20;

/// An answer whose second part a receiver sends again and again.
struct Answer {
    beginning: &'static str,
    repeated: &'static [u8],
    is_slow: bool,
}

/// A receiver of callbacks that answers each with `answer` and counts the bytes that it sends.
struct EndlessReceiver {
    url: String,
    sent: Arc<AtomicU64>,
    /// Connections that were closed by the host.
    closed: Arc<AtomicU64>,
}

impl EndlessReceiver {
    async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("there are free ports");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let sent = Arc::<AtomicU64>::default();
        let closed = Arc::<AtomicU64>::default();
        let receiver = Self {
            url,
            sent: Arc::clone(&sent),
            closed: Arc::clone(&closed),
        };
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                send(connection, &answer, &sent).await;
                closed.fetch_add(1, Ordering::SeqCst);
            }
        });
        receiver
    }

    async fn called(&self, clients: &Clients) -> Option<u16> {
        let definition = proto::TaskDefinition {
            completion_callback_url: self.url.clone().into(),
            ..Default::default()
        };
        let task = Task {
            definition,
            ..Task::default()
        };
        tokio::time::timeout(PATIENCE, clients.callbacks.post(&task))
            .await
            .expect("the call ends")
            .ok()
    }
}

/// Sends until the other end closes the connection.
async fn send(mut connection: TcpStream, answer: &Answer, sent: &AtomicU64) {
    let mut request = [0; 4096];
    let _ = connection.read(&mut request).await;
    let _ = connection.write_all(answer.beginning.as_bytes()).await;
    while connection.write_all(answer.repeated).await.is_ok() {
        sent.fetch_add(answer.repeated.len() as u64, Ordering::SeqCst);
        if answer.is_slow {
            pause().await;
        }
    }
}

/// Clients with this `communication_timeout`.
fn clients(communication_timeout: Duration) -> Clients {
    let config = config::ClientsConfig {
        communication_timeout,
        ..Default::default()
    };
    bbs::choose_cryptography();
    Clients::new(&config, None, None).expect("nothing is configured")
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_answers_of_callback_receivers_are_not_read() {
    const CHUNK: &[u8] = &[b'x'; 64 << 10];
    // Longer than the wait for the call.
    let clients = clients(PATIENCE * 2);
    for (beginning, repeated, status) in [
        ("HTTP/1.1 200 OK\r\n\r\n", CHUNK, Some(200)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
            CHUNK,
            Some(200),
        ),
        (
            "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n",
            &b"4\r\nabcd\r\n"[..],
            Some(503),
        ),
        ("HTTP/1.1 200 OK\r\nx: ", CHUNK, None),
        ("HTTP/1.1 200 OK\r\n", b"x: y\r\n", None),
    ] {
        let receiver = EndlessReceiver::start(Answer {
            beginning,
            repeated,
            is_slow: false,
        })
        .await;
        assert_eq!(receiver.called(&clients).await, status, "{beginning:?}");
        until(|| receiver.closed.load(Ordering::SeqCst) == 1).await;
        let sent = receiver.sent.load(Ordering::SeqCst);
        assert!(
            sent < MOST_SENT,
            "{sent} bytes were sent after {beginning:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_stay_small_but_do_not_end_are_given_up_at_the_timeout() {
    let clients = clients(TIMEOUT);
    for (beginning, repeated, is_slow, status) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
            &b"x"[..],
            true,
            Some(200),
        ),
        ("HTTP/1.1 200 OK\r\nx: ", b"x", true, None),
        // Each is read and dropped, so only time limits their number.
        ("", b"HTTP/1.1 100 Continue\r\n\r\n", false, None),
    ] {
        let mut found = None;
        // On a busy machine the time may be over before the status is read.
        for _ in 0..4 {
            let receiver = EndlessReceiver::start(Answer {
                beginning,
                repeated,
                is_slow,
            })
            .await;
            found = receiver.called(&clients).await;
            until(|| receiver.closed.load(Ordering::SeqCst) == 1).await;
            if found == status {
                break;
            }
        }
        assert_eq!(found, status, "{beginning:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_without_end_are_given_up() {
    let answer =
        "HTTP/1.1 307 Again\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("there are free ports");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let calls = Arc::<AtomicU64>::default();
    let receiver = EndlessReceiver {
        url,
        sent: Arc::clone(&calls),
        closed: Arc::default(),
    };
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await;
            calls.fetch_add(1, Ordering::SeqCst);
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    });
    assert_eq!(receiver.called(&clients(PATIENCE * 2)).await, None);
    assert!(receiver.sent.load(Ordering::SeqCst) <= 11, "ten redirects");
}

#[tokio::test(flavor = "multi_thread")]
async fn presences_without_end_are_an_error() {
    let locket = Locket::start();
    let clients = Clients::new(
        &config::ClientsConfig::default(),
        Some(&locket.lookup_config()),
        None,
    )
    .unwrap();
    for number in 0..60_000 {
        locket.add_presence(&format!("{number:05}"), "{}");
    }
    let error = clients.cells.all().await.unwrap_err();
    assert!(format!("{error:?}").contains("elements"), "{error:?}");
    // One cell has few.
    assert!(clients.cells.find(b"00007").await.unwrap().is_some());
    locket.add_presence(
        "large",
        &format!(r#"{{"cell_id":"{}"}}"#, "x".repeat(5 << 20)),
    );
    let error = clients.cells.find(b"large").await.unwrap_err();
    assert!(format!("{error:?}").contains("too large"), "{error:?}");
}
