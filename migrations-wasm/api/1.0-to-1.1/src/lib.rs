//! API 1.0: Diego's deprecated routes, in terms of its current ones. Reads of desired LRPs and
//! tasks without image layers (`.r2`), actual LRPs in groups, starts and evacuations of instances
//! without routes and tags, and the event streams of groups and of the first revisions of records.
//!
//! Answers are edited at the wire level: an object without image layers passes as it is.
//!
//! Streams without a revision lose what Diego's lose: desired LRPs are sent without their `try` and
//! `emit_progress` actions, with the actions inside in their place.

mod group_events;
mod groups;
mod layers;

use bbs_proto::fields::{
    evacuate_running_actual_lrp_request, start_actual_lrp_request, task_changed_event,
};
use bbs_sdk::wire::{self, WireError};
use bbs_sdk::{ApiVersion, Event, Fault, Translator, TranslatorManifest, export_translator};
use diego_revisions::{Convert, actions, answer, desired_lrps};

/// The event stream of desired LRPs and instances.
const INSTANCE_EVENTS: &str = "LRPInstanceEventStream_r1";
/// What the names of events begin with.
const DESIRED_LRP_EVENT: &str = "desired_lrp_";
const TASK_EVENT: &str = "task_";
/// Field numbers of the record, in all events. An event of a change has the record before and after.
const RECORD: u32 = task_changed_event::BEFORE;
const RECORD_AFTER: u32 = task_changed_event::AFTER;

#[derive(Debug)]
pub struct DeprecatedRoutes;

impl Translator for DeprecatedRoutes {
    fn manifest() -> TranslatorManifest {
        let manifest = TranslatorManifest::new(
            ApiVersion::new(1, 0),
            ApiVersion::new(1, 1),
            "deprecated-routes",
        );
        event_streams(methods(manifest.summary(
            "Reads without image layers, groups of actual LRPs, starts without routes and tags",
        )))
    }
}

fn methods(manifest: TranslatorManifest) -> TranslatorManifest {
    manifest
        .paged_method("DesiredLRPs_r2", "/v1/desired_lrps/list.r2")
        .as_newer("DesiredLRPs_r3")
        .answer(|newer| answer(newer, layers::desired_lrp))
        .method(
            "DesiredLRPByProcessGuid_r2",
            "/v1/desired_lrps/get_by_process_guid.r2",
        )
        .as_newer("DesiredLRPByProcessGuid_r3")
        .answer(|newer| answer(newer, layers::desired_lrp))
        .paged_method("Tasks_r2", "/v1/tasks/list.r2")
        .as_newer("Tasks_r3")
        .answer(|newer| answer(newer, layers::task))
        .method("TaskByGuid_r2", "/v1/tasks/get_by_task_guid.r2")
        .as_newer("TaskByGuid_r3")
        .answer(|newer| answer(newer, layers::task))
        .method("FailTask", "/v1/tasks/fail")
        .method("StartActualLRP", "/v1/actual_lrps/start")
        .as_newer("StartActualLRP_r1")
        .request(|older| Ok(first_start(older)))
        .method(
            "EvacuateRunningActualLRP",
            "/v1/actual_lrps/evacuate_running",
        )
        .as_newer("EvacuateRunningActualLRP_r1")
        .request(|older| Ok(first_evacuation(older)))
        .paged_method("ActualLRPGroups", "/v1/actual_lrp_groups/list")
        .handler(groups::list)
        .method(
            "ActualLRPGroupsByProcessGuid",
            "/v1/actual_lrp_groups/list_by_process_guid",
        )
        .handler(groups::list_by_process_guid)
        .method(
            "ActualLRPGroupsByProcessGuidAndIndex",
            "/v1/actual_lrp_groups/get_by_process_guid_and_index",
        )
        .handler(groups::get)
}

fn event_streams(manifest: TranslatorManifest) -> TranslatorManifest {
    manifest
        .event_stream("EventStream_r1", "/v1/events.r1", INSTANCE_EVENTS)
        .by_get()
        .events(group_events::of)
        .event_stream("EventStream", "/v1/events", INSTANCE_EVENTS)
        .by_get()
        .events(|operation| first_lrp_revisions(group_events::of(operation)?))
        .event_stream(
            "LrpInstanceEventStream",
            "/v1/events/lrp_instances",
            INSTANCE_EVENTS,
        )
        .events(|operation| first_lrp_revisions(operation.events))
        .event_stream("TaskEventStream", "/v1/events/tasks", "TaskEventStream_r1")
        .events(|operation| each_record(operation.events, TASK_EVENT, layers::task))
}

fn first_lrp_revisions(events: Vec<Event>) -> Result<Vec<Event>, Fault> {
    each_record(events, DESIRED_LRP_EVENT, first_revision)
}

/// Converts the records of the events whose names begin with `kind`.
fn each_record(mut events: Vec<Event>, kind: &str, convert: Convert) -> Result<Vec<Event>, Fault> {
    for event in events
        .iter_mut()
        .filter(|event| event.name.starts_with(kind))
    {
        let is_record =
            |number| number == RECORD || number == RECORD_AFTER && event.name.ends_with("_changed");
        let converted = wire::edit(&event.payload, |field| {
            if is_record(field.number) {
                convert(field.bytes()?)
            } else {
                Ok::<_, WireError>(None)
            }
        })?;
        if let Some(payload) = converted {
            event.payload = payload;
        }
    }
    Ok(events)
}

/// A desired LRP without image layers and cached dependencies, and with timeouts in old units.
fn first_revision(lrp: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
    let steps: [Convert; 3] = [
        layers::desired_lrp,
        |lrp| desired_lrps::in_old_units(lrp, actions::unwrapped_with_timeouts_in_ns),
        |lrp| actions::with_dependencies_as_downloads(lrp, desired_lrps::CACHED_DEPENDENCIES),
    ];
    let mut converted = None;
    for step in steps {
        converted = step(converted.as_deref().unwrap_or(lrp))?.or(converted);
    }
    Ok(converted)
}

/// A start without internal routes and metric tags, which Diego's first revision ignores.
fn first_start(request: &[u8]) -> Vec<u8> {
    use start_actual_lrp_request::{ACTUAL_LRP_INTERNAL_ROUTES, METRIC_TAGS};
    without(request, [ACTUAL_LRP_INTERNAL_ROUTES, METRIC_TAGS])
}

/// An evacuation of a running instance without the fields that its first revision ignores.
fn first_evacuation(request: &[u8]) -> Vec<u8> {
    use evacuate_running_actual_lrp_request::{ACTUAL_LRP_INTERNAL_ROUTES, METRIC_TAGS};
    without(request, [ACTUAL_LRP_INTERNAL_ROUTES, METRIC_TAGS])
}

/// The request without these fields. A malformed one stays as it is: the newer method rejects it.
fn without(request: &[u8], numbers: [u32; 2]) -> Vec<u8> {
    let rest = numbers.iter().try_fold(request.to_vec(), |rest, number| {
        wire::remove(&rest, *number)
    });
    rest.unwrap_or_else(|_| request.to_vec())
}

export_translator!(DeprecatedRoutes);

#[cfg(test)]
mod tests;
