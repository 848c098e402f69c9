//! A client that makes the calls which the load of desired LRPs does not: about instances,
//! evacuation, definitions, tasks, domains and events. Knows which states its calls have left
//! possible: one after an acknowledged call, several after one whose outcome is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use proto::actual_lrp::Presence;
use proto::task::State;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

use crate::api::actual_lrps::{instance, net_info};
use crate::api::lrp;
use crate::harness::event_stream::{EventStream, ReceivedEvent};
use crate::harness::load::calls::{Caller, Failure};
use crate::harness::pause;
use crate::lrp_updates::definition;

/// The guid of the LRP whose instances are reported, evacuated and crash, and the domain of
/// everything.
pub const RUNNING: &str = "beside";
/// The guid of the LRP whose definition changes. It has no instances, so that an update ends by
/// itself.
pub const DEFINED: &str = "beside-defined";

const SUBSCRIBE: &str = "events/lrp_instances.r1";

/// The calls that succeed at least once. Whether there is an update to cancel depends on how soon
/// it ends.
const METHODS: [&str; 18] = [
    "actual_lrp_groups/list",
    "actual_lrps/claim",
    "actual_lrps/crash",
    "actual_lrps/evacuate_running.r1",
    "actual_lrps/list",
    "actual_lrps/remove_evacuating",
    "actual_lrps/start.r1",
    "desired_lrp/definitions/list",
    "desired_lrp/update",
    "desired_lrp_routing_infos/list",
    "desired_lrp_scheduling_infos/list",
    "domains/list",
    "domains/upsert",
    "tasks/cancel",
    "tasks/delete",
    "tasks/desire.r2",
    "tasks/list.r3",
    "tasks/resolving",
];

/// The rounds of calls after the last fault, at most, until each call has succeeded: on a busy machine
/// there are few before.
const FURTHER_ROUNDS: u64 = 6;

const REPORTED: i32 = 0;
const EVACUATED: i32 = 1;
const CRASHING: i32 = 2;

/// The client while it runs.
pub struct Beside {
    stop: watch::Sender<bool>,
    caller: JoinHandle<Acknowledged>,
    subscriber: AbortHandle,
}

/// The states that the calls have made possible.
#[derive(Default)]
pub struct Acknowledged {
    /// The states of each task; `None` is its absence.
    tasks: BTreeMap<Vec<u8>, BTreeSet<Option<State>>>,
    /// The definitions that may be the current one.
    definitions: BTreeSet<Vec<u8>>,
    /// Whether the evacuated container has an evacuating row.
    evacuating: BTreeSet<bool>,
    crashes: i32,
    /// The number of the last report of the instance.
    report: u64,
    pub longest: Duration,
    done: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallOutcome {
    Done,
    /// The host has refused it.
    Refused,
    Unknown,
}

impl Beside {
    /// Desires the LRPs, and begins to call.
    pub async fn start(caller: Caller) -> Self {
        let running = proto::DesiredLrp {
            domain: RUNNING.into(),
            instances: 3,
            ..lrp(RUNNING)
        };
        let defined = proto::DesiredLrp {
            domain: RUNNING.into(),
            instances: 0,
            ..lrp(DEFINED)
        };
        for lrp in [running, defined] {
            caller.desire(&lrp).await.expect("the host serves");
        }
        let first = caller
            .get(DEFINED.as_bytes())
            .await
            .expect("the host serves")
            .expect("it was desired");
        let definitions = [first.definition_id].into();
        let (stop, stopped) = watch::channel(false);
        let subscriber = tokio::spawn(subscribe(caller.clone())).abort_handle();
        let caller = tokio::spawn(async move {
            let mut acknowledged = Acknowledged {
                definitions,
                evacuating: [false].into(),
                ..Acknowledged::default()
            };
            let mut further = 0;
            for number in 1.. {
                if *stopped.borrow() {
                    if further == FURTHER_ROUNDS || acknowledged.missing().is_empty() {
                        break;
                    }
                    further += 1;
                }
                acknowledged.make_all(&caller, number).await;
                pause().await;
            }
            acknowledged
        });
        Self {
            stop,
            caller,
            subscriber,
        }
    }

    pub async fn stop(self) -> Acknowledged {
        self.stop.send_replace(true);
        let acknowledged = self.caller.await.expect("it does not panic");
        assert!(!self.subscriber.is_finished(), "the subscriber goes on");
        self.subscriber.abort();
        acknowledged
    }
}

impl Display for Acknowledged {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            tasks,
            definitions,
            evacuating,
            crashes,
            report,
            longest,
            done,
            failed,
        } = self;
        write!(
            formatter,
            "{} tasks, report {report}, {} possible definitions, evacuating {evacuating:?}, {crashes} crashes, longest call \
             {longest:?}\ndone: {done:?}\nnot done: {failed:?}",
            tasks.len(),
            definitions.len(),
        )
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Whether a call reached no host that serves.
fn is_unserved(failure: &Failure) -> bool {
    match failure {
        Failure::Transport(text) => text.contains("Connection refused"),
        Failure::Status { status, .. } => *status == 503,
        Failure::Answer(_) => false,
    }
}

/// Adds a state that a call may have left, or replaces all others by it.
fn learn<T: Ord>(possible: &mut BTreeSet<T>, outcome: CallOutcome, after: T) {
    match outcome {
        CallOutcome::Done => *possible = [after].into(),
        CallOutcome::Unknown => drop(possible.insert(after)),
        CallOutcome::Refused => {}
    }
}

impl Acknowledged {
    async fn make_all(&mut self, caller: &Caller, number: u64) {
        let fresh = proto::UpsertDomainRequest {
            domain: RUNNING.into(),
            ttl: 0,
        };
        self.outcome(caller, "domains/upsert", fresh.encode_to_vec())
            .await;
        if self
            .outcome(
                caller,
                "actual_lrps/start.r1",
                report(number).encode_to_vec(),
            )
            .await
            == CallOutcome::Done
        {
            self.report = number;
        }
        self.evacuate(caller, number).await;
        self.crash(caller).await;
        self.change_definition(caller, number).await;
        self.run_task(caller, number).await;
        self.read(caller).await;
    }

    /// Makes a call, again while no host serves.
    async fn outcome(&mut self, caller: &Caller, method: &str, request: Vec<u8>) -> CallOutcome {
        loop {
            let began = Instant::now();
            let made = caller.submit(method, request.clone()).await;
            let outcome = match made {
                Ok(()) => {
                    self.longest = self.longest.max(began.elapsed());
                    CallOutcome::Done
                }
                Err(failure) if is_unserved(&failure) => {
                    pause().await;
                    continue;
                }
                // An error that does not say why may come from a commit without an answer.
                Err(Failure::Answer(text)) if !text.starts_with("UnknownError") => {
                    CallOutcome::Refused
                }
                Err(_) => CallOutcome::Unknown,
            };
            let counts = if outcome == CallOutcome::Done {
                &mut self.done
            } else {
                &mut self.failed
            };
            *counts.entry(method.to_owned()).or_default() += 1;
            return outcome;
        }
    }

    /// A container starts on a cell, is evacuated, and every other time is removed. The next start
    /// takes its place otherwise.
    async fn evacuate(&mut self, caller: &Caller, number: u64) {
        let started = self
            .outcome(
                caller,
                "actual_lrps/start.r1",
                start(EVACUATED, "evacuated").encode_to_vec(),
            )
            .await;
        learn(&mut self.evacuating, started, false);
        if started != CallOutcome::Done {
            return;
        }
        let request = proto::EvacuateRunningActualLrpRequest {
            actual_lrp_key: key(EVACUATED),
            actual_lrp_instance_key: instance("evacuated"),
            actual_lrp_net_info: net_info("evacuated"),
            ..Default::default()
        };
        let evacuated = self
            .outcome(
                caller,
                "actual_lrps/evacuate_running.r1",
                request.encode_to_vec(),
            )
            .await;
        learn(&mut self.evacuating, evacuated, true);
        if number.is_multiple_of(2) {
            let request = proto::RemoveEvacuatingActualLrpRequest {
                actual_lrp_key: key(EVACUATED),
                actual_lrp_instance_key: instance("evacuated"),
            };
            let removed = self
                .outcome(
                    caller,
                    "actual_lrps/remove_evacuating",
                    request.encode_to_vec(),
                )
                .await;
            learn(&mut self.evacuating, removed, false);
        }
    }

    /// A container is claimed and crashes; the host refuses both while the index waits after its
    /// third crash.
    async fn crash(&mut self, caller: &Caller) {
        let claim = proto::ClaimActualLrpRequest {
            process_guid: RUNNING.into(),
            index: CRASHING,
            actual_lrp_instance_key: instance("crashing"),
        };
        self.outcome(caller, "actual_lrps/claim", claim.encode_to_vec())
            .await;
        let crash = proto::CrashActualLrpRequest {
            actual_lrp_key: key(CRASHING),
            actual_lrp_instance_key: instance("crashing"),
            error_message: b"it crashed".to_vec(),
        };
        let crashed = self
            .outcome(caller, "actual_lrps/crash", crash.encode_to_vec())
            .await;
        self.crashes += i32::from(crashed == CallOutcome::Done);
    }

    /// An update to a new definition, which is cancelled or rolled back every other time. Each is
    /// refused while the one before is under way.
    async fn change_definition(&mut self, caller: &Caller, number: u64) {
        let caller = &caller.speaking("v1.2");
        let before = self.definitions.clone();
        let next = format!("definition-{number}");
        let update = proto::DesiredLrpUpdate {
            lrp_definition: Some(definition(&next)),
            ..proto::DesiredLrpUpdate::default()
        };
        let update = proto::UpdateDesiredLrpRequest {
            process_guid: DEFINED.into(),
            update: Some(update),
        };
        let updated = self
            .outcome(caller, "desired_lrp/update", update.encode_to_vec())
            .await;
        learn(&mut self.definitions, updated, next.into_bytes());
        let [before] = &before.into_iter().collect::<Vec<_>>()[..] else {
            return;
        };
        if updated != CallOutcome::Done || !number.is_multiple_of(2) {
            return;
        }
        let process_guid = DEFINED.as_bytes().to_vec();
        let cancel = proto::CancelUpdateDesiredLrpRequest {
            process_guid: process_guid.clone(),
        };
        let cancelled = self
            .outcome(caller, "desired_lrp/cancel_update", cancel.encode_to_vec())
            .await;
        learn(&mut self.definitions, cancelled, before.clone());
        if cancelled == CallOutcome::Refused {
            let roll_back = proto::RollbackDesiredLrpRequest {
                process_guid,
                definition_id: before.clone(),
            };
            let rolled_back = self
                .outcome(caller, "desired_lrp/rollback", roll_back.encode_to_vec())
                .await;
            learn(&mut self.definitions, rolled_back, before.clone());
        }
    }

    /// A task that waits, is cancelled, or runs to its end and is deleted.
    async fn run_task(&mut self, caller: &Caller, number: u64) {
        let task_guid = format!("beside-{number}").into_bytes();
        let by_guid = proto::TaskGuidRequest {
            task_guid: task_guid.clone(),
        };
        let desire = proto::DesireTaskRequest {
            task_definition: Some(crate::tasks::definition()),
            task_guid: task_guid.clone(),
            domain: RUNNING.into(),
        };
        let cell_id = b"cell".to_vec();
        let start = proto::StartTaskRequest {
            task_guid: task_guid.clone(),
            cell_id: cell_id.clone(),
        };
        let complete = proto::CompleteTaskRequest {
            task_guid: task_guid.clone(),
            cell_id,
            ..proto::CompleteTaskRequest::default()
        };
        let mut calls = vec![(
            "tasks/desire.r2",
            desire.encode_to_vec(),
            Some(State::Pending),
        )];
        match number % 3 {
            0 => {}
            1 => calls.push((
                "tasks/cancel",
                by_guid.encode_to_vec(),
                Some(State::Completed),
            )),
            _ => calls.extend([
                ("tasks/start", start.encode_to_vec(), Some(State::Running)),
                (
                    "tasks/complete",
                    complete.encode_to_vec(),
                    Some(State::Completed),
                ),
                (
                    "tasks/resolving",
                    by_guid.encode_to_vec(),
                    Some(State::Resolving),
                ),
                ("tasks/delete", by_guid.encode_to_vec(), None),
            ]),
        }
        let mut states = BTreeSet::from([None]);
        for (method, request, after) in calls {
            let outcome = self.outcome(caller, method, request).await;
            learn(&mut states, outcome, after);
            if outcome != CallOutcome::Done {
                break;
            }
        }
        self.tasks.insert(task_guid, states);
    }

    async fn read(&mut self, caller: &Caller) {
        let current = caller.speaking("v1.2");
        let of_definitions = proto::LrpDefinitionsRequest {
            process_guid: DEFINED.into(),
        };
        let all = Vec::new;
        for (caller, method, request) in [
            (
                &current,
                "desired_lrp/definitions/list",
                of_definitions.encode_to_vec(),
            ),
            (caller, "domains/list", all()),
            (caller, "actual_lrps/list", all()),
            (caller, "actual_lrp_groups/list", all()),
            (caller, "desired_lrp_scheduling_infos/list", all()),
            (caller, "desired_lrp_routing_infos/list", all()),
            (caller, "tasks/list.r3", all()),
        ] {
            self.outcome(caller, method, request).await;
        }
    }

    /// The calls that have not succeeded yet.
    fn missing(&self) -> Vec<&'static str> {
        METHODS
            .into_iter()
            .filter(|method| !self.done.contains_key(*method))
            .collect()
    }

    /// Compares what is stored, while nothing is written, with what was acknowledged.
    pub async fn assert_is_there(&self, caller: &Caller) {
        assert_eq!(
            self.missing(),
            [""; 0],
            "calls that never succeeded: {self}"
        );
        let tasks: proto::TasksResponse = caller
            .call("tasks/list.r3", &proto::TasksRequest::default())
            .await
            .unwrap();
        let found: BTreeMap<_, _> = tasks
            .tasks
            .iter()
            .map(|task| (&task.task_guid, task.state()))
            .collect();
        for (guid, possible) in &self.tasks {
            let state = found.get(guid).copied();
            assert!(
                possible.contains(&state),
                "{} is {state:?}, and was acknowledged as {possible:?}",
                text(guid)
            );
        }
        let defined = caller
            .speaking("v1.2")
            .get(DEFINED.as_bytes())
            .await
            .unwrap()
            .expect("nothing removes it");
        assert!(
            self.definitions.contains(&defined.definition_id),
            "{} runs, not {self}",
            text(&defined.definition_id)
        );

        let filter = proto::ActualLrPsRequest {
            process_guid: RUNNING.into(),
            ..Default::default()
        };
        let found: proto::ActualLrPsResponse =
            caller.call("actual_lrps/list", &filter).await.unwrap();
        let row = |index: i32, presence: Presence| {
            found.actual_lrps.iter().find(|lrp| {
                lrp.presence() == presence
                    && lrp
                        .actual_lrp_key
                        .as_ref()
                        .is_some_and(|key| key.index == index)
            })
        };
        let is_evacuating = row(EVACUATED, Presence::Evacuating).is_some();
        assert!(
            self.evacuating.contains(&is_evacuating),
            "evacuating: {is_evacuating}, not {self}"
        );
        let crashing = row(CRASHING, Presence::Ordinary).expect("nothing removes it");
        assert!(
            crashing.crash_count >= self.crashes,
            "{} crashes, not {self}",
            crashing.crash_count
        );
        let reported = row(REPORTED, Presence::Ordinary).expect("nothing removes it");
        assert!(
            report_in(reported) >= Some(self.report),
            "{reported:?}, not {self}"
        );
    }
}

fn key(index: i32) -> Option<proto::ActualLrpKey> {
    Some(proto::ActualLrpKey {
        process_guid: RUNNING.into(),
        index,
        domain: RUNNING.into(),
    })
}

fn start(index: i32, name: &str) -> proto::StartActualLrpRequest {
    proto::StartActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(name),
        actual_lrp_net_info: net_info(name),
        ..Default::default()
    }
}

/// A cell reports an instance that it runs.
fn report(number: u64) -> proto::StartActualLrpRequest {
    let metric_tags = vec![proto::TextEntry {
        key: b"report".to_vec(),
        value: number.to_string().into_bytes(),
    }];
    proto::StartActualLrpRequest {
        metric_tags,
        ..start(REPORTED, "reported")
    }
}

/// The number of the report in a row.
fn report_in(lrp: &proto::ActualLrp) -> Option<u64> {
    let tag = lrp.metric_tags.iter().find(|tag| tag.key == b"report")?;
    text(&tag.value).parse().ok()
}

/// Follows the events, over a new connection whenever one ends. The changes of an instance are
/// published in their order.
async fn subscribe(caller: Caller) {
    let mut last = None;
    loop {
        if let Ok(response) = caller.open(SUBSCRIBE, Vec::new()).await {
            let mut stream = EventStream::from_response(response);
            while let Ok(Some(event)) = stream.try_next().await {
                if let Some(change) = change_of(&event, "reported") {
                    assert!(
                        last < Some(change),
                        "change {change} was published after {last:?}"
                    );
                    last = Some(change);
                }
            }
        }
        pause().await;
    }
}

/// The number of the change of a container that an event publishes.
fn change_of(event: &ReceivedEvent, name: &str) -> Option<u32> {
    if event.name != "actual_lrp_instance_changed" {
        return None;
    }
    let changed: proto::ActualLrpInstanceChangedEvent = event.message();
    let is_it = changed.actual_lrp_instance_key == instance(name);
    changed
        .after
        .filter(|_| is_it)?
        .modification_tag
        .map(|tag| tag.index)
}

/// A change is published to a new subscriber.
pub async fn assert_changes_are_published(caller: &Caller) {
    let response = caller
        .open(SUBSCRIBE, Vec::new())
        .await
        .expect("the host serves");
    let mut stream = EventStream::from_response(response);
    caller
        .change("actual_lrps/start.r1", &report(0))
        .await
        .expect("the host serves");
    while change_of(&stream.next().await.expect("the host serves"), "reported").is_none() {}
}
