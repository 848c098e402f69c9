//! The values that Loggregator and Prometheus get, from one registry.

use bbs_work::progress::Progress;
use bbs_work::throttle::Throttle;

use super::*;
use crate::metrics::{Exposition, Metrics};

const SPENT: Duration = Duration::from_millis(1500);

fn point<'a>(points: &'a [Point], name: &str) -> &'a Point {
    points
        .iter()
        .find(|point| point.name == name)
        .unwrap_or_else(|| panic!("{name} is not among {points:#?}"))
}

fn gauge(points: &[Point], name: &str) -> (f64, &'static str) {
    match point(points, name).quantity {
        Quantity::Gauge { value, unit } => (value, unit),
        Quantity::Added(added) => panic!("{name} is a counter, of {added}"),
    }
}

fn added(points: &[Point], name: &str) -> u64 {
    match point(points, name).quantity {
        Quantity::Added(added) => added,
        Quantity::Gauge { .. } => panic!("{name} is a gauge"),
    }
}

#[track_caller]
fn reads(measures: &Measures, line: &str) {
    let text = Metrics::new(Progress::default(), Throttle::default(), measures.clone())
        .text(0, Exposition::OpenMetrics);
    assert!(
        text.lines().any(|found| found == line),
        "{line} is not in {text}"
    );
}

#[test]
fn requests_are_reported_since_the_last_report() {
    let advanced = AdvancedRoutes {
        counted: vec!["StartActualLRP".to_owned(), "TaskEventStream".to_owned()],
        timed: vec!["StartActualLRP".to_owned(), "Domains".to_owned()],
    };
    let inner = Inner {
        requests: RequestCounters::new(&advanced),
        ..Inner::default()
    };
    let measures = Measures(Arc::new(inner));
    let mut points = Points::new(measures.clone());
    measures.answered("StartActualLRP", SPENT);
    measures.answered("Tasks", Duration::from_secs(2));
    measures.stream_ended();
    let reported = points.requests();
    assert_eq!(added(&reported, "RequestCount"), 3);
    assert_eq!(gauge(&reported, "RequestLatency"), (2e9, "nanos"));
    assert_eq!(added(&reported, "RequestCount.StartActualLRP"), 1);
    assert_eq!(
        gauge(&reported, "RequestLatency.StartActualLRP"),
        (1.5e9, "nanos")
    );
    assert_eq!(gauge(&reported, "RequestLatency.Domains"), (0.0, "nanos"));
    assert!(
        !reported.iter().any(|point| point.name.contains("Stream")),
        "streams are not reported separately"
    );
    let reported = points.requests();
    assert_eq!(
        (
            added(&reported, "RequestCount"),
            gauge(&reported, "RequestLatency").0
        ),
        (0, 0.0)
    );
}

#[test]
fn last_run_of_convergence_is_repeated_in_each_report() {
    let measures = Measures::default();
    let mut points = Points::new(measures.clone());
    assert_eq!(gauge(&points.convergence(), "LRPsRunning"), (0.0, "Metric"));
    assert!(
        points
            .convergence()
            .iter()
            .all(|point| !point.name.ends_with("Runs")),
        "there were no runs"
    );
    let lrps = LrpCounts {
        running: 7,
        fresh_domains: vec!["cf-apps".into(), "cf-tasks".into()],
        ..LrpCounts::default()
    };
    measures.lrps_converged(Some(lrps), SPENT);
    measures.lrps_converged(None, SPENT * 2);
    measures.tasks_converged(
        Some(TaskCounts {
            pruned: 2,
            kicked: 3,
            ..TaskCounts::default()
        }),
        SPENT,
    );
    let reported = points.convergence();
    assert_eq!(
        (
            added(&reported, "ConvergenceLRPRuns"),
            added(&reported, "ConvergenceTaskRuns")
        ),
        (2, 1)
    );
    assert_eq!(
        (
            added(&reported, "ConvergenceTasksPruned"),
            added(&reported, "ConvergenceTasksKicked")
        ),
        (2, 3)
    );
    for reported in [reported, points.convergence()] {
        assert_eq!(
            gauge(&reported, "LRPsRunning"),
            (7.0, "Metric"),
            "a failed run keeps the previous findings"
        );
        assert_eq!(gauge(&reported, "ConvergenceLRPDuration"), (3e9, "nanos"));
        assert_eq!(gauge(&reported, "Domain.cf-apps"), (1.0, "Metric"));
        assert_eq!(added(&reported, "ConvergenceTasksKicked"), 3);
    }
    assert!(
        points
            .convergence()
            .iter()
            .all(|point| !point.name.ends_with("Runs")),
        "none was added"
    );
    measures.tasks_converged(
        Some(TaskCounts {
            kicked: 1,
            ..TaskCounts::default()
        }),
        SPENT,
    );
    for line in [
        "bbs_lrps_running 7",
        r#"bbs_domain{domain="cf-tasks"} 1"#,
        "bbs_convergence_lrp_runs_total 2",
        "bbs_convergence_lrp_duration_seconds 3.0",
        "bbs_convergence_tasks_kicked_total 4",
        "bbs_convergence_tasks_pruned_total 2",
    ] {
        reads(&measures, line);
    }
}

#[test]
fn tasks_are_reported_by_cell() {
    let measures = Measures::default();
    for mark in [
        CellTaskEvent::Started,
        CellTaskEvent::Started,
        CellTaskEvent::Succeeded,
        CellTaskEvent::Failed,
    ] {
        measures.task(b"cell-1", mark);
    }
    measures.task(b"cell-2", CellTaskEvent::Started);
    let reported = Points::new(measures.clone()).convergence();
    let started: Vec<_> = reported
        .iter()
        .filter(|point| point.name == "TasksStarted")
        .collect();
    assert_eq!(started.len(), 2);
    assert_eq!(started[0].cell_id.as_deref(), Some("cell-1"));
    assert_eq!(
        started[0].quantity,
        Quantity::Gauge {
            value: 2.0,
            unit: "Metric"
        }
    );
    reads(&measures, r#"bbs_tasks_started_total{cell_id="cell-1"} 2"#);
    reads(&measures, r#"bbs_tasks_failed_total{cell_id="cell-2"} 0"#);
}

#[test]
fn metrics_of_later_events_are_absent_before_them() {
    let measures = Measures::default();
    let mut points = Points::new(measures.clone());
    assert!(
        points.election().is_empty()
            && points.migration().is_empty()
            && points.encryption().is_empty()
    );
    assert_eq!(gauge(&points.host(), "LockHeld"), (0.0, "Metric"));
    measures.elected();
    measures.lock_held(true);
    measures.migrated(SPENT);
    measures.encrypted(Duration::ZERO);
    assert_eq!(
        gauge(&points.election(), "BBSMasterElected"),
        (1.0, "Metric")
    );
    assert_eq!(
        gauge(&points.migration(), "MigrationDuration"),
        (1.5e9, "nanos")
    );
    assert_eq!(
        gauge(&points.encryption(), "EncryptionDuration"),
        (0.0, "nanos")
    );
    assert_eq!(gauge(&points.host(), "LockHeld"), (1.0, "Metric"));
    assert!(gauge(&points.host(), "OpenFileDescriptors").0 > 2.0);
    reads(&measures, "bbs_migration_duration_seconds 1.5");
    reads(&measures, "bbs_master_elected 1");
}

#[test]
fn each_count_has_its_own_name() {
    let measures = Measures::default();
    let lrps = LrpCounts {
        unclaimed: 1,
        claimed: 2,
        running: 3,
        crashed: 4,
        crashing_desired: 5,
        desired: 6,
        missing: 7,
        extra: 8,
        suspect_running: 9,
        suspect_claimed: 10,
        present_cells: 11,
        suspect_cells: 12,
        halted_updates: 13,
        fresh_domains: Vec::new(),
        ..LrpCounts::default()
    };
    let tasks = TaskCounts {
        pending: 21,
        running: 22,
        completed: 23,
        resolving: 24,
        pruned: 25,
        kicked: 26,
    };
    measures.lrps_converged(Some(lrps), SPENT);
    measures.tasks_converged(Some(tasks), SPENT);
    let reported = Points::new(measures.clone()).convergence();
    for (name, prometheus, value) in [
        ("LRPsUnclaimed", "lrps_unclaimed", 1),
        ("LRPsClaimed", "lrps_claimed", 2),
        ("LRPsRunning", "lrps_running", 3),
        ("CrashedActualLRPs", "crashed_actual_lrps", 4),
        ("CrashingDesiredLRPs", "crashing_desired_lrps", 5),
        ("LRPsDesired", "lrps_desired", 6),
        ("LRPsMissing", "lrps_missing", 7),
        ("LRPsExtra", "lrps_extra", 8),
        ("SuspectRunningActualLRPs", "suspect_running_actual_lrps", 9),
        (
            "SuspectClaimedActualLRPs",
            "suspect_claimed_actual_lrps",
            10,
        ),
        ("PresentCells", "present_cells", 11),
        ("SuspectCells", "suspect_cells", 12),
        ("HaltedLRPUpdates", "halted_lrp_updates", 13),
        ("TasksPending", "tasks_pending", 21),
        ("TasksRunning", "tasks_running", 22),
        ("TasksCompleted", "tasks_completed", 23),
        ("TasksResolving", "tasks_resolving", 24),
    ] {
        assert_eq!(
            gauge(&reported, name),
            (f64::from(value), "Metric"),
            "{name}"
        );
        reads(&measures, &format!("bbs_{prometheus} {value}"));
    }
    assert_eq!(
        (
            added(&reported, "ConvergenceTasksPruned"),
            added(&reported, "ConvergenceTasksKicked")
        ),
        (25, 26)
    );
}

#[test]
fn number_of_cells_is_bounded() {
    let measures = Measures::default();
    for cell in 0..MAX_CELLS + 5 {
        measures.task(format!("cell-{cell}").as_bytes(), CellTaskEvent::Started);
    }
    assert_eq!(measures.0.tasks_by_cell.lock().len(), MAX_CELLS);
    measures.task(b"cell-0", CellTaskEvent::Started);
    reads(&measures, "bbs_tasks_started_total{cell_id=\"cell-0\"} 2");
}
