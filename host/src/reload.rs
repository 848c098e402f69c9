//! Requests to load the modules again while the process runs: by SIGHUP, and through the admin
//! socket. Owns how a request gets its result; the work is that of `startup`.

use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// The changes that a reload of the modules made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The files of modules that were not loaded before.
    pub added: Vec<String>,
    /// The files of modules that are not loaded any more.
    pub removed: Vec<String>,
    /// The data version to which a migration has begun.
    pub migrates_to: Option<u64>,
}

/// The result of a reload, or why nothing changed.
pub type ReloadResult = Result<ReloadReport, String>;

/// Requests reloads. Clones share the queue.
#[derive(Debug, Clone)]
pub struct ReloadSender(mpsc::Sender<oneshot::Sender<ReloadResult>>);

/// Receives the requests, one after the other.
#[derive(Debug)]
pub struct ReloadReceiver(mpsc::Receiver<oneshot::Sender<ReloadResult>>);

/// A queue of requests.
pub fn queue() -> (ReloadSender, ReloadReceiver) {
    let (sender, receiver) = mpsc::channel(1);
    (ReloadSender(sender), ReloadReceiver(receiver))
}

impl ReloadSender {
    /// Requests a reload, and waits for its result.
    pub async fn request(&self) -> ReloadResult {
        let (result, received) = oneshot::channel();
        let ended = || "the host has ended".to_owned();
        self.0.send(result).await.map_err(|_| ended())?;
        received.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Requests a reload for each SIGHUP from now on, which ends the process otherwise.
    ///
    /// # Errors
    /// The process cannot handle signals.
    pub fn listen(&self) -> std::io::Result<()> {
        let mut hang_up = signal(SignalKind::hangup())?;
        let sender = self.clone();
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                // The result is logged where the request is received.
                let _ = sender.request().await;
            }
        });
        Ok(())
    }
}

impl ReloadReceiver {
    /// The next request. Never returns if none can come.
    pub async fn next(&mut self) -> oneshot::Sender<ReloadResult> {
        match self.0.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn request_gets_its_result_and_one_of_a_host_that_ended_an_error() {
        let (sender, mut receiver) = queue();
        let report = ReloadReport {
            added: vec!["one.wasm".to_owned()],
            ..ReloadReport::default()
        };
        let (result, ()) = tokio::join!(sender.request(), async {
            receiver.next().await.send(Ok(report.clone())).unwrap();
        });
        assert_eq!(result, Ok(report));
        let (result, ()) = tokio::join!(sender.request(), async { drop(receiver.next().await) });
        assert_eq!(result, Err("the host has ended".to_owned()));
        drop(receiver);
        assert_eq!(sender.request().await, Err("the host has ended".to_owned()));
    }
}
