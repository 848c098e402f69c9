//! The memory that a change takes while subscribers wait for it: its records, decoded, and its
//! events, rendered.

use bbs_model::actual_lrp::ActualLrp;
use bbs_model::change::RecordChange;
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::slot::Slot;
use bbs_model::task::Task;
use bbs_proto::models::Action;
use bbs_proto::prost::{Message, Name};

use crate::protobuf;

/// Memory of a record besides its texts.
const RECORD: usize = 2 << 10;
/// An action or sidecar, decoded.
const ACTION: usize = 700;
/// Any other element, decoded, with what the allocator adds.
const ELEMENT: usize = 64;
/// Copies of each text: the record's, and that of its event, in base64.
const COPIES: usize = 3;

pub(super) fn bytes(change: &RecordChange) -> usize {
    match change {
        RecordChange::DesiredLrp {
            before,
            after,
            trace_id,
        } => {
            let records = before.iter().chain(after).map(|lrp| desired_lrp(lrp));
            records.sum::<usize>() + COPIES * trace_id.0.len()
        }
        RecordChange::UpdateHalt { lrp, .. } => 2 * desired_lrp(lrp),
        RecordChange::Slot {
            before,
            after,
            trace_id,
            ..
        } => slot(before) + slot(after) + COPIES * trace_id.0.len(),
        RecordChange::Task { before, after } => {
            before.iter().chain(after).map(|record| task(record)).sum()
        }
    }
}

fn desired_lrp(lrp: &DesiredLrp) -> usize {
    let scheduling = &lrp.scheduling;
    let routes = scheduling
        .routes
        .as_ref()
        .map_or(0, |routes| routes.bytes());
    let tags: usize = lrp
        .metric_tags
        .iter()
        .map(|(name, tag)| name.len() + tag.fixed.len() + ELEMENT)
        .sum();
    let placement = scheduling
        .placement_tags
        .iter()
        .chain(&scheduling.volume_drivers);
    let placement: usize = placement.map(|text| text.len() + ELEMENT).sum();
    let run = &lrp.run_info;
    let of_run: usize = [&run.setup, &run.action, &run.monitor]
        .into_iter()
        .flatten()
        .map(actions)
        .sum();
    let sidecars: usize = run
        .sidecars
        .iter()
        .map(|sidecar| 1 + sidecar.action.as_ref().map_or(0, actions))
        .sum();
    let actions = ACTION * (of_run + sidecars);
    RECORD
        + actions
        + message(run)
        + COPIES
            * (scheduling.annotation.len() + scheduling.root_fs.len() + routes + tags + placement)
}

fn task(task: &Task) -> usize {
    let texts = [&task.result, &task.failure_reason, &task.rejection_reason];
    let actions = ACTION * task.definition.action.as_ref().map_or(0, actions);
    RECORD
        + actions
        + message(&task.definition)
        + COPIES * texts.into_iter().map(Vec::len).sum::<usize>()
}

fn slot(slot: &Slot) -> usize {
    slot.rows().map(actual_lrp).sum()
}

fn actual_lrp(lrp: &ActualLrp) -> usize {
    let routes: usize = lrp
        .internal_routes
        .iter()
        .map(|route| route.len() + size_of::<Vec<u8>>())
        .sum();
    let tags: usize = lrp
        .metric_tags
        .iter()
        .map(|(name, value)| name.len() + value.len() + ELEMENT)
        .sum();
    let texts = lrp.crash_reason.len() + lrp.placement_error.len() + lrp.net_info.encoded_len();
    RECORD + COPIES * (texts + routes + tags)
}

/// The actions of a tree. Its depth is bounded by the decoder of requests.
fn actions(action: &Action) -> usize {
    1 + action.inner().map(actions).sum::<usize>()
}

/// The definition of a run, whose elements may take more than its texts.
fn message<M: Message + Name>(message: &M) -> usize {
    let encoded = message.encode_to_vec();
    COPIES * encoded.len()
        + ELEMENT * protobuf::elements_of::<M>(&encoded).unwrap_or(protobuf::MOST_ELEMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bbs_proto::models as proto;

    #[test]
    fn texts_and_elements_of_both_records_count() {
        let lrp = |run_info| {
            Some(Box::new(DesiredLrp {
                run_info,
                ..DesiredLrp::default()
            }))
        };
        let size = |before, after| {
            bytes(&RecordChange::DesiredLrp {
                before,
                after,
                trace_id: bbs_model::TraceId::NONE,
            })
        };
        let small = size(lrp(Default::default()), None);
        let variable = proto::EnvironmentVariable {
            name: b"A".to_vec(),
            value: vec![b'x'; 1 << 20],
        };
        let text = proto::DesiredLrpRunInfo {
            environment_variables: vec![variable],
            ..Default::default()
        };
        let actions = vec![proto::Action::default(); 1000];
        let parallel = proto::ParallelAction {
            actions,
            ..Default::default()
        };
        let action = proto::Action {
            parallel_action: Some(parallel),
            ..Default::default()
        };
        let elements = proto::DesiredLrpRunInfo {
            action: Some(action),
            ..Default::default()
        };
        assert!(small < 4 << 10);
        assert!(size(lrp(text.clone()), None) > 3 << 20);
        assert!(size(lrp(elements), None) > 1000 * size_of::<proto::Action>());
        assert_eq!(
            size(lrp(text.clone()), lrp(text.clone())),
            2 * size(None, lrp(text))
        );
    }

    #[test]
    fn placement_and_trace_id_count() {
        let large = || vec![b'x'; 1 << 20];
        let placed = |placement_tags, volume_drivers| {
            let mut lrp = DesiredLrp::default();
            lrp.scheduling.placement_tags = placement_tags;
            lrp.scheduling.volume_drivers = volume_drivers;
            bytes(&RecordChange::DesiredLrp {
                before: None,
                after: Some(Box::new(lrp)),
                trace_id: bbs_model::TraceId::NONE,
            })
        };
        assert!(placed(vec![large()], Vec::new()) > 3 << 20);
        assert!(placed(Vec::new(), vec![large()]) > 3 << 20);
        let traced = bytes(&RecordChange::DesiredLrp {
            before: None,
            after: None,
            trace_id: bbs_model::TraceId("x".repeat(60 << 10)),
        });
        assert!(traced > 60 << 10);
    }
}
