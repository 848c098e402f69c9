//! Events as protobuf messages, with their names on a stream.

use bbs_model::actual_lrp::{ActualLrp, Presence};
use bbs_model::change::RecordChange;
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::lrp_update::UpdateStatus;
use bbs_model::task::Task;
use bbs_model::{Text, TraceId};
use bbs_modules::translate::ChangedRecord;
use prost::Message;

use super::definitions::update_status_to;
use super::{
    NativeVersion, actual_lrp_to, definition_id, desired_lrp_to, instance_key_to, lrp_key_to,
    proto, tag_to, task_to,
};
use crate::events::Event;

/// The name of an event on the stream.
pub(in crate::api) fn event_name(event: &Event<'_>) -> &'static str {
    match event {
        Event::DesiredLrpCreated { .. } => "desired_lrp_created",
        Event::DesiredLrpChanged { .. } | Event::UpdateHalt { .. } => "desired_lrp_changed",
        Event::DesiredLrpRemoved { .. } => "desired_lrp_removed",
        Event::InstanceCreated { .. } => "actual_lrp_instance_created",
        Event::InstanceChanged { .. } => "actual_lrp_instance_changed",
        Event::InstanceRemoved { .. } => "actual_lrp_instance_removed",
        Event::InstanceCrashed { .. } => "actual_lrp_crashed",
        Event::TaskCreated(_) => "task_created",
        Event::TaskChanged { .. } => "task_changed",
        Event::TaskRemoved(_) => "task_removed",
    }
}

/// The encoded message of an event.
pub(in crate::api) fn encoded_event(event: &Event<'_>, version: NativeVersion) -> Vec<u8> {
    match *event {
        Event::DesiredLrpCreated { lrp, trace_id } => proto::DesiredLrpCreatedEvent {
            desired_lrp: desired(lrp, version),
            trace_id: trace(trace_id),
        }
        .encode_to_vec(),
        Event::DesiredLrpChanged {
            before,
            after,
            trace_id,
        } => proto::DesiredLrpChangedEvent {
            before: desired(before, version),
            after: desired(after, version),
            trace_id: trace(trace_id),
            update_status: None,
        }
        .encode_to_vec(),
        Event::UpdateHalt { lrp, status } => update_halt(lrp, status, version).encode_to_vec(),
        Event::DesiredLrpRemoved { lrp, trace_id } => proto::DesiredLrpRemovedEvent {
            desired_lrp: desired(lrp, version),
            trace_id: trace(trace_id),
        }
        .encode_to_vec(),
        Event::InstanceCreated { lrp, trace_id } => proto::ActualLrpInstanceCreatedEvent {
            actual_lrp: actual(lrp, version),
            trace_id: trace(trace_id),
        }
        .encode_to_vec(),
        Event::InstanceChanged {
            before,
            after,
            trace_id,
        } => instance_changed(before, after, trace_id, version).encode_to_vec(),
        Event::InstanceRemoved { lrp, trace_id } => proto::ActualLrpInstanceRemovedEvent {
            actual_lrp: actual(lrp, version),
            trace_id: trace(trace_id),
        }
        .encode_to_vec(),
        Event::InstanceCrashed { before, after } => crashed(before, after, version).encode_to_vec(),
        Event::TaskCreated(created) => {
            let task = task(created);
            proto::TaskCreatedEvent { task }.encode_to_vec()
        }
        Event::TaskChanged { before, after } => proto::TaskChangedEvent {
            before: task(before),
            after: task(after),
        }
        .encode_to_vec(),
        Event::TaskRemoved(removed) => {
            let task = task(removed);
            proto::TaskRemovedEvent { task }.encode_to_vec()
        }
    }
}

/// The records of a change. Rows of instances are complete messages, one change for each row of the
/// slot.
pub(in crate::api) fn changed_records_to(
    change: &RecordChange,
    version: NativeVersion,
) -> Vec<ChangedRecord> {
    match change {
        RecordChange::DesiredLrp { before, after, .. } => {
            let encoded = |lrp: &Option<Box<DesiredLrp>>| {
                Some(desired(lrp.as_deref()?, version)?.encode_to_vec())
            };
            vec![ChangedRecord {
                message: "DesiredLRP",
                before: encoded(before),
                after: encoded(after),
            }]
        }
        RecordChange::UpdateHalt { lrp, .. } => {
            let encoded = desired(lrp, version).map(|lrp| lrp.encode_to_vec());
            vec![ChangedRecord {
                message: "DesiredLRP",
                before: encoded.clone(),
                after: encoded,
            }]
        }
        RecordChange::Slot { before, after, .. } => {
            let encoded = |row: Option<&ActualLrp>| Some(actual(row?, version)?.encode_to_vec());
            let rows = Presence::ALL.into_iter().map(|presence| ChangedRecord {
                message: "ActualLRP",
                before: encoded(before.at(presence)),
                after: encoded(after.at(presence)),
            });
            rows.filter(|row| row.before.is_some() || row.after.is_some())
                .collect()
        }
        RecordChange::Task { before, after } => {
            let encoded =
                |record: &Option<Box<Task>>| Some(task(record.as_deref()?)?.encode_to_vec());
            vec![ChangedRecord {
                message: "Task",
                before: encoded(before),
                after: encoded(after),
            }]
        }
    }
}

/// A change of the status of an update alone: the desired LRP is the same before and after.
fn update_halt(
    lrp: &DesiredLrp,
    status: &UpdateStatus,
    version: NativeVersion,
) -> proto::DesiredLrpChangedEvent {
    proto::DesiredLrpChangedEvent {
        before: desired(lrp, version),
        after: desired(lrp, version),
        update_status: Some(update_status_to(status.clone())),
        ..Default::default()
    }
}

fn instance_changed(
    before: &ActualLrp,
    after: &ActualLrp,
    trace_id: &TraceId,
    version: NativeVersion,
) -> proto::ActualLrpInstanceChangedEvent {
    let key = if after.process_guid.is_empty() {
        before.key()
    } else {
        after.key()
    };
    proto::ActualLrpInstanceChangedEvent {
        actual_lrp_key: Some(lrp_key_to(key)),
        actual_lrp_instance_key: Some(instance_key_to(Event::changed_key(before, after))),
        before: info(before, version),
        after: info(after, version),
        trace_id: trace(trace_id),
    }
}

fn crashed(
    before: &ActualLrp,
    after: &ActualLrp,
    version: NativeVersion,
) -> proto::ActualLrpCrashedEvent {
    proto::ActualLrpCrashedEvent {
        actual_lrp_key: Some(lrp_key_to(after.key())),
        actual_lrp_instance_key: Some(instance_key_to(before.instance_key())),
        crash_count: after.crash_count,
        crash_reason: after.crash_reason.clone(),
        since: after.since_ns,
        desired_lrp_definition_id: definition_id(before.definition_id.clone(), version),
    }
}

/// The mutable part of an instance.
fn info(lrp: &ActualLrp, version: NativeVersion) -> Option<proto::ActualLrpInfo> {
    Some(proto::ActualLrpInfo {
        actual_lrp_net_info: Some(lrp.net_info.clone()),
        crash_count: lrp.crash_count,
        crash_reason: lrp.crash_reason.clone(),
        state: lrp.state.clone(),
        placement_error: lrp.placement_error.clone(),
        since: lrp.since_ns,
        modification_tag: Some(tag_to(lrp.tag.clone())),
        presence: lrp.presence,
        routable: Some(lrp.routable),
        availability_zone: lrp.availability_zone.clone(),
        desired_lrp_definition_id: definition_id(lrp.definition_id.clone(), version),
    })
}

fn desired(lrp: &DesiredLrp, version: NativeVersion) -> Option<proto::DesiredLrp> {
    Some(desired_lrp_to(lrp.clone(), version))
}

fn actual(lrp: &ActualLrp, version: NativeVersion) -> Option<proto::ActualLrp> {
    Some(actual_lrp_to(lrp.clone(), version))
}

fn task(task: &Task) -> Option<proto::Task> {
    Some(task_to(task.clone()))
}

fn trace(id: &TraceId) -> Text {
    id.0.as_bytes().to_vec()
}
