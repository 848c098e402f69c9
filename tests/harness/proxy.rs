//! The network between a host and its database: a relay on the loopback interface that a test can cut and heal, in front
//! of one server or several.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    targets: Vec<SocketAddr>,
    /// Connections so far.
    accepted: AtomicUsize,
    ended: AtomicBool,
    cut: AtomicBool,
    /// Bytes towards the target, ever.
    sent: AtomicU64,
    /// What `sent` may not go beyond, where a cut was asked for.
    most: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        Self::to_each_of(vec![target])
    }

    /// Connections go to one target after the other, past those that take none.
    pub fn to_each_of(targets: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback interface has free ports");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(State {
            targets,
            accepted: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            streams: Mutex::default(),
        });
        let accepting = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    // A connection that cannot be made is one that breaks.
                    let _ = relay(&accepting, client);
                }
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection, and every new one at once.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Breaks everything after the database has been sent so many more bytes.
    pub fn cut_after(&self, bytes: u64) {
        self.state.most.store(self.sent() + bytes, Ordering::SeqCst);
    }

    /// How much the database has been sent so far.
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::SeqCst)
    }

    pub fn is_cut(&self) -> bool {
        self.state.cut.load(Ordering::SeqCst)
    }

    pub fn heal(&self) {
        self.state.most.store(u64::MAX, Ordering::SeqCst);
        self.state.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the listener, so that its thread ends.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        for stream in self.streams().drain(..) {
            // One that is closed already is as broken as it can be.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Counts bytes towards the target; gives whether they still arrive.
    fn passes(&self, bytes: usize) -> bool {
        let sent = self.sent.fetch_add(bytes as u64, Ordering::SeqCst) + bytes as u64;
        sent <= self.most.load(Ordering::SeqCst)
    }
}

fn relay(state: &Arc<State>, client: TcpStream) -> io::Result<()> {
    let first = state.accepted.fetch_add(1, Ordering::SeqCst) % state.targets.len();
    let (later, sooner) = (&state.targets[..first], &state.targets[first..]);
    let mut found = sooner.iter().chain(later).map(TcpStream::connect);
    let server = found.find_map(Result::ok).ok_or(io::ErrorKind::ConnectionRefused)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut streams = state.streams();
    // Under the lock that a cut takes, so that no connection slips through one.
    if state.cut.load(Ordering::SeqCst) {
        return Ok(());
    }
    streams.extend([client.try_clone()?, server.try_clone()?]);
    drop(streams);
    let (towards, away) = (Arc::clone(state), Arc::clone(state));
    let (client_copy, server_copy) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || pump(client_copy, server_copy, |bytes| towards.passes(bytes), &towards));
    std::thread::spawn(move || pump(server, client, |_| true, &away));
    Ok(())
}

fn pump(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(usize) -> bool, state: &State) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0 {
            break;
        }
        if !passes(read) {
            state.cut();
            break;
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // Whoever is on either side learns that the other is gone.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
