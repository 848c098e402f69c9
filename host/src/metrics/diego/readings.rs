//! The registry's values with their names for Diego and Prometheus, at the time of reading. The
//! only place that defines metric names; a name does not change once released.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bbs_database::Statistics;

use super::{CellTasks, Converged, LrpCounts, Measures, TaskCounts};

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

const CELL_METRICS: [CountMetric<CellTasks>; 3] = [
    CountMetric {
        diego: "TasksStarted",
        prometheus: "tasks_started",
        help: "Tasks that a cell began with",
        count: |tasks| tasks.started,
    },
    CountMetric {
        diego: "TasksSucceeded",
        prometheus: "tasks_succeeded",
        help: "Tasks that ended well on a cell",
        count: |tasks| tasks.succeeded,
    },
    CountMetric {
        diego: "TasksFailed",
        prometheus: "tasks_failed",
        help: "Tasks that failed on a cell",
        count: |tasks| tasks.failed,
    },
];

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
    pub(super) fn election(&self) -> Option<MetricReading> {
        self.0.is_elected.load(Relaxed).then(|| {
            reading(
                "BBSMasterElected",
                "master_elected",
                "1 once this host serves as the master",
                MetricValue::Number(1),
            )
        })
    }

    pub(super) fn migration(&self) -> Option<MetricReading> {
        let spent = self.0.migration.get()?;
        Some(reading(
            "MigrationDuration",
            "migration_duration_seconds",
            "Duration of the migration of the database to the wanted version at this start",
            MetricValue::Time(spent),
        ))
    }

    pub(super) fn encryption(&self) -> Option<MetricReading> {
        let spent = self.0.encryption.get()?;
        Some(reading(
            "EncryptionDuration",
            "encryption_duration_seconds",
            "Duration of the rotation of all records to the active key, if there was one",
            MetricValue::Time(spent),
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
                    value: MetricValue::Total((metric.count)(tasks)),
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

/// A number among counts of type `T`, with its names.
struct CountMetric<T> {
    diego: &'static str,
    prometheus: &'static str,
    help: &'static str,
    count: fn(&T) -> u64,
}

impl<T> CountMetric<T> {
    fn read(&self, counts: &T) -> MetricReading {
        let value = MetricValue::Number((self.count)(counts));
        reading(self.diego, self.prometheus, self.help, value)
    }
}

const LRP_METRICS: [CountMetric<LrpCounts>; 13] = [
    CountMetric {
        diego: "LRPsUnclaimed",
        prometheus: "lrps_unclaimed",
        help: "Instances that wait for a cell",
        count: |counts| counts.unclaimed,
    },
    CountMetric {
        diego: "LRPsClaimed",
        prometheus: "lrps_claimed",
        help: "Instances that a cell begins with",
        count: |counts| counts.claimed,
    },
    CountMetric {
        diego: "LRPsRunning",
        prometheus: "lrps_running",
        help: "Instances that run",
        count: |counts| counts.running,
    },
    CountMetric {
        diego: "CrashedActualLRPs",
        prometheus: "crashed_actual_lrps",
        help: "Instances that wait after a crash",
        count: |counts| counts.crashed,
    },
    CountMetric {
        diego: "CrashingDesiredLRPs",
        prometheus: "crashing_desired_lrps",
        help: "Desired LRPs with an instance that waits after a crash",
        count: |counts| counts.crashing_desired,
    },
    CountMetric {
        diego: "LRPsDesired",
        prometheus: "lrps_desired",
        help: "Instances that are desired",
        count: |counts| counts.desired,
    },
    CountMetric {
        diego: "LRPsMissing",
        prometheus: "lrps_missing",
        help: "Instances that are desired and were not there",
        count: |counts| counts.missing,
    },
    CountMetric {
        diego: "LRPsExtra",
        prometheus: "lrps_extra",
        help: "Instances that were there and are not desired",
        count: |counts| counts.extra,
    },
    CountMetric {
        diego: "SuspectRunningActualLRPs",
        prometheus: "suspect_running_actual_lrps",
        help: "Instances that ran when their cell was last seen",
        count: |counts| counts.suspect_running,
    },
    CountMetric {
        diego: "SuspectClaimedActualLRPs",
        prometheus: "suspect_claimed_actual_lrps",
        help: "Instances that a cell had begun with when it was last seen",
        count: |counts| counts.suspect_claimed,
    },
    CountMetric {
        diego: "PresentCells",
        prometheus: "present_cells",
        help: "Cells that are there",
        count: |counts| counts.present_cells,
    },
    CountMetric {
        diego: "SuspectCells",
        prometheus: "suspect_cells",
        help: "Cells that have instances and are not there",
        count: |counts| counts.suspect_cells,
    },
    CountMetric {
        diego: "HaltedLRPUpdates",
        prometheus: "halted_lrp_updates",
        help: "Updates of desired LRPs that are halted because a new instance fails",
        count: |counts| counts.halted_updates,
    },
];

fn lrps(converged: &Converged) -> Vec<MetricReading> {
    let mut readings = vec![
        reading(
            "ConvergenceLRPRuns",
            "convergence_lrp_runs",
            "Runs of convergence of instances",
            MetricValue::Runs(converged.lrp_runs),
        ),
        reading(
            "ConvergenceLRPDuration",
            "convergence_lrp_duration_seconds",
            "Duration of the last of these runs",
            MetricValue::Time(converged.lrps_spent),
        ),
    ];
    let lrps = &converged.lrps;
    readings.extend(lrps.fresh_domains.iter().map(|domain| MetricReading {
        subject: MetricSubject::Domain(domain.clone()),
        ..reading(
            "Domain",
            "domain",
            "1 for each domain that is fresh",
            MetricValue::Number(1),
        )
    }));
    readings.extend(LRP_METRICS.iter().map(|metric| metric.read(lrps)));
    readings
}

const TASK_METRICS: [CountMetric<TaskCounts>; 4] = [
    CountMetric {
        diego: "TasksPending",
        prometheus: "tasks_pending",
        help: "Tasks that wait for a cell",
        count: |counts| counts.pending,
    },
    CountMetric {
        diego: "TasksRunning",
        prometheus: "tasks_running",
        help: "Tasks that run",
        count: |counts| counts.running,
    },
    CountMetric {
        diego: "TasksCompleted",
        prometheus: "tasks_completed",
        help: "Tasks that completed and are not being resolved",
        count: |counts| counts.completed,
    },
    CountMetric {
        diego: "TasksResolving",
        prometheus: "tasks_resolving",
        help: "Tasks that are being resolved",
        count: |counts| counts.resolving,
    },
];

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
    readings.extend([
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
            "Duration of the last of these runs",
            MetricValue::Time(converged.tasks_spent),
        ),
    ]);
    readings
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
            "Time until there was one",
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
