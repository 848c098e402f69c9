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

use bbs_sdk::wire::{self, WireError};
use bbs_sdk::{
    ApiVersion, Event, Fault, Next, Operation, Translator, TranslatorManifest, export_translator,
};
use diego_revisions::{Convert, actions, desired_lrps};

/// Field numbers of what Diego's first revisions of these requests ignore: internal routes and
/// metric tags.
const NEWER_FIELDS_OF_A_START: [u32; 2] = [4, 5];
const NEWER_FIELDS_OF_AN_EVACUATION: [u32; 2] = [5, 6];

/// The event stream of desired LRPs and instances.
const INSTANCE_EVENTS: &str = "LRPInstanceEventStream_r1";
/// What the names of events begin with.
const DESIRED_LRP_EVENT: &str = "desired_lrp_";
const TASK_EVENT: &str = "task_";
/// Field numbers of the record of an event. An event of a change has the record before and after.
const RECORD: u32 = 1;
const RECORD_AFTER: u32 = 2;

#[derive(Debug)]
pub struct DeprecatedRoutes;

impl Translator for DeprecatedRoutes {
    fn manifest() -> TranslatorManifest {
        TranslatorManifest::new(
            ApiVersion::new(1, 0),
            ApiVersion::new(1, 1),
            "deprecated-routes",
        )
        .summary(
            "Reads without image layers, groups of actual LRPs, starts without routes and tags",
        )
        .paged_method("DesiredLRPs_r2", "/v1/desired_lrps/list.r2")
        .method(
            "DesiredLRPByProcessGuid_r2",
            "/v1/desired_lrps/get_by_process_guid.r2",
        )
        .paged_method("Tasks_r2", "/v1/tasks/list.r2")
        .method("TaskByGuid_r2", "/v1/tasks/get_by_task_guid.r2")
        .method("FailTask", "/v1/tasks/fail")
        .method("StartActualLRP", "/v1/actual_lrps/start")
        .method(
            "EvacuateRunningActualLRP",
            "/v1/actual_lrps/evacuate_running",
        )
        .paged_method("ActualLRPGroups", "/v1/actual_lrp_groups/list")
        .method(
            "ActualLRPGroupsByProcessGuid",
            "/v1/actual_lrp_groups/list_by_process_guid",
        )
        .method(
            "ActualLRPGroupsByProcessGuidAndIndex",
            "/v1/actual_lrp_groups/get_by_process_guid_and_index",
        )
        .event_stream("EventStream_r1", "/v1/events.r1", INSTANCE_EVENTS)
        .by_get()
        .event_stream("EventStream", "/v1/events", INSTANCE_EVENTS)
        .by_get()
        .event_stream(
            "LrpInstanceEventStream",
            "/v1/events/lrp_instances",
            INSTANCE_EVENTS,
        )
        .event_stream("TaskEventStream", "/v1/events/tasks", "TaskEventStream_r1")
        .hides("DesiredLRPs_r3")
        .hides("DesiredLRPByProcessGuid_r3")
        .hides("Tasks_r3")
        .hides("TaskByGuid_r3")
        .hides("StartActualLRP_r1")
        .hides("EvacuateRunningActualLRP_r1")
    }

    fn call(method: &str, request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
        match method {
            "DesiredLRPs_r2" => Ok(diego_revisions::answer(
                next.call("DesiredLRPs_r3", request)?,
                layers::desired_lrp,
            )?),
            "DesiredLRPByProcessGuid_r2" => Ok(diego_revisions::answer(
                next.call("DesiredLRPByProcessGuid_r3", request)?,
                layers::desired_lrp,
            )?),
            "Tasks_r2" => Ok(diego_revisions::answer(
                next.call("Tasks_r3", request)?,
                layers::task,
            )?),
            "TaskByGuid_r2" => Ok(diego_revisions::answer(
                next.call("TaskByGuid_r3", request)?,
                layers::task,
            )?),
            "FailTask" => next.call(method, request),
            "StartActualLRP" => next.call(
                "StartActualLRP_r1",
                &without(request, NEWER_FIELDS_OF_A_START),
            ),
            "EvacuateRunningActualLRP" => next.call(
                "EvacuateRunningActualLRP_r1",
                &without(request, NEWER_FIELDS_OF_AN_EVACUATION),
            ),
            "ActualLRPGroups" => groups::list(request, next),
            "ActualLRPGroupsByProcessGuid" => groups::list_by_process_guid(request, next),
            "ActualLRPGroupsByProcessGuidAndIndex" => groups::get(request, next),
            other => Err(Fault::new(format!("API 1.0 has no method {other}"))),
        }
    }

    fn events(method: &str, operation: Operation) -> Result<Vec<Event>, Fault> {
        match method {
            "EventStream_r1" => group_events::of(operation),
            "EventStream" => each_record(
                group_events::of(operation)?,
                DESIRED_LRP_EVENT,
                first_revision,
            ),
            "LrpInstanceEventStream" => {
                each_record(operation.events, DESIRED_LRP_EVENT, first_revision)
            }
            "TaskEventStream" => each_record(operation.events, TASK_EVENT, layers::task),
            other => Err(Fault::new(format!("API 1.0 has no event stream {other}"))),
        }
    }
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
