//! Requests to end the process: by signals, and through the admin socket. Owns how urgent they are;
//! the work that they start is that of `startup`.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The requests to end so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(watch::Sender<Requests>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Requests {
    /// The first starts a graceful shutdown, the second ends the process at once.
    count: u32,
    /// Whether the first one was a drain, which may take as long as it takes.
    is_drain: bool,
}

impl Shutdown {
    /// Counts the signals that end a process from now on. SIGQUIT ends it at once.
    ///
    /// # Errors
    /// The process cannot handle signals.
    pub fn listen() -> std::io::Result<Self> {
        let shutdown = Self::default();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut quit = signal(SignalKind::quit())?;
        let requests = shutdown.0.clone();
        tokio::spawn(async move {
            loop {
                let urgent = tokio::select! {
                    _ = interrupt.recv() => false,
                    _ = terminate.recv() => false,
                    _ = quit.recv() => true,
                };
                requests.send_modify(|requests| requests.count += if urgent { 2 } else { 1 });
            }
        });
        Ok(shutdown)
    }

    /// Requests a drain; changes nothing if the process is ending already.
    pub fn drain(&self) {
        self.0.send_if_modified(|requests| {
            let is_first = requests.count == 0;
            if is_first {
                *requests = Requests {
                    count: 1,
                    is_drain: true,
                };
            }
            is_first
        });
    }

    /// Whether there was any request.
    pub fn is_requested(&self) -> bool {
        self.0.borrow().count > 0
    }

    /// Whether a drain was the first request.
    pub fn is_drain(&self) -> bool {
        self.0.borrow().is_drain
    }

    /// Returns once there were `count` requests.
    pub async fn reach(&self, count: u32) {
        // This sender outlives the receiver, so the wait cannot fail.
        let _ = self
            .0
            .subscribe()
            .wait_for(|requests| requests.count >= count)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn first_request_decides_whether_it_is_a_drain() {
        let shutdown = Shutdown::default();
        shutdown.drain();
        shutdown.drain();
        shutdown.reach(1).await;
        assert_eq!(
            *shutdown.0.borrow(),
            Requests {
                count: 1,
                is_drain: true
            }
        );
        let signalled = Shutdown(watch::Sender::new(Requests {
            count: 1,
            is_drain: false,
        }));
        signalled.drain();
        assert!(!signalled.is_drain());
    }
}
