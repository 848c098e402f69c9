//! Progress of long-running work. The terminal, the 503 body, the metrics and the admin socket read
//! the same snapshot. Owns counts, rates and the reason for waiting; rendering and throttling
//! happen elsewhere.

mod rate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use rate::Rate;

/// The phase in which a host waits for the master lock.
pub const LOCK: &str = "lock";

/// The phase in which a new master takes over from the previous one, up to the first step of a
/// migration.
pub const TAKEOVER: &str = "fence";

/// The phase in which rows and tables are removed that no migration needs any more, also beside the
/// service.
pub const CLEAN_UP: &str = "clean-up";

/// The phase in which records are sealed under the active key, also beside the service.
pub const ROTATION: &str = "rotate-keys";

/// The phase in which all work is finished and the host only answers requests.
pub const SERVING: &str = "serving";

/// The phase in which the host serves and its migration is stopped. The detail has the reason.
pub const STOPPED: &str = "stopped";

/// The phase of a host that has ended as requested, and has released the lock. The detail has the
/// version of the database if the host was to take it back.
pub const ENDED: &str = "ended";

/// The phase of a host that has ended for another reason, which the detail has.
pub const FAILED: &str = "failed";

/// The most phases that are remembered: far above those of a command, and a bound for a host that
/// runs for years.
const MOST_ENTERED: usize = 1000;

/// A handle to the progress; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    state: Arc<Mutex<ProgressState>>,
    /// Notified when a phase is entered.
    entered: Arc<Notify>,
}

/// The unit in which a phase counts: the number done, the total and the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    /// Units of a migration: all rows of one process guid, or of one task.
    Units,
    /// Rows of tables.
    Rows,
    /// Records of another store.
    Records,
    /// Modules.
    Modules,
    /// Files.
    Files,
}

impl Counted {
    /// As many of them as there are.
    pub fn total(self, total: u64) -> Amount {
        Amount {
            counted: self,
            total: Some(total),
        }
    }

    /// An unknown number of them.
    pub fn unknown(self) -> Amount {
        Amount {
            counted: self,
            total: None,
        }
    }
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Units => "units",
            Self::Rows => "rows",
            Self::Records => "records",
            Self::Modules => "modules",
            Self::Files => "files",
        })
    }
}

/// The work of a phase that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    counted: Counted,
    total: Option<u64>,
}

#[derive(Debug, Default)]
struct ProgressState {
    phase: String,
    detail: String,
    /// The phases that were entered so far, with their details.
    entered: Vec<(String, String)>,
    done: u64,
    amount: Option<Amount>,
    began: Option<Instant>,
    rate: Rate,
    batch: Option<BatchTiming>,
    checkpoint: Option<Instant>,
    /// The latest is last: a reader may wait for the rate while a writer retries.
    waiting: Vec<(Wait, Instant)>,
    /// Retries and quarantined records count over all phases.
    retries: u64,
    set_aside: u64,
}

/// Why work that is not finished makes no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Another host holds the master lock, or another client a lock on a table.
    Lock,
    /// An operator paused it.
    Paused,
    /// It has reached the upper bound of the rate.
    Rate,
    /// The database returned a transient error; the work is retried after a pause.
    Retry,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lock => "waits for the lock",
            Self::Paused => "paused",
            Self::Rate => "held back by the rate",
            Self::Retry => "waits to try again",
        })
    }
}

/// The progress at one moment, as the 503 body shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The phase's name, such as `lock`, `copy`, `verify`.
    pub phase: String,
    /// A description for people.
    pub detail: String,
    /// The unit of `done`, `total`, `units_per_second` and the rate limit of the phase; absent in a
    /// phase that counts nothing.
    #[serde(default)]
    pub counted: Option<Counted>,
    /// How many of them are done.
    pub done: u64,
    /// Unknown if absent.
    pub total: Option<u64>,
    /// Rate of the last seconds, not of the whole phase. Its name predates phases that count
    /// something else.
    pub units_per_second: Option<f64>,
    /// Time until the phase ends at this rate. Absent without a total or a rate, and while the work
    /// waits for the lock or is paused.
    pub eta_seconds: Option<f64>,
    /// Time since the phase began.
    pub elapsed_seconds: f64,
    /// The last batch that became durable in this phase.
    pub batch: Option<BatchTiming>,
    /// Time since the last batch became durable: the work that a crash would lose.
    pub checkpoint_age_seconds: Option<f64>,
    /// The latest reason for waiting; absent while the work proceeds.
    pub waiting: Option<WaitStatus>,
    /// Retries after transient errors, in all phases.
    pub retries: u64,
    /// Records that could not be transformed and are in quarantine.
    pub quarantined: u64,
}

/// Size and duration of the last batch that became durable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BatchTiming {
    /// Size of the batch, in the unit of the phase.
    pub units: u64,
    pub seconds: f64,
}

/// Why the work waits, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WaitStatus {
    pub reason: Wait,
    pub seconds: f64,
}

impl Snapshot {
    /// Whether the work is finished or abandoned.
    pub fn is_over(&self) -> bool {
        [SERVING, STOPPED].contains(&self.phase.as_str()) || self.has_ended()
    }

    /// Whether the host has ended.
    pub fn has_ended(&self) -> bool {
        [ENDED, FAILED].contains(&self.phase.as_str())
    }
}

impl Progress {
    /// Enters a phase and resets the counts of the previous one. Without an amount the phase counts
    /// nothing.
    pub fn enter(
        &self,
        phase: impl Into<String>,
        detail: impl Into<String>,
        amount: Option<Amount>,
    ) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let retries = state.retries;
        let set_aside = state.set_aside;
        let waiting = std::mem::take(&mut state.waiting);
        let mut entered = std::mem::take(&mut state.entered);
        let phase = phase.into();
        let detail = detail.into();
        let is_repeated = entered
            .last()
            .is_some_and(|(last, of_last)| (last, of_last) == (&phase, &detail));
        if !is_repeated && entered.len() < MOST_ENTERED {
            entered.push((phase.clone(), detail.clone()));
        }
        *state = ProgressState {
            phase,
            detail,
            entered,
            amount,
            began: Some(now),
            rate: Rate::from(0, now),
            waiting,
            retries,
            set_aside,
            ..ProgressState::default()
        };
        drop(state);
        self.entered.notify_waiters();
    }

    /// Waits as long as this is the phase.
    pub async fn left(&self, phase: &str) {
        loop {
            let entered = self.entered.notified();
            if self.state.lock().phase != phase {
                return;
            }
            entered.await;
        }
    }

    /// The phases that were entered so far, each with its detail, except for the first `seen` of
    /// them. A phase may have ended between two snapshots.
    pub fn entered_after(&self, seen: usize) -> Vec<(String, String)> {
        let state = self.state.lock();
        state.entered.iter().skip(seen).cloned().collect()
    }

    /// Adds to the phase's count.
    pub fn advance(&self, count: u64) {
        let mut state = self.state.lock();
        state.done += count;
        let done = state.done;
        state.rate.reached(done, Instant::now());
    }

    /// Sets the count to the work of earlier runs, which does not count towards the rate.
    pub fn resume_at(&self, count: u64) {
        let mut state = self.state.lock();
        state.done = count;
        state.rate = Rate::from(count, Instant::now());
    }

    /// Advances the phase by a batch that became durable `spent` after its writing began.
    pub fn batch_done(&self, units: u64, spent: Duration) {
        self.advance(units);
        let mut state = self.state.lock();
        state.batch = Some(BatchTiming {
            units,
            seconds: spent.as_secs_f64(),
        });
        state.checkpoint = Some(Instant::now());
    }

    /// Counts a retry.
    pub fn retried(&self) {
        self.state.lock().retries += 1;
    }

    /// Counts records that went into quarantine.
    pub fn quarantined(&self, records: u64) {
        self.state.lock().set_aside += records;
    }

    /// Reports the work as waiting until the guard is dropped.
    #[must_use = "the work counts as waiting until this is dropped"]
    pub fn wait(&self, reason: Wait) -> WaitGuard {
        self.state.lock().waiting.push((reason, Instant::now()));
        WaitGuard {
            progress: self.clone(),
            reason,
        }
    }

    /// The progress at this moment. No estimate of the time left while the work waits for the lock
    /// or is paused.
    pub fn snapshot(&self) -> Snapshot {
        let now = Instant::now();
        let since = |then: Instant| now.saturating_duration_since(then).as_secs_f64();
        let state = self.state.lock();
        let rate = state.rate.per_second(now);
        // Clients that are served meanwhile may add more.
        let total = state
            .amount
            .and_then(|amount| amount.total)
            .map(|total| total.max(state.done));
        let remaining = total.map(|total| total - state.done);
        let waiting = state.waiting.last().map(|(reason, then)| WaitStatus {
            reason: *reason,
            seconds: since(*then),
        });
        let stands_still = state
            .waiting
            .iter()
            .any(|(reason, _)| matches!(reason, Wait::Lock | Wait::Paused));
        Snapshot {
            phase: state.phase.clone(),
            detail: state.detail.clone(),
            counted: state.amount.map(|amount| amount.counted),
            done: state.done,
            total,
            units_per_second: rate,
            eta_seconds: rate
                .zip(remaining)
                .filter(|_| !stands_still)
                .map(|(rate, remaining)| remaining as f64 / rate),
            elapsed_seconds: state.began.map_or(0.0, since),
            batch: state.batch,
            checkpoint_age_seconds: state.checkpoint.map(since),
            waiting,
            retries: state.retries,
            quarantined: state.set_aside,
        }
    }
}

/// Reports the work as waiting for as long as it lives.
#[derive(Debug)]
pub struct WaitGuard {
    progress: Progress,
    reason: Wait,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut state = self.progress.state.lock();
        if let Some(at) = state
            .waiting
            .iter()
            .rposition(|(reason, _)| *reason == self.reason)
        {
            state.waiting.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn new_phase_resets_the_counts() {
        let progress = Progress::default();
        progress.enter("copy", "desired_lrps", Some(Counted::Units.total(10)));
        progress.batch_done(4, Duration::from_millis(20));
        let copying = progress.snapshot();
        assert_eq!((copying.done, copying.total), (4, Some(10)));
        assert_eq!(
            copying.batch,
            Some(BatchTiming {
                units: 4,
                seconds: 0.02
            })
        );
        assert!(copying.checkpoint_age_seconds.is_some());
        progress.enter("verify", "desired_lrps", None);
        let snapshot = progress.snapshot();
        assert_eq!(
            (snapshot.phase.as_str(), snapshot.done, snapshot.total),
            ("verify", 0, None)
        );
        assert_eq!(
            (
                snapshot.eta_seconds,
                snapshot.batch,
                snapshot.checkpoint_age_seconds
            ),
            (None, None, None)
        );
    }

    #[test]
    fn phase_is_left_when_the_next_one_is_entered() {
        let progress = Progress::default();
        progress.enter(TAKEOVER, "", None);
        let mut left = Box::pin(progress.left(TAKEOVER));
        assert!((&mut left).now_or_never().is_none());
        progress.enter("copy", "", None);
        assert!(left.now_or_never().is_some());
        assert!(progress.left(TAKEOVER).now_or_never().is_some());
    }

    #[test]
    fn retries_and_quarantined_records_count_over_all_phases() {
        let progress = Progress::default();
        progress.enter("copy", "", None);
        progress.retried();
        progress.quarantined(2);
        progress.enter("verify", "", None);
        progress.quarantined(1);
        assert_eq!(
            (progress.snapshot().retries, progress.snapshot().quarantined),
            (1, 3)
        );
    }

    #[test]
    fn work_is_waiting_while_a_guard_lives() {
        let progress = Progress::default();
        let waiting = progress.wait(Wait::Paused);
        assert_eq!(
            progress.snapshot().waiting.map(|waiting| waiting.reason),
            Some(Wait::Paused)
        );
        let retrying = progress.wait(Wait::Retry);
        assert_eq!(
            progress.snapshot().waiting.map(|waiting| waiting.reason),
            Some(Wait::Retry)
        );
        drop(retrying);
        assert_eq!(
            progress.snapshot().waiting.map(|waiting| waiting.reason),
            Some(Wait::Paused)
        );
        drop(waiting);
        assert_eq!(progress.snapshot().waiting, None);
    }

    #[test]
    fn paused_work_has_no_estimate_of_the_time_left() {
        let progress = Progress::default();
        progress.enter("copy", "", Some(Counted::Units.total(1000)));
        progress.resume_at(10);
        progress.advance(10);
        assert!(progress.snapshot().eta_seconds.is_some());
        let _waiting = progress.wait(Wait::Paused);
        assert_eq!(progress.snapshot().eta_seconds, None);
    }

    #[test]
    fn snapshot_round_trips_through_json() {
        let snapshot = Snapshot {
            phase: "copy".into(),
            detail: "up 1 to 2".into(),
            counted: Some(Counted::Units),
            done: 5,
            total: Some(10),
            units_per_second: Some(2.5),
            eta_seconds: Some(2.0),
            elapsed_seconds: 2.0,
            batch: Some(BatchTiming {
                units: 5,
                seconds: 0.25,
            }),
            checkpoint_age_seconds: None,
            waiting: Some(WaitStatus {
                reason: Wait::Rate,
                seconds: 0.5,
            }),
            retries: 1,
            quarantined: 0,
        };
        let json = serde_json::to_string(&snapshot).unwrap();
        assert!(json.contains(r#""reason":"rate""#), "{json}");
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }
}
