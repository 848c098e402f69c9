//! Queues: who hears of what, the bound, and the two ends.

use super::*;
use crate::model::TraceId;
use crate::model::desired_lrp::DesiredLrp;
use crate::model::task::Task;

fn task(guid: &str) -> Change {
    Change::Task { before: None, after: Some(Box::new(Task { guid: guid.into(), ..Task::default() })) }
}

fn lrp() -> Change {
    Change::DesiredLrp { before: None, after: Some(Box::new(DesiredLrp::default())), trace_id: TraceId::NONE }
}

#[tokio::test]
async fn each_hears_of_its_topic_in_order_until_the_place_is_closed() {
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
async fn who_is_too_slow_gets_what_waits_and_no_more() {
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
fn an_event_is_made_once_for_all_and_only_when_somebody_looks() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static MADE: AtomicUsize = AtomicUsize::new(0);
    fn render(event: &Event<'_>) -> Rendered {
        MADE.fetch_add(1, Ordering::Relaxed);
        Rendered { text: Bytes::new(), audience: event.audience() }
    }
    let told = Told::new(task("a"));
    assert_eq!(MADE.load(Ordering::Relaxed), 0);
    assert_eq!(told.rendered(render), told.rendered(render));
    assert_eq!(MADE.load(Ordering::Relaxed), 1);
}

#[test]
fn one_that_went_away_is_forgotten() {
    let events = Events::default();
    let gone = events.subscribe(Topic::Lrps).unwrap();
    assert_eq!(events.subscribers(), 1);
    drop(gone);
    assert_eq!(events.subscribers(), 0);
    events.publish(lrp());
    assert!(events.hub().subscribers.is_empty());
}
