//! Containers that nothing desires any more: their cells are asked to stop them, after the call is answered. Owns what
//! waits to be asked for, and how much of it there may be.
//!
//! One task for each cell works through what waits for it, so that a cell is looked up once for many containers, and one
//! that is slow delays its own alone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, stream};

use crate::domain::Service;
use crate::model::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use crate::model::{Text, TraceId};
use crate::quiet::gets_a_line;

/// Requests to one cell at once.
const REQUESTS: usize = 32;
/// Containers that wait, over all cells: some 300 bytes each.
const PLACES: usize = 50_000;

/// What a request to a cell needs. The whole row is not kept for it.
#[derive(Debug)]
struct Container {
    key: LrpKey,
    instance: InstanceKey,
    trace_id: TraceId,
}

#[derive(Debug, Default)]
pub(in crate::domain) struct Stops(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// By cell. A cell that is here has a task.
    cells: HashMap<Text, Vec<Container>>,
    count: usize,
    /// Containers that were not stopped, since the host began.
    failed: u64,
}

/// Does not wait. Convergence asks again for what a cell was not asked, or did not do.
pub(super) fn submit(service: &Service, containers: Vec<ActualLrp>, trace_id: &TraceId) {
    for row in containers {
        let (key, instance) = (row.key(), row.instance_key());
        let container = Container { key, instance, trace_id: trace_id.clone() };
        match service.stops().add(row.cell_id, container) {
            Added::Behind => {}
            Added::First(cell_id) => drop(tokio::spawn(work(service.clone(), cell_id))),
            Added::Refused => {
                service.stops().failed(1, "too many containers wait to be stopped", &row.process_guid, row.index);
            }
        }
    }
}

enum Added {
    /// Its cell has a task.
    Behind,
    /// Its cell needs one.
    First(Text),
    Refused,
}

impl Stops {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, cell_id: Text, container: Container) -> Added {
        let mut waiting = self.waiting();
        if waiting.count >= PLACES {
            return Added::Refused;
        }
        waiting.count += 1;
        match waiting.cells.entry(cell_id) {
            Entry::Occupied(mut there) => {
                there.get_mut().push(container);
                Added::Behind
            }
            Entry::Vacant(cell) => {
                let cell_id = cell.key().clone();
                cell.insert(vec![container]);
                Added::First(cell_id)
            }
        }
    }

    /// Everything that waits for a cell. Where that is nothing, its task has to end: the next container gets a new one.
    fn take(&self, cell_id: &[u8]) -> Vec<Container> {
        let mut waiting = self.waiting();
        let taken = waiting.cells.get_mut(cell_id).map(std::mem::take).unwrap_or_default();
        if taken.is_empty() {
            waiting.cells.remove(cell_id);
        }
        waiting.count -= taken.len();
        taken
    }

    /// Counts containers that were not stopped, for the same reason; `process_guid` and `index` name one of them.
    fn failed(&self, containers: u64, reason: &str, process_guid: &[u8], index: i32) {
        let mut waiting = self.waiting();
        let before = waiting.failed;
        waiting.failed += containers;
        let failed = waiting.failed;
        drop(waiting);
        if (before + 1..=failed).any(gets_a_line) {
            let process_guid = String::from_utf8_lossy(process_guid);
            tracing::warn!(
                %process_guid, index, reason, failed,
                "a container was not stopped; convergence asks again; not each is logged"
            );
        }
    }
}

async fn work(service: Service, cell_id: Text) {
    loop {
        let containers = service.stops().take(&cell_id);
        let [first, ..] = &containers[..] else { return };
        let cell = match service.clients().cells.find(&cell_id).await {
            Ok(Some(cell)) => cell,
            missing => {
                let reason =
                    missing.err().map_or_else(|| "its cell is not there".to_owned(), |fault| fault.to_string());
                service.stops().failed(containers.len() as u64, &reason, &first.key.process_guid, first.key.index);
                continue;
            }
        };
        let (service, cell) = (&service, &cell);
        let stopping = stream::iter(&containers).for_each_concurrent(REQUESTS, |container| async move {
            let Container { key, instance, trace_id } = container;
            if let Err(fault) = service.clients().reps.stop(cell, key, instance, trace_id).await {
                service.stops().failed(1, &fault.to_string(), &key.process_guid, key.index);
            }
        });
        stopping.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> Container {
        Container { key: LrpKey::default(), instance: InstanceKey::default(), trace_id: TraceId::NONE }
    }

    #[test]
    fn first_container_of_a_cell_begins_a_task_that_ends_once_nothing_waits() {
        let stops = Stops::default();
        let (cell, other) = (b"cell".to_vec(), b"other".to_vec());
        assert!(matches!(stops.add(cell.clone(), container()), Added::First(_)));
        assert!(matches!(stops.add(cell.clone(), container()), Added::Behind));
        assert!(matches!(stops.add(other, container()), Added::First(_)));
        assert_eq!(stops.take(&cell).len(), 2);
        assert!(matches!(stops.add(cell.clone(), container()), Added::Behind), "its task looks again");
        assert_eq!(stops.take(&cell).len(), 1);
        assert_eq!(stops.take(&cell).len(), 0);
        assert!(matches!(stops.add(cell, container()), Added::First(_)), "its task has ended");
    }

    #[test]
    fn containers_beyond_the_bound_are_refused_until_some_were_taken() {
        let stops = Stops::default();
        for _ in 0..PLACES {
            stops.add(b"cell".to_vec(), container());
        }
        assert!(matches!(stops.add(b"other".to_vec(), container()), Added::Refused));
        assert_eq!(stops.take(b"cell").len(), PLACES);
        assert!(matches!(stops.add(b"other".to_vec(), container()), Added::First(_)));
    }
}
