//! Callbacks at the completion of a task, to receivers that answer, reject, hang up, or do not
//! answer. A delivered callback deletes the task; after a failed one the task stays, and
//! convergence starts the callback again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bbs::testing::domain::{Policy, convergence};
use bbs::testing::events::{Subscription, Topic};
use bbs_model::change::RecordChange;
use bbs_model::task;
use bbs_proto::models as proto;
use bbs_proto::models::task::State;
use serde_json::json;

use super::{
    by_guid, complete, definition, desire_request, get, not_found, reject, start, try_call,
};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::trust::Trust;
use crate::harness::neighbours::{Neighbours, StubReply, StubServer};
use crate::harness::ports::free_address;
use crate::harness::server::{NOW_NS, Options, Server};

const SECOND_NS: i64 = 1_000_000_000;
/// Longer than a whole run of the tests.
const LONG: Duration = Duration::from_secs(600);
/// Timeout for an expected event; reached only by a hang.
const PATIENCE: Duration = Duration::from_secs(60);

struct CallbackTest {
    server: Server,
    neighbours: Neighbours,
    events: Subscription,
    /// The published states of each task that were not read yet.
    published: BTreeMap<String, VecDeque<Option<task::TaskState>>>,
}

impl CallbackTest {
    async fn new(kind: Kind, timeout: Duration, workers: usize) -> Self {
        let neighbours = Neighbours::start();
        let policy = Policy {
            task_callback_workers: workers,
            ..Policy::default()
        };
        let clients = neighbours.clients_with_timeout(timeout);
        let server = Server::start(Options {
            clients,
            policy,
            ..Options::on(kind)
        })
        .await;
        let events = server.service.events().subscribe(Topic::Tasks).unwrap();
        Self {
            server,
            neighbours,
            events,
            published: BTreeMap::new(),
        }
    }

    fn receiver(&self) -> &StubServer {
        &self.neighbours.receiver
    }

    /// Desires a task with a callback to the receiver.
    async fn desire(&self, guid: &str) {
        self.desire_with(guid, &format!("{}/completed/{guid}", self.receiver().url()))
            .await;
    }

    async fn desire_with(&self, guid: &str, url: &str) {
        let task_definition = Some(proto::TaskDefinition {
            completion_callback_url: url.into(),
            annotation: b"<mine>".to_vec(),
            ..definition()
        });
        let request = proto::DesireTaskRequest {
            task_definition,
            ..desire_request(guid)
        };
        try_call(&self.server, "/v1/tasks/desire.r2", &request)
            .await
            .unwrap();
    }

    async fn complete(&self, guid: &str) {
        start(&self.server, guid, "cell").await.unwrap();
        complete(&self.server, guid, "cell").await.unwrap();
    }

    async fn state(&self, guid: &str) -> State {
        get(&self.server, guid).await.unwrap().state()
    }

    /// The states of a task published since the previous call, up to `last`. `None` is its
    /// deletion.
    async fn until(
        &mut self,
        guid: &str,
        last: Option<task::TaskState>,
    ) -> Vec<Option<task::TaskState>> {
        let mut states = Vec::new();
        while states.last() != Some(&last) {
            match self
                .published
                .entry(guid.to_owned())
                .or_default()
                .pop_front()
            {
                Some(state) => states.push(state),
                None => self.read_event().await,
            }
        }
        states
    }

    async fn read_event(&mut self) {
        let event = tokio::time::timeout(PATIENCE, self.events.next())
            .await
            .expect("an event is published");
        let event = event.expect("the subscription keeps up");
        let RecordChange::Task { before, after } = &event.change else {
            return;
        };
        let guid = before
            .as_ref()
            .or(after.as_ref())
            .map(|task| String::from_utf8(task.guid.clone()).unwrap());
        let state = after.as_ref().map(|task| task.state());
        self.published
            .entry(guid.unwrap_or_default())
            .or_default()
            .push_back(state);
    }

    /// Runs convergence `after_s` seconds after the start. Returns the number of tasks that it
    /// changed or auctioned again.
    async fn converge(&self, after_s: i64) -> u64 {
        self.server.clock.set(NOW_NS + after_s * SECOND_NS);
        convergence::run(&self.server.service)
            .await
            .unwrap()
            .tasks
            .kicked
    }
}

const PENDING: Option<task::TaskState> = Some(task::TaskState::Pending);
const RUNNING: Option<task::TaskState> = Some(task::TaskState::Running);
const COMPLETED: Option<task::TaskState> = Some(task::TaskState::Completed);
const RESOLVING: Option<task::TaskState> = Some(task::TaskState::Resolving);

on_each_database!(any_callback_answer_but_503_and_504_deletes_the_task);
async fn any_callback_answer_but_503_and_504_deletes_the_task(kind: Kind) {
    let mut test = CallbackTest::new(kind, LONG, 1000).await;
    for status in [200, 202, 302, 400, 404, 500, 502] {
        test.receiver().reply_next(&[StubReply::Status(status)]);
        test.desire("task").await;
        test.complete("task").await;
        assert_eq!(
            test.until("task", None).await,
            [PENDING, RUNNING, COMPLETED, RESOLVING, None],
            "{status}"
        );
        assert_eq!(get(&test.server, "task").await, not_found());
        let requests = test.receiver().take_requests();
        let body = json!({
            "task_guid": "task", "failed": true, "failure_reason": "exit 1", "result": "output",
            "annotation": "<mine>", "created_at": NOW_NS,
        });
        assert_eq!(
            (requests[0].method.as_str(), requests[0].path.as_str()),
            ("POST", "/completed/task")
        );
        assert_eq!(
            (&requests[0].trace_id, &requests[0].body, requests.len()),
            (&None, &body, 1),
            "{status}"
        );
    }
}

on_each_database!(every_kind_of_task_completion_posts_a_callback);
async fn every_kind_of_task_completion_posts_a_callback(kind: Kind) {
    let mut test = CallbackTest::new(kind, LONG, 1000).await;
    for guid in ["cancelled", "rejected", "expired", "lost"] {
        test.desire(guid).await;
    }
    let reason = async |test: &mut CallbackTest, guid: &str| {
        test.until(guid, None).await;
        let requests = test.receiver().take_requests();
        assert_eq!(
            (requests[0].path.as_str(), requests.len()),
            (&*format!("/completed/{guid}"), 1)
        );
        requests[0].body["failure_reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    by_guid(&test.server, "cancel", "cancelled").await.unwrap();
    assert_eq!(reason(&mut test, "cancelled").await, "task was cancelled");
    for _ in 0..4 {
        reject(&test.server, "rejected").await.unwrap();
    }
    assert_eq!(reason(&mut test, "rejected").await, "no room");
    start(&test.server, "lost", "cell-z").await.unwrap();
    assert_eq!(test.converge(1).await, 2, "it fails, another is auctioned");
    assert_eq!(
        reason(&mut test, "lost").await,
        "cell disappeared before completion"
    );
    assert_eq!(test.converge(1801).await, 1);
    assert_eq!(
        reason(&mut test, "expired").await,
        "not started within time limit"
    );
}

on_each_database!(callback_answered_with_503_or_504_is_tried_three_times_and_again_by_convergence);
async fn callback_answered_with_503_or_504_is_tried_three_times_and_again_by_convergence(
    kind: Kind,
) {
    let mut test = CallbackTest::new(kind, LONG, 1000).await;
    test.receiver().reply_next(&[
        StubReply::Status(503),
        StubReply::Status(504),
        StubReply::Status(200),
    ]);
    test.desire("second-chance").await;
    test.complete("second-chance").await;
    test.until("second-chance", None).await;
    assert_eq!(test.receiver().take_requests().len(), 3);

    test.receiver().reply_next(&[
        StubReply::Status(504),
        StubReply::Status(503),
        StubReply::Status(503),
    ]);
    test.desire("task").await;
    test.complete("task").await;
    assert_eq!(test.receiver().wait_for_requests(3).await.len(), 3);
    assert_eq!(test.converge(30).await, 0, "not yet");
    assert_eq!(test.state("task").await, State::Resolving);
    assert_eq!(test.converge(31).await, 1);
    let states = [
        PENDING, RUNNING, COMPLETED, RESOLVING, COMPLETED, RESOLVING, None,
    ];
    assert_eq!(test.until("task", None).await, states);
    assert_eq!(test.receiver().take_requests().len(), 1);
}

on_each_database!(callback_is_retried_after_a_timeout_and_not_after_a_closed_connection);
async fn callback_is_retried_after_a_timeout_and_not_after_a_closed_connection(kind: Kind) {
    let mut test = CallbackTest::new(kind, Duration::from_secs(4), 1000).await;
    test.receiver().reply_next(&[StubReply::Never]);
    test.desire("silent").await;
    test.complete("silent").await;
    test.until("silent", None).await;
    // On a busy machine the second may end at its limit, too.
    assert!(test.receiver().take_requests().len() >= 2);

    let mut test = CallbackTest::new(kind, LONG, 1000).await;
    test.receiver().reply_next(&[StubReply::HangUp]);
    test.desire("task").await;
    test.complete("task").await;
    test.until("task", RESOLVING).await;
    assert_eq!(test.receiver().wait_for_requests(1).await.len(), 1);
    assert_eq!(test.converge(31).await, 1);
    assert_eq!(test.until("task", None).await, [COMPLETED, RESOLVING, None]);
    assert_eq!(
        test.receiver().take_requests().len(),
        1,
        "no callback between the two"
    );
}

on_each_database!(undeliverable_callback_keeps_the_task_until_it_expires);
async fn undeliverable_callback_keeps_the_task_until_it_expires(kind: Kind) {
    let mut test = CallbackTest::new(kind, LONG, 1000).await;
    let untrusted = StubServer::start(&Trust::new());
    let unreachable = format!("http://{}", free_address());
    let addresses = [
        untrusted.url(),
        unreachable,
        "nowhere".to_owned(),
        "ftp://127.0.0.1/x".to_owned(),
    ];
    for (number, url) in addresses.iter().enumerate() {
        let guid = number.to_string();
        test.desire_with(&guid, url).await;
        test.complete(&guid).await;
        test.until(&guid, RESOLVING).await;
    }
    assert_eq!(test.converge(31).await, 4);
    for number in 0..addresses.len() {
        assert_eq!(
            test.until(&number.to_string(), RESOLVING).await,
            [COMPLETED, RESOLVING]
        );
    }
    test.server.clock.set(NOW_NS + 121 * SECOND_NS);
    assert_eq!(
        convergence::run(&test.server.service)
            .await
            .unwrap()
            .tasks
            .pruned,
        4
    );
    assert_eq!(untrusted.take_requests(), []);
}

on_each_database!(callback_to_a_receiver_without_tls_is_posted);
async fn callback_to_a_receiver_without_tls_is_posted(kind: Kind) {
    let mut test = CallbackTest::new(kind, LONG, 1000).await;
    let receiver = StubServer::start_plain();
    test.desire_with("task", &receiver.url()).await;
    test.complete("task").await;
    test.until("task", None).await;
    assert_eq!(receiver.take_requests().len(), 1);
}

on_each_database!(task_without_a_callback_url_posts_no_callback);
async fn task_without_a_callback_url_posts_no_callback(kind: Kind) {
    let test = CallbackTest::new(kind, LONG, 1000).await;
    test.desire_with("task", "").await;
    test.complete("task").await;
    assert_eq!(test.converge(31).await, 1);
    assert_eq!(
        test.state("task").await,
        State::Completed,
        "it stays until it is resolved by a call"
    );
    assert_eq!(test.receiver().take_requests(), []);
}

on_each_database!(callbacks_above_the_workers_are_posted_in_order_without_convergence);
async fn callbacks_above_the_workers_are_posted_in_order_without_convergence(kind: Kind) {
    let mut test = CallbackTest::new(kind, LONG, 1).await;
    test.receiver().reply_next(&[StubReply::OnceReleased]);
    test.desire("first").await;
    test.complete("first").await;
    assert_eq!(test.receiver().wait_for_requests(1).await.len(), 1);
    let waiting: Vec<_> = (1..10).map(|number| format!("waits-{number}")).collect();
    for guid in &waiting {
        test.desire(guid).await;
        test.complete(guid).await;
        assert_eq!(
            test.state(guid).await,
            State::Completed,
            "{guid}: the call did not wait for the receiver"
        );
    }
    test.receiver().release();
    test.until("first", None).await;
    for guid in &waiting {
        test.until(guid, None).await;
    }
    let posted = test.receiver().take_requests().into_iter();
    let posted: Vec<_> = posted.map(|request| request.path).collect();
    let expected: Vec<_> = waiting
        .iter()
        .map(|guid| format!("/completed/{guid}"))
        .collect();
    assert_eq!(posted, expected);
}

on_each_database!(task_resolved_while_its_callback_is_queued_posts_none);
async fn task_resolved_while_its_callback_is_queued_posts_none(kind: Kind) {
    let mut test = CallbackTest::new(kind, LONG, 2).await;
    test.receiver()
        .reply_next(&[StubReply::OnceReleased, StubReply::OnceReleased]);
    for guid in ["a", "b", "resolved", "last"] {
        test.desire(guid).await;
    }
    test.complete("a").await;
    test.complete("b").await;
    test.receiver().wait_for_requests(2).await;
    // Both are queued until one of the first two ends.
    test.complete("resolved").await;
    test.complete("last").await;
    by_guid(&test.server, "resolving", "resolved")
        .await
        .unwrap();
    test.receiver().release();
    test.until("last", None).await;
    let paths: Vec<_> = test
        .receiver()
        .take_requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(paths, ["/completed/last"]);
    assert_eq!(
        test.state("resolved").await,
        State::Resolving,
        "another client resolves it"
    );
}
