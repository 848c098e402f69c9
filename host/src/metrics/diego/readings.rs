//! The registry's values with their names for Diego and Prometheus, at the time of reading. The
//! only place that defines metric names; a name does not change once released.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bbs_database::{Database, Statistics};

use super::{Converged, Measures};
use MetricValue::{Number, Runs, Time, Total, TotalTime};

/// One value with its names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricReading {
    pub(super) diego: &'static str,
    pub(super) prometheus: &'static str,
    pub(super) help: &'static str,
    pub(super) subject: MetricSubject,
    pub(super) value: MetricValue,
}

/// The object that a value describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MetricSubject {
    Host,
    Domain(String),
    Cell(String),
}

/// A value, with the way in which Loggregator reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricValue {
    Number(u64),
    Time(Duration),
    /// A total, reported whole as a gauge.
    Total(u64),
    TotalTime(Duration),
    /// A total, reported as its increment, if it has grown.
    Runs(u64),
    /// A total, reported as the increment of the last run, again in each report, as Diego does.
    PerRun {
        last: u64,
        total: u64,
    },
}

fn reading(
    diego: &'static str,
    prometheus: &'static str,
    help: &'static str,
    value: MetricValue,
) -> MetricReading {
    MetricReading {
        diego,
        prometheus,
        help,
        subject: MetricSubject::Host,
        value,
    }
}

/// Readings of the host: each with its names for Diego and Prometheus, its help, and its value.
macro_rules! readings {
    ($($diego:literal $prometheus:literal $help:literal, $value:expr;)*) => {
        [$(reading($diego, $prometheus, $help, $value)),*]
    };
}

impl Measures {
    /// Metrics of a host, master or standby.
    pub(super) fn host(&self) -> Vec<MetricReading> {
        let held = u64::from(self.0.lock_held.load(Relaxed));
        let mut readings = Vec::from(readings! {
            "LockHeld" "lock_held" "1 while this host is the master", Number(held);
        });
        if let Some(open) = open_file_descriptors() {
            readings.extend(readings! {
                "OpenFileDescriptors" "open_file_descriptors"
                    "Files, sockets and the like that are open", Number(open);
            });
        }
        readings
    }

    /// Empty until this host is the master.
    pub(super) fn election(&self) -> Option<MetricReading> {
        self.0.is_elected.load(Relaxed).then(|| {
            reading(
                "BBSMasterElected",
                "master_elected",
                "1 once this host serves as the master",
                Number(1),
            )
        })
    }

    pub(super) fn migration(&self) -> Option<MetricReading> {
        let spent = (*self.0.migration.lock())?;
        Some(reading(
            "MigrationDuration",
            "migration_duration_seconds",
            "Duration of the migration of the database to the wanted version at this start",
            Time(spent),
        ))
    }

    pub(super) fn encryption(&self) -> Option<MetricReading> {
        let spent = (*self.0.encryption.lock())?;
        Some(reading(
            "EncryptionDuration",
            "encryption_duration_seconds",
            "Duration of the rotation of all records to the active key, if there was one",
            Time(spent),
        ))
    }

    /// Findings of the last run of convergence.
    pub(super) fn convergence(&self) -> Vec<MetricReading> {
        let converged = self.0.converged.lock();
        let mut readings = lrps(&converged);
        readings.extend(tasks(&converged));
        drop(converged);
        readings.extend(self.tasks_by_cell());
        readings
    }

    /// Tasks by cell, since this host started.
    fn tasks_by_cell(&self) -> Vec<MetricReading> {
        let by_cell = self.0.tasks_by_cell.lock();
        let of_cells = by_cell.iter().flat_map(|(cell, tasks)| {
            let readings = readings! {
                "TasksStarted" "tasks_started"
                    "Tasks that a cell began with", Total(tasks.started);
                "TasksSucceeded" "tasks_succeeded"
                    "Tasks that ended well on a cell", Total(tasks.succeeded);
                "TasksFailed" "tasks_failed" "Tasks that failed on a cell", Total(tasks.failed);
            };
            readings.map(|reading| MetricReading {
                subject: MetricSubject::Cell(cell.clone()),
                ..reading
            })
        });
        let mut readings: Vec<_> = of_cells.collect();
        // All cells of a metric follow one another: a family of Prometheus is contiguous.
        readings.sort_by_key(|reading| reading.diego);
        readings
    }

    /// Metrics of the database; the maxima cover the current window so far.
    pub(super) fn database(&self) -> Vec<MetricReading> {
        self.queries(Database::statistics)
    }

    /// As [`database`](Self::database); ends the window of the maxima.
    pub(super) fn end_database_window(&self) -> Vec<MetricReading> {
        self.queries(Database::end_statistics_window)
    }

    fn queries(&self, statistics: fn(&Database) -> Statistics) -> Vec<MetricReading> {
        let counted = self.0.database.as_ref().map(statistics);
        counted.as_ref().map(queries).unwrap_or_default()
    }
}

fn lrps(converged: &Converged) -> Vec<MetricReading> {
    let lrps = &converged.lrps;
    let mut readings = Vec::from(readings! {
        "ConvergenceLRPRuns" "convergence_lrp_runs"
            "Runs of convergence of instances", Runs(converged.lrp_runs);
        "ConvergenceLRPDuration" "convergence_lrp_duration_seconds"
            "Duration of the last of these runs", Time(converged.lrps_spent);
        "LRPsUnclaimed" "lrps_unclaimed"
            "Instances that wait for a cell", Number(lrps.unclaimed);
        "LRPsClaimed" "lrps_claimed" "Instances that a cell begins with", Number(lrps.claimed);
        "LRPsRunning" "lrps_running" "Instances that run", Number(lrps.running);
        "CrashedActualLRPs" "crashed_actual_lrps"
            "Instances that wait after a crash", Number(lrps.crashed);
        "CrashingDesiredLRPs" "crashing_desired_lrps"
            "Desired LRPs with an instance that waits after a crash", Number(lrps.crashing_desired);
        "LRPsDesired" "lrps_desired" "Instances that are desired", Number(lrps.desired);
        "LRPsMissing" "lrps_missing"
            "Instances that are desired and were not there", Number(lrps.missing);
        "LRPsExtra" "lrps_extra"
            "Instances that were there and are not desired", Number(lrps.extra);
        "SuspectRunningActualLRPs" "suspect_running_actual_lrps"
            "Instances that ran when their cell was last seen", Number(lrps.suspect_running);
        "SuspectClaimedActualLRPs" "suspect_claimed_actual_lrps"
            "Instances that a cell had begun with when it was last seen",
            Number(lrps.suspect_claimed);
        "PresentCells" "present_cells" "Cells that are there", Number(lrps.present_cells);
        "SuspectCells" "suspect_cells"
            "Cells that have instances and are not there", Number(lrps.suspect_cells);
        "HaltedLRPUpdates" "halted_lrp_updates"
            "Updates of desired LRPs that are halted because a new instance fails",
            Number(lrps.halted_updates);
    });
    readings.extend(lrps.fresh_domains.iter().map(|domain| MetricReading {
        subject: MetricSubject::Domain(domain.clone()),
        ..reading(
            "Domain",
            "domain",
            "1 for each domain that is fresh",
            Number(1),
        )
    }));
    readings
}

fn tasks(converged: &Converged) -> [MetricReading; 8] {
    let tasks = &converged.tasks;
    let pruned = MetricValue::PerRun {
        last: tasks.pruned,
        total: converged.tasks_pruned,
    };
    let kicked = MetricValue::PerRun {
        last: tasks.kicked,
        total: converged.tasks_kicked,
    };
    readings! {
        "TasksPending" "tasks_pending" "Tasks that wait for a cell", Number(tasks.pending);
        "TasksRunning" "tasks_running" "Tasks that run", Number(tasks.running);
        "TasksCompleted" "tasks_completed"
            "Tasks that completed and are not being resolved", Number(tasks.completed);
        "TasksResolving" "tasks_resolving"
            "Tasks that are being resolved", Number(tasks.resolving);
        "ConvergenceTasksPruned" "convergence_tasks_pruned"
            "Tasks that were deleted because they were not resolved in time", pruned;
        "ConvergenceTasksKicked" "convergence_tasks_kicked"
            "Tasks that convergence acted on", kicked;
        "ConvergenceTaskRuns" "convergence_task_runs"
            "Runs of convergence of tasks", Runs(converged.task_runs);
        "ConvergenceTaskDuration" "convergence_task_duration_seconds"
            "Duration of the last of these runs", Time(converged.tasks_spent);
    }
}

fn queries(counted: &Statistics) -> Vec<MetricReading> {
    Vec::from(readings! {
        "DBOpenConnections" "db_open_connections"
            "Connections to the database", Number(counted.open_connections);
        "DBWaitCount" "db_waits" "Times that no connection was left", Total(counted.waits);
        "DBWaitDuration" "db_wait_seconds" "Time until there was one", TotalTime(counted.waited);
        "DBQueriesTotal" "db_queries" "Queries", Total(counted.queries);
        "DBQueriesSucceeded" "db_queries_succeeded"
            "Queries that did not fail", Total(counted.succeeded);
        "DBQueriesFailed" "db_queries_failed" "Queries that failed", Total(counted.failed);
        "DBQueriesInFlight" "db_queries_in_flight"
            "The most queries at once of the last minute or two", Number(counted.most_in_flight);
        "DBQueryDurationMax" "db_query_duration_max_seconds"
            "The longest query of the last minute or two", Time(counted.longest);
    })
}

/// `None` if the system does not provide it.
fn open_file_descriptors() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}
