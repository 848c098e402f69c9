//! Throttle for long-running work, which calls it before each batch. Owns pausing and the upper
//! bound of the rate. An operator changes both while the work runs; neither survives a restart, so
//! that no work stays paused by accident.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::progress::{Progress, Wait};

/// A batch uses at most this fraction of a second's rate, so that the work proceeds in many small
/// steps.
const BATCHES_PER_SECOND: u64 = 4;

/// The throttle's settings, as an operator made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThrottleSettings {
    pub paused: bool,
    /// Upper bound of the rate, in what the phase counts; no bound if absent.
    pub units_per_second: Option<u64>,
}

/// The throttle; clones share the same settings.
#[derive(Debug, Clone)]
pub struct Throttle {
    settings: watch::Sender<ThrottleSettings>,
    /// When the units charged so far are paid for at the current rate.
    free_at: watch::Sender<Option<Instant>>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Throttle {
    /// Creates a throttle that is not paused; no bound of the rate if absent.
    pub fn new(units_per_second: Option<u64>) -> Self {
        let settings = ThrottleSettings {
            paused: false,
            units_per_second,
        };
        Self {
            settings: watch::Sender::new(settings),
            free_at: watch::Sender::new(None),
        }
    }

    /// The current settings.
    pub fn settings(&self) -> ThrottleSettings {
        *self.settings.borrow()
    }

    /// Stops the work before its next batch.
    pub fn pause(&self) {
        self.settings.send_modify(|settings| settings.paused = true);
    }

    /// Lets paused work continue.
    pub fn resume(&self) {
        self.settings
            .send_modify(|settings| settings.paused = false);
    }

    /// Sets the upper bound of the rate, which must not be 0, and resets the debt; no bound if
    /// absent.
    pub fn limit(&self, units_per_second: Option<u64>) {
        self.free_at.send_replace(None);
        self.settings
            .send_modify(|settings| settings.units_per_second = units_per_second);
    }

    /// The upper bound of the next batch, in what the phase counts; at least 1.
    pub fn most_units(&self) -> u64 {
        self.settings()
            .units_per_second
            .map_or(u64::MAX, |rate| (rate / BATCHES_PER_SECOND).max(1))
    }

    /// Waits until the next batch may begin, and reports the reason for the wait to `progress`.
    pub async fn ready(&self, progress: &Progress) {
        let mut changes = self.settings.subscribe();
        loop {
            let settings = *changes.borrow_and_update();
            if settings.paused {
                let _waiting = progress.wait(Wait::Paused);
                // `self` owns the sender, so `changed` cannot fail.
                let _ = changes.changed().await;
                continue;
            }
            let free_at = (*self.free_at.borrow())
                .filter(|at| settings.units_per_second.is_some() && *at > Instant::now());
            let Some(free_at) = free_at else { return };
            let _waiting = progress.wait(Wait::Rate);
            tokio::select! {
                () = tokio::time::sleep_until(free_at) => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Charges a batch of `units` to the rate: the next batch waits until they are paid for.
    pub fn take(&self, units: u64) {
        let Some(rate) = self.settings().units_per_second else {
            return;
        };
        let share = Duration::from_secs_f64(units as f64 / rate as f64);
        self.free_at.send_modify(|free_at| {
            let now = Instant::now();
            *free_at = Some(free_at.unwrap_or(now).max(now) + share);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn unlimited_work_never_waits() {
        let throttle = Throttle::default();
        throttle.ready(&Progress::default()).await;
        throttle.take(1_000_000);
        throttle.ready(&Progress::default()).await;
        assert_eq!(throttle.most_units(), u64::MAX);
    }

    #[tokio::test]
    async fn paused_work_waits_until_it_is_resumed() {
        let throttle = Throttle::default();
        let progress = Progress::default();
        throttle.pause();
        let work = tokio::spawn({
            let throttle = throttle.clone();
            let progress = progress.clone();
            async move { throttle.ready(&progress).await }
        });
        while progress.snapshot().waiting.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            progress.snapshot().waiting.map(|waiting| waiting.reason),
            Some(Wait::Paused)
        );
        assert!(!work.is_finished());
        throttle.resume();
        work.await.unwrap();
        assert_eq!(progress.snapshot().waiting, None);
    }

    #[tokio::test]
    async fn lifting_the_bound_releases_waiting_work() {
        let throttle = Throttle::new(Some(1));
        let progress = Progress::default();
        throttle.take(1_000_000);
        let work = tokio::spawn({
            let throttle = throttle.clone();
            let progress = progress.clone();
            async move { throttle.ready(&progress).await }
        });
        while progress.snapshot().waiting.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            progress.snapshot().waiting.map(|waiting| waiting.reason),
            Some(Wait::Rate)
        );
        throttle.limit(None);
        work.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn each_batch_is_charged_for_its_units() {
        let throttle = Throttle::new(Some(1_000));
        assert_eq!(throttle.most_units(), 250);
        assert_eq!(Throttle::new(Some(1)).most_units(), 1);
        let begin = Instant::now();
        for _ in 0..3 {
            throttle.take(20);
        }
        throttle.ready(&Progress::default()).await;
        assert_eq!(begin.elapsed(), Duration::from_millis(60));
    }

    #[tokio::test]
    async fn changing_the_rate_resets_the_debt() {
        let throttle = Throttle::new(Some(1));
        let progress = Progress::default();
        throttle.take(1_000_000);
        assert_eq!(
            throttle.ready(&progress).now_or_never(),
            None,
            "the units are not paid for"
        );
        throttle.limit(Some(1_000));
        assert_eq!(throttle.ready(&progress).now_or_never(), Some(()));
    }
}
