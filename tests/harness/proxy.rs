//! A TCP proxy between a host and its database, or another server, on the loopback interface. A
//! test can cut, stall and restore the connections, and distribute them over several servers.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{PATIENCE, holds_within};

/// The commands of MySQL's protocol that execute a statement: `COM_QUERY`, and `COM_STMT_EXECUTE`
/// after it was prepared.
const EXECUTES: [u8; 2] = [0x03, 0x17];

pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

struct ProxyState {
    targets: Vec<SocketAddr>,
    /// Number of connections so far.
    accepted: AtomicUsize,
    ended: AtomicBool,
    cut: AtomicBool,
    has_lost_answer: AtomicBool,
    /// Bytes that the clients have sent so far.
    sent: AtomicU64,
    /// The value of `sent` at which the proxy cuts itself.
    most: AtomicU64,
    /// The value of `sent` at which the proxy stalls itself, once.
    stalls_at: AtomicU64,
    stalled: Mutex<Stalled>,
    resumed: Condvar,
    /// Bytes that were held back so far, in either direction.
    held: AtomicU64,
    rewrite: Rewrite,
    /// Connections by which these bytes were sent stay when [`Proxy::keep_only_recognised`] cuts
    /// the others.
    kept: &'static [u8],
    /// Whether only those are left, and no new connection is accepted.
    keeps_only: AtomicBool,
    /// Whether the connection breaks by which these bytes were sent, in the place of the answer.
    loses_answer: bool,
    streams: Mutex<Vec<TcpStream>>,
}

/// The connections whose bytes are held back.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stalled {
    #[default]
    None,
    New,
    /// Connections with a number below this one.
    Before(usize),
    All,
}

impl Stalled {
    /// Whether the bytes of an open connection with this number are held back.
    fn holds(self, connection: usize) -> bool {
        match self {
            Self::None | Self::New => false,
            Self::Before(first) => connection < first,
            Self::All => true,
        }
    }
}

/// Changes bytes on their way, in the pieces in which they arrive.
#[derive(Clone, Copy)]
pub struct Rewrite {
    pub to_target: fn(&mut [u8]),
    /// With the number of the bytes that the target has sent on this connection before.
    pub to_client: fn(usize, &mut [u8]),
}

impl Rewrite {
    pub const NOTHING: Self = Self {
        to_target: |_| {},
        to_client: |_, _| {},
    };
}

/// Replaces the first occurrence of `wanted` by as many other bytes.
pub fn replace(bytes: &mut [u8], wanted: &[u8], by: &[u8]) {
    assert_eq!(wanted.len(), by.len());
    if let Some(at) = bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
    {
        bytes[at..at + by.len()].copy_from_slice(by);
    }
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        Self::to_each_of(vec![target])
    }

    /// Connections go to the targets in turn, skipping those that refuse.
    pub fn to_each_of(targets: Vec<SocketAddr>) -> Self {
        Self::with(targets, Rewrite::NOTHING, b"", false)
    }

    /// A proxy that changes bytes on their way.
    pub fn rewriting(targets: Vec<SocketAddr>, rewrite: Rewrite) -> Self {
        Self::with(targets, rewrite, b"", false)
    }

    /// A proxy that recognises the connections by which `kept` is sent.
    pub fn recognising(target: SocketAddr, kept: &'static [u8]) -> Self {
        Self::with(vec![target], Rewrite::NOTHING, kept, false)
    }

    /// A proxy to MySQL or MariaDB that breaks the connection by which a statement with this text
    /// is sent, once the server has executed it.
    pub fn losing_the_answer_to(target: SocketAddr, text: &'static [u8]) -> Self {
        Self::with(vec![target], Rewrite::NOTHING, text, true)
    }

    fn with(
        targets: Vec<SocketAddr>,
        rewrite: Rewrite,
        kept: &'static [u8],
        loses_answer: bool,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .expect("the loopback interface has free ports");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(ProxyState {
            targets,
            accepted: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            has_lost_answer: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            stalls_at: AtomicU64::new(u64::MAX),
            stalled: Mutex::default(),
            resumed: Condvar::new(),
            held: AtomicU64::new(0),
            rewrite,
            kept,
            keeps_only: AtomicBool::new(false),
            loses_answer,
            streams: Mutex::default(),
        });
        let accepting = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                accepting.wait_while(|stalled| stalled == Stalled::New);
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    // On an error the client's connection is dropped.
                    let _ = relay(&accepting, client);
                }
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether [`Self::losing_the_answer_to`] has broken a connection.
    pub fn has_lost_answer(&self) -> bool {
        self.state.has_lost_answer.load(Ordering::SeqCst)
    }

    /// Breaks every open connection, and every new one immediately.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Breaks every connection that is not recognised, as soon as it is used, and every new one.
    pub fn keep_only_recognised(&self) {
        self.state.keeps_only.store(true, Ordering::SeqCst);
    }

    /// Cuts after `bytes` further bytes were sent to the targets.
    pub fn cut_after(&self, bytes: u64) {
        self.state.most.store(self.sent() + bytes, Ordering::SeqCst);
    }

    /// Holds back all bytes in both directions, as a server that has frozen: connections stay open,
    /// and new ones are accepted.
    pub fn stall(&self) {
        *self.state.stalled() = Stalled::All;
    }

    /// Stalls when the clients have sent `bytes` further bytes.
    pub fn stall_after(&self, bytes: u64) {
        let at = self.sent() + bytes;
        self.state.stalls_at.store(at, Ordering::SeqCst);
    }

    /// Blocks until the proxy is stalled, or cut; returns whether it is stalled.
    pub fn wait_for_stall(&self) -> bool {
        let is_stalled = || *self.state.stalled() == Stalled::All;
        holds_within(PATIENCE * 5, || is_stalled() || self.is_cut()) && is_stalled()
    }

    /// Holds back the bytes of new connections, as a server that has no time for another process.
    pub fn stall_new(&self) {
        *self.state.stalled() = Stalled::New;
    }

    /// Holds back the bytes of the connections that are open, as a machine that has died; new ones
    /// go to another machine.
    pub fn stall_open(&self) {
        let first = self.state.accepted.load(Ordering::SeqCst);
        *self.state.stalled() = Stalled::Before(first);
    }

    /// Passes on everything that was held back.
    pub fn resume(&self) {
        self.state.resume();
    }

    /// Bytes that were held back so far, in either direction: the server of MySQL's protocol speaks
    /// first.
    pub fn held(&self) -> u64 {
        self.state.held.load(Ordering::SeqCst)
    }

    /// Bytes that the clients have sent so far.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }

    pub fn is_cut(&self) -> bool {
        self.state.cut.load(Ordering::SeqCst)
    }

    /// Accepts connections again.
    pub fn heal(&self) {
        self.state.most.store(u64::MAX, Ordering::SeqCst);
        self.state.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the accepting thread, which then sees `ended`.
        let _ = TcpStream::connect(self.address);
    }
}

impl ProxyState {
    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.resume();
        for stream in self.streams().drain(..) {
            // Fails only if the stream is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resume(&self) {
        *self.stalled() = Stalled::None;
        self.resumed.notify_all();
    }

    fn stalled(&self) -> MutexGuard<'_, Stalled> {
        self.stalled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks while a connection is stalled, and counts bytes that are held back.
    fn hold(&self, connection: usize, bytes: usize) {
        if self.stalled().holds(connection) {
            self.held.fetch_add(bytes as u64, Ordering::SeqCst);
        }
        self.wait_while(|stalled| stalled.holds(connection));
    }

    fn wait_while(&self, holds: impl Fn(Stalled) -> bool) {
        let resumed = self
            .resumed
            .wait_while(self.stalled(), |stalled| holds(*stalled));
        drop(resumed.unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts bytes to the target; returns whether they may still be forwarded.
    fn passes(&self, connection: usize, bytes: usize) -> bool {
        let bytes_before = self.sent.fetch_add(bytes as u64, Ordering::SeqCst);
        let sent = bytes_before + bytes as u64;
        let stalls = |at| (sent > at).then_some(u64::MAX);
        let stalled = self
            .stalls_at
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, stalls);
        if stalled.is_ok() {
            *self.stalled() = Stalled::All;
        }
        self.hold(connection, bytes);
        sent <= self.most.load(Ordering::SeqCst)
    }
}

fn relay(state: &Arc<ProxyState>, client: TcpStream) -> io::Result<()> {
    let connection = state.accepted.fetch_add(1, Ordering::SeqCst);
    let first = connection % state.targets.len();
    let later = &state.targets[..first];
    let sooner = &state.targets[first..];
    let mut found = sooner.iter().chain(later).map(TcpStream::connect);
    let server = found
        .find_map(Result::ok)
        .ok_or(io::ErrorKind::ConnectionRefused)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut streams = state.streams();
    // Checked under the lock that `cut` takes, so that a concurrent connection is either refused or
    // broken.
    if state.cut.load(Ordering::SeqCst) || state.keeps_only.load(Ordering::SeqCst) {
        return Ok(());
    }
    streams.extend([client.try_clone()?, server.try_clone()?]);
    drop(streams);
    let towards = Arc::clone(state);
    let away = Arc::clone(state);
    let client_copy = client.try_clone()?;
    let server_copy = server.try_clone()?;
    let is_executed = Arc::new(AtomicBool::new(false));
    let has_executed = Arc::clone(&is_executed);
    std::thread::spawn(move || {
        let mut is_recognised = false;
        pump(
            client_copy,
            server_copy,
            |bytes| {
                (towards.rewrite.to_target)(bytes);
                is_recognised |= !towards.kept.is_empty()
                    && bytes
                        .windows(towards.kept.len())
                        .any(|part| part == towards.kept);
                if towards.keeps_only.load(Ordering::SeqCst) && !is_recognised {
                    return Passage::Breaks;
                }
                if is_recognised
                    && bytes
                        .get(4)
                        .is_some_and(|command| EXECUTES.contains(command))
                {
                    has_executed.store(true, Ordering::SeqCst);
                }
                if towards.passes(connection, bytes.len()) {
                    Passage::Passes
                } else {
                    Passage::CutsAll
                }
            },
            &towards,
        );
    });
    std::thread::spawn(move || {
        let mut sent = 0;
        pump(
            server,
            client,
            |bytes| {
                (away.rewrite.to_client)(sent, bytes);
                sent += bytes.len();
                away.hold(connection, bytes.len());
                if away.loses_answer && is_executed.load(Ordering::SeqCst) {
                    away.has_lost_answer.store(true, Ordering::SeqCst);
                    Passage::Breaks
                } else {
                    Passage::Passes
                }
            },
            &away,
        );
    });
    Ok(())
}

/// The effect of some bytes on their connection.
enum Passage {
    Passes,
    Breaks,
    CutsAll,
}

fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    mut passes: impl FnMut(&mut [u8]) -> Passage,
    state: &ProxyState,
) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        match passes(&mut buffer[..read]) {
            Passage::Passes => {}
            Passage::Breaks => break,
            Passage::CutsAll => {
                state.cut();
                break;
            }
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // Both sides see the end of the connection.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
