//! The service: the records, and everything that has to hear of a change. What every call and every convergence works
//! with.

use std::sync::Arc;

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
        Self(Arc::new(Inner { store, events, clients, turns: Turns::default(), policy }))
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
}
