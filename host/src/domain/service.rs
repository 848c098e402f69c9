//! The service: the records, and everything that has to hear of a change. What every call and every convergence works
//! with.

use std::sync::Arc;

use tokio::sync::watch;

use super::turns::{Turn, Turns};
use crate::clients::Clients;
use crate::events::Events;
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
    policy: Policy,
    given_up: watch::Sender<bool>,
}

/// What an operator may set about how the service behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How often a task may be rejected before it fails.
    pub max_task_retries: i32,
    /// Instances that are created at once.
    pub update_workers: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_task_retries: 3, update_workers: 1000 }
    }
}

impl Service {
    pub fn new(store: Store, events: Events, clients: Clients, policy: Policy) -> Self {
        let (turns, given_up) = (Turns::default(), watch::Sender::new(false));
        Self(Arc::new(Inner { store, events, clients, turns, policy, given_up }))
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

    pub fn policy(&self) -> &Policy {
        &self.0.policy
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
