//! Calls to cells that a run of convergence collects: retirements and updates of containers. They
//! are made after the auctions are requested, so that a cell that does not answer delays neither
//! those nor the pages.

use std::collections::BTreeMap;

use bbs_model::actual_lrp::{LrpKey, State};
use bbs_model::convergence::{ConvergenceInput, Push, SlotAction, decide};
use bbs_model::{Text, TraceId};
use bbs_proto::models::CellPresence;
use bbs_work::causes::with_causes;

use crate::clients::reps::InstanceUpdate;
use crate::domain::actual_lrps::{Retirement, retire};
use crate::domain::retry::retry;
use crate::domain::{DomainError, Service};

/// Calls of each kind to one cell. The next run finds the rest. Bounds the time of a run for a cell
/// that does not answer.
const MAX_CALLS: usize = 100;
/// Calls to all cells, some 1 KB each.
const MAX_CALLS_IN_ALL: usize = 50_000;

/// The retirement of a container.
pub(super) struct RetireCall {
    pub(super) key: LrpKey,
    pub(super) cell_id: Text,
    /// The state in which the run has left the instance.
    pub(super) state: Option<State>,
}

pub(super) enum CellCall {
    Retire(RetireCall),
    Update(Push),
}

/// A retirement that was made.
pub(super) struct RetiredContainer {
    pub(super) call: RetireCall,
    pub(super) outcome: Result<Retirement, DomainError>,
}

#[derive(Default)]
pub(super) struct CellCalls {
    calls: Vec<CellCall>,
    /// By cell.
    counts: BTreeMap<Text, CallCounts>,
}

#[derive(Default)]
struct CallCounts {
    retirements: usize,
    updates: usize,
}

impl CellCalls {
    pub(super) fn retire(&mut self, call: RetireCall) {
        let counts = self.counts.entry(call.cell_id.clone()).or_default();
        if counts.retirements < MAX_CALLS && self.calls.len() < MAX_CALLS_IN_ALL {
            counts.retirements += 1;
            self.calls.push(CellCall::Retire(call));
        }
    }

    pub(super) fn update(&mut self, push: Push) {
        let cell_id = push.instance.cell_id.clone();
        let counts = self.counts.entry(cell_id).or_default();
        if counts.updates < MAX_CALLS && self.calls.len() < MAX_CALLS_IN_ALL {
            counts.updates += 1;
            self.calls.push(CellCall::Update(push));
        }
    }

    pub(super) fn into_calls(self) -> Vec<CellCall> {
        self.calls
    }
}

/// Makes a call. Returns the outcome of a retirement; an update that fails is only logged.
pub(super) async fn make(
    service: &Service,
    input: &ConvergenceInput<'_>,
    cells: &BTreeMap<Text, CellPresence>,
    call: CellCall,
) -> Option<RetiredContainer> {
    match call {
        CellCall::Retire(call) => {
            let outcome = retire_if_due(service, input, &call.key).await;
            Some(RetiredContainer { call, outcome })
        }
        CellCall::Update(push) => {
            update_container(service, cells, push).await;
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
    let mut writer = store.writer().await?;
    let wanted = writer.wanted(&key.process_guid).await?;
    let slot = writer.slot(&key.process_guid, key.index).await?;
    let input = ConvergenceInput {
        now_ns: store.now_ns(),
        ..*input
    };
    let actions = decide(key.index, &slot, wanted.as_ref(), &input);
    Ok(actions.contains(&SlotAction::Retire))
}

/// Sends a container the routes or tags that an earlier update failed to send.
async fn update_container(service: &Service, cells: &BTreeMap<Text, CellPresence>, push: Push) {
    let Push {
        key,
        instance,
        internal_routes,
        metric_tags,
    } = push;
    let Some(cell) = cells.get(&instance.cell_id) else {
        return;
    };
    let update = InstanceUpdate {
        internal_routes,
        metric_tags,
    };
    if let Err(fault) = service
        .clients()
        .reps
        .update(cell, &key, &instance, &update, &TraceId::NONE)
        .await
    {
        let process_guid = String::from_utf8_lossy(&key.process_guid);
        tracing::info!(%process_guid, key.index, reason = %with_causes(&fault), "a container was not updated with its routes or tags");
    }
}

#[cfg(test)]
mod tests {
    use bbs_model::actual_lrp::InstanceKey;

    use super::*;

    #[test]
    fn calls_of_one_kind_to_one_cell_are_bounded() {
        let mut calls = CellCalls::default();
        let retirement = |cell_id: &str| RetireCall {
            key: LrpKey::default(),
            cell_id: cell_id.into(),
            state: Some(State::Running),
        };
        for _ in 0..=MAX_CALLS {
            calls.retire(retirement("cell"));
        }
        calls.retire(retirement("other"));
        calls.update(Push {
            key: LrpKey::default(),
            instance: InstanceKey {
                cell_id: "cell".into(),
                ..InstanceKey::default()
            },
            internal_routes: None,
            metric_tags: None,
        });
        assert_eq!(calls.into_calls().len(), MAX_CALLS + 2);
    }
}
