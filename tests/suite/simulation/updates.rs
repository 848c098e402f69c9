//! LRPs are updated, cancelled and rolled back at random, to definitions that run, that crash, and that are never routable, while
//! cells and hosts fail. A route emitter that knows nothing of definitions sees at every moment an instance of each LRP
//! that receives traffic, unless its container was lost in another way.
//!
//! `BBS_SIMULATION_UPDATED_LRPS` sets the number of LRPs, of 1 to 8 instances each.

use std::collections::BTreeSet;

use bbs_proto::models as proto;
use fastrand::Rng;

use super::diego::{Diego, Fault};
use super::{LONGEST, number, seed};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::cell::Text;
use crate::harness::diego::controller::{Controller, Workload};
use crate::harness::diego::emitter::Outage;
use crate::harness::pause;

const LRPS: u64 = 20;
const FAULTS: [Fault; 9] = [
    Fault::Crash,
    Fault::LoseCell,
    Fault::Evacuate,
    Fault::Kill,
    Fault::DisconnectCell,
    Fault::Evacuate,
    Fault::TakeOver,
    Fault::Restart,
    Fault::CutDatabase,
];

on_each_database!(updates_leave_an_instance_with_traffic);
async fn updates_leave_an_instance_with_traffic(kind: Kind) {
    let (seed, lrps) = (seed(), number("BBS_SIMULATION_UPDATED_LRPS").unwrap_or(LRPS));
    println!("BBS_SIMULATION_SEED={seed} on {kind:?}, {lrps} LRPs");
    tokio::time::timeout(LONGEST, simulate(seed, kind, lrps)).await.expect("the simulation ends");
}

async fn simulate(seed: u64, kind: Kind, lrps: u64) {
    let mut random = Rng::with_seed(seed);
    let mut faults = FAULTS;
    random.shuffle(&mut faults);
    let mut diego = Diego::start(kind, lrps, random).await;
    let mut controller = Controller::start(&diego.home, Workload::Updates, lrps, seed);
    while diego.emitter.routable() < usize::try_from(lrps).expect("few LRPs") {
        pause().await;
    }
    for fault in faults.into_iter().filter(|fault| fault.is_possible_on(kind)) {
        controller.operations(lrps * 2).await;
        println!("{fault:?}");
        diego.inject(fault, &mut controller).await;
    }
    let (wanted, operations) = controller.stop().await;
    let (connections, events) = diego.emitter.counts();
    println!("{operations} operations, {events} events in {connections} connections");
    diego.wait_until_settled(&wanted, &[]).await;

    let faulted: BTreeSet<_> = diego.cells.iter().flat_map(|cell| cell.faulted()).collect();
    let outages = diego.emitter.outages();
    // A container that was asked to stop cannot be kept if its successor crashes shortly before it stops.
    let is_explained =
        |outage: &&Outage| outage.lost.is_subset(&faulted) || !outage.shortly_before.is_disjoint(&faulted);
    let (explained, unexplained): (Vec<_>, Vec<_>) = outages.iter().partition(is_explained);
    println!("{} outages by faults", explained.len());
    let histories: Vec<_> = unexplained.iter().map(|outage| &outage.history).collect();
    assert!(unexplained.is_empty(), "{histories:#?}");
    assert!(definitions(&diego, wanted.keys()).await > wanted.len(), "updates have ended");
}

/// The number of current and archived definitions.
async fn definitions(diego: &Diego, process_guids: impl Iterator<Item = &Text>) -> usize {
    let mut count = 0;
    for process_guid in process_guids {
        let request = proto::LrpDefinitionsRequest { process_guid: process_guid.clone() };
        let (answer, refusal, _): (proto::LrpDefinitionsResponse, _, _) =
            diego.home.call("/v1/desired_lrp/definitions/list", &request).await;
        assert_eq!(refusal, None);
        count += answer.definitions.len();
    }
    count
}
