//! Stops of containers that are no longer desired: their cells are called after the call is
//! answered. Bounds the number of containers that wait.
//!
//! One task per cell works through its queue, so that a cell is looked up once for many containers,
//! and a slow cell holds at most [`REQUESTS`] of the requests to all cells. Those are bounded, too:
//! the containers of a large desired LRP are on most cells.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bbs_model::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use bbs_model::{Text, TraceId};
use bbs_work::log_sampling::LineLimit;
use bbs_work::lossy;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;

use super::request_limit::RequestLimit;
use crate::domain::Service;

/// Concurrent requests to one cell.
const REQUESTS: usize = 32;
/// Waiting containers over all cells, some 300 bytes each.
const MAX_WAITING: usize = 50_000;

/// The data of a request to a cell, without the rest of the row.
#[derive(Debug)]
struct StopRequest {
    key: LrpKey,
    instance: InstanceKey,
    trace_id: TraceId,
}

#[derive(Debug, Default)]
pub(in crate::domain) struct Stops {
    queues: Mutex<StopQueues>,
    /// Limit of the requests to all cells.
    limit: RequestLimit,
    /// Limit of the lines about containers that were not stopped.
    failures: LineLimit,
}

#[derive(Debug, Default)]
struct StopQueues {
    /// By cell. A cell in this map has a task.
    cells: HashMap<Text, Vec<StopRequest>>,
    count: usize,
    /// Containers that were not stopped, since the host started.
    failed: u64,
}

/// Queues the stops and returns at once. Convergence repeats what is not queued or fails.
pub(super) fn submit(service: &Service, containers: Vec<ActualLrp>, trace_id: &TraceId) {
    for row in containers {
        let key = row.key();
        let instance = row.instance_key();
        let container = StopRequest {
            key,
            instance,
            trace_id: trace_id.clone(),
        };
        match service.stops().add(row.cell_id, container) {
            Queued::Behind => {}
            Queued::First(cell_id) => drop(tokio::spawn(work(service.detached(), cell_id))),
            Queued::Rejected => {
                service.stops().note_failed(
                    1,
                    "too many containers wait to be stopped",
                    &row.process_guid,
                    row.index,
                );
            }
        }
    }
}

enum Queued {
    /// The cell has a task.
    Behind,
    /// The cell needs a task.
    First(Text),
    Rejected,
}

impl Stops {
    fn add(&self, cell_id: Text, container: StopRequest) -> Queued {
        let mut waiting = self.queues.lock();
        if waiting.count >= MAX_WAITING {
            return Queued::Rejected;
        }
        waiting.count += 1;
        match waiting.cells.entry(cell_id) {
            Entry::Occupied(mut there) => {
                there.get_mut().push(container);
                Queued::Behind
            }
            Entry::Vacant(cell) => {
                let cell_id = cell.key().clone();
                cell.insert(vec![container]);
                Queued::First(cell_id)
            }
        }
    }

    /// Takes the queue of a cell. If it is empty the cell's task must end: the next container gets
    /// a new one.
    fn take_requests(&self, cell_id: &[u8]) -> Vec<StopRequest> {
        let mut waiting = self.queues.lock();
        let taken = waiting
            .cells
            .get_mut(cell_id)
            .map(std::mem::take)
            .unwrap_or_default();
        if taken.is_empty() {
            waiting.cells.remove(cell_id);
        }
        waiting.count -= taken.len();
        taken
    }

    /// Passes the queue of a cell to `stop`, as the cell's task, until it is empty.
    async fn work_through<F>(&self, cell_id: &[u8], stop: impl Fn(Vec<StopRequest>) -> F)
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        loop {
            let containers = self.take_requests(cell_id);
            let [first, ..] = &containers[..] else { return };
            let count = containers.len() as u64;
            let LrpKey {
                process_guid,
                index,
                ..
            } = first.key.clone();
            // In a task of its own: after a panic here, no task would work through the queue.
            let stopped = tokio::spawn(stop(containers)).await;
            if let Err(reason) = stopped.unwrap_or_else(|panic| Err(panic.to_string())) {
                self.note_failed(count, &reason, &process_guid, index);
            }
        }
    }

    /// Counts containers that were not stopped, and logs a sample; `process_guid` and `index` name
    /// one of them.
    fn note_failed(&self, containers: u64, reason: &str, process_guid: &[u8], index: i32) {
        let mut waiting = self.queues.lock();
        waiting.failed += containers;
        let failed = waiting.failed;
        drop(waiting);
        if self.failures.admit().is_some() {
            tracing::warn!(
                process_guid = %lossy(process_guid), index, reason, failed,
                "a container was not stopped; convergence tries again; the log is sampled"
            );
        }
    }
}

async fn work(service: Service, cell_id: Text) {
    let stop = |containers| stop_all(service.clone(), cell_id.clone(), containers);
    service.stops().work_through(&cell_id, stop).await;
}

/// Has a cell stop containers.
///
/// # Errors
/// The reason why the cell was not called at all.
async fn stop_all(
    service: Service,
    cell_id: Text,
    containers: Vec<StopRequest>,
) -> Result<(), String> {
    let found = service.clients().cells.find(&cell_id).await;
    let cell = found.map_err(|fault| fault.to_string())?;
    let cell = &cell.ok_or("its cell is not present")?;
    let service = &service;
    let stopping =
        stream::iter(&containers).for_each_concurrent(REQUESTS, |container| async move {
            let StopRequest {
                key,
                instance,
                trace_id,
            } = container;
            let _permit = service.stops().limit.permit().await;
            if let Err(fault) = service
                .clients()
                .reps
                .stop(cell, key, instance, trace_id)
                .await
            {
                service
                    .stops()
                    .note_failed(1, &fault.to_string(), &key.process_guid, key.index);
            }
        });
    stopping.await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn container() -> StopRequest {
        StopRequest {
            key: LrpKey::default(),
            instance: InstanceKey::default(),
            trace_id: TraceId::NONE,
        }
    }

    #[test]
    fn first_container_of_a_cell_starts_a_task_that_ends_with_an_empty_queue() {
        let stops = Stops::default();
        let cell = b"cell".to_vec();
        let other = b"other".to_vec();
        assert!(matches!(
            stops.add(cell.clone(), container()),
            Queued::First(_)
        ));
        assert!(matches!(
            stops.add(cell.clone(), container()),
            Queued::Behind
        ));
        assert!(matches!(stops.add(other, container()), Queued::First(_)));
        assert_eq!(stops.take_requests(&cell).len(), 2);
        assert!(
            matches!(stops.add(cell.clone(), container()), Queued::Behind),
            "its task looks again"
        );
        assert_eq!(stops.take_requests(&cell).len(), 1);
        assert_eq!(stops.take_requests(&cell).len(), 0);
        assert!(
            matches!(stops.add(cell, container()), Queued::First(_)),
            "its task has ended"
        );
    }

    #[tokio::test]
    async fn task_of_a_cell_goes_on_after_a_stop_that_panics() {
        let stops = Arc::new(Stops::default());
        let add = |stops: &Stops, process_guid: &[u8]| {
            let mut added = container();
            added.key.process_guid = process_guid.to_vec();
            stops.add(b"cell".to_vec(), added)
        };
        add(&stops, b"first");
        let stopped = Arc::new(Mutex::new(Vec::new()));
        let stop = |containers: Vec<StopRequest>| {
            let stops = Arc::clone(&stops);
            let stopped = Arc::clone(&stopped);
            async move {
                let process_guid = containers[0].key.process_guid.clone();
                if process_guid == b"first" {
                    add(&stops, b"second");
                }
                assert_eq!(process_guid, b"second");
                stopped.lock().push(process_guid);
                Ok(())
            }
        };
        stops.work_through(b"cell", stop).await;
        assert_eq!(stopped.lock().concat(), b"second");
        assert_eq!(stops.queues.lock().failed, 1);
        assert!(
            matches!(add(&stops, b"third"), Queued::First(_)),
            "the task has ended"
        );
    }

    #[test]
    fn containers_beyond_the_bound_are_rejected_until_the_queue_is_taken() {
        let stops = Stops::default();
        for _ in 0..MAX_WAITING {
            stops.add(b"cell".to_vec(), container());
        }
        assert!(matches!(
            stops.add(b"other".to_vec(), container()),
            Queued::Rejected
        ));
        assert_eq!(stops.take_requests(b"cell").len(), MAX_WAITING);
        assert!(matches!(
            stops.add(b"other".to_vec(), container()),
            Queued::First(_)
        ));
    }
}
