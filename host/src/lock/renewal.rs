//! Renewal of a lock with a TTL: renews well before expiry, and gives up when renewals have failed
//! for the whole TTL. Owns the timing, by the monotonic time of a clock; how a lock is renewed is
//! each lock's own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bbs_database::ConnectionCheck;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::LockLost;
use crate::clock::Clock;

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// A lock with a TTL.
pub(super) trait Expiring: Send + Sync + 'static {
    /// The lock's name in messages.
    const WHAT: &'static str;

    fn ttl(&self) -> Duration;

    /// Renews the lock for another TTL; returns its new holder if it was taken. After an error it
    /// is unknown.
    fn renew(&self) -> impl Future<Output = Result<Option<String>, Failure>> + Send;

    fn release(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Lets the next request use another connection: the last one had no answer in time.
    fn reconnect(&self) {}
}

/// The background task that renews a lock.
#[derive(Debug)]
pub(super) struct Renewal {
    what: &'static str,
    lost: watch::Receiver<Option<LockLost>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Renewal {
    /// `asked` is when the request for the lock was sent, by `clock`. The TTL counts from there, so
    /// the holder stops before a standby starts. The lock is renewed only while `connections` can
    /// be used: a host without them serves no client, but with the lock it would keep others from
    /// serving them.
    pub(super) fn start<T: Expiring>(
        lock: Arc<T>,
        connections: Option<Arc<ConnectionCheck>>,
        asked: Instant,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (found, lost) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                reason = renew_until_lost(&*lock, connections.as_deref(), asked, &*clock) => {
                    tracing::error!(name: "locket-lock.lost-lock", %reason, "lost the lock");
                    found.send_replace(Some(reason));
                }
                // Dropped without a release: the lock expires.
                released = stopped => if released.is_ok() { release(&*lock).await },
            }
        });
        Self {
            what: T::WHAT,
            lost,
            stop,
            task,
        }
    }

    pub(super) async fn lost(&self) -> LockLost {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("just looked"),
            // The task has panicked: it ends without a reason only after a release.
            Err(_) => LockLost::NotRenewed { what: self.what },
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

async fn renew_until_lost<T: Expiring>(
    lock: &T,
    connections: Option<&ConnectionCheck>,
    asked: Instant,
    clock: &dyn Clock,
) -> LockLost {
    let ttl = lock.ttl();
    let interval = ttl / 3;
    let retry_interval = ttl / 12;
    let mut deadline = asked + ttl;
    let mut next = asked + interval;
    loop {
        clock.sleep_until(next.min(deadline)).await;
        let now = clock.instant();
        // A process that was suspended may wake up here after its lock has expired, and must not
        // renew it.
        if now >= deadline {
            return LockLost::Expired { what: T::WHAT, ttl };
        }
        let renewed = async {
            if let Some(connections) = connections {
                connections.run(interval / 2).await?;
            }
            lock.renew().await
        };
        match timeout(interval.min(deadline - now), renewed).await {
            Ok(Ok(None)) => {
                // `now` is from before the request: others count from when they see the renewal.
                debug_assert!(now + ttl >= deadline, "a renewal never shortens the lock");
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
                );
                lock.reconnect();
            }
        }
        next = clock.instant() + retry_interval;
    }
}

async fn release<T: Expiring>(lock: &T) {
    let mut released = timeout(lock.ttl() / 2, lock.release()).await;
    if !matches!(released, Ok(Ok(()))) {
        if released.is_err() {
            lock.reconnect();
        }
        released = timeout(lock.ttl() / 2, lock.release()).await;
    }
    match released {
        Ok(Ok(())) => tracing::info!(name: "locket-lock.released-lock", "released {}", T::WHAT),
        Ok(Err(fault)) => tracing::warn!(
            fault = &*fault,
            "{} could not be released; it expires by itself",
            T::WHAT
        ),
        Err(_) => tracing::warn!(
            "{} could not be released in time; it expires by itself",
            T::WHAT
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bbs_database::{Address, Database};

    use super::*;
    use crate::clock::SystemClock;

    const TTL: Duration = Duration::from_secs(12);

    #[derive(Clone, Copy)]
    enum RenewalAnswer {
        Renewed,
        TakenBy(&'static str),
        Fails(&'static str),
        Hangs,
        Panics,
    }
    use RenewalAnswer::{Fails, Hangs, Panics, Renewed, TakenBy};

    /// Gives scripted answers; the last one repeats.
    struct Scripted {
        answers: Mutex<Vec<RenewalAnswer>>,
        /// When each renewal was requested, since the start of the test.
        asked: Mutex<Vec<Duration>>,
        reconnects: AtomicUsize,
        released: watch::Sender<bool>,
        begin: Instant,
    }

    impl Scripted {
        fn answering(answers: &[RenewalAnswer]) -> Arc<Self> {
            Arc::new(Self {
                answers: Mutex::new(answers.iter().rev().copied().collect()),
                asked: Mutex::default(),
                reconnects: AtomicUsize::new(0),
                released: watch::Sender::new(false),
                begin: Instant::now(),
            })
        }

        fn asked_at_s(&self) -> Vec<u64> {
            self.asked
                .lock()
                .unwrap()
                .iter()
                .map(Duration::as_secs)
                .collect()
        }
    }

    impl Expiring for Scripted {
        const WHAT: &'static str = "the lock of a test";

        fn ttl(&self) -> Duration {
            TTL
        }

        async fn renew(&self) -> Result<Option<String>, Failure> {
            self.asked.lock().unwrap().push(self.begin.elapsed());
            let answer = {
                let mut answers = self.answers.lock().unwrap();
                if answers.len() > 1 {
                    answers.pop().unwrap()
                } else {
                    answers[0]
                }
            };
            match answer {
                Renewed => Ok(None),
                TakenBy(holder) => Ok(Some(holder.to_owned())),
                Fails(reason) => Err(reason.into()),
                Hangs => pending().await,
                Panics => panic!("a fault of the host"),
            }
        }

        async fn release(&self) -> Result<(), Failure> {
            let hangs = matches!(self.answers.lock().unwrap()[0], Hangs);
            if hangs && self.reconnects.load(Ordering::Relaxed) == 0 {
                pending::<()>().await;
            }
            self.released.send_replace(true);
            Ok(())
        }

        fn reconnect(&self) {
            self.reconnects.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn start(lock: &Arc<Scripted>) -> Renewal {
        Renewal::start(
            Arc::clone(lock),
            None,
            Instant::now(),
            Arc::new(SystemClock),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn lock_that_cannot_be_renewed_expires() {
        let lock = Scripted::answering(&[Renewed, Fails("the database is away")]);
        let lost = start(&lock).lost().await;
        assert_eq!(
            lost,
            LockLost::Expired {
                what: Scripted::WHAT,
                ttl: TTL
            }
        );
        assert_eq!(
            lock.asked_at_s(),
            [4, 8, 9, 10, 11, 12, 13, 14, 15],
            "a third of the TTL, then a twelfth"
        );
        assert_eq!(
            lock.reconnects.load(Ordering::Relaxed),
            0,
            "there were answers"
        );
        assert_eq!(
            lock.begin.elapsed().as_secs(),
            16,
            "the TTL after the last renewal"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lock_is_lost_when_its_renewal_panics() {
        let lost = start(&Scripted::answering(&[Panics])).lost().await;
        assert_eq!(
            lost,
            LockLost::NotRenewed {
                what: Scripted::WHAT
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_that_hangs_is_retried_until_the_lock_expires() {
        let lock = Scripted::answering(&[Hangs]);
        let lost = start(&lock).lost().await;
        assert_eq!(
            lost,
            LockLost::Expired {
                what: Scripted::WHAT,
                ttl: TTL
            }
        );
        assert_eq!(lock.asked_at_s(), [4, 9]);
        assert_eq!(lock.reconnects.load(Ordering::Relaxed), 2);
        assert_eq!(lock.begin.elapsed().as_secs(), 12);
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_survived_until_another_host_takes_the_lock() {
        let answers = [
            Fails("a hiccup"),
            Renewed,
            Hangs,
            Fails("another"),
            Renewed,
            TakenBy("host b"),
        ];
        let lock = Scripted::answering(&answers);
        let lost = start(&lock).lost().await;
        assert_eq!(
            lost,
            LockLost::Taken {
                what: Scripted::WHAT,
                by: "host b".to_owned()
            }
        );
        assert_eq!(lock.asked_at_s(), [4, 5, 9, 14, 15, 19]);
    }

    #[tokio::test(start_paused = true)]
    async fn holder_that_was_suspended_past_its_ttl_does_not_renew() {
        let lock = Scripted::answering(&[Renewed]);
        let renewal = start(&lock);
        tokio::time::advance(TTL).await;
        assert!(matches!(renewal.lost().await, LockLost::Expired { .. }));
        assert_eq!(lock.asked_at_s(), [] as [u64; 0]);
    }

    #[tokio::test]
    async fn lock_is_not_renewed_without_connections() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
            .await
            .unwrap();
        let connections = Some(Arc::new(ConnectionCheck::new(&database)));
        database.close().await;
        tokio::time::pause();
        let lock = Scripted::answering(&[Renewed]);
        let lost = Renewal::start(
            Arc::clone(&lock),
            connections,
            Instant::now(),
            Arc::new(SystemClock),
        )
        .lost()
        .await;
        assert_eq!(
            lost,
            LockLost::Expired {
                what: Scripted::WHAT,
                ttl: TTL
            }
        );
        assert_eq!(lock.asked_at_s(), [] as [u64; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn release_is_awaited_and_drop_releases_nothing() {
        let lock = Scripted::answering(&[Renewed]);
        start(&lock).release().await;
        assert!(*lock.released.borrow());
        let lock = Scripted::answering(&[Renewed]);
        let Renewal { stop, task, .. } = start(&lock);
        drop(stop);
        task.await.unwrap();
        assert!(!*lock.released.borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn release_without_an_answer_is_repeated_on_another_connection() {
        let lock = Scripted::answering(&[Hangs]);
        start(&lock).release().await;
        assert!(*lock.released.borrow());
        assert_eq!(lock.begin.elapsed(), TTL / 2);
    }
}
