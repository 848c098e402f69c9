//! Concurrent calls of several cells about the same few instances. In any order, the published
//! changes of an instance form a history without gaps, whose last state is the one in the database.

use std::collections::BTreeMap;

use bbs_model::change::RecordChange;
use bbs_model::slot::Slot;
use bbs_proto::models as proto;

use super::actual_lrps::{
    CLAIM, CRASH, FAIL, REMOVE, START, call_error, claim, crash, fail, instance, key, net_info,
    remove, start, subscribe, with_two_unclaimed,
};
use crate::harness::database::Kind;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::Server;

const CELLS: u64 = 4;
const CALLS: usize = 40;
const INDICES: i32 = 2;

/// Makes one random call of a cell and ignores its answer.
async fn random_call(server: &Server, random: &mut fastrand::Rng) {
    let index = random.i32(0..INDICES);
    let name = ["a", "b", "c"][random.usize(0..3)];
    let actual_lrp_key = key(index);
    let actual_lrp_instance_key = instance(name);
    match random.u32(0..12) {
        0 | 1 => drop(call_error(server, CLAIM, &claim(index, name)).await),
        2..=5 => drop(call_error(server, START, &start(index, name)).await),
        6 => drop(call_error(server, CRASH, &crash(index, name)).await),
        7 => drop(call_error(server, FAIL, &fail(index)).await),
        8 => drop(call_error(server, REMOVE, &remove(index, Some(name))).await),
        9 | 10 => {
            let request = proto::EvacuateRunningActualLrpRequest {
                actual_lrp_key,
                actual_lrp_instance_key,
                actual_lrp_net_info: net_info(name),
                ..Default::default()
            };
            drop(
                server
                    .call("/v1/actual_lrps/evacuate_running.r1", &request)
                    .await,
            );
        }
        _ => {
            let request = proto::RemoveEvacuatingActualLrpRequest {
                actual_lrp_key,
                actual_lrp_instance_key,
            };
            drop(
                server
                    .call("/v1/actual_lrps/remove_evacuating", &request)
                    .await,
            );
        }
    }
}

async fn slots(server: &Server) -> BTreeMap<i32, Slot> {
    let mut reader = server.store.reader().await.unwrap();
    let mut slots = BTreeMap::new();
    for index in 0..INDICES {
        slots.insert(index, reader.slot(b"guid", index).await.unwrap().slot);
    }
    slots
}

on_each_layout!(concurrent_calls_publish_one_consistent_history);
async fn concurrent_calls_publish_one_consistent_history(kind: Kind) {
    let server = with_two_unclaimed(kind).await;
    let mut subscription = subscribe(&server);
    let mut known = slots(&server).await;
    let cells = (0..CELLS).map(|seed| {
        let server = &server;
        let mut random = fastrand::Rng::with_seed(seed);
        async move {
            for _ in 0..CALLS {
                random_call(server, &mut random).await;
            }
        }
    });
    futures_util::future::join_all(cells).await;
    server.service.events().publish(RecordChange::DesiredLrp {
        before: None,
        after: None,
        trace_id: bbs_model::TraceId::NONE,
    });
    let mut changes = 0;
    loop {
        let next = subscription
            .next()
            .await
            .expect("the subscription keeps up");
        let RecordChange::Slot { before, after, .. } = &next.change else {
            break;
        };
        let index = before
            .rows()
            .chain(after.rows())
            .next()
            .expect("something changed")
            .index;
        assert_eq!(
            &known[&index], &**before,
            "change {changes} starts from the state that the previous one left"
        );
        known.insert(index, (**after).clone());
        changes += 1;
    }
    assert!(changes > 10, "only {changes} changes");
    assert_eq!(known, slots(&server).await);
}
