//! Renewal of a lock with a TTL: renews well before expiry, and gives up when renewals have failed for the whole TTL. Owns
//! the timing, by the monotonic clock; how a lock is renewed is each lock's own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::LockLost;

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// A lock with a TTL.
pub(super) trait Expiring: Send + Sync + 'static {
    /// The lock's name in messages.
    const WHAT: &'static str;

    fn ttl(&self) -> Duration;

    /// Renews the lock for another TTL; returns its new holder if it was taken. After an error it is unknown.
    fn renew(&self) -> impl Future<Output = Result<Option<String>, Failure>> + Send;

    fn release(&self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The background task that renews a lock.
#[derive(Debug)]
pub(super) struct Renewal {
    lost: watch::Receiver<Option<LockLost>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Renewal {
    /// `asked` is when the request for the lock was sent. The TTL counts from there, so the holder stops before a standby
    /// starts.
    pub(super) fn start<T: Expiring>(lock: Arc<T>, asked: Instant) -> Self {
        let (found, lost) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                reason = renew_until_lost(&*lock, asked) => {
                    tracing::error!(name: "locket-lock.lost-lock", %reason, "lost the lock");
                    found.send_replace(Some(reason));
                }
                // Dropped without a release: the lock expires.
                released = stopped => if released.is_ok() { release(&*lock).await },
            }
        });
        Self { lost, stop, task }
    }

    pub(super) async fn lost(&self) -> LockLost {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("just looked"),
            // The task ends without a reason only when no receiver is left.
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) async fn release(self) {
        // A task that has lost the lock has ended, and there is nothing to release.
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
        // A process that was suspended may wake up here after its lock has expired, and must not renew it.
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
                    fault = &*fault, "{} could not be renewed; retrying", T::WHAT
                )
            }
            Err(_) => {
                tracing::warn!(
                    name: "locket-lock.failed-to-renew-lock",
                    "{} could not be renewed for {interval:?}; retrying", T::WHAT
                )
            }
        }
        next = Instant::now() + retry_interval;
    }
}

async fn release<T: Expiring>(lock: &T) {
    match tokio::time::timeout(lock.ttl(), lock.release()).await {
        Ok(Ok(())) => tracing::info!(name: "locket-lock.released-lock", "released {}", T::WHAT),
        Ok(Err(fault)) => tracing::warn!(fault = &*fault, "{} could not be released; it expires by itself", T::WHAT),
        Err(_) => tracing::warn!("{} could not be released in time; it expires by itself", T::WHAT),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const TTL: Duration = Duration::from_millis(120);

    /// Gives scripted answers; the last one repeats.
    struct Scripted {
        answers: Mutex<Vec<Result<Option<&'static str>, &'static str>>>,
        released: watch::Sender<bool>,
    }

    impl Scripted {
        fn answering(answers: &[Result<Option<&'static str>, &'static str>]) -> Arc<Self> {
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
    async fn lock_that_cannot_be_renewed_expires() {
        let lost = start(&Scripted::answering(&[Ok(None), Err("the database is away")])).lost().await;
        assert_eq!(lost, LockLost::Expired { what: Scripted::WHAT, ttl: TTL });
    }

    #[tokio::test]
    async fn transient_failures_are_survived_until_another_host_takes_the_lock() {
        let answers = [Err("a hiccup"), Ok(None), Err("another"), Ok(None), Ok(Some("host b"))];
        let lost = start(&Scripted::answering(&answers)).lost().await;
        assert_eq!(lost, LockLost::Taken { what: Scripted::WHAT, by: "host b".to_owned() });
    }

    #[tokio::test]
    async fn holder_that_was_suspended_past_its_ttl_does_not_renew() {
        let lock = Scripted::answering(&[Ok(None)]);
        let long_ago = Instant::now() - TTL;
        let lost = Renewal::start(Arc::clone(&lock), long_ago).lost().await;
        assert!(matches!(lost, LockLost::Expired { .. }));
    }

    #[tokio::test]
    async fn release_is_awaited_and_drop_releases_nothing() {
        let lock = Scripted::answering(&[Ok(None)]);
        start(&lock).release().await;
        assert!(*lock.released.borrow());
        let lock = Scripted::answering(&[Ok(None)]);
        let Renewal { stop, task, .. } = start(&lock);
        drop(stop);
        task.await.unwrap();
        assert!(!*lock.released.borrow());
    }
}
