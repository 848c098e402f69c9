//! The native methods: names with their revision, paths below the API root, and whether they answer
//! with a list.

/// A method that this host has a handler for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    Ping,
    /// Asked of Locket, and not of the database.
    Cells,
    /// Run page by page.
    List(List),
    Get(Get),
    Change(Change),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    ActualLrps,
    ActualLrpsByProcessGuids,
    SchedulingInfos,
    RoutingInfos,
    DesiredLrps,
    Tasks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Get {
    /// So few that they are one answer.
    Domains,
    SchedulingInfoByProcessGuid,
    DesiredLrpByProcessGuid,
    TaskByGuid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Domain,
    DesiredLrp(DesiredLrpChange),
    Task(TaskChange),
    ActualLrp(ActualLrpChange),
    Evacuation(EvacuationCall),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskChange {
    Desire,
    Start,
    Cancel,
    Reject,
    Complete,
    Resolving,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesiredLrpChange {
    Desire,
    Update,
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActualLrpChange {
    Claim,
    Start,
    Crash,
    Fail,
    Remove,
    Retire,
    RemoveEvacuating,
}

/// Those that answer whether to keep a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvacuationCall {
    Claimed,
    Running,
    Crashed,
    Stopped,
}

/// A stream of events. Not called, and so by no translator, but listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    LrpInstances,
    Tasks,
}

#[derive(Debug)]
pub(super) struct RegisteredStream {
    pub(super) stream: Stream,
    pub(super) name: &'static str,
    pub(super) path: &'static str,
}

pub(super) const STREAMS: [RegisteredStream; 2] = [
    RegisteredStream { stream: Stream::Tasks, name: "TaskEventStream_r1", path: "events/tasks.r1" },
    RegisteredStream {
        stream: Stream::LrpInstances,
        name: "LRPInstanceEventStream_r1",
        path: "events/lrp_instances.r1",
    },
];

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) method: Native,
    /// Diego's name of the route, and `_rN` where the path has a revision.
    pub(super) name: &'static str,
    pub(super) path: &'static str,
}

const fn list(method: List, name: &'static str, path: &'static str) -> Registered {
    Registered { method: Native::List(method), name, path }
}

const fn get(method: Get, name: &'static str, path: &'static str) -> Registered {
    Registered { method: Native::Get(method), name, path }
}

const fn change(method: Change, name: &'static str, path: &'static str) -> Registered {
    Registered { method: Native::Change(method), name, path }
}

pub(super) const METHODS: &[Registered] = &[
    Registered { method: Native::Ping, name: "Ping", path: "ping" },
    Registered { method: Native::Cells, name: "Cells_r1", path: "cells/list.r1" },
    get(Get::Domains, "Domains", "domains/list"),
    change(Change::Domain, "UpsertDomain", "domains/upsert"),
    list(List::ActualLrps, "ActualLRPs", "actual_lrps/list"),
    list(List::ActualLrpsByProcessGuids, "ActualLRPsByProcessGuids", "actual_lrps/list_by_process_guids"),
    change(Change::ActualLrp(ActualLrpChange::Claim), "ClaimActualLRP", "actual_lrps/claim"),
    change(Change::ActualLrp(ActualLrpChange::Start), "StartActualLRP_r1", "actual_lrps/start.r1"),
    change(Change::ActualLrp(ActualLrpChange::Crash), "CrashActualLRP", "actual_lrps/crash"),
    change(Change::ActualLrp(ActualLrpChange::Fail), "FailActualLRP", "actual_lrps/fail"),
    change(Change::ActualLrp(ActualLrpChange::Remove), "RemoveActualLRP", "actual_lrps/remove"),
    change(Change::ActualLrp(ActualLrpChange::Retire), "RetireActualLRP", "actual_lrps/retire"),
    change(
        Change::ActualLrp(ActualLrpChange::RemoveEvacuating),
        "RemoveEvacuatingActualLRP",
        "actual_lrps/remove_evacuating",
    ),
    change(Change::Evacuation(EvacuationCall::Claimed), "EvacuateClaimedActualLRP", "actual_lrps/evacuate_claimed"),
    change(
        Change::Evacuation(EvacuationCall::Running),
        "EvacuateRunningActualLRP_r1",
        "actual_lrps/evacuate_running.r1",
    ),
    change(Change::Evacuation(EvacuationCall::Crashed), "EvacuateCrashedActualLRP", "actual_lrps/evacuate_crashed"),
    change(Change::Evacuation(EvacuationCall::Stopped), "EvacuateStoppedActualLRP", "actual_lrps/evacuate_stopped"),
    list(List::SchedulingInfos, "DesiredLRPSchedulingInfos", "desired_lrp_scheduling_infos/list"),
    get(
        Get::SchedulingInfoByProcessGuid,
        "DesiredLRPSchedulingInfoByProcessGuid",
        "desired_lrp_scheduling_infos/get_by_process_guid",
    ),
    list(List::RoutingInfos, "DesiredLRPRoutingInfos", "desired_lrp_routing_infos/list"),
    list(List::DesiredLrps, "DesiredLRPs_r3", "desired_lrps/list.r3"),
    get(Get::DesiredLrpByProcessGuid, "DesiredLRPByProcessGuid_r3", "desired_lrps/get_by_process_guid.r3"),
    change(Change::DesiredLrp(DesiredLrpChange::Desire), "DesireDesiredLRP_r2", "desired_lrp/desire.r2"),
    // Diego's name really lacks the d.
    change(Change::DesiredLrp(DesiredLrpChange::Update), "UpdateDesireLRP", "desired_lrp/update"),
    change(Change::DesiredLrp(DesiredLrpChange::Remove), "RemoveDesiredLRP", "desired_lrp/remove"),
    list(List::Tasks, "Tasks_r3", "tasks/list.r3"),
    get(Get::TaskByGuid, "TaskByGuid_r3", "tasks/get_by_task_guid.r3"),
    change(Change::Task(TaskChange::Desire), "DesireTask_r2", "tasks/desire.r2"),
    change(Change::Task(TaskChange::Start), "StartTask", "tasks/start"),
    change(Change::Task(TaskChange::Cancel), "CancelTask", "tasks/cancel"),
    change(Change::Task(TaskChange::Reject), "RejectTask", "tasks/reject"),
    change(Change::Task(TaskChange::Complete), "CompleteTask", "tasks/complete"),
    change(Change::Task(TaskChange::Resolving), "ResolvingTask", "tasks/resolving"),
    change(Change::Task(TaskChange::Delete), "DeleteTask", "tasks/delete"),
];

/// A path below the API's root that this host itself answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub name: &'static str,
    pub path: &'static str,
    pub is_stream: bool,
}

/// All there are, of calls and of streams.
pub fn routes() -> impl Iterator<Item = Route> {
    let calls = METHODS.iter().map(|method| Route { name: method.name, path: method.path, is_stream: false });
    calls.chain(STREAMS.iter().map(|stream| Route { name: stream.name, path: stream.path, is_stream: true }))
}

/// A name without its revision.
pub(super) fn unrevised(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    name.rsplit_once("_r").filter(|(_, revision)| is_number(revision)).map_or(name, |(name, _)| name)
}

impl Native {
    pub(super) fn registered(self) -> &'static Registered {
        METHODS.iter().find(|registered| registered.method == self).expect("every native method is registered")
    }
}

impl Stream {
    pub fn name(self) -> &'static str {
        self.registered().name
    }

    fn registered(self) -> &'static RegisteredStream {
        STREAMS.iter().find(|registered| registered.stream == self).expect("every stream is registered")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_unique_and_agree_on_the_revision() {
        for (at, method) in METHODS.iter().enumerate() {
            for other in &METHODS[at + 1..] {
                assert!(method.method != other.method, "{}", method.name);
            }
        }
        let all: Vec<_> = routes().map(|route| (route.name, route.path)).collect();
        for (at, (name, path)) in all.iter().enumerate() {
            for (other_name, other_path) in &all[at + 1..] {
                assert!(name != other_name && path != other_path, "{name}");
            }
            let revision = |text: &str, mark: &str| text.rsplit_once(mark).and_then(|(_, n)| n.parse::<u32>().ok());
            assert_eq!(revision(name, "_r"), revision(path, ".r"), "{name}");
        }
    }
}
