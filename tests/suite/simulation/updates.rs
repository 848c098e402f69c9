//! LRPs are updated, cancelled and rolled back at random, to definitions that run, that crash, and
//! that are never routable, while cells and hosts fail and a migration runs online. A route emitter
//! that knows nothing of definitions sees at every moment an instance of each LRP that receives
//! traffic, unless a fault explains that by the order of the recorded steps
//! (`harness/diego/outages.rs`). The seed decides as much as in `simulation`.
//!
//! `BBS_SIMULATION_UPDATED_LRPS` sets the number of LRPs, of 1 to 8 instances each.

use bbs_proto::models as proto;

use super::diego::{Diego, Fault};
use super::plan::{first_version, plan};
use super::{LONGEST, SEED};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::cell::Text;
use crate::harness::diego::controller::{Controller, Workload};
use crate::harness::diego::outages::{history, outages};
use crate::harness::seed::{OF_PROCESSES, number, seed};
use crate::harness::{pause, tests_all};

const LRPS: u64 = 12;
/// LRPs in `tests/run --all`.
const ALL_LRPS: u64 = 20;
const FAULTS: [Fault; 10] = [
    Fault::Crash,
    Fault::LoseCell,
    Fault::Evacuate,
    Fault::Kill,
    Fault::DisconnectCell,
    Fault::Evacuate,
    Fault::TakeOver,
    Fault::Restart,
    Fault::CutDatabase,
    Fault::MigrateUp,
];

on_each_database!(updates_leave_an_instance_with_traffic);
async fn updates_leave_an_instance_with_traffic(kind: Kind) {
    let seed = seed(SEED);
    let lrps = number("BBS_SIMULATION_UPDATED_LRPS");
    let lrps = lrps.unwrap_or(if tests_all() { ALL_LRPS } else { LRPS });
    println!("{SEED}={seed} on {kind:?}, {lrps} LRPs; {OF_PROCESSES}");
    tokio::time::timeout(LONGEST, simulate(seed, kind, lrps))
        .await
        .expect("the simulation ends");
}

async fn simulate(seed: u64, kind: Kind, lrps: u64) {
    let faults = plan(seed, kind, &FAULTS, lrps * 2);
    let diego = Diego::start(kind, lrps, first_version(&faults)).await;
    let mut controller =
        Controller::start(&diego.home, Workload::Updates, lrps, seed, &diego.trace);
    while diego.emitter.routable() < usize::try_from(lrps).expect("few LRPs") {
        pause().await;
    }
    for planned in faults {
        controller.operations(planned.operations_before).await;
        diego.inject(&planned, &mut controller).await;
    }
    let (wanted, operations) = controller.stop().await;
    let (connections, events) = diego.emitter.counts();
    println!("{operations} operations, {events} events in {connections} connections");
    diego.wait_until_settled(&wanted, &[]).await;

    let steps = diego.trace.steps();
    let (explained, unexplained): (Vec<_>, Vec<_>) = outages(&steps)
        .into_iter()
        .partition(|outage| outage.is_explained);
    println!("{} outages by faults", explained.len());
    let histories: Vec<_> = unexplained
        .iter()
        .map(|outage| history(&steps, outage))
        .collect();
    assert!(
        unexplained.is_empty(),
        "{SEED}={seed}, outages without a fault: {histories:#?}"
    );
    assert!(
        definitions(&diego, wanted.keys()).await > wanted.len(),
        "updates have ended"
    );
}

/// The number of current and archived definitions.
async fn definitions(diego: &Diego, process_guids: impl Iterator<Item = &Text>) -> usize {
    let mut count = 0;
    for process_guid in process_guids {
        let request = proto::LrpDefinitionsRequest {
            process_guid: process_guid.clone(),
        };
        let (answer, refusal, _): (proto::LrpDefinitionsResponse, _, _) = diego
            .home
            .call("/v1.2/desired_lrp/definitions/list", &request)
            .await;
        assert_eq!(refusal, None);
        count += answer.definitions.len();
    }
    count
}
