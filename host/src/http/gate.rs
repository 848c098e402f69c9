//! The gate: until this host is the master of a database at the right version, requests are
//! answered with 503, `Retry-After` and the progress of the work. While it takes over from the
//! previous master, they wait for that first, for a short time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bbs_work::progress::{Progress, Snapshot, TAKEOVER};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::api::Api;

/// Longest wait of a request for the end of a takeover. Below the 10 s after which Diego's clients
/// give up.
const LONGEST_TAKEOVER: Duration = Duration::from_secs(5);

/// A shared handle; clones control the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    progress: Progress,
    state: Arc<watch::Sender<GateState>>,
    /// Every API that the gate was open to, while calls still hold it.
    former: Arc<Mutex<Vec<Weak<Api>>>>,
}

#[derive(Debug)]
enum GateState {
    /// The host does not serve yet.
    Unopened,
    Open(Arc<Api>),
    /// The host ends.
    Closed,
}

impl GateState {
    fn api(&self) -> Option<&Arc<Api>> {
        match self {
            Self::Open(api) => Some(api),
            Self::Unopened | Self::Closed => None,
        }
    }
}

impl Gate {
    /// A closed gate that answers with this progress.
    pub fn new(progress: Progress) -> Self {
        Self {
            progress,
            state: Arc::new(watch::Sender::new(GateState::Unopened)),
            former: Arc::default(),
        }
    }

    /// Opens the gate to this API. Calls that have begun continue with the one of before.
    pub fn open(&self, api: Arc<Api>) {
        let before = self.state.send_replace(GateState::Open(api));
        self.remember(&before);
    }

    fn remember(&self, before: &GateState) {
        let mut former = self.former.lock();
        former.retain(|api| api.strong_count() > 0);
        former.extend(before.api().map(Arc::downgrade));
    }

    /// Ends event streams and rejects new ones; calls continue. Without an API, requests that wait
    /// for one are answered.
    pub fn end_streams(&self) {
        match self.opened() {
            Some(api) => api.end_streams(),
            None => drop(self.state.send_replace(GateState::Closed)),
        }
    }

    /// Closes the gate at once: lists in flight are aborted, streams end, and pending writes fail
    /// at the fence.
    pub fn close(&self) {
        let before = self.state.send_replace(GateState::Closed);
        if let Some(api) = before.api() {
            api.end_streams();
        }
        self.remember(&before);
    }

    /// Whether calls that passed the gate before it was closed are still running.
    pub fn has_calls(&self) -> bool {
        let former = self.former.lock();
        former.iter().any(|api| api.strong_count() > 0)
    }

    /// The number of times that a record was left out of an answer since the gate opened.
    pub(super) fn left_out(&self) -> u64 {
        let state = self.state.borrow();
        state.api().map_or(0, |api| api.left_out())
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.borrow().api().is_some()
    }

    /// The API, after a wait while this host takes over from the previous master. Diego's BBS opens
    /// its port after that: Cloud Controller repeats a call that is refused a connection for a
    /// minute, and none that is answered with 503. A migration is not waited for. The caller leaves
    /// the body of its request unread, so that the connection may make room for another one.
    ///
    /// # Errors
    /// The progress of the work, if the gate is closed.
    pub(super) async fn api(&self) -> Result<Arc<Api>, Box<Snapshot>> {
        if let Some(api) = self.opened() {
            return Ok(api);
        }
        self.taken_over().await;
        self.opened()
            .ok_or_else(|| Box::new(self.progress.snapshot()))
    }

    async fn taken_over(&self) {
        let mut state = self.state.subscribe();
        let taken_over = async {
            tokio::select! {
                _ = state.wait_for(|state| !matches!(state, GateState::Unopened)) => {}
                () = self.progress.left(TAKEOVER) => {}
            }
        };
        // At the end of the time the answer has the progress.
        let _ = timeout(LONGEST_TAKEOVER, taken_over).await;
    }

    fn opened(&self) -> Option<Arc<Api>> {
        self.state.borrow().api().cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::*;

    fn taking_over() -> Gate {
        let progress = Progress::default();
        progress.enter(TAKEOVER, "", None);
        Gate::new(progress)
    }

    #[tokio::test(start_paused = true)]
    async fn takeover_that_does_not_end_is_waited_for_up_to_a_limit() {
        let gate = taking_over();
        let began = Instant::now();
        let refused = gate.api().await.unwrap_err();
        assert_eq!(refused.phase, TAKEOVER);
        assert_eq!(began.elapsed(), LONGEST_TAKEOVER);
    }

    #[tokio::test(start_paused = true)]
    async fn host_that_ends_during_a_takeover_answers_the_requests_that_wait() {
        let ends: [fn(&Gate); 2] = [Gate::end_streams, Gate::close];
        for end in ends {
            let gate = taking_over();
            let mut waiting = pin!(gate.api());
            assert!(waiting.as_mut().now_or_never().is_none());
            end(&gate);
            assert!(matches!(waiting.now_or_never(), Some(Err(_))));
        }
    }
}
