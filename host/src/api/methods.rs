//! The native methods: the versions that have them, names with their revision, paths below the API
//! root, and their kind.

use bbs_modules::translate::ApiVersion;

/// An API version that the handlers speak themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeVersion {
    /// Diego's current API, byte for byte: that of a client that names no version.
    Diego,
    /// Diego's API with definitions of desired LRPs.
    Definitions,
}

impl NativeVersion {
    /// Oldest first.
    pub const ALL: [Self; 2] = [Self::Diego, Self::Definitions];

    /// The number by which clients name the version.
    pub const fn number(self) -> ApiVersion {
        match self {
            Self::Diego => ApiVersion::new(1, 1),
            Self::Definitions => ApiVersion::new(1, 2),
        }
    }

    /// The native version of this number.
    pub fn of(version: ApiVersion) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|native| native.number() == version)
    }
}

/// A method that this host has a handler for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeMethod {
    Ping,
    /// Answered from Locket, not from the database.
    Cells,
    /// Run page by page.
    List(ListMethod),
    Get(GetMethod),
    Change(ChangeMethod),
}

/// Methods that answer with a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListMethod {
    ActualLrps,
    ActualLrpsByProcessGuids,
    /// One for each desired LRP.
    SchedulingInfos,
    /// One for each definition that a desired LRP runs: two during an update.
    SchedulingInfosOfDefinitions,
    RoutingInfos,
    DesiredLrps,
    Tasks,
}

/// Methods that read and answer in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetMethod {
    /// Not paged: there are few domains.
    Domains,
    SchedulingInfo,
    /// One for each definition, as in the list.
    SchedulingInfosOfDefinitions,
    Definitions,
    UpdateStatus,
    DesiredLrpByProcessGuid,
    TaskByGuid,
}

impl GetMethod {
    /// Whether the answer is made of several records, which have to be of the same moment.
    pub const fn needs_snapshot(self) -> bool {
        match self {
            Self::SchedulingInfosOfDefinitions | Self::Definitions | Self::UpdateStatus => true,
            Self::Domains
            | Self::SchedulingInfo
            | Self::DesiredLrpByProcessGuid
            | Self::TaskByGuid => false,
        }
    }
}

/// Methods that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeMethod {
    Domain,
    DesiredLrp(DesiredLrpChange),
    Task(TaskChange),
    ActualLrp(ActualLrpChange),
    Evacuation(EvacuationCall),
}

/// Changes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskChange {
    Desire,
    Start,
    Cancel,
    Fail,
    Reject,
    Complete,
    Resolving,
    Delete,
}

/// Changes of a desired LRP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesiredLrpChange {
    Desire,
    Update,
    CancelUpdate,
    RollBack,
    Remove,
}

/// Changes of an actual LRP.
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

/// Calls of a cell that is being evacuated; each answer says whether to keep the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvacuationCall {
    Claimed,
    Running,
    Crashed,
    Stopped,
}

/// An event stream. Subscribed to instead of called: translators get the events of each operation
/// (`decisions/0013`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    LrpInstances,
    Tasks,
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) method: NativeMethod,
    /// Diego's name of the route, with `_rN` if the path has a revision.
    pub(super) name: &'static str,
    /// `None` if only translators call it.
    pub(super) path: Option<&'static str>,
    /// The only version that has it; `None` if all have it.
    only: Option<NativeVersion>,
}

impl Registered {
    pub(super) fn is_of(&self, version: NativeVersion) -> bool {
        self.only.is_none_or(|only| only == version)
    }
}

/// The versions that have a method.
const DIEGO: Option<NativeVersion> = Some(NativeVersion::Diego);
const DEFINITIONS: Option<NativeVersion> = Some(NativeVersion::Definitions);
const ALL: Option<NativeVersion> = None;

/// Registered methods: each with its name, its path if it has one, and the versions that have it.
macro_rules! registry {
    (@path) => { None };
    (@path $path:literal) => { Some($path) };
    ($($method:expr => $name:literal $($path:literal)?, $only:ident;)*) => {
        [$(Registered {
            method: $method,
            name: $name,
            path: registry!(@path $($path)?),
            only: $only,
        }),*]
    };
}

pub(super) const METHODS: &[Registered] = {
    use ChangeMethod::{ActualLrp, DesiredLrp, Domain, Evacuation, Task};
    use NativeMethod::{Cells, Change, Get, List, Ping};
    &registry! {
        Ping => "Ping" "ping", ALL;
        Cells => "Cells_r1" "cells/list.r1", ALL;
        Get(GetMethod::Domains) => "Domains" "domains/list", ALL;
        Change(Domain) => "UpsertDomain" "domains/upsert", ALL;
        List(ListMethod::ActualLrps) => "ActualLRPs" "actual_lrps/list", ALL;
        List(ListMethod::ActualLrpsByProcessGuids) =>
            "ActualLRPsByProcessGuids" "actual_lrps/list_by_process_guids", ALL;
        Change(ActualLrp(ActualLrpChange::Claim)) => "ClaimActualLRP" "actual_lrps/claim", ALL;
        Change(ActualLrp(ActualLrpChange::Start)) =>
            "StartActualLRP_r1" "actual_lrps/start.r1", ALL;
        Change(ActualLrp(ActualLrpChange::Crash)) => "CrashActualLRP" "actual_lrps/crash", ALL;
        Change(ActualLrp(ActualLrpChange::Fail)) => "FailActualLRP" "actual_lrps/fail", ALL;
        Change(ActualLrp(ActualLrpChange::Remove)) => "RemoveActualLRP" "actual_lrps/remove", ALL;
        Change(ActualLrp(ActualLrpChange::Retire)) => "RetireActualLRP" "actual_lrps/retire", ALL;
        Change(ActualLrp(ActualLrpChange::RemoveEvacuating)) =>
            "RemoveEvacuatingActualLRP" "actual_lrps/remove_evacuating", ALL;
        Change(Evacuation(EvacuationCall::Claimed)) =>
            "EvacuateClaimedActualLRP" "actual_lrps/evacuate_claimed", ALL;
        Change(Evacuation(EvacuationCall::Running)) =>
            "EvacuateRunningActualLRP_r1" "actual_lrps/evacuate_running.r1", ALL;
        Change(Evacuation(EvacuationCall::Crashed)) =>
            "EvacuateCrashedActualLRP" "actual_lrps/evacuate_crashed", ALL;
        Change(Evacuation(EvacuationCall::Stopped)) =>
            "EvacuateStoppedActualLRP" "actual_lrps/evacuate_stopped", ALL;
        List(ListMethod::SchedulingInfos) =>
            "DesiredLRPSchedulingInfos" "desired_lrp_scheduling_infos/list", DIEGO;
        List(ListMethod::SchedulingInfosOfDefinitions) =>
            "DesiredLRPSchedulingInfos_r1" "desired_lrp_scheduling_infos/list.r1", DEFINITIONS;
        Get(GetMethod::SchedulingInfo) =>
            "DesiredLRPSchedulingInfoByProcessGuid"
            "desired_lrp_scheduling_infos/get_by_process_guid", DIEGO;
        Get(GetMethod::SchedulingInfosOfDefinitions) =>
            "DesiredLRPSchedulingInfoByProcessGuid_r1"
            "desired_lrp_scheduling_infos/get_by_process_guid.r1", DEFINITIONS;
        List(ListMethod::RoutingInfos) =>
            "DesiredLRPRoutingInfos" "desired_lrp_routing_infos/list", ALL;
        List(ListMethod::DesiredLrps) => "DesiredLRPs_r3" "desired_lrps/list.r3", ALL;
        Get(GetMethod::DesiredLrpByProcessGuid) =>
            "DesiredLRPByProcessGuid_r3" "desired_lrps/get_by_process_guid.r3", ALL;
        Change(DesiredLrp(DesiredLrpChange::Desire)) =>
            "DesireDesiredLRP_r2" "desired_lrp/desire.r2", ALL;
        // Diego's name really lacks the d.
        Change(DesiredLrp(DesiredLrpChange::Update)) => "UpdateDesireLRP" "desired_lrp/update", ALL;
        Change(DesiredLrp(DesiredLrpChange::CancelUpdate)) =>
            "CancelUpdateDesiredLRP" "desired_lrp/cancel_update", DEFINITIONS;
        Change(DesiredLrp(DesiredLrpChange::RollBack)) =>
            "RollbackDesiredLRP" "desired_lrp/rollback", DEFINITIONS;
        Get(GetMethod::UpdateStatus) =>
            "DesiredLRPUpdateStatus" "desired_lrp/update_status", DEFINITIONS;
        Get(GetMethod::Definitions) => "LRPDefinitions" "desired_lrp/definitions/list", DEFINITIONS;
        Change(DesiredLrp(DesiredLrpChange::Remove)) =>
            "RemoveDesiredLRP" "desired_lrp/remove", ALL;
        List(ListMethod::Tasks) => "Tasks_r3" "tasks/list.r3", ALL;
        Get(GetMethod::TaskByGuid) => "TaskByGuid_r3" "tasks/get_by_task_guid.r3", ALL;
        Change(Task(TaskChange::Desire)) => "DesireTask_r2" "tasks/desire.r2", ALL;
        Change(Task(TaskChange::Start)) => "StartTask" "tasks/start", ALL;
        Change(Task(TaskChange::Cancel)) => "CancelTask" "tasks/cancel", ALL;
        // Deprecated by Diego: a route of an older version, and what a rejected task ends with.
        Change(Task(TaskChange::Fail)) => "FailTask", ALL;
        Change(Task(TaskChange::Reject)) => "RejectTask" "tasks/reject", ALL;
        Change(Task(TaskChange::Complete)) => "CompleteTask" "tasks/complete", ALL;
        Change(Task(TaskChange::Resolving)) => "ResolvingTask" "tasks/resolving", ALL;
        Change(Task(TaskChange::Delete)) => "DeleteTask" "tasks/delete", ALL;
    }
};

/// A path below the API's root that this host answers without a translator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Diego's name, with the revision if there is one, such as `DesireTask_r2`.
    pub name: &'static str,
    /// The path below the API's root, such as `tasks/desire.r2`.
    pub path: &'static str,
    /// Whether the answer is a stream of events.
    pub is_stream: bool,
    /// Whether the answer is a list, which is read page by page.
    pub is_paged: bool,
}

/// The native routes of a version, calls and streams.
pub fn routes(version: NativeVersion) -> impl Iterator<Item = Route> {
    let calls = METHODS
        .iter()
        .filter(move |method| method.is_of(version))
        .filter_map(|method| {
            let is_paged = method.method.is_paged();
            Some(Route {
                name: method.name,
                path: method.path?,
                is_stream: false,
                is_paged,
            })
        });
    calls.chain(Stream::ALL.into_iter().map(|stream| Route {
        name: stream.name(),
        path: stream.path(),
        is_stream: true,
        is_paged: false,
    }))
}

/// A method's name without its revision.
pub fn unrevised(name: &str) -> &str {
    let is_number =
        |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    name.rsplit_once("_r")
        .filter(|(_, revision)| is_number(revision))
        .map_or(name, |(name, _)| name)
}

/// The largest body that defines an LRP or a task, in bytes. Cloud Foundry's have some tens of KiB.
pub(super) const DEFINITION: usize = 4 << 20;
/// The largest filter of a list, in bytes: some fifty thousand guids.
const FILTER: usize = 4 << 20;
/// The largest other body, in bytes. It has keys, addresses, and texts such as the result of a
/// task, which cells limit to 10 KiB.
const OTHER: usize = 256 << 10;
/// The largest body of a subscription, in bytes; it holds the id of a cell.
pub(super) const SUBSCRIPTION: usize = 16 << 10;

/// The largest body of a method of any version, in bytes. One without a native method of its name
/// may define anything.
pub(super) fn largest_body(name: &str) -> usize {
    let native = METHODS
        .iter()
        .find(|native| unrevised(native.name) == unrevised(name));
    native.map_or(DEFINITION, |native| native.method.largest_body())
}

impl NativeMethod {
    /// The largest body that is read, in bytes.
    pub(super) const fn largest_body(self) -> usize {
        match self {
            Self::Change(ChangeMethod::DesiredLrp(
                DesiredLrpChange::Desire | DesiredLrpChange::Update,
            ))
            | Self::Change(ChangeMethod::Task(TaskChange::Desire)) => DEFINITION,
            Self::List(_) => FILTER,
            Self::Ping | Self::Cells | Self::Get(_) | Self::Change(_) => OTHER,
        }
    }

    /// Whether the method answers with a list that is run page by page.
    pub(super) const fn is_paged(self) -> bool {
        matches!(self, Self::List(_))
    }

    pub(super) fn registered(self) -> &'static Registered {
        METHODS
            .iter()
            .find(|registered| registered.method == self)
            .expect("every native method is registered")
    }
}

impl Stream {
    pub(super) const ALL: [Self; 2] = [Self::Tasks, Self::LrpInstances];

    /// The registered name of the stream, with its revision.
    pub fn name(self) -> &'static str {
        match self {
            Self::LrpInstances => "LRPInstanceEventStream_r1",
            Self::Tasks => "TaskEventStream_r1",
        }
    }

    /// The path below the API's root.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::LrpInstances => "events/lrp_instances.r1",
            Self::Tasks => "events/tasks.r1",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_paths_are_unique_and_agree_on_the_revision() {
        for (at, method) in METHODS.iter().enumerate() {
            for other in &METHODS[at + 1..] {
                assert!(method.method != other.method, "{}", method.name);
            }
        }
        let all: BTreeSet<_> = NativeVersion::ALL
            .into_iter()
            .flat_map(routes)
            .map(|route| (route.name, route.path))
            .collect();
        let all = Vec::from_iter(all);
        for (at, (name, path)) in all.iter().enumerate() {
            for (other_name, other_path) in &all[at + 1..] {
                assert!(name != other_name && path != other_path, "{name}");
            }
            let revision = |text: &str, mark: &str| {
                text.rsplit_once(mark)
                    .and_then(|(_, n)| n.parse::<u32>().ok())
            };
            assert_eq!(revision(name, "_r"), revision(path, ".r"), "{name}");
        }
    }
}
