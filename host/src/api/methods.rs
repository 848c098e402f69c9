//! The native methods: names with their revision, paths below the API root, and whether they answer
//! with a list.

/// A method that this host has a handler for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    Ping,
    Domains,
    UpsertDomain,
    ActualLrps,
    ActualLrpsByProcessGuids,
    SchedulingInfos,
    SchedulingInfoByProcessGuid,
    RoutingInfos,
    DesiredLrps,
    DesiredLrpByProcessGuid,
    DesireDesiredLrp,
    UpdateDesiredLrp,
    RemoveDesiredLrp,
    Tasks,
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) method: Native,
    /// Diego's name of the route, and `_rN` where the path has a revision.
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) paged: bool,
}

const fn one(method: Native, name: &'static str, path: &'static str) -> Registered {
    Registered { method, name, path, paged: false }
}

const fn list(method: Native, name: &'static str, path: &'static str) -> Registered {
    Registered { method, name, path, paged: true }
}

pub(super) const METHODS: [Registered; 14] = [
    one(Native::Ping, "Ping", "ping"),
    one(Native::Domains, "Domains", "domains/list"),
    one(Native::UpsertDomain, "UpsertDomain", "domains/upsert"),
    list(Native::ActualLrps, "ActualLRPs", "actual_lrps/list"),
    list(Native::ActualLrpsByProcessGuids, "ActualLRPsByProcessGuids", "actual_lrps/list_by_process_guids"),
    list(Native::SchedulingInfos, "DesiredLRPSchedulingInfos", "desired_lrp_scheduling_infos/list"),
    one(
        Native::SchedulingInfoByProcessGuid,
        "DesiredLRPSchedulingInfoByProcessGuid",
        "desired_lrp_scheduling_infos/get_by_process_guid",
    ),
    list(Native::RoutingInfos, "DesiredLRPRoutingInfos", "desired_lrp_routing_infos/list"),
    list(Native::DesiredLrps, "DesiredLRPs_r3", "desired_lrps/list.r3"),
    one(Native::DesiredLrpByProcessGuid, "DesiredLRPByProcessGuid_r3", "desired_lrps/get_by_process_guid.r3"),
    one(Native::DesireDesiredLrp, "DesireDesiredLRP_r2", "desired_lrp/desire.r2"),
    // Diego's name really lacks the d.
    one(Native::UpdateDesiredLrp, "UpdateDesireLRP", "desired_lrp/update"),
    one(Native::RemoveDesiredLrp, "RemoveDesiredLRP", "desired_lrp/remove"),
    list(Native::Tasks, "Tasks_r3", "tasks/list.r3"),
];

impl Native {
    pub(super) fn registered(self) -> &'static Registered {
        METHODS.iter().find(|registered| registered.method == self).expect("every native method is registered")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_unique_and_agree_on_the_revision() {
        for (at, method) in METHODS.iter().enumerate() {
            for other in &METHODS[at + 1..] {
                assert!(method.name != other.name && method.path != other.path && method.method != other.method);
            }
            let revision = |text: &str, mark: &str| text.rsplit_once(mark).and_then(|(_, n)| n.parse::<u32>().ok());
            assert_eq!(revision(method.name, "_r"), revision(method.path, ".r"), "{}", method.name);
        }
    }
}
