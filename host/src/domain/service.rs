//! The service: the records, and everything that has to hear of a change. What every call and every convergence works
//! with.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::desired_lrps::Stops;
use super::tasks::Completions;
use super::turns::{Turn, Turns};
use crate::clients::Clients;
use crate::events::Events;
use crate::metrics::Measures;
use crate::store::Store;

/// Clones are the same service.
#[derive(Debug, Clone)]
pub struct Service(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    events: Events,
    clients: Clients,
    turns: Turns,
    completions: Completions,
    stops: Stops,
    policy: Policy,
    measures: Measures,
    given_up: watch::Sender<bool>,
}

/// What an operator may set about how the service behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How often a task may be rejected before it fails.
    pub max_task_retries: i32,
    /// Containers of a desired LRP that an update is sent to at once.
    pub update_workers: usize,
    /// Ends of tasks that are told at once.
    pub task_callback_workers: usize,
    /// A task that ended, or is being resolved, for longer than this is taken up again.
    pub kick_task: Duration,
    /// A task that waits for longer fails.
    pub expire_pending_task: Duration,
    /// A task that ended is forgotten after this.
    pub expire_completed_task: Duration,
    /// What convergence does at once.
    pub convergence_workers: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_task_retries: 3,
            update_workers: 1000,
            task_callback_workers: 1000,
            kick_task: Duration::from_secs(30),
            expire_pending_task: Duration::from_secs(1800),
            expire_completed_task: Duration::from_secs(120),
            convergence_workers: 20,
        }
    }
}

impl Service {
    pub fn new(store: Store, events: Events, clients: Clients, policy: Policy, measures: Measures) -> Self {
        let completions = Completions::new(policy.task_callback_workers);
        let (turns, stops, given_up) = (Turns::default(), Stops::default(), watch::Sender::new(false));
        Self(Arc::new(Inner { store, events, clients, turns, completions, stops, policy, measures, given_up }))
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn events(&self) -> &Events {
        &self.0.events
    }

    pub fn clients(&self) -> &Clients {
        &self.0.clients
    }

    pub(super) fn completions(&self) -> &Completions {
        &self.0.completions
    }

    pub(super) fn stops(&self) -> &Stops {
        &self.0.stops
    }

    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// Where it is counted what the service does.
    pub fn measures(&self) -> &Measures {
        &self.0.measures
    }

    /// The turn of a process guid or a task guid, to be held over a transaction and the events of it.
    pub async fn turn(&self, key: &[u8]) -> Turn {
        self.0.turns.of(key).await
    }

    /// Nothing can succeed any more: the host had better end and be started again.
    pub fn give_up(&self) {
        self.0.given_up.send_replace(true);
    }

    /// Returns once somebody gave up.
    pub async fn given_up(&self) {
        // The sender lives as long as the service.
        let _ = self.0.given_up.subscribe().wait_for(|given_up| *given_up).await;
    }
}
