//! Task completion callbacks: posts the end of a task to the URL that came with it, a few times, in
//! the background. A task whose callback fails stays resolving, and convergence submits it again.
//!
//! A queue of guids decouples the rate of completions from that of the receiver: after an outage of
//! the receiver everything that waits is posted as fast as it answers. A task whose callback is
//! still queued `expire_completed_task` after its end is deleted without one, as in Diego.

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::sync::Arc;

use bbs_model::task::Task;
use bbs_work::causes::with_causes;
use bbs_work::log_sampling::LineLimit;
use bbs_work::lossy;
use parking_lot::Mutex;

use super::{DomainError, change_task, delete};
use crate::domain::Service;

/// Posts, without a delay in between.
const ATTEMPTS: usize = 3;
/// Statuses that are retried: the receiver is temporarily not there.
const RETRIED_STATUSES: [u16; 2] = [503, 504];
/// Waiting callbacks, some 100 bytes each.
const MAX_WAITING: usize = 100_000;
/// Lines about failed callbacks, at once and later.
const FAILED_BURST: u32 = 20;
const FAILED_PER_MINUTE: u32 = 20;

/// The callbacks that wait. Bounds those, and the number that run concurrently.
#[derive(Debug)]
pub(in crate::domain) struct Completions {
    workers: usize,
    queue: Mutex<CallbackQueue>,
    failures: LineLimit,
}

#[derive(Debug, Default)]
struct CallbackQueue {
    /// Guids of tasks, the oldest first.
    waiting: VecDeque<Arc<[u8]>>,
    /// The guids in `waiting`: convergence submits a task again while it waits.
    guids: HashSet<Arc<[u8]>>,
    /// Workers that have not found the queue empty.
    running: usize,
}

/// Queues the callback of a task that has a URL, and returns at once. If too many callbacks wait,
/// the task stays for convergence to submit again.
pub(in crate::domain) fn submit(service: &Service, task: Option<Task>) {
    let Some(task) = task.filter(|task| !task.definition.completion_callback_url.is_empty()) else {
        return;
    };
    let completions = service.completions();
    match completions.add(&task.guid) {
        QueuedCallback::Behind => {}
        QueuedCallback::NeedsWorker => drop(tokio::spawn(work(service.detached()))),
        QueuedCallback::Rejected => completions.note_failed(&task.guid, &"too many callbacks wait"),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum QueuedCallback {
    /// The workers suffice.
    Behind,
    /// One more worker has to start.
    NeedsWorker,
    Rejected,
}

impl Completions {
    pub(in crate::domain) fn new(workers: usize) -> Self {
        Self {
            workers: workers.max(1),
            queue: Mutex::default(),
            failures: LineLimit::new(FAILED_BURST, FAILED_PER_MINUTE),
        }
    }

    fn add(&self, guid: &[u8]) -> QueuedCallback {
        let mut queue = self.queue.lock();
        if queue.guids.contains(guid) {
            return QueuedCallback::Behind;
        }
        if queue.waiting.len() >= MAX_WAITING {
            return QueuedCallback::Rejected;
        }
        let guid: Arc<[u8]> = guid.into();
        queue.guids.insert(Arc::clone(&guid));
        queue.waiting.push_back(guid);
        if queue.running >= self.workers {
            return QueuedCallback::Behind;
        }
        queue.running += 1;
        QueuedCallback::NeedsWorker
    }

    /// Takes the oldest guid. If there is none the worker must end: the next task gets a new one.
    fn take(&self) -> Option<Arc<[u8]>> {
        let mut queue = self.queue.lock();
        let taken = queue.waiting.pop_front();
        if let Some(guid) = &taken {
            queue.guids.remove(guid);
        } else {
            queue.running -= 1;
        }
        taken
    }

    /// Runs the job of one guid after the other, as a worker, until none waits.
    async fn run_jobs<F>(&self, job: impl Fn(Arc<[u8]>) -> F)
    where
        F: Future<Output = Result<Delivery, DomainError>> + Send + 'static,
    {
        while let Some(guid) = self.take() {
            // In a task of its own: a panic ends the job and not the worker.
            match tokio::spawn(job(Arc::clone(&guid))).await {
                // Or it was resolved or deleted while it waited.
                Ok(Ok(Delivery::Ended) | Err(DomainError::NotFound | DomainError::Task(_))) => {}
                Ok(Ok(Delivery::Unanswered)) => {
                    self.note_failed(&guid, &format_args!("no answer to {ATTEMPTS} posts"));
                }
                Ok(Err(fault)) => self.note_failed(&guid, &with_causes(&fault)),
                Err(panic) => self.note_failed(&guid, &panic),
            }
        }
    }

    fn note_failed(&self, guid: &[u8], reason: &dyn Display) {
        if let Some(left_out) = self.failures.admit() {
            tracing::info!(
                task = %lossy(guid), %reason, left_out,
                "a task callback failed; convergence submits it again; the log is sampled"
            );
        }
    }
}

async fn work(service: Service) {
    let job = |guid| call_back(service.clone(), guid);
    service.completions().run_jobs(job).await;
}

enum Delivery {
    Ended,
    /// The task stays resolving.
    Unanswered,
}

/// Posts the end of a task. Another client may have resolved it while it waited, so this decides
/// anew.
async fn call_back(service: Service, guid: Arc<[u8]>) -> Result<Delivery, DomainError> {
    let changed = change_task(&service, &guid, |task, now_ns| {
        task.resolve(now_ns).map(Some)
    })
    .await?;
    let task = changed.after.expect("resolving changes a task");
    for _ in 0..ATTEMPTS {
        match service.clients().callbacks.post(&task).await {
            Ok(status) if RETRIED_STATUSES.contains(&status) => {}
            // Any other status counts as delivered.
            Ok(_) => return delete(&service, &guid).await.map(|()| Delivery::Ended),
            Err(fault) if fault.is_request_timeout() => {}
            Err(fault) => return Err(DomainError::Client(fault)),
        }
    }
    Ok(Delivery::Unanswered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guid(number: usize) -> Vec<u8> {
        number.to_string().into_bytes()
    }

    #[test]
    fn worker_takes_tasks_in_order_and_ends_with_an_empty_queue() {
        let completions = Completions::new(2);
        let added: Vec<_> = (0..4)
            .map(|number| completions.add(&guid(number)))
            .collect();
        assert_eq!(
            added,
            [
                QueuedCallback::NeedsWorker,
                QueuedCallback::NeedsWorker,
                QueuedCallback::Behind,
                QueuedCallback::Behind
            ]
        );
        for number in 0..4 {
            assert_eq!(completions.take().as_deref(), Some(&guid(number)[..]));
        }
        assert_eq!(
            completions.add(b"late"),
            QueuedCallback::Behind,
            "both look again"
        );
        assert_eq!(completions.take().as_deref(), Some(&b"late"[..]));
        assert_eq!(completions.take(), None);
        assert_eq!(
            completions.add(b"later"),
            QueuedCallback::NeedsWorker,
            "one has ended"
        );
    }

    #[tokio::test]
    async fn worker_goes_on_after_a_job_that_panics() {
        let completions = Completions::new(1);
        let first = completions.add(b"first");
        completions.add(b"second");
        let ended = Arc::new(Mutex::new(Vec::new()));
        let job = |guid: Arc<[u8]>| {
            let ended = Arc::clone(&ended);
            async move {
                assert_eq!(&guid[..], b"second");
                ended.lock().push(guid);
                Ok(Delivery::Ended)
            }
        };
        completions.run_jobs(job).await;
        assert_eq!(ended.lock().concat(), b"second");
        assert_eq!(completions.add(b"third"), first, "the worker has ended");
    }

    #[test]
    fn waiting_task_is_queued_once_until_it_is_taken() {
        let completions = Completions::new(1);
        for _ in 0..3 {
            completions.add(b"task");
        }
        assert!(completions.take().is_some());
        completions.add(b"task");
        assert!(completions.take().is_some());
        assert_eq!(completions.take(), None);
    }

    #[test]
    fn tasks_beyond_the_bound_are_rejected_until_one_is_taken() {
        let completions = Completions::new(1);
        for number in 0..MAX_WAITING {
            assert_ne!(completions.add(&guid(number)), QueuedCallback::Rejected);
        }
        assert_eq!(completions.add(b"next"), QueuedCallback::Rejected);
        assert_eq!(
            completions.add(&guid(1)),
            QueuedCallback::Behind,
            "it waits"
        );
        assert!(completions.take().is_some());
        assert_eq!(completions.add(b"next"), QueuedCallback::Behind);
    }
}
