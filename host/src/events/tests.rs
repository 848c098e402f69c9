//! Queues: topics, order, the bound, and the two ends of a subscription.

use bbs_model::TraceId;
use bbs_model::desired_lrp::DesiredLrp;
use bbs_model::task::Task;
use futures_util::FutureExt;

use super::*;

fn task(guid: &str) -> RecordChange {
    RecordChange::Task {
        before: None,
        after: Some(Box::new(Task {
            guid: guid.into(),
            ..Task::default()
        })),
    }
}

fn lrp() -> RecordChange {
    RecordChange::DesiredLrp {
        before: None,
        after: Some(Box::new(DesiredLrp::default())),
        trace_id: TraceId::NONE,
    }
}

#[tokio::test]
async fn subscriptions_receive_their_topic_in_order_until_the_hub_is_closed() {
    let events = Events::default();
    events.publish(task("before"));
    let mut tasks = events.subscribe(Topic::Tasks).unwrap();
    let mut others = events.subscribe(Topic::Tasks).unwrap();
    let mut lrps = events.subscribe(Topic::Lrps).unwrap();
    events.publish(task("a"));
    events.publish(lrp());
    events.publish(task("b"));
    events.close();
    events.publish(task("after"));
    for subscription in [&mut tasks, &mut others] {
        for guid in ["a", "b"] {
            assert_eq!(subscription.next().await.unwrap().change, task(guid));
        }
        assert!(subscription.next().await.is_none());
    }
    assert_eq!(lrps.next().await.unwrap().change, lrp());
    assert!(lrps.next().await.is_none());
    assert!(events.subscribe(Topic::Tasks).is_none());
}

#[tokio::test]
async fn slow_subscriber_receives_what_is_queued_and_then_the_end() {
    let events = Events::default();
    let mut slow = events.subscribe(Topic::Tasks).unwrap();
    let mut fast = events.subscribe(Topic::Tasks).unwrap();
    for number in 0..=QUEUE {
        events.publish(task(&number.to_string()));
        assert_eq!(fast.next().await.unwrap().change, task(&number.to_string()));
    }
    assert_eq!(events.subscribers(), 1);
    for number in 0..QUEUE {
        assert_eq!(slow.next().await.unwrap().change, task(&number.to_string()));
    }
    assert!(slow.next().await.is_none());
}

#[tokio::test]
async fn changes_of_one_call_count_as_one() {
    let events = Events::default();
    let mut subscription = events.subscribe(Topic::Tasks).unwrap();
    let all = || (0..4 * QUEUE).map(|number| task(&number.to_string()));
    events.publish_all(all());
    for number in 1..QUEUE {
        events.publish(task(&number.to_string()));
    }
    assert_eq!(events.subscribers(), 1);
    for change in all() {
        assert_eq!(subscription.next().await.unwrap().change, change);
    }
    // One call is read, so that there is a place for another one.
    events.publish(task("one more"));
    assert_eq!(events.subscribers(), 1);
    events.publish(task("one too many"));
    assert_eq!(events.subscribers(), 0);
}

#[tokio::test]
async fn events_are_rendered_once_for_each_stream_and_only_when_they_are_read() {
    let published = PublishedChange::new(task("a"), false);
    let (stream, other): (Arc<str>, Arc<str>) = ("stream".into(), "other".into());
    let rendered = |text: &'static str| {
        let cells = published.events()[0].cells();
        Rendered {
            text: Bytes::from_static(text.as_bytes()),
            cells,
        }
    };
    let first = published
        .rendered(&stream, async || Some(vec![rendered("first")]))
        .await;
    assert_eq!(first.as_deref(), Some(&[rendered("first")][..]));
    assert_eq!(
        published
            .rendered(&stream, async || unreachable!("it is rendered"))
            .await,
        first
    );
    assert_eq!(published.rendered(&other, async || None).await, None);
    assert_eq!(
        published
            .rendered(&other, async || unreachable!("it cannot be rendered"))
            .await,
        None
    );
}

#[tokio::test]
async fn rendering_above_the_estimate_is_not_kept_for_those_that_lag() {
    let published = PublishedChange::new(task("a"), false);
    let stream: Arc<str> = "stream".into();
    let large = Rendered {
        text: vec![b'x'; 1 << 20].into(),
        cells: None,
    };
    let of_many_cells = Rendered {
        text: "x".into(),
        cells: Some(vec![Vec::new(); 100_000]),
    };
    for event in [&large, &large, &of_many_cells] {
        let rendered = published
            .rendered(&stream, async || Some(vec![event.clone()]))
            .await;
        assert_eq!(rendered.as_deref(), Some(std::slice::from_ref(event)));
        assert!(published.renderings.lock().is_empty());
    }
}

/// The comment of [`queue::LAG_BYTES`] and `SECURITY.md` name the size of a rendering.
#[tokio::test]
async fn each_stream_keeps_its_rendering_of_a_change_that_waits() {
    const TEXT: usize = 1 << 20;
    let published = PublishedChange::new(large(3 * TEXT), false);
    let in_base64 = TEXT * 4 / 3;
    for stream in ["1.1", "1.2", "one of 1.0", "another one", "the third one"] {
        let event = Rendered {
            text: vec![b'x'; in_base64].into(),
            cells: None,
        };
        published
            .rendered(&stream.into(), async || Some(vec![event]))
            .await;
    }
    let renderings = published.renderings.lock();
    let kept = renderings
        .iter()
        .filter_map(|(_, rendering)| rendering.get()?.as_deref())
        .flatten();
    assert_eq!(kept.map(Rendered::bytes).sum::<usize>(), 5 * in_base64);
    let of_a_full_queue = queue::LAG_BYTES / published.bytes * in_base64;
    assert_eq!((of_a_full_queue + (TEXT / 2)) / TEXT, 28);
}

#[tokio::test]
async fn rendering_that_is_dropped_is_begun_again() {
    let published = PublishedChange::new(task("a"), false);
    let stream: Arc<str> = "stream".into();
    let abandoned = published.rendered(&stream, async || std::future::pending().await);
    assert_eq!(abandoned.now_or_never(), None);
    assert_eq!(
        published
            .rendered(&stream, async || Some(vec![]))
            .await
            .as_deref(),
        Some(&[][..])
    );
}

#[test]
fn dropped_subscription_is_removed() {
    let events = Events::default();
    let gone = events.subscribe(Topic::Lrps).unwrap();
    assert_eq!(events.subscribers(), 1);
    drop(gone);
    assert_eq!(events.subscribers(), 0);
    events.publish(lrp());
    assert!(events.0.lock().subscribers.is_empty());
}

/// A task whose record takes about this many bytes.
fn large(bytes: usize) -> RecordChange {
    RecordChange::Task {
        before: None,
        after: Some(Box::new(Task {
            result: vec![7; bytes / 3],
            ..Task::default()
        })),
    }
}

#[tokio::test]
async fn subscriber_that_lags_by_bytes_is_cut_off_and_keeps_none() {
    let events = Events::default();
    let mut slow = events.subscribe(Topic::Tasks).unwrap();
    let mut fast = events.subscribe(Topic::Tasks).unwrap();
    let size = queue::LAG_BYTES / 8;
    for _ in 0..20 {
        events.publish(large(size));
        assert!(fast.next().await.is_some());
    }
    assert!(*slow.cut().borrow() && !*fast.cut().borrow());
    assert!(slow.next().await.is_none(), "its queue was discarded");
    assert_eq!(events.subscribers(), 1);
}

#[tokio::test]
async fn change_above_the_limit_is_queued_for_a_subscriber_without_lag() {
    let events = Events::default();
    let mut subscription = events.subscribe(Topic::Tasks).unwrap();
    for _ in 0..2 {
        let change = large(2 * queue::LAG_BYTES);
        events.publish(change.clone());
        assert!(subscription.next().await.unwrap().change == change);
        // The next call says that it has been sent.
        assert!(subscription.next().now_or_never().is_none());
    }
}
