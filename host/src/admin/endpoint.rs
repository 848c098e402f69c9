//! The admin socket of a process that also works without one: it is opened as soon as its path can
//! be used.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{Host, RemainingClients, Socket};

/// Interval of the attempts. A standby opens the socket of a master of the same machine that has
/// ended.
const RETRY: Duration = Duration::from_secs(1);

/// The socket, or the attempts to open it. Dropping it ends both.
#[derive(Debug)]
pub struct Endpoint {
    socket: Arc<Mutex<Option<Socket>>>,
    /// Absent if the first attempt succeeded.
    attempts: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Opens the socket. If that fails, logs the reason once and repeats it in the background: the
    /// socket is a convenience, and a host that could not be controlled still serves.
    pub async fn open(path: &Path, host: Host) -> Self {
        let error = match Socket::open(path, host.clone()).await {
            Ok(socket) => {
                return Self {
                    socket: Arc::new(Mutex::new(Some(socket))),
                    attempts: None,
                };
            }
            Err(error) => error,
        };
        tracing::warn!(
            name: "admin-socket.not-open",
            error = &error as &dyn Error, path = %path.display(),
            "commands such as `bbs drain` cannot reach this process, which works without its admin socket and tries again each \
             second"
        );
        let socket = Arc::default();
        let attempts = tokio::spawn(retry(path.to_owned(), host, Arc::clone(&socket)));
        Self {
            socket,
            attempts: Some(attempts),
        }
    }

    /// Closes and removes the socket; clients that are connected are still answered. `None` if it
    /// was not open.
    pub fn close(self) -> Option<RemainingClients> {
        self.end().map(Socket::close)
    }

    fn end(&self) -> Option<Socket> {
        self.attempts.iter().for_each(JoinHandle::abort);
        self.socket.lock().take()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.end());
    }
}

async fn retry(path: PathBuf, host: Host, opened: Arc<Mutex<Option<Socket>>>) {
    loop {
        tokio::time::sleep(RETRY).await;
        if let Ok(socket) = Socket::open(&path, host.clone()).await {
            tracing::info!(name: "admin-socket.open", path = %path.display(), "the admin socket is open");
            *opened.lock() = Some(socket);
            return;
        }
    }
}
