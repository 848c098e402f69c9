//! What Diego's BBS tells of itself: the one registry that every layer feeds, and from which both Loggregator and
//! Prometheus are told. Owns what is kept of each fact; names are `readings`', and when something is sent is for whoever
//! sends it.

mod points;
mod prometheus;
mod readings;
mod requests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use points::{Point, Points, Quantity};
pub(super) use prometheus::Diego;
pub use requests::AdvancedRoutes;

use crate::database::Database;
use requests::Requests;

/// Far above the cells of any Diego.
const MOST_CELLS: usize = 10_000;

/// A shared handle; clones feed the same registry.
#[derive(Debug, Clone, Default)]
pub struct Measures(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Counts for itself.
    database: Option<Database>,
    requests: Requests,
    lock_held: AtomicBool,
    is_elected: AtomicBool,
    migration: Once,
    encryption: Once,
    converged: Mutex<Converged>,
    task_ends: Mutex<BTreeMap<String, TaskMarks>>,
}

/// A time that there is none of yet.
#[derive(Debug, Default)]
struct Once(AtomicU64);

impl Once {
    /// Nothing takes no time at all, so that zero can say that nothing was taken.
    fn set(&self, spent: Duration) {
        self.0.store(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX).max(1), Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        Some(self.0.load(Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }
}

/// What convergence found, as of its last run, and what it did.
#[derive(Debug, Default)]
struct Converged {
    lrps: LrpCounts,
    lrp_runs: u64,
    lrps_spent: Duration,
    tasks: TaskCounts,
    task_runs: u64,
    tasks_spent: Duration,
    tasks_pruned: u64,
    tasks_kicked: u64,
}

/// What a run of convergence found among the instances, and what it did. Instances are those that the service manages,
/// unless it says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LrpCounts {
    pub unclaimed: u64,
    pub claimed: u64,
    pub running: u64,
    pub crashed: u64,
    /// Desired LRPs with an instance that crashed.
    pub crashing_desired: u64,
    /// Instances that are desired.
    pub desired: u64,
    /// Desired and not there.
    pub missing: u64,
    /// There and not desired.
    pub extra: u64,
    pub suspect_running: u64,
    pub suspect_claimed: u64,
    pub present_cells: u64,
    /// Cells that have instances, and are not there.
    pub suspect_cells: u64,
    pub fresh_domains: Vec<String>,
    /// Instances for which cells were asked. Diego has no name for it.
    pub started: u64,
    /// What was due and could not be done. Diego has no name for it.
    pub failed: u64,
}

/// What a run of convergence found among the tasks, and what it did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskCounts {
    pub pending: u64,
    pub running: u64,
    pub completed: u64,
    pub resolving: u64,
    /// Forgotten, since nobody came for them.
    pub pruned: u64,
    /// Moved on in any other way than by an auction.
    pub kicked: u64,
}

/// What became of a task on its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskMark {
    Started,
    Succeeded,
    Failed,
}

#[derive(Debug, Clone, Copy, Default)]
struct TaskMarks {
    started: u64,
    succeeded: u64,
    failed: u64,
}

impl Measures {
    /// Of a host with this database. The routes are counted and timed on their own, beside all.
    pub fn new(database: Database, advanced: &AdvancedRoutes) -> Self {
        let (database, requests) = (Some(database), Requests::new(advanced));
        Self(Arc::new(Inner { database, requests, ..Inner::default() }))
    }

    /// A request was answered. `route` is Diego's name of it.
    pub fn answered(&self, route: &str, spent: Duration) {
        self.0.requests.answered(route, spent);
    }

    /// A stream of events ended. It had no latency.
    pub fn stream_ended(&self) {
        self.0.requests.stream_ended();
    }

    pub fn lock_held(&self, held: bool) {
        self.0.lock_held.store(held, Relaxed);
    }

    /// This host has become the master and serves.
    pub fn elected(&self) {
        self.0.is_elected.store(true, Relaxed);
    }

    /// The database is at the version wanted, which took so long.
    pub fn migrated(&self, spent: Duration) {
        self.0.migration.set(spent);
    }

    /// Everything is under the active key, which took so long.
    pub fn encrypted(&self, spent: Duration) {
        self.0.encryption.set(spent);
    }

    /// Convergence of instances ran. A run that failed says nothing of what there is.
    pub fn lrps_converged(&self, found: Option<LrpCounts>, spent: Duration) {
        let mut converged = self.converged();
        converged.lrp_runs += 1;
        converged.lrps_spent = spent;
        if let Some(found) = found {
            converged.lrps = found;
        }
    }

    /// Convergence of tasks ran.
    pub fn tasks_converged(&self, found: Option<TaskCounts>, spent: Duration) {
        let mut converged = self.converged();
        converged.task_runs += 1;
        converged.tasks_spent = spent;
        if let Some(found) = found {
            converged.tasks_pruned += found.pruned;
            converged.tasks_kicked += found.kicked;
            converged.tasks = found;
        }
    }

    /// Nothing of a cell beyond as many as there can be: a client may say any name.
    pub fn task(&self, cell_id: &[u8], mark: TaskMark) {
        let mut ends = self.task_ends();
        let cell_id = String::from_utf8_lossy(cell_id).into_owned();
        if ends.len() >= MOST_CELLS && !ends.contains_key(&cell_id) {
            return;
        }
        let marks = ends.entry(cell_id).or_default();
        match mark {
            TaskMark::Started => marks.started += 1,
            TaskMark::Succeeded => marks.succeeded += 1,
            TaskMark::Failed => marks.failed += 1,
        }
    }

    fn converged(&self) -> MutexGuard<'_, Converged> {
        self.0.converged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task_ends(&self) -> MutexGuard<'_, BTreeMap<String, TaskMarks>> {
        self.0.task_ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
