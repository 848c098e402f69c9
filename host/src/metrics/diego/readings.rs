//! The facts of the registry under their names, Diego's and Prometheus', at the moment that somebody reads them. The only
//! place where a name is written; each is kept once released.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Converged, Measures, TaskMarks};
use crate::database::Statistics;

/// One fact.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) diego: &'static str,
    pub(super) prometheus: &'static str,
    pub(super) help: &'static str,
    pub(super) of: Of,
    pub(super) value: Value,
}

/// What a fact is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Of {
    Host,
    Domain(String),
    Cell(String),
}

/// What is read, and so how each of the two readers is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Time(Duration),
    /// Only grows. Loggregator is told the whole, as a gauge.
    Total(u64),
    TotalTime(Duration),
    /// Only grows. Loggregator is told what was added, if anything was.
    Runs(u64),
    /// Only grows. Loggregator is told what the last run added, each time anew, as Diego does.
    PerRun {
        last: u64,
        total: u64,
    },
}

fn reading(diego: &'static str, prometheus: &'static str, help: &'static str, value: Value) -> Reading {
    Reading { diego, prometheus, help, of: Of::Host, value }
}

impl Measures {
    /// Of a host, be it the master or not.
    pub(super) fn host(&self) -> Vec<Reading> {
        let held = u64::from(self.0.lock_held.load(Relaxed));
        let mut readings =
            vec![reading("LockHeld", "lock_held", "1 while this host is the master", Value::Number(held))];
        if let Some(open) = open_file_descriptors() {
            let help = "Files, sockets and the like that are open";
            readings.push(reading("OpenFileDescriptors", "open_file_descriptors", help, Value::Number(open)));
        }
        readings
    }

    /// What happens once, of which there is nothing until it has.
    pub(super) fn election(&self) -> Vec<Reading> {
        let is_elected = self.0.is_elected.load(Relaxed);
        let help = "1 once this host serves as the master";
        let election = reading("BBSMasterElected", "master_elected", help, Value::Number(1));
        is_elected.then_some(election).into_iter().collect()
    }

    pub(super) fn migration(&self) -> Vec<Reading> {
        let help = "What it took at this start to bring the database to the version wanted";
        let spent = self.0.migration.get();
        let as_reading = |spent| reading("MigrationDuration", "migration_duration_seconds", help, Value::Time(spent));
        spent.map(as_reading).into_iter().collect()
    }

    pub(super) fn encryption(&self) -> Vec<Reading> {
        let help = "What it took to bring everything under the active key, where there was something to do";
        let spent = self.0.encryption.get();
        let as_reading = |spent| reading("EncryptionDuration", "encryption_duration_seconds", help, Value::Time(spent));
        spent.map(as_reading).into_iter().collect()
    }

    /// As of the last run of convergence, however often it is read.
    pub(super) fn convergence(&self) -> Vec<Reading> {
        let converged = self.converged();
        let mut readings = lrps(&converged);
        readings.extend(tasks(&converged));
        drop(converged);
        readings.extend(self.task_marks());
        readings
    }

    /// Tasks by cell, since this host started.
    fn task_marks(&self) -> Vec<Reading> {
        type Of3 = (&'static str, &'static str, &'static str, fn(&TaskMarks) -> u64);
        let kinds: [Of3; 3] = [
            ("TasksStarted", "tasks_started", "Tasks that a cell began with", |marks| marks.started),
            ("TasksSucceeded", "tasks_succeeded", "Tasks that ended well on a cell", |marks| marks.succeeded),
            ("TasksFailed", "tasks_failed", "Tasks that failed on a cell", |marks| marks.failed),
        ];
        let ends = self.task_ends();
        let of = |(diego, prometheus, help, count): Of3| {
            let by_cell = ends.iter().map(move |(cell, marks)| {
                let (of, value) = (Of::Cell(cell.clone()), Value::Total(count(marks)));
                Reading { diego, prometheus, help, of, value }
            });
            by_cell.collect::<Vec<_>>()
        };
        kinds.into_iter().flat_map(of).collect()
    }

    /// With what is the most of a window as of now.
    pub(super) fn database(&self) -> Vec<Reading> {
        self.0.database.as_ref().map(|database| queries(&database.statistics())).unwrap_or_default()
    }

    /// The same, ending the window.
    pub(super) fn end_database_window(&self) -> Vec<Reading> {
        self.0.database.as_ref().map(|database| queries(&database.end_statistics_window())).unwrap_or_default()
    }
}

fn lrps(converged: &Converged) -> Vec<Reading> {
    let lrps = &converged.lrps;
    let domain = |domain: &String| Reading {
        of: Of::Domain(domain.clone()),
        ..reading("Domain", "domain", "1 for each domain that is fresh", Value::Number(1))
    };
    let number = |diego, prometheus, help, number| reading(diego, prometheus, help, Value::Number(number));
    let runs = Value::Runs(converged.lrp_runs);
    let mut readings = vec![
        reading("ConvergenceLRPRuns", "convergence_lrp_runs", "Runs of convergence of instances", runs),
        reading(
            "ConvergenceLRPDuration",
            "convergence_lrp_duration_seconds",
            "What the last of these runs took",
            Value::Time(converged.lrps_spent),
        ),
    ];
    readings.extend(lrps.fresh_domains.iter().map(domain));
    readings.extend([
        number("LRPsUnclaimed", "lrps_unclaimed", "Instances that wait for a cell", lrps.unclaimed),
        number("LRPsClaimed", "lrps_claimed", "Instances that a cell begins with", lrps.claimed),
        number("LRPsRunning", "lrps_running", "Instances that run", lrps.running),
        number("CrashedActualLRPs", "crashed_actual_lrps", "Instances that wait after a crash", lrps.crashed),
        number(
            "CrashingDesiredLRPs",
            "crashing_desired_lrps",
            "Desired LRPs with an instance that waits after a crash",
            lrps.crashing_desired,
        ),
        number("LRPsDesired", "lrps_desired", "Instances that are desired", lrps.desired),
        number("LRPsMissing", "lrps_missing", "Instances that are desired and were not there", lrps.missing),
        number("LRPsExtra", "lrps_extra", "Instances that were there and are not desired", lrps.extra),
        number(
            "SuspectRunningActualLRPs",
            "suspect_running_actual_lrps",
            "Instances that ran when their cell was last seen",
            lrps.suspect_running,
        ),
        number(
            "SuspectClaimedActualLRPs",
            "suspect_claimed_actual_lrps",
            "Instances that a cell had begun with when it was last seen",
            lrps.suspect_claimed,
        ),
        number("PresentCells", "present_cells", "Cells that are there", lrps.present_cells),
        number("SuspectCells", "suspect_cells", "Cells that have instances and are not there", lrps.suspect_cells),
    ]);
    readings
}

fn tasks(converged: &Converged) -> Vec<Reading> {
    let tasks = &converged.tasks;
    let number = |diego, prometheus, help, number| reading(diego, prometheus, help, Value::Number(number));
    let pruned = Value::PerRun { last: tasks.pruned, total: converged.tasks_pruned };
    let kicked = Value::PerRun { last: tasks.kicked, total: converged.tasks_kicked };
    vec![
        number("TasksPending", "tasks_pending", "Tasks that wait for a cell", tasks.pending),
        number("TasksRunning", "tasks_running", "Tasks that run", tasks.running),
        number("TasksCompleted", "tasks_completed", "Tasks that ended and were not told of", tasks.completed),
        number("TasksResolving", "tasks_resolving", "Tasks whose end is being told", tasks.resolving),
        reading("ConvergenceTasksPruned", "convergence_tasks_pruned", "Tasks that nobody came for", pruned),
        reading("ConvergenceTasksKicked", "convergence_tasks_kicked", "Tasks that were moved on", kicked),
        reading(
            "ConvergenceTaskRuns",
            "convergence_task_runs",
            "Runs of convergence of tasks",
            Value::Runs(converged.task_runs),
        ),
        reading(
            "ConvergenceTaskDuration",
            "convergence_task_duration_seconds",
            "What the last of these runs took",
            Value::Time(converged.tasks_spent),
        ),
    ]
}

fn queries(counted: &Statistics) -> Vec<Reading> {
    let total = |diego, prometheus, help, total| reading(diego, prometheus, help, Value::Total(total));
    vec![
        reading(
            "DBOpenConnections",
            "db_open_connections",
            "Connections to the database",
            Value::Number(counted.open_connections),
        ),
        total("DBWaitCount", "db_waits", "Times that no connection was left", counted.waits),
        reading(
            "DBWaitDuration",
            "db_wait_seconds",
            "What was waited until there was one",
            Value::TotalTime(counted.waited),
        ),
        total("DBQueriesTotal", "db_queries", "Queries", counted.queries),
        total("DBQueriesSucceeded", "db_queries_succeeded", "Queries that did not fail", counted.succeeded),
        total("DBQueriesFailed", "db_queries_failed", "Queries that failed", counted.failed),
        reading(
            "DBQueriesInFlight",
            "db_queries_in_flight",
            "The most queries at once of the last minute or two",
            Value::Number(counted.most_in_flight),
        ),
        reading(
            "DBQueryDurationMax",
            "db_query_duration_max_seconds",
            "The longest query of the last minute or two",
            Value::Time(counted.longest),
        ),
    ]
}

/// Nothing where the system does not say.
fn open_file_descriptors() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}
