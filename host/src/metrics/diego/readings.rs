//! The registry's values with their names for Diego and Prometheus, at the time of reading. The
//! only place that defines metric names; a name does not change once released.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bbs_database::Statistics;

use super::{CellTasks, Converged, LrpCounts, Measures, TaskCounts};
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

/// A number among counts of type `T`, with its names.
struct CountMetric<T> {
    diego: &'static str,
    prometheus: &'static str,
    help: &'static str,
    count: fn(&T) -> u64,
}

/// Metrics of counts: each with its names for Diego and Prometheus, its field, and its help.
macro_rules! counts {
    ($($diego:literal $prometheus:literal $field:ident $help:literal;)*) => {
        [$(CountMetric {
            diego: $diego,
            prometheus: $prometheus,
            help: $help,
            count: |counts| counts.$field,
        }),*]
    };
}

const CELL_METRICS: [CountMetric<CellTasks>; 3] = counts! {
    "TasksStarted" "tasks_started" started "Tasks that a cell began with";
    "TasksSucceeded" "tasks_succeeded" succeeded "Tasks that ended well on a cell";
    "TasksFailed" "tasks_failed" failed "Tasks that failed on a cell";
};

impl Measures {
    /// Metrics of a host, master or standby.
    pub(super) fn host(&self) -> Vec<MetricReading> {
        let held = u64::from(self.0.lock_held.load(Relaxed));
        let mut readings = vec![reading(
            "LockHeld",
            "lock_held",
            "1 while this host is the master",
            Number(held),
        )];
        if let Some(open) = open_file_descriptors() {
            let help = "Files, sockets and the like that are open";
            readings.push(reading(
                "OpenFileDescriptors",
                "open_file_descriptors",
                help,
                Number(open),
            ));
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
        let spent = self.0.migration.get()?;
        Some(reading(
            "MigrationDuration",
            "migration_duration_seconds",
            "Duration of the migration of the database to the wanted version at this start",
            Time(spent),
        ))
    }

    pub(super) fn encryption(&self) -> Option<MetricReading> {
        let spent = self.0.encryption.get()?;
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
        let mut readings = Vec::new();
        // All cells of a metric follow one another: a family of Prometheus is contiguous.
        for metric in &CELL_METRICS {
            for (cell, tasks) in by_cell.iter() {
                readings.push(MetricReading {
                    diego: metric.diego,
                    prometheus: metric.prometheus,
                    help: metric.help,
                    subject: MetricSubject::Cell(cell.clone()),
                    value: Total((metric.count)(tasks)),
                });
            }
        }
        readings
    }

    /// Metrics of the database; the maxima cover the current window so far.
    pub(super) fn database(&self) -> Vec<MetricReading> {
        self.0
            .database
            .as_ref()
            .map(|database| queries(&database.statistics()))
            .unwrap_or_default()
    }

    /// As [`database`](Self::database); ends the window of the maxima.
    pub(super) fn end_database_window(&self) -> Vec<MetricReading> {
        self.0
            .database
            .as_ref()
            .map(|database| queries(&database.end_statistics_window()))
            .unwrap_or_default()
    }
}

impl<T> CountMetric<T> {
    fn read(&self, counts: &T) -> MetricReading {
        let value = Number((self.count)(counts));
        reading(self.diego, self.prometheus, self.help, value)
    }
}

const LRP_METRICS: [CountMetric<LrpCounts>; 13] = counts! {
    "LRPsUnclaimed" "lrps_unclaimed" unclaimed "Instances that wait for a cell";
    "LRPsClaimed" "lrps_claimed" claimed "Instances that a cell begins with";
    "LRPsRunning" "lrps_running" running "Instances that run";
    "CrashedActualLRPs" "crashed_actual_lrps" crashed "Instances that wait after a crash";
    "CrashingDesiredLRPs" "crashing_desired_lrps" crashing_desired
        "Desired LRPs with an instance that waits after a crash";
    "LRPsDesired" "lrps_desired" desired "Instances that are desired";
    "LRPsMissing" "lrps_missing" missing "Instances that are desired and were not there";
    "LRPsExtra" "lrps_extra" extra "Instances that were there and are not desired";
    "SuspectRunningActualLRPs" "suspect_running_actual_lrps" suspect_running
        "Instances that ran when their cell was last seen";
    "SuspectClaimedActualLRPs" "suspect_claimed_actual_lrps" suspect_claimed
        "Instances that a cell had begun with when it was last seen";
    "PresentCells" "present_cells" present_cells "Cells that are there";
    "SuspectCells" "suspect_cells" suspect_cells "Cells that have instances and are not there";
    "HaltedLRPUpdates" "halted_lrp_updates" halted_updates
        "Updates of desired LRPs that are halted because a new instance fails";
};

fn lrps(converged: &Converged) -> Vec<MetricReading> {
    let mut readings = Vec::from(readings! {
        "ConvergenceLRPRuns" "convergence_lrp_runs"
            "Runs of convergence of instances", Runs(converged.lrp_runs);
        "ConvergenceLRPDuration" "convergence_lrp_duration_seconds"
            "Duration of the last of these runs", Time(converged.lrps_spent);
    });
    let lrps = &converged.lrps;
    readings.extend(lrps.fresh_domains.iter().map(|domain| MetricReading {
        subject: MetricSubject::Domain(domain.clone()),
        ..reading(
            "Domain",
            "domain",
            "1 for each domain that is fresh",
            Number(1),
        )
    }));
    readings.extend(LRP_METRICS.iter().map(|metric| metric.read(lrps)));
    readings
}

const TASK_METRICS: [CountMetric<TaskCounts>; 4] = counts! {
    "TasksPending" "tasks_pending" pending "Tasks that wait for a cell";
    "TasksRunning" "tasks_running" running "Tasks that run";
    "TasksCompleted" "tasks_completed" completed "Tasks that completed and are not being resolved";
    "TasksResolving" "tasks_resolving" resolving "Tasks that are being resolved";
};

fn tasks(converged: &Converged) -> Vec<MetricReading> {
    let tasks = &converged.tasks;
    let pruned = MetricValue::PerRun {
        last: tasks.pruned,
        total: converged.tasks_pruned,
    };
    let kicked = MetricValue::PerRun {
        last: tasks.kicked,
        total: converged.tasks_kicked,
    };
    let mut readings: Vec<_> = TASK_METRICS
        .iter()
        .map(|metric| metric.read(tasks))
        .collect();
    readings.extend(readings! {
        "ConvergenceTasksPruned" "convergence_tasks_pruned"
            "Tasks that were deleted because they were not resolved in time", pruned;
        "ConvergenceTasksKicked" "convergence_tasks_kicked"
            "Tasks that convergence acted on", kicked;
        "ConvergenceTaskRuns" "convergence_task_runs"
            "Runs of convergence of tasks", Runs(converged.task_runs);
        "ConvergenceTaskDuration" "convergence_task_duration_seconds"
            "Duration of the last of these runs", Time(converged.tasks_spent);
    });
    readings
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
