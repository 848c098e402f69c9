//! The end of a task, told to whoever wants to know: at the address that came with it, a few times, in the background.
//! A task that could not be told of stays; convergence takes it up again.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{DomainError, change, delete};
use crate::clients::ClientError;
use crate::domain::Service;
use crate::model::task::Task;

/// Posts without a pause between them.
const ATTEMPTS: usize = 3;
/// Answers that ask for another attempt: there is nobody behind the address at the moment.
const NOBODY_THERE: [u16; 2] = [503, 504];

/// How many ends are told at once, and how many may wait for that.
#[derive(Debug)]
pub(in crate::domain) struct Completions {
    workers: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Completions {
    pub(in crate::domain) fn new(workers: usize) -> Self {
        let workers = workers.max(1);
        Self { workers: Arc::new(Semaphore::new(workers)), places: Arc::new(Semaphore::new(workers * 2)) }
    }
}

/// Tells of the end of a task, if anybody wants to know and there is a place. Does not wait: a call is answered whatever
/// those addresses do, and without a place the task stays for convergence to submit again.
pub(in crate::domain) fn submit(service: &Service, task: Option<Task>) {
    let Some(task) = task.filter(|task| !task.definition.completion_callback_url.is_empty()) else { return };
    let completions = service.completions();
    let Ok(place) = Arc::clone(&completions.places).try_acquire_owned() else {
        tracing::info!("too many ends of tasks wait to be told; convergence submits this one again");
        return;
    };
    let (workers, service) = (Arc::clone(&completions.workers), service.clone());
    tokio::spawn(async move {
        let _worker = workers.acquire().await.expect("the semaphore is never closed");
        if let Err(fault) = tell(&service, &task.guid).await {
            tracing::info!(reason = %fault, "the end of a task could not be told; convergence submits it again");
        }
        drop(place);
    });
}

async fn tell(service: &Service, guid: &[u8]) -> Result<(), DomainError> {
    let changed = change(service, guid, |task, now_ns| task.resolve(now_ns).map(Some)).await?;
    let task = changed.after.expect("resolving changes a task");
    for _ in 0..ATTEMPTS {
        match service.clients().callbacks.post(&task).await {
            Ok(status) if NOBODY_THERE.contains(&status) => {}
            // Whatever else was said: it has been told.
            Ok(_) => return delete(service, guid).await,
            Err(ClientError::Unreachable { source, .. }) if source.is_timeout() => {}
            Err(fault) => return Err(DomainError::Client(fault)),
        }
    }
    tracing::info!(attempts = ATTEMPTS, "nobody answered to the end of a task; convergence submits it again");
    Ok(())
}
