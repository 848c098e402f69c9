//! A clock that a test moves by hand. Knows which tasks sleep, so that a test moves it only when
//! all of them do, and its outcome does not depend on how long they work.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Clock;

/// A clock for tests: stands still until it is moved.
#[derive(Debug)]
pub struct StoppedClock(watch::Sender<StoppedTime>);

#[derive(Debug)]
struct StoppedTime {
    /// Nanoseconds since 1970.
    now_ns: i64,
    instant: Instant,
    /// When each sleeping task wakes.
    sleepers: BTreeMap<u64, Instant>,
    next_sleeper: u64,
}

impl StoppedClock {
    /// Creates a clock that shows `now_ns`, in nanoseconds since 1970.
    pub fn at(now_ns: i64) -> Self {
        let instant = Instant::now();
        Self(watch::Sender::new(StoppedTime {
            now_ns,
            instant,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
        }))
    }

    /// Sets the time of day, in nanoseconds since 1970, as an operator may. Wakes no sleeper.
    pub fn set(&self, now_ns: i64) {
        self.0.send_modify(|time| time.now_ns = now_ns);
    }

    /// Moves on by a time, and wakes those whose time has come.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|time| time.advance(by));
    }

    /// Waits until exactly `count` tasks sleep.
    pub async fn sleepers(&self, count: usize) {
        self.wait_for(|time| time.sleepers.len() == count).await;
    }

    /// Runs `work`. Each time `sleepers` tasks sleep, which have to be all that are under way,
    /// moves on to when the first of them wakes.
    pub async fn run<T>(&self, sleepers: usize, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.move_while(sleepers) => match never {},
        }
    }

    async fn move_while(&self, sleepers: usize) -> Infallible {
        loop {
            self.wait_for(|time| time.sleepers.len() >= sleepers).await;
            self.0.send_modify(StoppedTime::wake_first);
        }
    }

    async fn wait_for(&self, condition: impl FnMut(&StoppedTime) -> bool) {
        // `self` owns the sender, so this cannot fail.
        let _ = self.0.subscribe().wait_for(condition).await;
    }
}

impl StoppedTime {
    /// Moves on to the first wake. Those who wake are no sleepers from here on, not only once they
    /// run.
    fn wake_first(&mut self) {
        let Some(first) = self.sleepers.values().min().copied() else {
            return;
        };
        self.advance(first.saturating_duration_since(self.instant));
    }

    fn advance(&mut self, by: Duration) {
        self.instant += by;
        self.now_ns += i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        let instant = self.instant;
        self.sleepers.retain(|_, wakes| *wakes > instant);
    }
}

impl Clock for StoppedClock {
    fn now_ns(&self) -> i64 {
        self.0.borrow().now_ns
    }

    fn instant(&self) -> Instant {
        self.0.borrow().instant
    }

    fn sleep_until(&self, wakes: Instant) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _sleeper = Sleeper::new(self, wakes);
            self.wait_for(|time| time.instant >= wakes).await;
        })
    }
}

/// A sleeping task; dropping it wakes or cancels it.
struct Sleeper<'a> {
    clock: &'a StoppedClock,
    id: u64,
}

impl<'a> Sleeper<'a> {
    fn new(clock: &'a StoppedClock, wakes: Instant) -> Self {
        let mut id = 0;
        clock.0.send_modify(|time| {
            id = time.next_sleeper;
            time.next_sleeper += 1;
            if wakes > time.instant {
                time.sleepers.insert(id, wakes);
            }
        });
        Self { clock, id }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.clock
            .0
            .send_if_modified(|time| time.sleepers.remove(&self.id).is_some());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn time_passes_only_while_every_task_sleeps() {
        let clock = Arc::new(StoppedClock::at(7));
        let begin = clock.instant();
        let other = tokio::spawn({
            let clock = Arc::clone(&clock);
            async move { clock.sleep(HOUR).await }
        });
        clock.sleepers(1).await;
        assert_eq!(clock.instant(), begin, "nothing has moved it");
        let passed = clock.run(2, async {
            clock.sleep(2 * HOUR / 3).await;
            clock.instant() - begin
        });
        assert_eq!(passed.await, 2 * HOUR / 3);
        assert!(!other.is_finished());
        clock.run(1, other).await.unwrap();
        assert_eq!(
            (clock.instant() - begin, clock.now_ns()),
            (HOUR, 7 + 3_600_000_000_000)
        );
    }

    #[tokio::test]
    async fn cancelled_task_does_not_sleep_any_more() {
        let clock = StoppedClock::at(0);
        {
            let mut sleeping = clock.sleep(HOUR);
            assert!(futures_util::poll!(&mut sleeping).is_pending());
            clock.sleepers(1).await;
        }
        clock.sleepers(0).await;
        clock.sleep_until(clock.instant()).await;
    }
}
