//! Task completion callbacks: posts the end of a task to the URL that came with it, a few times, in
//! the background. A task whose callback fails stays resolving, and convergence submits it again.

use std::sync::Arc;

use bbs_model::task::Task;
use bbs_work::causes::with_causes;
use tokio::sync::Semaphore;

use super::{DomainError, change_task, delete};
use crate::domain::Service;

/// Posts, without a delay in between.
const ATTEMPTS: usize = 3;
/// Statuses that are retried: the receiver is temporarily not there.
const RETRIED_STATUSES: [u16; 2] = [503, 504];

/// Bounds the callbacks that run concurrently and those that wait.
#[derive(Debug)]
pub(in crate::domain) struct Completions {
    workers: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Completions {
    pub(in crate::domain) fn new(workers: usize) -> Self {
        let workers = workers.max(1);
        Self {
            workers: Arc::new(Semaphore::new(workers)),
            places: Arc::new(Semaphore::new(workers * 2)),
        }
    }
}

/// Spawns the callback of a task that has a URL, and returns at once. If too many callbacks wait,
/// the task stays for convergence to submit again.
pub(in crate::domain) fn submit(service: &Service, task: Option<Task>) {
    let Some(task) = task.filter(|task| !task.definition.completion_callback_url.is_empty()) else {
        return;
    };
    let completions = service.completions();
    let Ok(place) = Arc::clone(&completions.places).try_acquire_owned() else {
        tracing::info!("too many task callbacks wait; convergence submits this one again");
        return;
    };
    let workers = Arc::clone(&completions.workers);
    let service = service.clone();
    tokio::spawn(async move {
        let _worker = workers
            .acquire()
            .await
            .expect("the semaphore is never closed");
        if let Err(fault) = call_back(&service, &task.guid).await {
            tracing::info!(reason = %with_causes(&fault), "a task callback failed; convergence submits it again");
        }
        drop(place);
    });
}

async fn call_back(service: &Service, guid: &[u8]) -> Result<(), DomainError> {
    let changed = change_task(service, guid, |task, now_ns| task.resolve(now_ns).map(Some)).await?;
    let task = changed.after.expect("resolving changes a task");
    for _ in 0..ATTEMPTS {
        match service.clients().callbacks.post(&task).await {
            Ok(status) if RETRIED_STATUSES.contains(&status) => {}
            // Any other status counts as delivered.
            Ok(_) => return delete(service, guid).await,
            Err(fault) if fault.is_request_timeout() => {}
            Err(fault) => return Err(DomainError::Client(fault)),
        }
    }
    tracing::info!(
        attempts = ATTEMPTS,
        "a task callback was not answered; convergence submits it again"
    );
    Ok(())
}
