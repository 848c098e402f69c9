//! The connections of a port: their number, and how long each may wait for its client. Closes those
//! that wait too long, and some of the longest waiting when there are too many; never one that
//! works on a request. Owns no socket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use bbs_work::log_sampling::LineLimit;

/// Interval at which connections that wait for too long are closed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait until a connection that makes room has ended.
const MAKING_ROOM: Duration = Duration::from_secs(1);
/// Most bytes of TLS from which no byte of a request was decrypted: rustls collects up to 64 KiB of
/// one message of a handshake. The handshake of a client takes some KiB, ten with a long chain of
/// certificates, and a record of 16 KiB may come with its end.
const MOST_ENCRYPTED: usize = 32 << 10;

/// The part of a request or answer that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientWait {
    /// The end of the TLS handshake.
    Handshake,
    /// A request.
    Request,
    /// The rest of the head of a request.
    Head,
    /// The rest of a body.
    Body,
    /// Space in the client's receive buffer.
    Write,
    /// Space in the receive buffer of a subscriber to events.
    Event,
}

impl ClientWait {
    /// The longest time of the wait. Diego's clients keep idle connections for 90 s, some without a
    /// limit. A subscriber may rest for longer than other clients, as with Diego, where the queue
    /// of its events is the only bound: clients take a stream that breaks off for a lost
    /// connection, subscribe again and miss the events between.
    const fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Handshake => 10,
            Self::Request | Self::Event => 600,
            Self::Head | Self::Write => 30,
            // The API's bodies have a shorter one, which is answered with 408.
            Self::Body => 150,
        })
    }
}

/// The open connections of a port.
#[derive(Debug)]
pub(super) struct Connections {
    /// The name of the port in the log.
    port: &'static str,
    most: usize,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    /// Notified when a connection has ended.
    ended: Notify,
    next: AtomicU64,
    /// Limit of the lines about connections for which others are closed.
    displaced: LineLimit,
    /// For event streams: half of the connections.
    streams: Arc<Semaphore>,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Connection {
    waits: Mutex<Waits>,
    /// See [`MOST_ENCRYPTED`].
    encrypted: AtomicUsize,
    close: Notify,
}

#[derive(Debug)]
struct Waits {
    /// The part that it waits for to read, and since when; `None` while a request is worked on.
    read: Option<(ClientWait, Instant)>,
    /// Since when nothing could be written.
    write: Option<Instant>,
    is_stream: bool,
    has_answered: bool,
    is_closing: bool,
}

impl Waits {
    fn all(&self) -> impl Iterator<Item = (ClientWait, Instant)> {
        let written = if self.is_stream {
            ClientWait::Event
        } else {
            ClientWait::Write
        };
        let write = self.write.map(|since| (written, since));
        self.read.into_iter().chain(write)
    }

    /// The wait that began first.
    fn longest(&self) -> Option<(ClientWait, Instant)> {
        self.all().min_by_key(|(_, since)| *since)
    }
}

impl Connections {
    pub(super) fn new(port: &'static str, most: usize) -> Arc<Self> {
        let streams = Semaphore::new((most / 2).max(1));
        Arc::new(Self {
            port,
            most: most.max(1),
            open: Mutex::default(),
            ended: Notify::new(),
            next: AtomicU64::default(),
            displaced: LineLimit::default(),
            streams: Arc::new(streams),
        })
    }

    /// Registers a connection. Makes room if there are too many; `None` if every one is worked on.
    pub(super) async fn admit(self: &Arc<Self>) -> Option<Admitted> {
        loop {
            let ended = self.ended.notified();
            {
                let mut open = self.open.lock();
                if open.len() < self.most {
                    let id = self.next.fetch_add(1, Ordering::Relaxed);
                    let connection = Arc::new(Connection::new());
                    open.insert(id, Arc::clone(&connection));
                    return Some(Admitted {
                        connections: Arc::clone(self),
                        id,
                        connection,
                    });
                }
            }
            self.log_displaced();
            if !self.make_room() || tokio::time::timeout(MAKING_ROOM, ended).await.is_err() {
                return None;
            }
        }
    }

    /// Closes the connections that wait longest, one in a hundred, so that an attacker's next
    /// connections need no search. Returns whether one is closing. Of connections that have
    /// answered a request and of those that have not, the more numerous give way: a flood of new
    /// ones leaves the pools of regular clients, and idle ones do not lock out new clients.
    pub(super) fn make_room(&self) -> bool {
        let open = self.open.lock();
        let mut new = Vec::new();
        let mut answered = Vec::new();
        for connection in open.values() {
            let waits = connection.waits.lock();
            if let Some((_, since)) = waits.longest().filter(|_| !waits.is_closing) {
                if waits.has_answered {
                    &mut answered
                } else {
                    &mut new
                }
                .push((since, connection));
            }
        }
        let mut waiting = if answered.len() > new.len() {
            answered
        } else {
            new
        };
        waiting.sort_by_key(|(since, _)| *since);
        let count = (self.most / 100).max(1);
        waiting
            .iter()
            .take(count)
            .for_each(|(_, connection)| connection.close());
        !waiting.is_empty()
            || open
                .values()
                .any(|connection| connection.waits.lock().is_closing)
    }

    /// Any client that reaches the port can cause this, so the log is sampled.
    fn log_displaced(&self) {
        if let Some(left_out) = self.displaced.admit() {
            tracing::warn!(name: "connections.full", port = self.port, connections = self.most, left_out,
                "there are as many connections as this port may have, so those that wait longest for their clients are \
                 closed; if they are Diego's own, raise the limit of open files; the log is sampled");
        }
    }

    /// Closes connections that wait for too long; does not return.
    pub(super) async fn sweep(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let now = Instant::now();
            self.open
                .lock()
                .values()
                .filter(|connection| connection.is_overdue(now))
                .for_each(|late| late.close());
        }
    }

    /// Waits until there is none.
    pub(super) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.open.lock().is_empty() {
                return;
            }
            ended.await;
        }
    }
}

impl Connection {
    pub(super) fn new() -> Self {
        let waits = Waits {
            read: Some((ClientWait::Handshake, Instant::now())),
            write: None,
            is_stream: false,
            has_answered: false,
            is_closing: false,
        };
        Self {
            waits: Mutex::new(waits),
            encrypted: AtomicUsize::default(),
            close: Notify::new(),
        }
    }

    /// It waits for this from now on.
    pub(super) fn wait_for(&self, wait: ClientWait) {
        self.waits.lock().read = Some((wait, Instant::now()));
    }

    /// It waits for its client no longer.
    pub(super) fn work(&self) {
        self.waits.lock().read = None;
    }

    /// An answer was sent; it waits for the next request.
    pub(super) fn answered(&self) {
        let mut waits = self.waits.lock();
        waits.has_answered = true;
        waits.read = Some((ClientWait::Request, Instant::now()));
    }

    /// Counts bytes of TLS that were received. Closes the connection if they are too many.
    pub(super) fn count_encrypted(&self, bytes: usize) {
        self.encrypted.fetch_add(bytes, Ordering::Relaxed);
        if self.exceeds_encrypted() {
            self.close();
        }
    }

    /// The bytes of TLS were those of a handshake, which is complete, or of a request.
    pub(super) fn decrypted(&self) {
        self.encrypted.store(0, Ordering::Relaxed);
    }

    /// Whether it was closed by [`Self::count_encrypted`].
    pub(super) fn exceeds_encrypted(&self) -> bool {
        self.encrypted.load(Ordering::Relaxed) > MOST_ENCRYPTED
    }

    /// Bytes of a request were received.
    pub(super) fn received(&self) {
        self.decrypted();
        let mut waits = self.waits.lock();
        if let Some((wait @ ClientWait::Request, since)) = &mut waits.read {
            (*wait, *since) = (ClientWait::Head, Instant::now());
        }
    }

    /// Nothing can be written until the client reads.
    pub(super) fn write_stalled(&self) {
        self.waits.lock().write.get_or_insert_with(Instant::now);
    }

    /// Something was written.
    pub(super) fn written(&self) {
        self.waits.lock().write = None;
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let waits = self.waits.lock();
        waits
            .all()
            .any(|(wait, since)| now.duration_since(since) > wait.limit())
    }

    /// Ends the connection, whatever it does.
    pub(super) fn close(&self) {
        self.waits.lock().is_closing = true;
        self.close.notify_one();
    }

    /// Waits for [`Self::close`].
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }
}

/// A registered connection; dropping it removes it.
#[derive(Debug)]
pub(super) struct Admitted {
    connections: Arc<Connections>,
    id: u64,
    pub(super) connection: Arc<Connection>,
}

impl Admitted {
    /// Its entry in requests.
    pub(super) fn handle(&self) -> ConnectionHandle {
        ConnectionHandle {
            connections: Arc::clone(&self.connections),
            connection: Arc::clone(&self.connection),
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.id);
        self.connections.ended.notify_waiters();
    }
}

/// Request extension: the connection of a request.
#[derive(Debug, Clone)]
pub(super) struct ConnectionHandle {
    connections: Arc<Connections>,
    pub(super) connection: Arc<Connection>,
}

impl ConnectionHandle {
    /// Begins an event stream; `None` if half of the connections are event streams, which end only
    /// with their clients.
    pub(super) fn begin_stream(&self) -> Option<OpenStream> {
        let permit = Arc::clone(&self.connections.streams).try_acquire_owned();
        let permit = permit.ok()?;
        self.connection.waits.lock().is_stream = true;
        Some(OpenStream {
            connection: Arc::clone(&self.connection),
            _permit: permit,
        })
    }
}

/// An open event stream; dropping it ends the count.
#[derive(Debug)]
pub(super) struct OpenStream {
    pub(super) connection: Arc<Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.connection.waits.lock().is_stream = false;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn longest_waiting_connection_makes_room_and_working_ones_stay() {
        let connections = Connections::new("test", 3);
        let [working, first, second] = [(); 3].map(|()| connections.admit());
        let (working, first, second) = tokio::join!(working, first, second);
        let working = working.unwrap();
        let first = first.unwrap();
        let second = second.unwrap();
        working.connection.work();
        tokio::time::advance(Duration::from_millis(1)).await;
        first.connection.wait_for(ClientWait::Request);
        let closed = async {
            second.connection.closed().await;
            drop(second);
        };
        let (admitted, ()) = tokio::join!(connections.admit(), closed);
        admitted.as_ref().expect("there is room").connection.work();
        first.connection.work();
        assert!(connections.admit().await.is_none(), "all three work");
        drop(working);
        assert!(connections.admit().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn more_numerous_of_new_and_of_answering_connections_make_room() {
        let connections = Connections::new("test", 3);
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(connections.admit().await.unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        open[0].connection.answered();
        let is_closing = |open: &[Admitted]| {
            open.iter()
                .map(|one| one.connection.waits.lock().is_closing)
                .collect::<Vec<_>>()
        };
        assert!(connections.make_room());
        assert_eq!(
            is_closing(&open),
            [false, true, false],
            "of two new connections, the longer waiting"
        );
        open.remove(1);
        open.push(connections.admit().await.unwrap());
        open[1].connection.answered();
        assert!(connections.make_room());
        assert_eq!(
            is_closing(&open),
            [true, false, false],
            "of two that have answered, the longer waiting"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_does_not_end_makes_no_room() {
        let connections = Connections::new("test", 1);
        let _closing = connections.admit().await.unwrap();
        let begin = Instant::now();
        assert!(connections.admit().await.is_none());
        assert_eq!(begin.elapsed(), MAKING_ROOM);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_wait_for_too_long_are_closed() {
        let connections = Connections::new("test", 3);
        let shaking = connections.admit().await.unwrap();
        let idle = connections.admit().await.unwrap();
        idle.connection.wait_for(ClientWait::Request);
        let begin = Instant::now();
        for (waiting, wait) in [
            (shaking, ClientWait::Handshake),
            (idle, ClientWait::Request),
        ] {
            tokio::select! {
                () = waiting.connection.closed() => {}
                never = connections.sweep() => match never {},
            }
            assert_eq!(begin.elapsed(), wait.limit() + SWEEP_INTERVAL);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_limit() {
        let connection = Connection::new();
        let ends_after = |wait: ClientWait| {
            let end = Instant::now() + wait.limit();
            !connection.is_overdue(end - Duration::from_secs(1))
                && connection.is_overdue(end + Duration::from_nanos(1))
        };
        assert!(ends_after(ClientWait::Handshake));
        connection.wait_for(ClientWait::Request);
        assert!(ends_after(ClientWait::Request));
        connection.received();
        assert!(ends_after(ClientWait::Head));
        tokio::time::advance(Duration::from_secs(2)).await;
        connection.received();
        assert!(
            !ends_after(ClientWait::Head),
            "more bytes of a head do not prolong it"
        );
        connection.wait_for(ClientWait::Body);
        assert!(ends_after(ClientWait::Body));
        connection.work();
        let is_overdue = || connection.is_overdue(Instant::now() + ClientWait::Request.limit() * 2);
        assert!(
            !is_overdue() && connection.waits.lock().longest().is_none(),
            "a working connection"
        );
        connection.write_stalled();
        assert!(ends_after(ClientWait::Write), "the client does not read");
        connection.written();
        assert!(!is_overdue());
    }

    #[tokio::test]
    async fn connection_with_too_much_tls_for_no_request_is_closed() {
        let connection = Connection::new();
        let is_closed = || connection.closed().now_or_never().is_some();
        connection.count_encrypted(MOST_ENCRYPTED);
        connection.decrypted();
        connection.count_encrypted(MOST_ENCRYPTED);
        connection.received();
        connection.count_encrypted(MOST_ENCRYPTED);
        assert!(!is_closed() && !connection.exceeds_encrypted());
        connection.count_encrypted(1);
        assert!(is_closed() && connection.exceeds_encrypted());
    }

    #[tokio::test]
    async fn subscriber_may_rest_for_longer_than_another_client() {
        let connections = Connections::new("test", 4);
        let admitted = connections.admit().await.unwrap();
        admitted.connection.work();
        let stream = admitted.handle().begin_stream();
        admitted.connection.write_stalled();
        let after = |wait: ClientWait| {
            let now = Instant::now() + wait.limit() + Duration::from_nanos(1);
            admitted.connection.is_overdue(now)
        };
        assert!(!after(ClientWait::Write) && after(ClientWait::Event));
        drop(stream.expect("two of four"));
        assert!(after(ClientWait::Write));
    }

    #[tokio::test]
    async fn event_streams_leave_half_of_the_connections() {
        let connections = Connections::new("test", 4);
        let admitted = connections.admit().await.unwrap();
        let streams: Vec<_> = (0..2)
            .map(|_| admitted.handle().begin_stream().expect("two of four"))
            .collect();
        assert!(admitted.handle().begin_stream().is_none());
        drop(streams);
        assert!(admitted.handle().begin_stream().is_some());
    }
}
