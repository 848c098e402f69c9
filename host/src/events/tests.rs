//! Queues: topics, order, the bound, and the two ends of a subscription.

use super::*;
use crate::model::TraceId;
use crate::model::desired_lrp::DesiredLrp;
use crate::model::task::Task;

fn task(guid: &str) -> RecordChange {
    RecordChange::Task { before: None, after: Some(Box::new(Task { guid: guid.into(), ..Task::default() })) }
}

fn lrp() -> RecordChange {
    RecordChange::DesiredLrp { before: None, after: Some(Box::new(DesiredLrp::default())), trace_id: TraceId::NONE }
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

#[test]
fn event_is_rendered_once_and_only_when_it_is_read() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static MADE: AtomicUsize = AtomicUsize::new(0);
    fn render(event: &Event<'_>) -> Rendered {
        MADE.fetch_add(1, Ordering::Relaxed);
        Rendered { text: Bytes::new(), audience: event.audience() }
    }
    let published = PublishedChange::new(task("a"));
    assert_eq!(MADE.load(Ordering::Relaxed), 0);
    assert_eq!(published.rendered(render), published.rendered(render));
    assert_eq!(MADE.load(Ordering::Relaxed), 1);
}

#[test]
fn dropped_subscription_is_removed() {
    let events = Events::default();
    let gone = events.subscribe(Topic::Lrps).unwrap();
    assert_eq!(events.subscribers(), 1);
    drop(gone);
    assert_eq!(events.subscribers(), 0);
    events.publish(lrp());
    assert!(events.hub().subscribers.is_empty());
}
