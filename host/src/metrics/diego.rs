//! The metrics of Diego's BBS: one registry that every layer feeds, and that both Loggregator and
//! Prometheus are served from. Owns the counters; `readings` owns the names, and the sender decides
//! when metrics are sent.

mod points;
mod prometheus;
mod readings;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

pub use points::{Point, Points, Quantity};
pub(super) use prometheus::Diego;
pub use requests::AdvancedRoutes;

use bbs_database::Database;
use requests::RequestCounters;

/// Bounds the memory for cells; far above the cells of any Diego.
const MAX_CELLS: usize = 10_000;

/// A shared handle; clones feed the same registry.
#[derive(Debug, Clone, Default)]
pub struct Measures(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Keeps statistics of its own.
    database: Option<Database>,
    requests: RequestCounters,
    lock_held: AtomicBool,
    is_elected: AtomicBool,
    /// Durations of the last migration and key rotation.
    migration: Mutex<Option<Duration>>,
    encryption: Mutex<Option<Duration>>,
    converged: Mutex<Converged>,
    tasks_by_cell: Mutex<BTreeMap<String, CellTasks>>,
}

/// The findings of the last run of convergence, and totals of all runs.
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

/// The findings and actions of a run of convergence of instances. Counts managed instances unless
/// stated otherwise; their states are those in which the run leaves them, as Diego's gauges are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LrpCounts {
    /// Waiting for a cell.
    pub unclaimed: u64,
    /// Being started by a cell.
    pub claimed: u64,
    /// Running on a cell.
    pub running: u64,
    /// Waiting to be started again after a crash.
    pub crashed: u64,
    /// Desired LRPs with a crashed instance.
    pub crashing_desired: u64,
    /// Desired instances.
    pub desired: u64,
    /// Desired instances that do not exist.
    pub missing: u64,
    /// Existing instances that are not desired.
    pub extra: u64,
    /// Instances that ran when their cell was last present.
    pub suspect_running: u64,
    /// Instances that their cell was starting when it was last present.
    pub suspect_claimed: u64,
    /// Cells with a presence in Locket; 0 if the cells are unknown.
    pub present_cells: u64,
    /// Cells that are not present, of claimed and running instances of desired LRPs.
    pub suspect_cells: u64,
    /// Updates of desired LRPs that are halted, because a new instance fails. No metric of Diego's.
    pub halted_updates: u64,
    /// Domains that have not expired; invalid UTF-8 is replaced.
    pub fresh_domains: Vec<String>,
    /// Instances that were auctioned. No metric of Diego's.
    pub started: u64,
    /// Actions that failed. No metric of Diego's.
    pub failed: u64,
}

/// The findings and actions of a run of convergence of tasks. States are those in which the run
/// leaves the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Waiting for a cell.
    pub pending: u64,
    /// Running on a cell.
    pub running: u64,
    /// Ended, with a result that is still to be delivered.
    pub completed: u64,
    /// Ended, with a result that is being delivered.
    pub resolving: u64,
    /// Deleted, because they were not resolved in time.
    pub pruned: u64,
    /// Changed in any other way, or auctioned again, as pending tasks are in each run.
    pub kicked: u64,
}

/// A change of a task by its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellTaskEvent {
    Started,
    Succeeded,
    Failed,
}

#[derive(Debug, Clone, Copy, Default)]
struct CellTasks {
    started: u64,
    succeeded: u64,
    failed: u64,
}

impl Measures {
    /// For a host with this database. The advanced routes are also counted and timed separately.
    pub fn new(database: Database, advanced: &AdvancedRoutes) -> Self {
        let database = Some(database);
        let requests = RequestCounters::new(advanced);
        Self(Arc::new(Inner {
            database,
            requests,
            ..Inner::default()
        }))
    }

    /// Counts an answered request. `route` is Diego's name of it.
    pub fn answered(&self, route: &str, spent: Duration) {
        self.0.requests.answered(route, spent);
    }

    /// Counts an event stream that ended, without a latency.
    pub fn stream_ended(&self) {
        self.0.requests.stream_ended();
    }

    /// Sets whether this host holds the lock.
    pub fn lock_held(&self, held: bool) {
        self.0.lock_held.store(held, Relaxed);
    }

    /// This host has become the master and serves.
    pub fn elected(&self) {
        self.0.is_elected.store(true, Relaxed);
    }

    /// The database is at the wanted version, after a migration of this duration.
    pub fn migrated(&self, spent: Duration) {
        *self.0.migration.lock() = Some(spent);
    }

    /// All records are encrypted with the active key, after a rotation of this duration.
    pub fn encrypted(&self, spent: Duration) {
        *self.0.encryption.lock() = Some(spent);
    }

    /// Counts a run of convergence of instances. After a failed run (`None`) the previous findings
    /// stay.
    pub fn lrps_converged(&self, found: Option<LrpCounts>, spent: Duration) {
        let mut converged = self.0.converged.lock();
        converged.lrp_runs += 1;
        converged.lrps_spent = spent;
        if let Some(found) = found {
            converged.lrps = found;
        }
    }

    /// Counts a run of convergence of tasks; `None` if it failed.
    pub fn tasks_converged(&self, found: Option<TaskCounts>, spent: Duration) {
        let mut converged = self.0.converged.lock();
        converged.task_runs += 1;
        converged.tasks_spent = spent;
        if let Some(found) = found {
            converged.tasks_pruned += found.pruned;
            converged.tasks_kicked += found.kicked;
            converged.tasks = found;
        }
    }

    /// Counts a task by cell. Ignores new cells above the bound: clients choose cell ids freely.
    pub fn task(&self, cell_id: &[u8], event: CellTaskEvent) {
        let mut by_cell = self.0.tasks_by_cell.lock();
        let cell_id = String::from_utf8_lossy(cell_id).into_owned();
        if by_cell.len() >= MAX_CELLS && !by_cell.contains_key(&cell_id) {
            return;
        }
        let tasks = by_cell.entry(cell_id).or_default();
        match event {
            CellTaskEvent::Started => tasks.started += 1,
            CellTaskEvent::Succeeded => tasks.succeeded += 1,
            CellTaskEvent::Failed => tasks.failed += 1,
        }
    }
}

#[cfg(test)]
mod tests;
