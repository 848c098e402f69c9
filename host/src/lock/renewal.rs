//! Holding on to a lock that runs out: renewed well before, given up when that fails for as long as it lasts. Owns the
//! timing, by a clock that nobody can set; how a lock is renewed is each lock's own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::LockLost;

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// A lock that runs out.
pub(super) trait Expiring: Send + Sync + 'static {
    /// For people.
    const WHAT: &'static str;

    fn ttl(&self) -> Duration;

    /// Nothing where the lock is ours for another whole TTL; otherwise whose it is. A failure says neither.
    fn renew(&self) -> impl Future<Output = Result<Option<String>, Failure>> + Send;

    fn release(&self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A task that renews, and what it found.
#[derive(Debug)]
pub(super) struct Renewal {
    lost: watch::Receiver<Option<LockLost>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Renewal {
    /// `asked` is when the lock was asked for: its holder counts from there, everybody else from later.
    pub(super) fn start<T: Expiring>(lock: Arc<T>, asked: Instant) -> Self {
        let (found, lost) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                reason = renew_until_lost(&*lock, asked) => {
                    tracing::error!(name: "locket-lock.lost-lock", %reason, "lost the lock");
                    found.send_replace(Some(reason));
                }
                // Dropped without a word: the lock runs out by itself.
                released = stopped => if released.is_ok() { release(&*lock).await },
            }
        });
        Self { lost, stop, task }
    }

    pub(super) async fn lost(&self) -> LockLost {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("just looked"),
            // The task ends without a reason only when nobody is left to be told.
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) async fn release(self) {
        // A task that has lost the lock is over, and has nothing to release.
        let _ = self.stop.send(());
        if let Err(fault) = self.task.await {
            tracing::error!(%fault, "the task that renews the lock ended early");
        }
    }
}

async fn renew_until_lost<T: Expiring>(lock: &T, asked: Instant) -> LockLost {
    let ttl = lock.ttl();
    let (interval, retry_interval) = (ttl / 3, ttl / 12);
    let (mut deadline, mut next) = (asked + ttl, asked + interval);
    loop {
        sleep_until(next.min(deadline)).await;
        let now = Instant::now();
        // A process that was stopped wakes up here, and must not ask for what it has no right to any more.
        if now >= deadline {
            return LockLost::Expired { what: T::WHAT, ttl };
        }
        match timeout_at(deadline.min(now + interval), lock.renew()).await {
            Ok(Ok(None)) => {
                deadline = now + ttl;
                next = now + interval;
                continue;
            }
            Ok(Ok(Some(by))) => return LockLost::Taken { what: T::WHAT, by },
            Ok(Err(fault)) => {
                tracing::warn!(
                    name: "locket-lock.failed-to-renew-lock",
                    fault = &*fault, "{} could not be renewed; trying again", T::WHAT
                )
            }
            Err(_) => {
                tracing::warn!(
                    name: "locket-lock.failed-to-renew-lock",
                    "{} could not be renewed for {interval:?}; trying again", T::WHAT
                )
            }
        }
        next = Instant::now() + retry_interval;
    }
}

async fn release<T: Expiring>(lock: &T) {
    match tokio::time::timeout(lock.ttl(), lock.release()).await {
        Ok(Ok(())) => tracing::info!(name: "locket-lock.released-lock", "released {}", T::WHAT),
        Ok(Err(fault)) => tracing::warn!(fault = &*fault, "{} could not be released; it runs out by itself", T::WHAT),
        Err(_) => tracing::warn!("{} could not be released in time; it runs out by itself", T::WHAT),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const TTL: Duration = Duration::from_millis(120);

    /// Answers what it was told to, the last answer for ever.
    struct Scripted {
        answers: Mutex<Vec<Result<Option<&'static str>, &'static str>>>,
        released: watch::Sender<bool>,
    }

    impl Scripted {
        fn saying(answers: &[Result<Option<&'static str>, &'static str>]) -> Arc<Self> {
            let answers = answers.iter().rev().copied().collect();
            Arc::new(Self { answers: Mutex::new(answers), released: watch::Sender::new(false) })
        }
    }

    impl Expiring for Scripted {
        const WHAT: &'static str = "the lock of a test";

        fn ttl(&self) -> Duration {
            TTL
        }

        async fn renew(&self) -> Result<Option<String>, Failure> {
            let answer = {
                let mut answers = self.answers.lock().unwrap();
                if answers.len() > 1 { answers.pop().unwrap() } else { answers[0] }
            };
            answer.map(|by| by.map(str::to_owned)).map_err(Failure::from)
        }

        async fn release(&self) -> Result<(), Failure> {
            self.released.send_replace(true);
            Ok(())
        }
    }

    fn start(lock: &Arc<Scripted>) -> Renewal {
        Renewal::start(Arc::clone(lock), Instant::now())
    }

    #[tokio::test]
    async fn what_cannot_be_renewed_runs_out() {
        let lost = start(&Scripted::saying(&[Ok(None), Err("the database is away")])).lost().await;
        assert_eq!(lost, LockLost::Expired { what: Scripted::WHAT, ttl: TTL });
    }

    #[tokio::test]
    async fn a_failure_that_passes_is_survived_until_somebody_else_has_it() {
        let answers = [Err("a hiccup"), Ok(None), Err("another"), Ok(None), Ok(Some("host b"))];
        let lost = start(&Scripted::saying(&answers)).lost().await;
        assert_eq!(lost, LockLost::Taken { what: Scripted::WHAT, by: "host b".to_owned() });
    }

    #[tokio::test]
    async fn a_holder_that_slept_past_its_time_does_not_ask() {
        let lock = Scripted::saying(&[Ok(None)]);
        let long_ago = Instant::now() - TTL;
        let lost = Renewal::start(Arc::clone(&lock), long_ago).lost().await;
        assert!(matches!(lost, LockLost::Expired { .. }));
    }

    #[tokio::test]
    async fn a_release_is_waited_for_and_a_drop_releases_nothing() {
        let lock = Scripted::saying(&[Ok(None)]);
        start(&lock).release().await;
        assert!(*lock.released.borrow());
        let lock = Scripted::saying(&[Ok(None)]);
        let Renewal { stop, task, .. } = start(&lock);
        drop(stop);
        task.await.unwrap();
        assert!(!*lock.released.borrow());
    }
}
