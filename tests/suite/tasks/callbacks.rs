//! The end of a task, told to whoever wants to know: receivers that answer, refuse, hang up, or say nothing. Told once,
//! the task is forgotten; one that could not be told stays, and convergence has it told again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bbs::domain::{Policy, convergence};
use bbs::events::{Subscription, Topic};
use bbs::model::change::Change;
use bbs::model::task;
use bbs_proto::models as proto;
use bbs_proto::models::task::State;
use serde_json::json;

use super::{by_guid, complete, definition, desire_request, get, not_found, reject, start, try_call};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::trust::Trust;
use crate::harness::neighbours::{Neighbours, Say, StandIn};
use crate::harness::server::{NOW_NS, Options, Server};

const SECOND_NS: i64 = 1_000_000_000;
/// Longer than a whole run of the tests.
const LONG: Duration = Duration::from_secs(600);
/// For what is told: only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    server: Server,
    neighbours: Neighbours,
    events: Subscription,
    /// What was told of each task and not looked at yet.
    told: BTreeMap<String, VecDeque<Option<task::State>>>,
}

impl World {
    async fn new(kind: Kind, timeout: Duration, workers: usize) -> Self {
        let neighbours = Neighbours::start();
        let policy = Policy { task_callback_workers: workers, ..Policy::default() };
        let clients = neighbours.clients_that_wait(timeout);
        let server = Server::start(Options { kind, clients, policy, ..Options::default() }).await;
        let events = server.service.events().subscribe(Topic::Tasks).unwrap();
        Self { server, neighbours, events, told: BTreeMap::new() }
    }

    fn receiver(&self) -> &StandIn {
        &self.neighbours.receiver
    }

    /// A task of whose end the receiver is told.
    async fn desire(&self, guid: &str) {
        self.desire_with(guid, &format!("{}/ended/{guid}", self.receiver().url())).await;
    }

    async fn desire_with(&self, guid: &str, url: &str) {
        let task_definition = Some(proto::TaskDefinition {
            completion_callback_url: url.into(),
            annotation: b"<mine>".to_vec(),
            ..definition()
        });
        let request = proto::DesireTaskRequest { task_definition, ..desire_request(guid) };
        try_call(&self.server, "/v1/tasks/desire.r2", &request).await.unwrap();
    }

    async fn end(&self, guid: &str) {
        start(&self.server, guid, "cell").await.unwrap();
        complete(&self.server, guid, "cell").await.unwrap();
    }

    async fn state(&self, guid: &str) -> State {
        get(&self.server, guid).await.unwrap().state()
    }

    /// The states of a task since the last time, as they are told, up to the one that is waited for. None is its end.
    async fn until(&mut self, guid: &str, last: Option<task::State>) -> Vec<Option<task::State>> {
        let mut states = Vec::new();
        while states.last() != Some(&last) {
            match self.told.entry(guid.to_owned()).or_default().pop_front() {
                Some(state) => states.push(state),
                None => self.listen().await,
            }
        }
        states
    }

    async fn listen(&mut self) {
        let told = tokio::time::timeout(PATIENCE, self.events.next()).await.expect("something happens");
        let told = told.expect("nobody is too slow here");
        let Change::Task { before, after } = &told.change else { return };
        let guid = before.as_ref().or(after.as_ref()).map(|task| String::from_utf8(task.guid.clone()).unwrap());
        let state = after.as_ref().map(|task| task.state());
        self.told.entry(guid.unwrap_or_default()).or_default().push_back(state);
    }

    /// One run so many seconds after the beginning. How many tasks it moved on.
    async fn converge(&self, after_s: i64) -> u64 {
        self.server.clock.set(NOW_NS + after_s * SECOND_NS);
        convergence::run(&self.server.service).await.unwrap().tasks.kicked
    }
}

const PENDING: Option<task::State> = Some(task::State::Pending);
const RUNNING: Option<task::State> = Some(task::State::Running);
const COMPLETED: Option<task::State> = Some(task::State::Completed);
const RESOLVING: Option<task::State> = Some(task::State::Resolving);

on_each_database!(whatever_the_answer_is_the_end_was_told_and_the_task_is_forgotten);
async fn whatever_the_answer_is_the_end_was_told_and_the_task_is_forgotten(kind: Kind) {
    let mut world = World::new(kind, LONG, 1000).await;
    for status in [200, 202, 302, 400, 404, 500, 502] {
        world.receiver().say(&[Say::Status(status)]);
        world.desire("task").await;
        world.end("task").await;
        assert_eq!(world.until("task", None).await, [PENDING, RUNNING, COMPLETED, RESOLVING, None], "{status}");
        assert_eq!(get(&world.server, "task").await, not_found());
        let heard = world.receiver().heard();
        let body = json!({
            "task_guid": "task", "failed": true, "failure_reason": "exit 1", "result": "output",
            "annotation": "<mine>", "created_at": NOW_NS,
        });
        assert_eq!((heard[0].method.as_str(), heard[0].path.as_str()), ("POST", "/ended/task"));
        assert_eq!((&heard[0].trace_id, &heard[0].body, heard.len()), (&None, &body, 1), "{status}");
    }
}

on_each_database!(every_end_of_a_task_is_told);
async fn every_end_of_a_task_is_told(kind: Kind) {
    let mut world = World::new(kind, LONG, 1000).await;
    for guid in ["cancelled", "rejected", "expired", "lost"] {
        world.desire(guid).await;
    }
    let reason = async |world: &mut World, guid: &str| {
        world.until(guid, None).await;
        let heard = world.receiver().heard();
        assert_eq!((heard[0].path.as_str(), heard.len()), (&*format!("/ended/{guid}"), 1));
        heard[0].body["failure_reason"].as_str().unwrap().to_owned()
    };
    by_guid(&world.server, "cancel", "cancelled").await.unwrap();
    assert_eq!(reason(&mut world, "cancelled").await, "task was cancelled");
    for _ in 0..4 {
        reject(&world.server, "rejected").await.unwrap();
    }
    assert_eq!(reason(&mut world, "rejected").await, "no room");
    start(&world.server, "lost", "cell-z").await.unwrap();
    assert_eq!(world.converge(1).await, 1);
    assert_eq!(reason(&mut world, "lost").await, "cell disappeared before completion");
    assert_eq!(world.converge(1801).await, 1);
    assert_eq!(reason(&mut world, "expired").await, "not started within time limit");
}

on_each_database!(an_address_with_nobody_behind_it_is_tried_three_times_and_again_by_convergence);
async fn an_address_with_nobody_behind_it_is_tried_three_times_and_again_by_convergence(kind: Kind) {
    let mut world = World::new(kind, LONG, 1000).await;
    world.receiver().say(&[Say::Status(503), Say::Status(504), Say::Status(200)]);
    world.desire("second-chance").await;
    world.end("second-chance").await;
    world.until("second-chance", None).await;
    assert_eq!(world.receiver().heard().len(), 3);

    world.receiver().say(&[Say::Status(504), Say::Status(503), Say::Status(503)]);
    world.desire("task").await;
    world.end("task").await;
    assert_eq!(world.receiver().hears(3).await.len(), 3);
    assert_eq!(world.converge(30).await, 0, "not yet");
    assert_eq!(world.state("task").await, State::Resolving);
    assert_eq!(world.converge(31).await, 1);
    let states = [PENDING, RUNNING, COMPLETED, RESOLVING, COMPLETED, RESOLVING, None];
    assert_eq!(world.until("task", None).await, states);
    assert_eq!(world.receiver().heard().len(), 1);
}

on_each_database!(a_receiver_that_says_nothing_is_tried_again_and_one_that_hangs_up_is_not);
async fn a_receiver_that_says_nothing_is_tried_again_and_one_that_hangs_up_is_not(kind: Kind) {
    let mut world = World::new(kind, Duration::from_secs(2), 1000).await;
    world.receiver().say(&[Say::Nothing]);
    world.desire("silent").await;
    world.end("silent").await;
    world.until("silent", None).await;
    assert_eq!(world.receiver().heard().len(), 2);

    world.receiver().say(&[Say::HangUp]);
    world.desire("task").await;
    world.end("task").await;
    world.until("task", RESOLVING).await;
    assert_eq!(world.receiver().hears(1).await.len(), 1);
    assert_eq!(world.converge(31).await, 1);
    assert_eq!(world.until("task", None).await, [COMPLETED, RESOLVING, None]);
    assert_eq!(world.receiver().heard().len(), 1, "nobody was asked between the two");
}

on_each_database!(whoever_cannot_be_told_keeps_the_task_until_it_is_forgotten);
async fn whoever_cannot_be_told_keeps_the_task_until_it_is_forgotten(kind: Kind) {
    let mut world = World::new(kind, LONG, 1000).await;
    let stranger = StandIn::start(&Trust::new());
    // A port that was free a moment ago.
    let nobody = StandIn::start_plain().url();
    let addresses = [stranger.url(), nobody, "nowhere".to_owned(), "ftp://127.0.0.1/x".to_owned()];
    for (number, url) in addresses.iter().enumerate() {
        let guid = number.to_string();
        world.desire_with(&guid, url).await;
        world.end(&guid).await;
        world.until(&guid, RESOLVING).await;
    }
    assert_eq!(world.converge(31).await, 4);
    for number in 0..addresses.len() {
        assert_eq!(world.until(&number.to_string(), RESOLVING).await, [COMPLETED, RESOLVING]);
    }
    world.server.clock.set(NOW_NS + 121 * SECOND_NS);
    assert_eq!(convergence::run(&world.server.service).await.unwrap().tasks.pruned, 4);
    assert_eq!(stranger.heard(), []);
}

on_each_database!(a_receiver_without_tls_is_told_too);
async fn a_receiver_without_tls_is_told_too(kind: Kind) {
    let mut world = World::new(kind, LONG, 1000).await;
    let receiver = StandIn::start_plain();
    world.desire_with("task", &receiver.url()).await;
    world.end("task").await;
    world.until("task", None).await;
    assert_eq!(receiver.heard().len(), 1);
}

on_each_database!(nobody_is_told_of_a_task_without_an_address);
async fn nobody_is_told_of_a_task_without_an_address(kind: Kind) {
    let world = World::new(kind, LONG, 1000).await;
    world.desire_with("task", "").await;
    world.end("task").await;
    assert_eq!(world.converge(31).await, 1);
    assert_eq!(world.state("task").await, State::Completed, "whoever wants to know asks");
    assert_eq!(world.receiver().heard(), []);
}

on_each_database!(what_finds_no_place_stays_completed_and_convergence_has_it_told);
async fn what_finds_no_place_stays_completed_and_convergence_has_it_told(kind: Kind) {
    let mut world = World::new(kind, LONG, 1).await;
    world.receiver().say(&[Say::OnceReleased]);
    world.desire("told").await;
    world.end("told").await;
    assert_eq!(world.receiver().hears(1).await.len(), 1);
    for guid in ["waits", "finds-no-place"] {
        world.desire(guid).await;
    }
    world.end("waits").await;
    world.end("finds-no-place").await;
    for guid in ["waits", "finds-no-place"] {
        assert_eq!(world.state(guid).await, State::Completed, "{guid}: the call did not wait for the receiver");
    }
    world.receiver().release();
    world.until("told", None).await;
    world.until("waits", None).await;
    assert_eq!(world.state("finds-no-place").await, State::Completed);
    assert_eq!(world.converge(31).await, 1);
    world.until("finds-no-place", None).await;
    let heard: Vec<_> = world.receiver().heard().into_iter().map(|heard| heard.path).collect();
    assert_eq!(heard, ["/ended/waits", "/ended/finds-no-place"]);
}

on_each_database!(what_somebody_else_resolves_meanwhile_is_not_told);
async fn what_somebody_else_resolves_meanwhile_is_not_told(kind: Kind) {
    let mut world = World::new(kind, LONG, 2).await;
    world.receiver().say(&[Say::OnceReleased, Say::OnceReleased]);
    for guid in ["a", "b", "resolved", "last"] {
        world.desire(guid).await;
    }
    world.end("a").await;
    world.end("b").await;
    world.receiver().hears(2).await;
    // Both wait for one of the two to end.
    world.end("resolved").await;
    world.end("last").await;
    by_guid(&world.server, "resolving", "resolved").await.unwrap();
    world.receiver().release();
    world.until("last", None).await;
    let heard: Vec<_> = world.receiver().heard().into_iter().map(|heard| heard.path).collect();
    assert_eq!(heard, ["/ended/last"]);
    assert_eq!(world.state("resolved").await, State::Resolving, "it is somebody else's now");
}
