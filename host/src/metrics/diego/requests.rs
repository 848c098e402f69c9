//! Requests since the last report: their number, and the slowest. Owns which routes are reported
//! separately; streams never are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Part of the name of every stream.
const STREAM: &str = "EventStream";

/// Routes, by Diego's names, that are counted or timed separately.
#[derive(Debug, Clone, Default)]
pub struct AdvancedRoutes {
    /// Routes whose requests are counted.
    pub counted: Vec<String>,
    /// Routes of which the slowest request is reported.
    pub timed: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct RequestCounters {
    count: AtomicU64,
    slowest_ns: AtomicU64,
    counted: BTreeMap<String, AtomicU64>,
    timed: BTreeMap<String, AtomicU64>,
}

/// The requests since the last report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestReport {
    pub(super) count: u64,
    pub(super) slowest: Duration,
    pub(super) counted: Vec<(String, u64)>,
    pub(super) timed: Vec<(String, Duration)>,
}

impl RequestCounters {
    pub(super) fn new(advanced: &AdvancedRoutes) -> Self {
        let none = |routes: &[String]| {
            let calls = routes.iter().filter(|route| !route.contains(STREAM));
            calls
                .map(|route| (route.clone(), AtomicU64::default()))
                .collect()
        };
        Self {
            counted: none(&advanced.counted),
            timed: none(&advanced.timed),
            ..Self::default()
        }
    }

    pub(super) fn answered(&self, route: &str, spent: Duration) {
        let spent_ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Relaxed);
        self.slowest_ns.fetch_max(spent_ns, Relaxed);
        if let Some(count) = self.counted.get(route) {
            count.fetch_add(1, Relaxed);
        }
        if let Some(slowest_ns) = self.timed.get(route) {
            slowest_ns.fetch_max(spent_ns, Relaxed);
        }
    }

    pub(super) fn stream_ended(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    pub(super) fn take_report(&self) -> RequestReport {
        let take = |value: &AtomicU64| value.swap(0, Relaxed);
        RequestReport {
            count: take(&self.count),
            slowest: Duration::from_nanos(take(&self.slowest_ns)),
            counted: self
                .counted
                .iter()
                .map(|(route, count)| (route.clone(), take(count)))
                .collect(),
            timed: self
                .timed
                .iter()
                .map(|(route, ns)| (route.clone(), Duration::from_nanos(take(ns))))
                .collect(),
        }
    }
}
