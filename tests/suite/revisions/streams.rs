//! Event streams of older revisions: their events over HTTP, and what a failing translator does to
//! them.

use std::time::Duration;

use bbs::testing::modules::TranslatorModule;
use bbs::testing::modules::sandbox::{Limits, Sandbox};
use bbs::testing::modules::translate::TranslatedEvent;
use bbs_model::TraceId;
use bbs_model::change::RecordChange;
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::task::Task;

use super::generated::first_alternative;
use super::*;
use crate::harness::event_stream::{EventStream, GROUPS, INSTANCES, ReceivedEvent, TASKS};
use crate::harness::{PATIENCE, modules, until};

const GROUPS_R0: &str = "/v1/events";
const INSTANCES_R0: &str = "/v1/events/lrp_instances";
const TASKS_R0: &str = "/v1/events/tasks";

/// Any of Diego's events: its record, or the record before and after, and then the trace id.
#[derive(Clone, PartialEq, bbs_proto::prost::Message)]
struct AnyEvent {
    #[prost(bytes = "vec", tag = "1")]
    first: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    second: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    third: Vec<u8>,
}

fn event(name: &str, first: &[u8], second: &[u8], third: &[u8]) -> TranslatedEvent {
    let payload = AnyEvent {
        first: first.to_vec(),
        second: second.to_vec(),
        third: third.to_vec(),
    }
    .encode_to_vec();
    TranslatedEvent {
        name: name.to_owned(),
        payload,
        cells: None,
    }
}

/// Goal: the component sends byte for byte what Diego's BBS sends on streams without a revision.
#[test]
fn events_without_a_revision_equal_those_of_diego() {
    let translator = translator("1.0");
    for vector in vectors("revisions.tsv") {
        let [case, message, current, .., oldest] = &vector[..] else {
            panic!("{vector:?}")
        };
        let [current, oldest] = [current, oldest].map(|text| STANDARD.decode(text).unwrap());
        let (kind, streams) = match message.as_str() {
            "DesiredLRP" => (
                "desired_lrp",
                &["EventStream", "LrpInstanceEventStream"][..],
            ),
            _ => ("task", &["TaskEventStream"][..]),
        };
        let events = |record: &[u8]| {
            let created = event(&format!("{kind}_created"), record, b"trace", b"");
            let changed = event(&format!("{kind}_changed"), record, record, b"trace");
            [
                created,
                changed,
                event(&format!("{kind}_removed"), record, b"trace", b""),
            ]
        };
        for stream in streams {
            let sent = futures_executor::block_on(translator.events(
                stream,
                &Arc::default(),
                events(&current).into(),
            ))
            .unwrap();
            assert_eq!(sent, events(&oldest), "{case} of {stream}");
        }
    }
}

/// An action as an old stream sends it: without the wrappers that try it or report on it, and with
/// marked timeouts.
fn unwrapped(action: proto::Action) -> proto::Action {
    let all = |actions: Vec<proto::Action>| actions.into_iter().map(unwrapped).collect();
    let mut first = first_alternative(action.clone());
    if let Some(inner) = first.emit_progress_action.take().map(|outer| outer.action) {
        return unwrapped(*inner.unwrap());
    }
    if let Some(inner) = first.try_action.take().map(|outer| outer.action) {
        return unwrapped(*inner.unwrap());
    }
    if let Some(timeout) = &mut first.timeout_action {
        timeout.deprecated_timeout_ns = timeout.timeout_ms * 1_000_000;
    } else if let Some(parallel) = &mut first.parallel_action {
        parallel.actions = all(std::mem::take(&mut parallel.actions));
    } else if let Some(serial) = &mut first.serial_action {
        serial.actions = all(std::mem::take(&mut serial.actions));
    } else if let Some(codependent) = &mut first.codependent_action {
        codependent.actions = all(std::mem::take(&mut codependent.actions));
    } else {
        return action;
    }
    first
}

#[test]
fn generated_desired_lrps_of_old_streams_are_as_the_oracle_says() {
    let translator = translator("1.0");
    for mut lrp in generated::desired_lrps() {
        let message = proto::DesiredLrpCreatedEvent {
            desired_lrp: Some(lrp.clone()),
            trace_id: b"trace".to_vec(),
        };
        let payload = message.encode_to_vec();
        let newer = TranslatedEvent {
            name: "desired_lrp_created".to_owned(),
            payload,
            cells: None,
        };
        let [sent] = <[_; 1]>::try_from(
            futures_executor::block_on(translator.events(
                "EventStream",
                &Arc::default(),
                vec![newer],
            ))
            .unwrap(),
        )
        .unwrap();
        layers::desired_lrp_without_layers(&mut lrp);
        for action in [&mut lrp.action, &mut lrp.setup, &mut lrp.monitor] {
            *action = action.take().map(unwrapped);
        }
        timeouts::set_start_timeout_s(&mut lrp);
        downloads::fold_lrp(&mut lrp);
        let found = proto::DesiredLrpCreatedEvent::decode(&sent.payload[..]).unwrap();
        assert_eq!(
            found,
            proto::DesiredLrpCreatedEvent {
                desired_lrp: Some(lrp),
                trace_id: b"trace".to_vec()
            }
        );
    }
}

fn task(result: &[u8]) -> RecordChange {
    let task = Task {
        guid: b"g".to_vec(),
        domain: b"d".to_vec(),
        result: result.to_vec(),
        ..Task::default()
    };
    RecordChange::Task {
        before: None,
        after: Some(Box::new(task)),
    }
}

fn names(events: &[ReceivedEvent]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

on_layouts_of_sqlite!(desired_lrps_and_tasks_of_old_streams_are_in_their_first_form);
async fn desired_lrps_and_tasks_of_old_streams_are_in_their_first_form(kind: Kind) {
    let server = served::server(kind, None).await;
    let old = EventStream::open(server.url(INSTANCES_R0), "").await;
    let old_groups = EventStream::get(server.url(GROUPS_R0), "").await;
    let groups = EventStream::get(server.url(GROUPS), "").await;
    let instances = EventStream::open(server.url(INSTANCES), "").await;
    let old_tasks = EventStream::open(server.url(TASKS_R0), "").await;
    let tasks = EventStream::open(server.url(TASKS), "").await;
    let desired = proto::DesiredLrp {
        start_timeout_ms: 61_500,
        instances: 1,
        ..crate::api::lrp("guid")
    };
    crate::api::desire(&server, desired).await;
    server
        .call("/v1/tasks/desire.r2", &crate::tasks::desire_request("task"))
        .await;
    server.gate.end_streams();
    for (stream, start_timeout_s, created) in [
        (old, 61, "actual_lrp_instance_created"),
        (old_groups, 61, "actual_lrp_created"),
        (groups, 0, "actual_lrp_created"),
        (instances, 0, "actual_lrp_instance_created"),
    ] {
        let events = stream.rest().await;
        assert_eq!(names(&events), ["desired_lrp_created", created]);
        let lrp = events[0]
            .message::<proto::DesiredLrpCreatedEvent>()
            .desired_lrp
            .unwrap();
        assert_eq!(
            (lrp.deprecated_start_timeout_s, lrp.start_timeout_ms),
            (start_timeout_s, 61_500)
        );
        if created == "actual_lrp_created" {
            let group = events[1]
                .message::<proto::ActualLrpCreatedEvent>()
                .actual_lrp_group
                .unwrap();
            assert_eq!(
                (&group.instance.unwrap().state[..], group.evacuating),
                (&b"UNCLAIMED"[..], None)
            );
        }
    }
    assert_eq!(
        old_tasks.rest().await,
        tasks.rest().await,
        "a task without image layers is the same"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_of_groups_is_requested_by_get_alone() {
    let server = served::server(Kind::Sqlite, None).await;
    for path in [GROUPS, GROUPS_R0] {
        let reply = server.post(path, []).await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, "GET"),
            "{path}"
        );
        let reply = server.send("GET", path, &[], b"\x0d\x01".to_vec()).await;
        assert_eq!(
            (reply.status, reply.body.len()),
            (500, 0),
            "a filter that cannot be decoded"
        );
    }
    for path in [INSTANCES_R0, TASKS_R0] {
        let reply = server.send("GET", path, &[], vec![]).await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, "POST"),
            "{path}"
        );
    }
    let without = Server::empty(Kind::Sqlite).await;
    for path in [GROUPS, GROUPS_R0, INSTANCES_R0, TASKS_R0] {
        assert_eq!(
            without.send("GET", path, &[], vec![]).await.status,
            404,
            "{path}"
        );
    }
}

/// Call time limit: no correct call exceeds it, however slow the machine.
/// [`FailingHost::stop_call`] skips it.
const CALL_TIME: Duration = Duration::from_secs(600);

/// A host whose only translator is the guest with failing event streams.
struct FailingHost {
    server: Server,
    sandbox: Arc<Sandbox>,
    module: Arc<TranslatorModule>,
}

impl FailingHost {
    async fn start(instances: usize) -> Self {
        let limits = Limits {
            call_time: CALL_TIME,
            instances,
            ..Limits::default()
        };
        let sandbox = modules::sandbox_with(limits);
        let module = modules::translator("hostile-translator", &sandbox);
        let translators = vec![Arc::clone(&module) as Arc<dyn Translate>];
        let server = Server::start(Options {
            translators,
            ..Options::on(Kind::Sqlite)
        })
        .await;
        Self {
            server,
            sandbox,
            module,
        }
    }

    async fn subscribe(&self, path: &str) -> EventStream {
        EventStream::get(self.server.url(path), "").await
    }

    fn publish(&self, result: &[u8]) {
        self.server.service.events().publish(task(result));
    }

    /// Opens a stream whose translation of an event does not end, with one event before that one.
    async fn looping(&self) -> EventStream {
        let mut looping = self.subscribe("/v1.2-hostile/loops").await;
        self.publish(b"first");
        looping.next().await.unwrap();
        until(|| self.module.idle_instances() == 1).await;
        self.publish(b"fail");
        until(|| self.module.idle_instances() == 0).await;
        looping
    }

    /// Stops the running call, which does not end, at its time limit. At most one skip meets the
    /// call that follows it, and none is as long as the limit.
    async fn stop_call(&self) {
        let before = self.sandbox.overruns();
        until(|| {
            let is_stopped = self.sandbox.overruns() > before;
            if !is_stopped {
                self.sandbox.skip(CALL_TIME * 2 / 3);
            }
            is_stopped
        })
        .await;
    }
}

/// Receives an event about a task with this result.
async fn assert_next_result(stream: &mut EventStream, result: &[u8], case: &str) {
    let created: proto::TaskCreatedEvent = stream.next().await.expect(case).message();
    assert_eq!(created.task.unwrap().result, result, "{case}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_translator_ends_only_its_own_stream_and_serves_again() {
    let host = FailingHost::start(Limits::default().instances).await;
    for path in [
        "/v1.2-hostile/traps",
        "/v1.2-hostile/forges",
        "/v1.2-hostile/refuses",
        "/v1.2-hostile/swells",
    ] {
        let fails = host.subscribe(path).await;
        let too = host.subscribe(path).await;
        let same = host.subscribe("/v1.2-hostile/same").await;
        let native = EventStream::open(host.server.url(TASKS), "").await;
        for result in [&b"first"[..], b"fail", b"last"] {
            host.publish(result);
        }
        assert_eq!(
            (fails.rest().await.len(), too.rest().await.len()),
            (1, 1),
            "{path}"
        );
        let again = host.subscribe(path).await;
        host.publish(b"again");
        host.publish(b"fail");
        assert_eq!(again.rest().await.len(), 1, "{path}");
        for mut stream in [same, native] {
            for result in [&b"first"[..], b"fail", b"last", b"again", b"fail"] {
                assert_next_result(&mut stream, result, path).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn translation_without_end_is_stopped_and_ends_only_its_own_stream() {
    let host = FailingHost::start(Limits::default().instances).await;
    let mut too = host.subscribe("/v1.2-hostile/loops").await;
    let fails = host.looping().await;
    assert_next_result(&mut too, b"first", "another stream of the same kind").await;
    // Translated by the same module, once it is free.
    let mut same = host.subscribe("/v1.2-hostile/same").await;
    host.publish(b"last");
    host.stop_call().await;
    assert_eq!((fails.rest().await.len(), too.rest().await.len()), (0, 0));
    assert_next_result(&mut same, b"last", "a stream of another kind").await;
    drop(same);
    until(|| host.server.service.events().subscribers() == 0).await;
    let again = host.looping().await;
    host.stop_call().await;
    assert_eq!(again.rest().await.len(), 0);
}

/// Goal: a translation ends with its subscriber, so that subscribers who come and go cannot take
/// more than one instance. Method: one instance. The next subscriber's event is translated although
/// the first one's translation never ends.
#[tokio::test(flavor = "multi_thread")]
async fn translation_for_a_subscriber_that_has_gone_ends() {
    let host = FailingHost::start(1).await;
    drop(host.looping().await);
    until(|| host.server.service.events().subscribers() == 0).await;
    let mut next = host.subscribe("/v1.2-hostile/loops").await;
    host.publish(b"second");
    assert_next_result(&mut next, b"second", "the next subscriber").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_translator_delays_neither_native_streams_nor_calls() {
    let host = FailingHost::start(2).await;
    let slow = host.looping().await;
    let mut native = EventStream::open(host.server.url(TASKS), "").await;
    let served = async {
        for _ in 0..100 {
            host.publish(b"fail");
            assert_next_result(&mut native, b"fail", "a native stream").await;
            assert_eq!(host.server.post("/v1/ping", []).await.status, 200);
        }
    };
    tokio::time::timeout(PATIENCE, served)
        .await
        .expect("nothing waits until the translator is stopped");
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn translator_may_send_more_events_than_there_are() {
    let host = FailingHost::start(Limits::default().instances).await;
    let twice = host.subscribe("/v1.2-hostile/twice").await;
    for number in 0..500 {
        host.publish(number.to_string().as_bytes());
    }
    host.server.gate.end_streams();
    let results: Vec<_> = twice
        .rest()
        .await
        .iter()
        .map(|event| event.message::<proto::TaskCreatedEvent>())
        .collect();
    let expected = (0..500)
        .flat_map(|number| [number, number])
        .map(|number: i32| number.to_string().into_bytes());
    assert!(
        results
            .into_iter()
            .map(|created| created.task.unwrap().result)
            .eq(expected),
        "all, in order"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_of_a_stream_concerns_the_cells_of_translated_events() {
    let server = served::server(Kind::Sqlite, None).await;
    let here = EventStream::get(server.url(GROUPS_R0), "here").await;
    let before = None;
    let after = Some(Box::new(DesiredLrp::default()));
    server.service.events().publish(RecordChange::DesiredLrp {
        before,
        after,
        trace_id: TraceId::NONE,
    });
    for (from, to) in [
        ("", "there"),
        ("there", "here"),
        ("here", "there"),
        ("there", ""),
    ] {
        server
            .service
            .events()
            .publish(group_events::moved(from, to));
    }
    server.gate.end_streams();
    let moved = ["actual_lrp_created", "actual_lrp_removed"];
    let expected = ["desired_lrp_created", moved[0], moved[1]];
    assert_eq!(names(&here.rest().await), expected);
}
