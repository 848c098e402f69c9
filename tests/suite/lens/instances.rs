//! Calls about instances through a lens: the responses and the final state are those of a native
//! database.

use std::path::PathBuf;

use bbs_proto::models as proto;

use super::{NEWEST, PINS, SHARE, SPLIT, ServerPair};
use crate::api::actual_lrps::{CLAIM, CRASH, FAIL, REMOVE, RETIRE, START};
use crate::api::actual_lrps::{claim, crash, fail, instance, key, net_info, remove, start};
use crate::api::lrp;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::modules;

const EVACUATE_CLAIMED: &str = "/v1/actual_lrps/evacuate_claimed";
const EVACUATE_RUNNING: &str = "/v1/actual_lrps/evacuate_running.r1";
const EVACUATE_STOPPED: &str = "/v1/actual_lrps/evacuate_stopped";
const REMOVE_EVACUATING: &str = "/v1/actual_lrps/remove_evacuating";

impl ServerPair {
    async fn instances(&self) {
        self.call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default())
            .await;
    }

    async fn life(&self) {
        self.desire(proto::DesiredLrp {
            instances: 4,
            ..lrp("guid")
        })
        .await;
        self.call(FAIL, &fail(0)).await;
        for index in [0, 1, 9] {
            self.call(CLAIM, &claim(index, "a")).await;
            self.call(CLAIM, &claim(index, "b")).await;
            self.call(START, &start(index, "a")).await;
            self.call(START, &start(index, "a")).await;
            self.call(START, &start(index, "b")).await;
        }
        self.instances().await;
        for _ in 0..4 {
            self.call(CRASH, &crash(1, "a")).await;
            self.call(START, &start(1, "a")).await;
        }
        self.instances().await;
        self.call(REMOVE, &remove(0, Some("b"))).await;
        self.call(REMOVE, &remove(0, Some("a"))).await;
        self.call(REMOVE, &remove(0, None)).await;
        for index in [2, 2, 9] {
            self.call(
                RETIRE,
                &proto::RetireActualLrpRequest {
                    actual_lrp_key: key(index),
                },
            )
            .await;
        }
        self.instances().await;
    }

    async fn evacuations(&self) {
        let running = |name| proto::EvacuateRunningActualLrpRequest {
            actual_lrp_key: key(3),
            actual_lrp_instance_key: instance(name),
            actual_lrp_net_info: net_info(name),
            ..Default::default()
        };
        let stopped = |name| proto::EvacuateStoppedActualLrpRequest {
            actual_lrp_key: key(3),
            actual_lrp_instance_key: instance(name),
        };
        self.call(START, &start(3, "old")).await;
        self.call(EVACUATE_RUNNING, &running("old")).await;
        self.call(EVACUATE_RUNNING, &running("old")).await;
        self.instances().await;
        self.call(REMOVE_EVACUATING, &stopped("new")).await;
        self.call(CLAIM, &claim(3, "new")).await;
        self.call(EVACUATE_CLAIMED, &stopped("new")).await;
        self.call(START, &start(3, "new")).await;
        self.instances().await;
        self.call(EVACUATE_RUNNING, &running("old")).await;
        self.call(EVACUATE_RUNNING, &running("new")).await;
        self.call(REMOVE_EVACUATING, &stopped("new")).await;
        self.call(START, &start(3, "last")).await;
        self.call(EVACUATE_STOPPED, &stopped("last")).await;
        self.instances().await;
    }
}

async fn lives_agree(kind: Kind, modules: PathBuf, version: u64) {
    let pair = ServerPair::at(kind, modules, version, SHARE).await;
    pair.life().await;
    pair.evacuations().await;
    pair.lists().await;
    assert_eq!(
        (pair.native.store.left_out(), pair.other.store.left_out()),
        (0, 0)
    );
}

on_each_database!(instances_of_split_desired_lrps_behave_as_native_ones);
async fn instances_of_split_desired_lrps_behave_as_native_ones(kind: Kind) {
    lives_agree(kind, modules::modules_with_split(), SPLIT).await;
}

on_each_database!(instances_at_a_pin_behave_as_native_ones);
async fn instances_at_a_pin_behave_as_native_ones(kind: Kind) {
    for pin in PINS.into_iter().chain([NEWEST]) {
        lives_agree(kind, modules::modules(), pin).await;
    }
}
