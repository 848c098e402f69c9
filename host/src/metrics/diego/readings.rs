//! The registry's values with their names for Diego and Prometheus, at the time of reading. The
//! only place that defines metric names; a name does not change once released.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Converged, Measures, TaskMarks};
use crate::database::Statistics;

/// One value with its names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricReading {
    pub(super) diego: &'static str,
    pub(super) prometheus: &'static str,
    pub(super) help: &'static str,
    pub(super) of: Of,
    pub(super) value: MetricValue,
}

/// What a value is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Of {
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
        of: Of::Host,
        value,
    }
}

impl Measures {
    /// Metrics of a host, master or standby.
    pub(super) fn host(&self) -> Vec<MetricReading> {
        let held = u64::from(self.0.lock_held.load(Relaxed));
        let mut readings = vec![reading(
            "LockHeld",
            "lock_held",
            "1 while this host is the master",
            MetricValue::Number(held),
        )];
        if let Some(open) = open_file_descriptors() {
            let help = "Files, sockets and the like that are open";
            readings.push(reading(
                "OpenFileDescriptors",
                "open_file_descriptors",
                help,
                MetricValue::Number(open),
            ));
        }
        readings
    }

    /// Empty until this host is the master.
    pub(super) fn election(&self) -> Vec<MetricReading> {
        let is_elected = self.0.is_elected.load(Relaxed);
        let help = "1 once this host serves as the master";
        let election = reading(
            "BBSMasterElected",
            "master_elected",
            help,
            MetricValue::Number(1),
        );
        is_elected.then_some(election).into_iter().collect()
    }

    pub(super) fn migration(&self) -> Vec<MetricReading> {
        let help = "What it took at this start to bring the database to the version wanted";
        let spent = self.0.migration.get();
        let as_reading = |spent| {
            reading(
                "MigrationDuration",
                "migration_duration_seconds",
                help,
                MetricValue::Time(spent),
            )
        };
        spent.map(as_reading).into_iter().collect()
    }

    pub(super) fn encryption(&self) -> Vec<MetricReading> {
        let help = "What it took to bring everything under the active key, where there was something to do";
        let spent = self.0.encryption.get();
        let as_reading = |spent| {
            reading(
                "EncryptionDuration",
                "encryption_duration_seconds",
                help,
                MetricValue::Time(spent),
            )
        };
        spent.map(as_reading).into_iter().collect()
    }

    /// Findings of the last run of convergence.
    pub(super) fn convergence(&self) -> Vec<MetricReading> {
        let converged = self.converged();
        let mut readings = lrps(&converged);
        readings.extend(tasks(&converged));
        drop(converged);
        readings.extend(self.task_marks());
        readings
    }

    /// Tasks by cell, since this host started.
    fn task_marks(&self) -> Vec<MetricReading> {
        type Of3 = (
            &'static str,
            &'static str,
            &'static str,
            fn(&TaskMarks) -> u64,
        );
        let kinds: [Of3; 3] = [
            (
                "TasksStarted",
                "tasks_started",
                "Tasks that a cell began with",
                |marks| marks.started,
            ),
            (
                "TasksSucceeded",
                "tasks_succeeded",
                "Tasks that ended well on a cell",
                |marks| marks.succeeded,
            ),
            (
                "TasksFailed",
                "tasks_failed",
                "Tasks that failed on a cell",
                |marks| marks.failed,
            ),
        ];
        let ends = self.task_ends();
        let of = |(diego, prometheus, help, count): Of3| {
            let by_cell = ends.iter().map(move |(cell, marks)| {
                let (of, value) = (Of::Cell(cell.clone()), MetricValue::Total(count(marks)));
                MetricReading {
                    diego,
                    prometheus,
                    help,
                    of,
                    value,
                }
            });
            by_cell.collect::<Vec<_>>()
        };
        kinds.into_iter().flat_map(of).collect()
    }

    /// Metrics of the database; the maxima cover the current window so far.
    pub(super) fn database(&self) -> Vec<MetricReading> {
        self.0
            .database
            .as_ref()
            .map(|database| queries(&database.statistics()))
            .unwrap_or_default()
    }

    /// The same; ends the window of the maxima.
    pub(super) fn end_database_window(&self) -> Vec<MetricReading> {
        self.0
            .database
            .as_ref()
            .map(|database| queries(&database.end_statistics_window()))
            .unwrap_or_default()
    }
}

fn lrps(converged: &Converged) -> Vec<MetricReading> {
    let lrps = &converged.lrps;
    let domain = |domain: &String| MetricReading {
        of: Of::Domain(domain.clone()),
        ..reading(
            "Domain",
            "domain",
            "1 for each domain that is fresh",
            MetricValue::Number(1),
        )
    };
    let number = |diego, prometheus, help, number| {
        reading(diego, prometheus, help, MetricValue::Number(number))
    };
    let runs = MetricValue::Runs(converged.lrp_runs);
    let mut readings = vec![
        reading(
            "ConvergenceLRPRuns",
            "convergence_lrp_runs",
            "Runs of convergence of instances",
            runs,
        ),
        reading(
            "ConvergenceLRPDuration",
            "convergence_lrp_duration_seconds",
            "What the last of these runs took",
            MetricValue::Time(converged.lrps_spent),
        ),
    ];
    readings.extend(lrps.fresh_domains.iter().map(domain));
    readings.extend([
        number(
            "LRPsUnclaimed",
            "lrps_unclaimed",
            "Instances that wait for a cell",
            lrps.unclaimed,
        ),
        number(
            "LRPsClaimed",
            "lrps_claimed",
            "Instances that a cell begins with",
            lrps.claimed,
        ),
        number(
            "LRPsRunning",
            "lrps_running",
            "Instances that run",
            lrps.running,
        ),
        number(
            "CrashedActualLRPs",
            "crashed_actual_lrps",
            "Instances that wait after a crash",
            lrps.crashed,
        ),
        number(
            "CrashingDesiredLRPs",
            "crashing_desired_lrps",
            "Desired LRPs with an instance that waits after a crash",
            lrps.crashing_desired,
        ),
        number(
            "LRPsDesired",
            "lrps_desired",
            "Instances that are desired",
            lrps.desired,
        ),
        number(
            "LRPsMissing",
            "lrps_missing",
            "Instances that are desired and were not there",
            lrps.missing,
        ),
        number(
            "LRPsExtra",
            "lrps_extra",
            "Instances that were there and are not desired",
            lrps.extra,
        ),
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
        number(
            "PresentCells",
            "present_cells",
            "Cells that are there",
            lrps.present_cells,
        ),
        number(
            "SuspectCells",
            "suspect_cells",
            "Cells that have instances and are not there",
            lrps.suspect_cells,
        ),
        number(
            "HaltedLRPUpdates",
            "halted_lrp_updates",
            "Updates of desired LRPs that are halted because a new instance fails",
            lrps.halted_updates,
        ),
    ]);
    readings
}

fn tasks(converged: &Converged) -> Vec<MetricReading> {
    let tasks = &converged.tasks;
    let number = |diego, prometheus, help, number| {
        reading(diego, prometheus, help, MetricValue::Number(number))
    };
    let pruned = MetricValue::PerRun {
        last: tasks.pruned,
        total: converged.tasks_pruned,
    };
    let kicked = MetricValue::PerRun {
        last: tasks.kicked,
        total: converged.tasks_kicked,
    };
    vec![
        number(
            "TasksPending",
            "tasks_pending",
            "Tasks that wait for a cell",
            tasks.pending,
        ),
        number(
            "TasksRunning",
            "tasks_running",
            "Tasks that run",
            tasks.running,
        ),
        number(
            "TasksCompleted",
            "tasks_completed",
            "Tasks that completed and are not being resolved",
            tasks.completed,
        ),
        number(
            "TasksResolving",
            "tasks_resolving",
            "Tasks that are being resolved",
            tasks.resolving,
        ),
        reading(
            "ConvergenceTasksPruned",
            "convergence_tasks_pruned",
            "Tasks that were deleted because they were not resolved in time",
            pruned,
        ),
        reading(
            "ConvergenceTasksKicked",
            "convergence_tasks_kicked",
            "Tasks that convergence acted on",
            kicked,
        ),
        reading(
            "ConvergenceTaskRuns",
            "convergence_task_runs",
            "Runs of convergence of tasks",
            MetricValue::Runs(converged.task_runs),
        ),
        reading(
            "ConvergenceTaskDuration",
            "convergence_task_duration_seconds",
            "What the last of these runs took",
            MetricValue::Time(converged.tasks_spent),
        ),
    ]
}

fn queries(counted: &Statistics) -> Vec<MetricReading> {
    let total = |diego, prometheus, help, total| {
        reading(diego, prometheus, help, MetricValue::Total(total))
    };
    vec![
        reading(
            "DBOpenConnections",
            "db_open_connections",
            "Connections to the database",
            MetricValue::Number(counted.open_connections),
        ),
        total(
            "DBWaitCount",
            "db_waits",
            "Times that no connection was left",
            counted.waits,
        ),
        reading(
            "DBWaitDuration",
            "db_wait_seconds",
            "What was waited until there was one",
            MetricValue::TotalTime(counted.waited),
        ),
        total("DBQueriesTotal", "db_queries", "Queries", counted.queries),
        total(
            "DBQueriesSucceeded",
            "db_queries_succeeded",
            "Queries that did not fail",
            counted.succeeded,
        ),
        total(
            "DBQueriesFailed",
            "db_queries_failed",
            "Queries that failed",
            counted.failed,
        ),
        reading(
            "DBQueriesInFlight",
            "db_queries_in_flight",
            "The most queries at once of the last minute or two",
            MetricValue::Number(counted.most_in_flight),
        ),
        reading(
            "DBQueryDurationMax",
            "db_query_duration_max_seconds",
            "The longest query of the last minute or two",
            MetricValue::Time(counted.longest),
        ),
    ]
}

/// `None` if the system does not provide it.
fn open_file_descriptors() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}
