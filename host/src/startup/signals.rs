//! The signals that end the host: the first starts a graceful shutdown, the second ends the process at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The number of signals received so far. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Signals(watch::Receiver<u32>);

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, receiver) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                sender.send_modify(|count| *count += 1);
                if sender.is_closed() {
                    return;
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Returns once `count` signals were received.
    pub(super) async fn reach(&self, count: u32) {
        // The sender outlives every receiver, so the wait cannot fail.
        let _ = self.0.clone().wait_for(|seen| *seen >= count).await;
    }
}
