//! What this host measures of itself, and how Prometheus reads it: how far long work has come, requests, records left out
//! of answers, and what Diego's BBS tells Loggregator. Owns the names, which are kept once released; counting is
//! whoever's the fact is, and nothing is sent from here.

mod diego;
mod work;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::pace::Pace;
use crate::progress::Progress;
pub use diego::{AdvancedRoutes, LrpCounts, Measures, Point, Points, Quantity, TaskCounts, TaskMark};

/// The type of what [`Metrics::text`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A millisecond to half a minute.
const LATENCY_BUCKETS: u16 = 16;

/// A method's name, and the status that it was answered with. Both have few values.
type Request = [(&'static str, String); 2];
type Route = [(&'static str, String); 1];

/// A shared handle; clones count the same things.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<Request, Counter>,
    latency: Family<Route, Histogram, fn() -> Histogram>,
    left_out: Counter,
    measures: Measures,
}

fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, LATENCY_BUCKETS))
}

impl Metrics {
    pub fn new(progress: Progress, pace: Pace, measures: Measures) -> Self {
        let mut registry = Registry::with_prefix("bbs");
        let requests = Family::<Request, Counter>::default();
        let latency = Family::<Route, Histogram, fn() -> Histogram>::new_with_constructor(latency);
        let left_out = Counter::default();
        registry.register("requests", "Requests answered, by method and HTTP status", requests.clone());
        registry.register("request_seconds", "Time until an answer began, by method", latency.clone());
        registry.register("records_left_out", "Times that an unreadable record was left out", left_out.clone());
        registry.register_collector(Box::new(work::Work::new(progress, pace)));
        registry.register_collector(Box::new(diego::Diego(measures.clone())));
        Self(Arc::new(Inner { registry, requests, latency, left_out, measures }))
    }

    /// A request was answered. `route` is a method's name, never a path: paths are whatever clients make up.
    pub fn answered(&self, route: &str, status: u16, spent: Duration) {
        let route = ("route", route.to_owned());
        self.0.latency.get_or_create(std::array::from_ref(&route)).observe(spent.as_secs_f64());
        self.0.requests.get_or_create(&[route, ("status", status.to_string())]).inc();
    }

    /// A stream ended. It had no latency.
    pub fn stream_ended(&self, route: &str) {
        self.0.requests.get_or_create(&[("route", route.to_owned()), ("status", "200".to_owned())]).inc();
        self.0.measures.stream_ended();
    }

    /// What Loggregator is told from, too.
    pub fn measures(&self) -> &Measures {
        &self.0.measures
    }

    /// Everything, as Prometheus reads it. The store counts what it leaves out; the total so far is given here.
    pub fn text(&self, left_out: u64) -> String {
        self.0.left_out.inner().fetch_max(left_out, Ordering::Relaxed);
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry).expect("a string takes all that is written");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Wait;

    fn nothing_yet() -> Metrics {
        Metrics::new(Progress::default(), Pace::default(), Measures::default())
    }

    fn lines(metrics: &Metrics) -> Vec<String> {
        metrics.text(0).lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn has(metrics: &Metrics, line: &str) {
        let lines = lines(metrics);
        assert!(lines.iter().any(|found| found == line), "{line} is not among {lines:#?}");
    }

    #[test]
    fn what_prometheus_reads_says_how_far_the_work_is_and_why_it_waits() {
        let (progress, pace) = (Progress::default(), Pace::new(Some(50)));
        let metrics = Metrics::new(progress.clone(), pace, Measures::default());
        progress.enter("copy", "up 1 to 2", Some(10));
        progress.advance(4);
        progress.batch_done(4, Duration::from_millis(250));
        progress.retried();
        progress.quarantined(2);
        let _waiting = progress.wait(Wait::Rate);
        for line in [
            r#"bbs_work_phase{phase="copy"} 1"#,
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
        assert!(lines(&metrics).iter().any(|line| line.starts_with("bbs_work_checkpoint_age_seconds ")));
        assert_eq!(lines(&metrics).last().unwrap(), "# EOF");
    }

    #[test]
    fn what_is_unknown_is_absent() {
        let metrics = nothing_yet();
        for name in ["bbs_work_total ", "bbs_work_eta_seconds ", "bbs_work_per_second ", "bbs_work_limit_per_second "] {
            assert!(!lines(&metrics).iter().any(|line| line.starts_with(name)), "{name}");
        }
    }

    #[test]
    fn requests_are_counted_and_timed_by_method() {
        let metrics = nothing_yet();
        metrics.answered("DesiredLRPs_r3", 200, Duration::from_millis(3));
        metrics.answered("DesiredLRPs_r3", 200, Duration::from_millis(3));
        metrics.answered("none", 404, Duration::ZERO);
        metrics.measures().lock_held(true);
        has(&metrics, r#"bbs_requests_total{route="DesiredLRPs_r3",status="200"} 2"#);
        has(&metrics, r#"bbs_requests_total{route="none",status="404"} 1"#);
        has(&metrics, r#"bbs_request_seconds_bucket{le="0.004",route="DesiredLRPs_r3"} 2"#);
        has(&metrics, "bbs_lock_held 1");
    }

    #[test]
    fn what_is_left_out_only_grows() {
        let metrics = nothing_yet();
        assert!(metrics.text(3).contains("bbs_records_left_out_total 3\n"));
        assert!(metrics.text(0).contains("bbs_records_left_out_total 3\n"));
    }
}
