//! Calls to cells that a run of convergence collects: retirements and updates of containers. They
//! are made after the auctions are requested, so that a cell that does not answer delays neither
//! those nor the pages; and it gets few calls of the run, so that the next run is not delayed by many.

use std::collections::BTreeMap;

use bbs_model::actual_lrp::{InstanceKey, LrpKey, State};
use bbs_model::convergence::{ConvergenceInput, ProcessRecords, Push, SlotAction, decide};
use bbs_model::{Text, TraceId};
use bbs_proto::models::CellPresence;
use bbs_work::causes::with_causes;
use bbs_work::lossy;
use parking_lot::Mutex;

use crate::domain::actual_lrps::{Retirement, retire};
use crate::domain::retry::retry;
use crate::domain::{DomainError, Service, lrp_updates};

/// Calls of each kind to one cell. The next run finds the rest. Bounds the time of a run for a cell
/// that answers slowly.
const MAX_CALLS: usize = 250;
/// Calls of each kind to all cells, some 300 bytes each.
const MAX_CALLS_IN_ALL: usize = 50_000;

/// Calls to one cell without an answer in time after which it gets no further ones: one container
/// that hangs makes no cell silent.
const MAX_TIMEOUTS: u32 = 3;

/// The retirement of a container.
pub(super) struct RetireCall {
    pub(super) key: LrpKey,
    pub(super) cell_id: Text,
    /// The state in which the run has left the instance.
    pub(super) state: Option<State>,
}

/// An update of a container that has missed changes of its desired LRP.
pub(super) struct UpdateCall {
    key: LrpKey,
    instance: InstanceKey,
}

pub(super) enum CellCall {
    Retire(RetireCall),
    Update(UpdateCall),
}

/// A retirement that was made.
pub(super) struct RetiredContainer {
    pub(super) call: RetireCall,
    pub(super) outcome: Result<Retirement, DomainError>,
}

/// Components that have not answered a call of a run in time. The next run calls them again.
#[derive(Default)]
pub(super) struct SilentComponents(Mutex<Silence>);

#[derive(Default)]
struct Silence {
    /// Calls without an answer in time, by cell.
    timeouts: BTreeMap<Text, u32>,
    /// Whether Locket did not look up a cell. A retirement looks its cell up, and an update does
    /// not.
    includes_locket: bool,
    /// Retirements that were left out.
    left_out: u64,
}

impl SilentComponents {
    /// Whether a call is left out, which would wait for an answer once more.
    fn leave_out(&self, call: &CellCall) -> bool {
        let mut silence = self.0.lock();
        match call {
            CellCall::Retire(call) => {
                let is_left_out = silence.includes_locket || silence.includes(&call.cell_id);
                silence.left_out += u64::from(is_left_out);
                is_left_out
            }
            CellCall::Update(call) => silence.includes(&call.instance.cell_id),
        }
    }

    /// Notes the component that a call to a cell has found silent, if any.
    fn note(&self, cell_id: &Text, fault: &DomainError) {
        match fault {
            DomainError::Client(fault) if fault.is_timeout() => {
                *self.0.lock().timeouts.entry(cell_id.clone()).or_default() += 1;
            }
            DomainError::Cells(fault) if fault.is_silence() => {
                self.0.lock().includes_locket = true;
            }
            _ => {}
        }
    }

    /// The number of retirements that were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.0.lock().left_out
    }
}

impl Silence {
    fn includes(&self, cell_id: &Text) -> bool {
        let timeouts = self.timeouts.get(cell_id);
        timeouts.is_some_and(|timeouts| *timeouts >= MAX_TIMEOUTS)
    }
}

#[derive(Default)]
pub(super) struct CellCalls {
    retirements: BoundedCalls<RetireCall>,
    updates: BoundedCalls<UpdateCall>,
}

struct BoundedCalls<T> {
    calls: Vec<T>,
    /// By cell.
    counts: BTreeMap<Text, usize>,
}

impl<T> Default for BoundedCalls<T> {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            counts: BTreeMap::new(),
        }
    }
}

impl<T> BoundedCalls<T> {
    fn add(&mut self, cell_id: Text, call: T) {
        let count = self.counts.entry(cell_id).or_default();
        if *count < MAX_CALLS && self.calls.len() < MAX_CALLS_IN_ALL {
            *count += 1;
            self.calls.push(call);
        }
    }
}

impl CellCalls {
    pub(super) fn retire(&mut self, call: RetireCall) {
        self.retirements.add(call.cell_id.clone(), call);
    }

    /// Collects an update. That of the tags of a container comes after that of its routes.
    pub(super) fn update(&mut self, push: Push) {
        let Push { key, instance, .. } = push;
        let last = self.updates.calls.last();
        if last.is_none_or(|last| last.instance != instance) {
            let cell_id = instance.cell_id.clone();
            self.updates.add(cell_id, UpdateCall { key, instance });
        }
    }

    /// The calls: updates first, which take less time.
    pub(super) fn into_calls(self) -> impl Iterator<Item = CellCall> {
        let updates = self.updates.calls.into_iter().map(CellCall::Update);
        updates.chain(self.retirements.calls.into_iter().map(CellCall::Retire))
    }
}

/// Makes a call, unless it is left out. Returns the outcome of a retirement; an update that fails is
/// only logged.
pub(super) async fn make(
    service: &Service,
    input: &ConvergenceInput<'_>,
    cells: &BTreeMap<Text, CellPresence>,
    silent: &SilentComponents,
    call: CellCall,
) -> Option<RetiredContainer> {
    if silent.leave_out(&call) {
        return None;
    }
    match call {
        CellCall::Retire(call) => {
            let outcome = retire_if_due(service, input, &call.key).await;
            if let Err(fault) = &outcome {
                silent.note(&call.cell_id, fault);
            }
            Some(RetiredContainer { call, outcome })
        }
        CellCall::Update(call) => {
            if let Err(fault) = update_container(service, input, cells, &call).await {
                silent.note(&call.instance.cell_id, &fault);
                tracing::info!(process_guid = %lossy(&call.key.process_guid), call.key.index, reason = %with_causes(&fault), "a container was not updated with its routes or tags");
            }
            None
        }
    }
}

/// Retires a container by its cell.
///
/// # Errors
/// `NotFound` if the instance is not to be retired any more; errors of [`retire`].
async fn retire_if_due(
    service: &Service,
    input: &ConvergenceInput<'_>,
    key: &LrpKey,
) -> Result<Retirement, DomainError> {
    if !retry(|| is_due(service, input, key)).await? {
        return Err(DomainError::NotFound);
    }
    retire(service, key, &TraceId::NONE).await
}

/// Whether an instance is to be retired as of now: calls to other cells may have taken minutes.
async fn is_due(
    service: &Service,
    input: &ConvergenceInput<'_>,
    key: &LrpKey,
) -> Result<bool, DomainError> {
    let store = service.store();
    let mut reader = store.look().await?;
    // The desired LRP last: it decides, and may change between the two.
    let mut slots =
        lrp_updates::plain_slots(&mut reader, &key.process_guid, Some(key.index)).await?;
    let wanted = reader.desired_instances_of(&key.process_guid).await?;
    let slot = slots.remove(&key.index).unwrap_or_default();
    let input = input.at(store.now_ns());
    let target = wanted.as_ref().map(|wanted| &wanted.target);
    let actions = decide(key.index, &slot, target, &input);
    Ok(actions.contains(&SlotAction::Retire))
}

/// Sends a container the routes or tags that it lacks as of now: calls to other cells may have
/// taken minutes.
async fn update_container(
    service: &Service,
    input: &ConvergenceInput<'_>,
    cells: &BTreeMap<Text, CellPresence>,
    UpdateCall { key, instance }: &UpdateCall,
) -> Result<(), DomainError> {
    let Some(cell) = cells.get(&instance.cell_id) else {
        return Ok(());
    };
    let mut reader = service.store().look().await?;
    let wanted = reader.desired_instances_of(&key.process_guid).await?;
    let slot = reader.slot(&key.process_guid, key.index).await?.slot;
    drop(reader);
    let now = ProcessRecords {
        wanted,
        slots: BTreeMap::from([(key.index, Box::new(slot))]),
    };
    for push in now.pushes(input) {
        if push.instance == *instance {
            let reps = &service.clients().reps;
            reps.update(cell, &push, &TraceId::NONE).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clients::cells::CellsError;

    fn retirement(cell_id: &str) -> RetireCall {
        RetireCall {
            key: LrpKey::default(),
            cell_id: cell_id.into(),
            state: Some(State::Running),
        }
    }

    #[test]
    fn retirements_are_left_out_while_locket_does_not_answer_and_updates_are_made() {
        let silent = SilentComponents::default();
        let cell_id: Text = "cell".into();
        let retire = CellCall::Retire(retirement("cell"));
        let update = CellCall::Update(UpdateCall {
            key: LrpKey::default(),
            instance: InstanceKey {
                instance_guid: "a".into(),
                cell_id: cell_id.clone(),
            },
        });
        silent.note(&cell_id, &DomainError::NotFound);
        assert!(!silent.leave_out(&retire), "it was answered");
        let fault = CellsError::Silent(Duration::from_secs(10));
        silent.note(&cell_id, &fault.into());
        assert!(silent.leave_out(&retire) && !silent.leave_out(&update));
        assert_eq!(silent.left_out(), 1);
    }

    #[test]
    fn calls_of_one_kind_to_one_cell_are_bounded() {
        let mut calls = CellCalls::default();
        for _ in 0..=MAX_CALLS {
            calls.retire(retirement("cell"));
        }
        calls.retire(retirement("other"));
        for (guid, routes) in [("a", true), ("a", false), ("b", true)] {
            calls.update(Push {
                key: LrpKey::default(),
                instance: InstanceKey {
                    instance_guid: guid.into(),
                    cell_id: "cell".into(),
                },
                internal_routes: routes.then(Vec::new),
                metric_tags: None,
            });
        }
        assert_eq!(calls.into_calls().count(), MAX_CALLS + 1 + 2);
    }
}
