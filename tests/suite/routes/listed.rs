//! Diego's routes of today, the form of each one's answer, and the errors that a test has to cover.

/// The errors of a route that reads a record, which may be absent or unreadable.
const NOT_FOUND: &[&str] = &["InvalidRequest", "ResourceNotFound", "Deserialize"];
/// As [`NOT_FOUND`], of a route that also works on an unreadable record.
const MISSING: &[&str] = &["InvalidRequest", "ResourceNotFound"];
/// The errors of a route that creates a record.
const EXISTS: &[&str] = &["InvalidRequest", "ResourceExists"];
/// The errors of a route that changes the state of a task.
const TRANSITION: &[&str] = &[
    "InvalidRequest",
    "ResourceNotFound",
    "InvalidStateTransition",
    "Deserialize",
];

/// For each route, by its key (`ServedRoute::key`): whether it reads its body, and the errors that
/// are specific to it.
pub(super) const ROUTES: &[(&str, Body, &[&str])] = &[
    ("ping", Body::Ignored, &[]),
    ("cells/list.r1", Body::Ignored, &["UnknownError"]),
    ("domains/list", Body::Ignored, &[]),
    ("domains/upsert", Body::Read, &["InvalidRequest"]),
    ("actual_lrps/list", Body::Read, &[]),
    (
        "actual_lrps/list_by_process_guids",
        Body::Read,
        &["InvalidRequest"],
    ),
    (
        "actual_lrps/claim",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "ActualLRPCannotBeClaimed",
            "Deserialize",
        ],
    ),
    (
        "actual_lrps/start.r1",
        Body::Read,
        &["InvalidRequest", "ActualLRPCannotBeStarted", "Deserialize"],
    ),
    (
        "actual_lrps/crash",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "ActualLRPCannotBeCrashed",
            "Deserialize",
        ],
    ),
    (
        "actual_lrps/fail",
        Body::Read,
        &["InvalidRequest", "ActualLRPCannotBeFailed", "Deserialize"],
    ),
    ("actual_lrps/remove", Body::Read, NOT_FOUND),
    (
        "actual_lrps/retire",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "Deserialize",
            "UnknownError",
        ],
    ),
    ("actual_lrps/remove_evacuating", Body::Read, NOT_FOUND),
    (
        "actual_lrps/evacuate_claimed",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "ActualLRPCannotBeUnclaimed",
            "Deserialize",
        ],
    ),
    (
        "actual_lrps/evacuate_running.r1",
        Body::Read,
        &["InvalidRequest", "Deserialize"],
    ),
    (
        "actual_lrps/evacuate_crashed",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "ActualLRPCannotBeCrashed",
            "Deserialize",
        ],
    ),
    ("actual_lrps/evacuate_stopped", Body::Read, NOT_FOUND),
    ("desired_lrp_scheduling_infos/list.r1", Body::Read, &[]),
    (
        "desired_lrp_scheduling_infos/get_by_process_guid.r1",
        Body::Read,
        NOT_FOUND,
    ),
    ("desired_lrp_routing_infos/list", Body::Read, &[]),
    ("desired_lrps/list.r3", Body::Read, &[]),
    ("desired_lrps/get_by_process_guid.r3", Body::Read, NOT_FOUND),
    ("desired_lrp/desire.r2", Body::Read, EXISTS),
    (
        "desired_lrp/update",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "Deserialize",
            "UpdateInProgress",
            "DefinitionExists",
        ],
    ),
    (
        "desired_lrp/cancel_update",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "Deserialize",
            "NoUpdateInProgress",
        ],
    ),
    (
        "desired_lrp/rollback",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "Deserialize",
            "UpdateInProgress",
            "DefinitionNotFound",
        ],
    ),
    ("desired_lrp/update_status", Body::Read, MISSING),
    ("desired_lrp/definitions/list", Body::Read, NOT_FOUND),
    ("desired_lrp/remove", Body::Read, MISSING),
    ("tasks/list.r3", Body::Read, &[]),
    ("tasks/get_by_task_guid.r3", Body::Read, NOT_FOUND),
    ("tasks/desire.r2", Body::Read, EXISTS),
    ("tasks/start", Body::Read, TRANSITION),
    (
        "tasks/cancel",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "InvalidStateTransition",
            "Deserialize",
            "UnknownError",
        ],
    ),
    ("tasks/reject", Body::Read, NOT_FOUND),
    (
        "tasks/complete",
        Body::Read,
        &[
            "InvalidRequest",
            "ResourceNotFound",
            "InvalidStateTransition",
            "RunningOnDifferentCell",
            "Deserialize",
        ],
    ),
    ("tasks/resolving", Body::Read, TRANSITION),
    ("tasks/delete", Body::Read, TRANSITION),
    ("events/tasks.r1", Body::Ignored, &["closed"]),
    ("events/lrp_instances.r1", Body::Read, &["closed"]),
    // Deprecated since there are definitions, and served by a translator.
    ("desired_lrp_scheduling_infos/list", Body::Read, &[]),
    (
        "desired_lrp_scheduling_infos/get_by_process_guid",
        Body::Read,
        NOT_FOUND,
    ),
    // Deprecated by Diego, and served by a translator.
    ("actual_lrp_groups/list", Body::Read, &[]),
    (
        "actual_lrp_groups/list_by_process_guid",
        Body::Read,
        &["InvalidRequest"],
    ),
    (
        "actual_lrp_groups/get_by_process_guid_and_index",
        Body::Read,
        MISSING,
    ),
    (
        "actual_lrps/start",
        Body::Read,
        &["InvalidRequest", "ActualLRPCannotBeStarted", "Deserialize"],
    ),
    (
        "actual_lrps/evacuate_running",
        Body::Read,
        &["InvalidRequest", "Deserialize"],
    ),
    ("desired_lrps/list.r2", Body::Read, &[]),
    ("desired_lrps/get_by_process_guid.r2", Body::Read, NOT_FOUND),
    ("tasks/list.r2", Body::Read, &[]),
    ("tasks/get_by_task_guid.r2", Body::Read, NOT_FOUND),
    ("tasks/fail", Body::Read, TRANSITION),
    ("GET events.r1", Body::Read, &["closed"]),
    ("GET events", Body::Read, &["closed"]),
    ("events/lrp_instances", Body::Read, &["closed"]),
    ("events/tasks", Body::Ignored, &["closed"]),
    // Dropped by Diego in 2018, and served by two translators.
    ("desired_lrps/list.r1", Body::Read, &[]),
    ("desired_lrps/get_by_process_guid.r1", Body::Read, NOT_FOUND),
    ("desired_lrp/desire.r1", Body::Read, EXISTS),
    ("tasks/list.r1", Body::Read, &[]),
    ("tasks/get_by_task_guid.r1", Body::Read, NOT_FOUND),
    ("tasks/desire.r1", Body::Read, EXISTS),
    ("GET cells/list.r1", Body::Ignored, &["UnknownError"]),
    ("desired_lrps/list", Body::Read, &[]),
    ("desired_lrps/get_by_process_guid", Body::Read, NOT_FOUND),
    ("desired_lrp/desire", Body::Read, EXISTS),
    ("tasks/list", Body::Read, &[]),
    ("GET tasks/get_by_task_guid", Body::Read, NOT_FOUND),
    ("tasks/desire", Body::Read, EXISTS),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Read,
    Ignored,
}
