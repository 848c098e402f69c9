//! The metrics of this host, as Prometheus reads them: progress of long work, requests, records
//! left out of answers, and the metrics that Diego's BBS sends to Loggregator. Owns the names,
//! which do not change once released; sending is elsewhere.

mod diego;
mod exposition;
mod older_versions;
mod work;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use bbs_work::progress::Progress;
use bbs_work::throttle::Throttle;
use older_versions::OlderVersions;

pub use diego::{
    AdvancedRoutes, CellTaskEvent, LrpCounts, Measures, Point, Points, Quantity, TaskCounts,
};
pub use exposition::Exposition;

/// Buckets from a millisecond to half a minute.
const LATENCY_BUCKETS: u16 = 16;

/// Labels of a request: the method's name and the status, both with few values.
type RequestLabels = [(&'static str, String); 2];
type RouteLabel = [(&'static str, String); 1];

/// A shared handle; clones count into the same registry.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    latency: Family<RouteLabel, Histogram, fn() -> Histogram>,
    left_out: Counter,
    older_versions: OlderVersions,
    measures: Measures,
}

fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, LATENCY_BUCKETS))
}

impl Metrics {
    /// Registers all metrics.
    pub fn new(progress: Progress, throttle: Throttle, measures: Measures) -> Self {
        let mut registry = Registry::with_prefix("bbs");
        let requests = Family::<RequestLabels, Counter>::default();
        let latency =
            Family::<RouteLabel, Histogram, fn() -> Histogram>::new_with_constructor(latency);
        let left_out = Counter::default();
        registry.register(
            "requests",
            "Requests answered, by method and HTTP status",
            requests.clone(),
        );
        registry.register(
            "request_seconds",
            "Time until an answer began, by method",
            latency.clone(),
        );
        registry.register(
            "records_left_out",
            "Times that an unreadable record was left out",
            left_out.clone(),
        );
        let older_versions = OlderVersions::default();
        registry.register(
            "older_version_requests",
            "Requests of clients of older API versions, by version, method and the common name of the client's certificate",
            older_versions.requests.clone(),
        );
        registry.register_collector(Box::new(work::WorkCollector::new(progress, throttle)));
        registry.register_collector(Box::new(diego::Diego(measures.clone())));
        Self(Arc::new(Inner {
            registry,
            requests,
            latency,
            left_out,
            older_versions,
            measures,
        }))
    }

    /// Counts an answered request. `route` is a method's name, never a path: clients choose paths
    /// freely.
    pub fn answered(&self, route: &str, status: u16, spent: Duration) {
        let route = ("route", route.to_owned());
        self.0
            .latency
            .get_or_create(std::array::from_ref(&route))
            .observe(spent.as_secs_f64());
        self.0
            .requests
            .get_or_create(&[route, ("status", status.to_string())])
            .inc();
    }

    /// Counts a request of a client of an older version; `client` is the common name of its
    /// certificate.
    pub fn called_older_version(&self, version: &str, method: &str, client: &str) {
        self.0.older_versions.called(version, method, client);
    }

    /// Counts a stream that ended, without a latency.
    pub fn stream_ended(&self, route: &str) {
        self.0
            .requests
            .get_or_create(&[("route", route.to_owned()), ("status", "200".to_owned())])
            .inc();
        self.0.measures.stream_ended();
    }

    /// The counters that Loggregator's metrics derive from, too.
    pub fn measures(&self) -> &Measures {
        &self.0.measures
    }

    /// All metrics as text in a format. `left_out` is the store's total of records left out.
    pub fn text(&self, left_out: u64, exposition: Exposition) -> String {
        self.0
            .left_out
            .inner()
            .fetch_max(left_out, Ordering::Relaxed);
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry).expect("writing to a string does not fail");
        exposition.of(text)
    }
}

#[cfg(test)]
mod tests {
    use bbs_work::progress::{Counted, Wait};

    use super::*;

    fn fresh() -> Metrics {
        Metrics::new(
            Progress::default(),
            Throttle::default(),
            Measures::default(),
        )
    }

    fn lines(metrics: &Metrics) -> Vec<String> {
        metrics
            .text(0, Exposition::OpenMetrics)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[track_caller]
    fn has(metrics: &Metrics, line: &str) {
        let lines = lines(metrics);
        assert!(
            lines.iter().any(|found| found == line),
            "{line} is not among {lines:#?}"
        );
    }

    #[test]
    fn work_metrics_show_progress_and_why_it_waits() {
        let progress = Progress::default();
        let throttle = Throttle::new(Some(50));
        let metrics = Metrics::new(progress.clone(), throttle, Measures::default());
        progress.enter("copy", "up 1 to 2", Some(Counted::Units.total(10)));
        progress.batch_done(4, Duration::from_millis(250));
        progress.retried();
        progress.quarantined(2);
        let _waiting = progress.wait(Wait::Rate);
        for line in [
            r#"bbs_work_phase{phase="copy"} 1"#,
            r#"bbs_work_counted{of="units"} 1"#,
            "bbs_work_done 4",
            "bbs_work_total 10",
            "bbs_work_batch_units 4",
            "bbs_work_batch_seconds 0.25",
            "bbs_work_retries_total 1",
            "bbs_work_quarantined_total 2",
            r#"bbs_work_waiting{reason="rate"} 1"#,
            r#"bbs_work_waiting{reason="paused"} 0"#,
            "bbs_work_limit_per_second 50",
            "bbs_work_paused 0",
        ] {
            has(&metrics, line);
        }
        assert!(
            lines(&metrics)
                .iter()
                .any(|line| line.starts_with("bbs_work_checkpoint_age_seconds "))
        );
        assert_eq!(lines(&metrics).last().unwrap(), "# EOF");
    }

    #[test]
    fn unknown_values_are_absent() {
        let metrics = fresh();
        for name in [
            "bbs_work_total ",
            "bbs_work_eta_seconds ",
            "bbs_work_per_second ",
            "bbs_work_limit_per_second ",
        ] {
            assert!(
                !lines(&metrics).iter().any(|line| line.starts_with(name)),
                "{name}"
            );
        }
    }

    #[test]
    fn requests_are_counted_and_timed_by_method() {
        let metrics = fresh();
        metrics.answered("DesiredLRPs_r3", 200, Duration::from_millis(3));
        metrics.answered("DesiredLRPs_r3", 200, Duration::from_millis(3));
        metrics.answered("none", 404, Duration::ZERO);
        metrics.measures().lock_held(true);
        has(
            &metrics,
            r#"bbs_requests_total{route="DesiredLRPs_r3",status="200"} 2"#,
        );
        has(
            &metrics,
            r#"bbs_requests_total{route="none",status="404"} 1"#,
        );
        has(
            &metrics,
            r#"bbs_request_seconds_bucket{le="0.004",route="DesiredLRPs_r3"} 2"#,
        );
        has(&metrics, "bbs_lock_held 1");
    }

    #[test]
    fn left_out_records_never_decrease() {
        let metrics = fresh();
        assert!(
            metrics
                .text(3, Exposition::OpenMetrics)
                .contains("bbs_records_left_out_total 3\n")
        );
        assert!(
            metrics
                .text(0, Exposition::OpenMetrics)
                .contains("bbs_records_left_out_total 3\n")
        );
    }
}
