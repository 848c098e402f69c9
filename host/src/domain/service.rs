//! The service: the store, the clients, the event hub and the key locks that every call and
//! convergence use.

use std::sync::Arc;
use std::time::Duration;

use bbs_model::TraceId;
use bbs_model::change::RecordChange;
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::lrp_update::Pace;
use tokio::sync::watch;
use tokio::time::Instant;

use super::DomainError;
use super::desired_lrps::{Pushes, Stops};
use super::key_locks::{KeyLock, KeyLocks};
use super::lrp_updates;
use super::tasks::Completions;
use super::update_hints::UpdateHints;
use crate::clients::Clients;
use crate::events::Events;
use crate::metrics::Measures;
use crate::store::Store;

/// A shared handle; clones are the same service, with the same limit of waits.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
    /// The end of the waits of the call that has this handle.
    waits_until: Option<Instant>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    events: Events,
    clients: Clients,
    key_locks: KeyLocks,
    completions: Completions,
    stops: Stops,
    pushes: Pushes,
    update_hints: UpdateHints,
    policy: Policy,
    measures: Measures,
    /// The error after which no call can succeed.
    given_up: watch::Sender<Option<String>>,
}

/// The configurable limits and intervals of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Rejections after which a task fails.
    pub max_task_retries: i32,
    /// Containers of one desired LRP that are updated concurrently.
    pub update_workers: usize,
    /// Task completion callbacks that run concurrently.
    pub task_callback_workers: usize,
    /// A completed or resolving task is submitted again after this time.
    pub kick_task: Duration,
    /// A pending task fails after this time.
    pub expire_pending_task: Duration,
    /// A completed task is deleted after this time.
    pub expire_completed_task: Duration,
    /// Records that convergence changes concurrently.
    pub convergence_workers: usize,
    /// The limits of updates.
    pub update_pace: Pace,
    /// Archived definitions of one LRP.
    pub definitions_kept: usize,
    /// An archived definition that was last active longer ago is deleted.
    pub definitions_max_age: Duration,
    /// Unreadable records of one kind that are moved into quarantine at once; see
    /// `convergence/unreadable.rs`.
    pub quarantine_limit: u64,
    /// Process guids whose archives one run of convergence examines.
    pub archives_per_run: u32,
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
            update_pace: Pace::default(),
            definitions_kept: 10,
            definitions_max_age: Duration::from_secs(30 * 24 * 60 * 60),
            quarantine_limit: 100,
            archives_per_run: 1000,
        }
    }
}

impl Service {
    /// Assembles the service; nothing runs yet.
    pub fn new(
        store: Store,
        events: Events,
        clients: Clients,
        policy: Policy,
        measures: Measures,
    ) -> Self {
        let completions = Completions::new(policy.task_callback_workers);
        let inner = Inner {
            store,
            events,
            clients,
            key_locks: KeyLocks::default(),
            completions,
            stops: Stops::default(),
            pushes: Pushes::default(),
            update_hints: UpdateHints::new(lrp_updates::spawn),
            policy,
            measures,
            given_up: watch::Sender::new(None),
        };
        Self {
            inner: Arc::new(inner),
            waits_until: None,
        }
    }

    /// A handle for one call, whose waits have to end together at `waits_until`.
    pub fn for_call(&self, waits_until: Instant) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            waits_until: Some(waits_until),
        }
    }

    /// A handle for work that outlives the call: its waits have no limit.
    pub(super) fn detached(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            waits_until: None,
        }
    }

    /// The records.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The event hub.
    pub fn events(&self) -> &Events {
        &self.inner.events
    }

    /// The clients of other components.
    pub fn clients(&self) -> &Clients {
        &self.inner.clients
    }

    pub(super) fn completions(&self) -> &Completions {
        &self.inner.completions
    }

    pub(super) fn stops(&self) -> &Stops {
        &self.inner.stops
    }

    pub(super) fn pushes(&self) -> &Pushes {
        &self.inner.pushes
    }

    pub(super) fn update_hints(&self) -> &UpdateHints {
        &self.inner.update_hints
    }

    /// Whether a task replaces instances of any desired LRP now; not while it waits for one of them
    /// to change.
    pub fn is_replacing(&self) -> bool {
        self.update_hints().is_any_running()
    }

    /// The configured limits.
    pub fn policy(&self) -> &Policy {
        &self.inner.policy
    }

    /// The counters that the service feeds.
    pub fn measures(&self) -> &Measures {
        &self.inner.measures
    }

    /// Locks a process guid or a task guid. Hold the lock over the transaction and the publication
    /// of its events.
    ///
    /// # Errors
    /// `Busy` if others hold it for too long, or at the end of the waits of a call.
    pub async fn lock_key(&self, key: &[u8]) -> Result<KeyLock, DomainError> {
        let class = self.inner.store.lock_class(key);
        self.inner.key_locks.lock(&class, self.waits_until).await
    }

    /// Publishes a committed change of a desired LRP. The caller holds the key lock, so that events
    /// keep commit order.
    pub(super) fn publish_desired_lrp(
        &self,
        before: Option<DesiredLrp>,
        after: Option<DesiredLrp>,
        trace_id: &TraceId,
    ) {
        let before = before.map(Box::new);
        let after = after.map(Box::new);
        self.events().publish(RecordChange::DesiredLrp {
            before,
            after,
            trace_id: trace_id.clone(),
        });
    }

    /// Reports the error of the database after which no call can succeed, so that the host stops.
    pub fn give_up(&self, error: String) {
        self.inner.given_up.send_replace(Some(error));
    }

    /// Returns the error after [`Self::give_up`].
    pub async fn given_up(&self) -> String {
        let mut given_up = self.inner.given_up.subscribe();
        let error = given_up
            .wait_for(Option::is_some)
            .await
            .expect("the service owns the sender")
            .clone();
        error.unwrap_or_default()
    }
}
