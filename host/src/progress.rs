//! How far long work has come: written by whoever does it, read by the terminal, the 503 body and
//! metrics. A leaf: it knows neither the work nor the readers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;

/// A shared handle; clones see the same work.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    phase: String,
    detail: String,
    done: u64,
    total: Option<u64>,
    began: Option<Instant>,
}

/// One look at the work, as the 503 body shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Snapshot {
    /// Such as `waiting-for-lock`, `copy`, `verify`.
    pub phase: String,
    /// For a person: what is being done, or why it waits.
    pub detail: String,
    /// In units of the phase: mostly partition keys.
    pub done: u64,
    pub total: Option<u64>,
    pub units_per_second: Option<f64>,
    pub eta_seconds: Option<f64>,
}

impl Progress {
    /// Enters a phase and forgets the counts of the one before.
    pub fn enter(&self, phase: impl Into<String>, detail: impl Into<String>, total: Option<u64>) {
        *self.lock() =
            State { phase: phase.into(), detail: detail.into(), done: 0, total, began: Some(Instant::now()) };
    }

    pub fn advance(&self, units: u64) {
        self.lock().done += units;
    }

    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let elapsed = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        let rate = (state.done > 0 && !elapsed.is_zero()).then(|| state.done as f64 / elapsed.as_secs_f64());
        let left = state.total.map(|total| total.saturating_sub(state.done));
        Snapshot {
            phase: state.phase.clone(),
            detail: state.detail.clone(),
            done: state.done,
            total: state.total,
            units_per_second: rate,
            eta_seconds: rate.zip(left).map(|(rate, left)| left as f64 / rate),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_phase_forgets_the_counts_of_the_last() {
        let progress = Progress::default();
        progress.enter("copy", "desired_lrps", Some(10));
        progress.advance(4);
        assert_eq!((progress.snapshot().done, progress.snapshot().total), (4, Some(10)));
        progress.enter("verify", "desired_lrps", None);
        let snapshot = progress.snapshot();
        assert_eq!((snapshot.phase.as_str(), snapshot.done, snapshot.total), ("verify", 0, None));
        assert_eq!(snapshot.eta_seconds, None);
    }
}
