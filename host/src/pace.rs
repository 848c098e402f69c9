//! How fast long work may go: whoever does it asks here before each batch. Owns pausing and the bound on the rate,
//! both of which an operator changes while the work runs; a restart forgets them, so that nothing stays paused
//! because somebody forgot.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::progress::{Progress, Wait};

/// A batch takes at most this much of the rate, so that the work comes in many small steps and not in few large ones.
const BATCHES_PER_SECOND: u64 = 4;

/// What an operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wanted {
    pub paused: bool,
    /// No bound if absent.
    pub units_per_second: Option<u64>,
}

/// A shared handle; clones are the same work's.
#[derive(Debug, Clone)]
pub struct Pace {
    wanted: watch::Sender<Wanted>,
    /// When what was taken so far is used up.
    free_at: watch::Sender<Option<Instant>>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Pace {
    pub fn new(units_per_second: Option<u64>) -> Self {
        let wanted = Wanted { paused: false, units_per_second };
        Self { wanted: watch::Sender::new(wanted), free_at: watch::Sender::new(None) }
    }

    pub fn wanted(&self) -> Wanted {
        *self.wanted.borrow()
    }

    pub fn pause(&self) {
        self.wanted.send_modify(|wanted| wanted.paused = true);
    }

    pub fn resume(&self) {
        self.wanted.send_modify(|wanted| wanted.paused = false);
    }

    /// No bound if absent.
    pub fn limit(&self, units_per_second: Option<u64>) {
        self.free_at.send_replace(None);
        self.wanted.send_modify(|wanted| wanted.units_per_second = units_per_second);
    }

    /// The most units that the next batch should have.
    pub fn most_units(&self) -> u64 {
        self.wanted().units_per_second.map_or(u64::MAX, |rate| (rate / BATCHES_PER_SECOND).max(1))
    }

    /// Returns when the next batch may begin, and says meanwhile why it does not.
    pub async fn ready(&self, progress: &Progress) {
        let mut changes = self.wanted.subscribe();
        loop {
            let wanted = *changes.borrow_and_update();
            if wanted.paused {
                let _waiting = progress.wait(Wait::Paused);
                // This handle keeps the sender, so there is always a next change to wait for.
                let _ = changes.changed().await;
                continue;
            }
            let free_at =
                (*self.free_at.borrow()).filter(|at| wanted.units_per_second.is_some() && *at > Instant::now());
            let Some(free_at) = free_at else { return };
            let _waiting = progress.wait(Wait::Rate);
            tokio::select! {
                () = tokio::time::sleep_until(free_at) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// A batch of this many units has begun: the next has to wait for its share of the time.
    pub fn take(&self, units: u64) {
        let Some(rate) = self.wanted().units_per_second else { return };
        let share = Duration::from_secs_f64(units as f64 / rate as f64);
        self.free_at.send_modify(|free_at| {
            let now = Instant::now();
            *free_at = Some(free_at.unwrap_or(now).max(now) + share);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_waits_without_a_reason() {
        let pace = Pace::default();
        pace.ready(&Progress::default()).await;
        pace.take(1_000_000);
        pace.ready(&Progress::default()).await;
        assert_eq!(pace.most_units(), u64::MAX);
    }

    #[tokio::test]
    async fn paused_work_waits_and_says_so_until_it_is_resumed() {
        let (pace, progress) = (Pace::default(), Progress::default());
        pace.pause();
        let work = tokio::spawn({
            let (pace, progress) = (pace.clone(), progress.clone());
            async move { pace.ready(&progress).await }
        });
        while progress.snapshot().waiting.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(progress.snapshot().waiting.map(|waiting| waiting.reason), Some(Wait::Paused));
        assert!(!work.is_finished());
        pace.resume();
        work.await.unwrap();
        assert_eq!(progress.snapshot().waiting, None);
    }

    #[tokio::test]
    async fn a_bound_that_is_lifted_holds_nobody_back() {
        let (pace, progress) = (Pace::new(Some(1)), Progress::default());
        pace.take(1_000_000);
        let work = tokio::spawn({
            let (pace, progress) = (pace.clone(), progress.clone());
            async move { pace.ready(&progress).await }
        });
        while progress.snapshot().waiting.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(progress.snapshot().waiting.map(|waiting| waiting.reason), Some(Wait::Rate));
        pace.limit(None);
        work.await.unwrap();
    }

    #[tokio::test]
    async fn each_batch_pays_for_its_units() {
        let pace = Pace::new(Some(1_000));
        assert_eq!(pace.most_units(), 250);
        assert_eq!(Pace::new(Some(1)).most_units(), 1);
        let before = Instant::now();
        for _ in 0..3 {
            pace.take(20);
        }
        assert!(pace.free_at.borrow().is_some_and(|at| at >= before + Duration::from_millis(60)));
        pace.ready(&Progress::default()).await;
        assert!(pace.free_at.borrow().is_some_and(|at| at <= Instant::now()));
    }

    #[tokio::test]
    async fn what_was_taken_at_one_rate_is_no_debt_at_another() {
        let pace = Pace::new(Some(1));
        pace.take(1_000_000);
        pace.limit(Some(1_000));
        pace.ready(&Progress::default()).await;
    }
}
