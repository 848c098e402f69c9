//! The methods at each version of the API: the native ones, changed step by step by the
//! translators' manifests, as the chain resolves a client's path; and the messages of each.

use std::collections::{BTreeMap, BTreeSet};

use bbs::testing::api::{NativeVersion, routes, unrevised};
use bbs::testing::modules::translate::{AnswerForm, ApiVersion, Method, TranslatorManifest, Verb};

use super::{FingerprintKind, Subject};
use crate::harness::modules::translators;

/// The name of a method, without its revision unless that has other messages, its request and its
/// answers; an event stream answers with several messages. In the package `models` unless another
/// one is named. `-` is a request that is not read.
const MESSAGES: &[(&str, &str, &[&str])] = &[
    (
        "ActualLRPGroups",
        "ActualLRPGroupsRequest",
        &["ActualLRPGroupsResponse"],
    ),
    (
        "ActualLRPGroupsByProcessGuid",
        "ActualLRPGroupsByProcessGuidRequest",
        &["ActualLRPGroupsResponse"],
    ),
    (
        "ActualLRPGroupsByProcessGuidAndIndex",
        "ActualLRPGroupByProcessGuidAndIndexRequest",
        &["ActualLRPGroupResponse"],
    ),
    ("ActualLRPs", "ActualLRPsRequest", &["ActualLRPsResponse"]),
    (
        "ActualLRPsByProcessGuids",
        "ActualLRPsByProcessGuidsRequest",
        &["ActualLRPsByProcessGuidsResponse"],
    ),
    ("CancelTask", "TaskGuidRequest", &["TaskLifecycleResponse"]),
    ("Cells", "-", &["CellsResponse"]),
    (
        "CancelUpdateDesiredLRP",
        "CancelUpdateDesiredLRPRequest",
        &["DesiredLRPLifecycleResponse"],
    ),
    (
        "ClaimActualLRP",
        "ClaimActualLRPRequest",
        &["ActualLRPLifecycleResponse"],
    ),
    (
        "CompleteTask",
        "CompleteTaskRequest",
        &["TaskLifecycleResponse"],
    ),
    (
        "CrashActualLRP",
        "CrashActualLRPRequest",
        &["ActualLRPLifecycleResponse"],
    ),
    (
        "CreateDesiredLRP",
        "v0_10.CreateDesiredLRPRequest",
        &["v0_10.CreateDesiredLRPResponse"],
    ),
    (
        "CreateDesiredLRP_0_9",
        "v0_9.CreateDesiredLRPRequest",
        &["v0_9.CreateDesiredLRPResponse"],
    ),
    ("DeleteTask", "TaskGuidRequest", &["TaskLifecycleResponse"]),
    (
        "DesireDesiredLRP",
        "DesireLRPRequest",
        &["DesiredLRPLifecycleResponse"],
    ),
    (
        "DesireTask",
        "DesireTaskRequest",
        &["TaskLifecycleResponse"],
    ),
    (
        "DesiredLRPByProcessGuid",
        "DesiredLRPByProcessGuidRequest",
        &["DesiredLRPResponse"],
    ),
    (
        "DesiredLRPRoutingInfos",
        "DesiredLRPsRequest",
        &["DesiredLRPsResponse"],
    ),
    (
        "DesiredLRPSchedulingInfoByProcessGuid",
        "DesiredLRPByProcessGuidRequest",
        &["DesiredLRPSchedulingInfoByProcessGuidResponse"],
    ),
    (
        "DesiredLRPSchedulingInfoByProcessGuid_r1",
        "DesiredLRPByProcessGuidRequest",
        &["DesiredLRPSchedulingInfosResponse"],
    ),
    (
        "DesiredLRPSchedulingInfos",
        "DesiredLRPsRequest",
        &["DesiredLRPSchedulingInfosResponse"],
    ),
    (
        "DesiredLRPUpdateStatus",
        "DesiredLRPUpdateStatusRequest",
        &["DesiredLRPUpdateStatusResponse"],
    ),
    (
        "DesiredLRPs",
        "DesiredLRPsRequest",
        &["DesiredLRPsResponse"],
    ),
    ("Domains", "-", &["DomainsResponse"]),
    (
        "EvacuateClaimedActualLRP",
        "EvacuateClaimedActualLRPRequest",
        &["EvacuationResponse"],
    ),
    (
        "EvacuateCrashedActualLRP",
        "EvacuateCrashedActualLRPRequest",
        &["EvacuationResponse"],
    ),
    (
        "EvacuateRunningActualLRP",
        "EvacuateRunningActualLRPRequest",
        &["EvacuationResponse"],
    ),
    (
        "EvacuateStoppedActualLRP",
        "EvacuateStoppedActualLRPRequest",
        &["EvacuationResponse"],
    ),
    ("EventStream", "EventsByCellId", GROUP_EVENTS),
    (
        "FailActualLRP",
        "FailActualLRPRequest",
        &["ActualLRPLifecycleResponse"],
    ),
    ("FailTask", "FailTaskRequest", &["TaskLifecycleResponse"]),
    ("LRPInstanceEventStream", "EventsByCellId", INSTANCE_EVENTS),
    (
        "LRPDefinitions",
        "LRPDefinitionsRequest",
        &["LRPDefinitionsResponse"],
    ),
    (
        "ListDesiredLRPs_0_9",
        "v0_9.ListDesiredLRPsRequest",
        &["v0_9.ListDesiredLRPsResponse"],
    ),
    (
        "ListImmutableDesiredLRPs",
        "v0_10.ListImmutableDesiredLRPsRequest",
        &["v0_10.ListImmutableDesiredLRPsResponse"],
    ),
    (
        "ListMutableDesiredLRPs",
        "v0_10.ListMutableDesiredLRPsRequest",
        &["v0_10.ListMutableDesiredLRPsResponse"],
    ),
    ("LrpInstanceEventStream", "EventsByCellId", INSTANCE_EVENTS),
    ("Ping", "-", &["PingResponse"]),
    (
        "RejectTask",
        "RejectTaskRequest",
        &["TaskLifecycleResponse"],
    ),
    (
        "RemoveActualLRP",
        "RemoveActualLRPRequest",
        &["ActualLRPLifecycleResponse"],
    ),
    (
        "RemoveDesiredLRP",
        "RemoveDesiredLRPRequest",
        &["DesiredLRPLifecycleResponse"],
    ),
    (
        "RemoveEvacuatingActualLRP",
        "RemoveEvacuatingActualLRPRequest",
        &["RemoveEvacuatingActualLRPResponse"],
    ),
    (
        "ResolvingTask",
        "TaskGuidRequest",
        &["TaskLifecycleResponse"],
    ),
    (
        "RetireActualLRP",
        "RetireActualLRPRequest",
        &["ActualLRPLifecycleResponse"],
    ),
    (
        "RollbackDesiredLRP",
        "RollbackDesiredLRPRequest",
        &["DesiredLRPLifecycleResponse"],
    ),
    (
        "StartActualLRP",
        "StartActualLRPRequest",
        &["ActualLRPLifecycleResponse"],
    ),
    ("StartTask", "StartTaskRequest", &["StartTaskResponse"]),
    ("TaskByGuid", "TaskByGuidRequest", &["TaskResponse"]),
    (
        "TaskEventStream",
        "-",
        &["TaskCreatedEvent", "TaskChangedEvent", "TaskRemovedEvent"],
    ),
    ("Tasks", "TasksRequest", &["TasksResponse"]),
    (
        "UpdateDesireLRP",
        "UpdateDesiredLRPRequest",
        &["DesiredLRPLifecycleResponse"],
    ),
    (
        "UpsertDomain",
        "UpsertDomainRequest",
        &["UpsertDomainResponse"],
    ),
];

const INSTANCE_EVENTS: &[&str] = &[
    "DesiredLRPCreatedEvent",
    "DesiredLRPChangedEvent",
    "DesiredLRPRemovedEvent",
    "ActualLRPInstanceCreatedEvent",
    "ActualLRPInstanceChangedEvent",
    "ActualLRPInstanceRemovedEvent",
    "ActualLRPCrashedEvent",
];

const GROUP_EVENTS: &[&str] = &[
    "DesiredLRPCreatedEvent",
    "DesiredLRPChangedEvent",
    "DesiredLRPRemovedEvent",
    "ActualLRPCreatedEvent",
    "ActualLRPChangedEvent",
    "ActualLRPRemovedEvent",
    "ActualLRPCrashedEvent",
];

/// The methods of one version, by verb and path below the version's root.
type Methods = BTreeMap<(Verb, String), Method>;

pub(super) fn descriptions() -> BTreeMap<Subject, String> {
    let mut descriptions = BTreeMap::new();
    for (version, methods) in methods_by_version() {
        for method in methods.into_values() {
            let subject = Subject {
                kind: FingerprintKind::Method,
                version: version.to_string(),
                // A name may be at several verbs and paths.
                name: format!(
                    "{} {} {}",
                    method.name,
                    method.verb.name(),
                    method.path_in_version()
                ),
            };
            let before = descriptions.insert(subject, described(&method));
            assert_eq!(before, None, "{method:?}");
        }
    }
    descriptions
}

/// The full names of the requests and answers of each version's methods.
pub(super) fn messages_of() -> BTreeMap<ApiVersion, BTreeSet<String>> {
    let names = |methods: Methods| {
        let messages = methods.into_values().flat_map(|method| {
            let (request, answers) = messages(&method.name);
            answers.into_iter().chain(request)
        });
        messages.collect()
    };
    methods_by_version()
        .into_iter()
        .map(|(version, methods)| (version, names(methods)))
        .collect()
}

fn described(method: &Method) -> String {
    let Method {
        name,
        verb,
        path,
        answer,
    } = method;
    let (request, answers) = messages(name);
    format!(
        "{name} {} {path} {answer:?} request: {request:?} answers: {answers:?}",
        verb.name()
    )
}

/// The full names of the request, unless it is not read, and of the answers of a method.
fn messages(method: &str) -> (Option<String>, Vec<String>) {
    let named = |wanted: &str| MESSAGES.iter().find(|(name, _, _)| *name == wanted);
    let (_, request, answers) = named(method)
        .or_else(|| named(unrevised(method)))
        .unwrap_or_else(|| {
            panic!(
                "name the messages of {method} in `MESSAGES` of tests/suite/fingerprints/methods.rs"
            )
        });
    let full = |name: &str| {
        if name.contains('.') {
            name.to_owned()
        } else {
            format!("models.{name}")
        }
    };
    (
        (*request != "-").then(|| full(request)),
        answers.iter().map(|name| full(name)).collect(),
    )
}

fn methods_by_version() -> BTreeMap<ApiVersion, Methods> {
    let mut versions =
        BTreeMap::from(NativeVersion::ALL.map(|version| (version.number(), native(version))));
    let mut methods = native(NativeVersion::Diego);
    for translator in translators().iter().rev() {
        methods = older(methods, translator.manifest());
        versions.insert(translator.manifest().serves, methods.clone());
    }
    versions
}

fn native(version: NativeVersion) -> Methods {
    let methods = routes(version).map(|route| Method {
        name: route.name.to_owned(),
        verb: Verb::Post,
        path: format!("/v1/{}", route.path),
        answer: match route {
            route if route.is_stream => AnswerForm::Events("changes".to_owned()),
            route if route.is_paged => AnswerForm::Pages,
            _ => AnswerForm::Message,
        },
    });
    methods.map(|method| (place(&method), method)).collect()
}

fn place(method: &Method) -> (Verb, String) {
    (method.verb, method.path_in_version().to_owned())
}

/// The methods of the version that a translator serves, from those of the version that it is
/// written onto.
fn older(newer: Methods, manifest: &TranslatorManifest) -> Methods {
    let mut methods = newer;
    methods.retain(|_, method| !manifest.hides.contains(&method.name));
    methods.extend(
        manifest
            .methods
            .iter()
            .map(|method| (place(method), method.clone())),
    );
    methods
}

#[test]
fn versions_have_their_own_methods_and_those_that_pass_through() {
    let versions = methods_by_version();
    assert_eq!(
        versions.len(),
        translators().len() + NativeVersion::ALL.len()
    );
    let at = |minor, path: &str| {
        let methods = &versions[&ApiVersion::new(0, minor)];
        methods
            .get(&(Verb::Post, path.to_owned()))
            .map(|method| method.name.as_str())
    };
    assert_eq!(at(9, "desired_lrps/create"), Some("CreateDesiredLRP_0_9"));
    assert_eq!(at(10, "desired_lrps/create"), Some("CreateDesiredLRP"));
    assert_eq!(
        (at(9, "desired_lrps/list.r3"), at(9, "ping")),
        (None, Some("Ping"))
    );
}

#[test]
fn each_property_of_a_method_changes_its_fingerprint() {
    let method = |name: &str, verb, path: &str, answer| Method {
        name: name.into(),
        verb,
        path: path.into(),
        answer,
    };
    let events = |newer: &str| AnswerForm::Events(newer.to_owned());
    let methods = [
        method("Tasks", Verb::Post, "tasks", AnswerForm::Message),
        method("Tasks", Verb::Get, "tasks", AnswerForm::Message),
        method("Tasks", Verb::Post, "/v1/tasks", AnswerForm::Message),
        method("Tasks", Verb::Post, "tasks", AnswerForm::Pages),
        method("Tasks", Verb::Post, "tasks", events("A")),
        method("Tasks", Verb::Post, "tasks", events("B")),
        method("TaskByGuid", Verb::Post, "tasks", AnswerForm::Message),
    ];
    assert_eq!(
        methods.iter().map(described).collect::<BTreeSet<_>>().len(),
        methods.len()
    );
}

#[test]
fn messages_are_named_for_existing_methods_only() {
    let versions = methods_by_version();
    let methods = || versions.values().flat_map(Methods::values);
    let gone = MESSAGES.iter().filter(|(name, _, _)| {
        !methods().any(|method| method.name == *name || unrevised(&method.name) == *name)
    });
    assert_eq!(gone.map(|(name, _, _)| *name).collect::<Vec<_>>(), [""; 0]);
}
