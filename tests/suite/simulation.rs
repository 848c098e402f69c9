//! A seeded simulation of a Diego around the host: a cloud controller desires, scales, updates and removes LRPs and runs
//! tasks, cells run containers, a route emitter keeps a routing table. Meanwhile each component fails, as do the host and
//! its connection to the database. At the end the cells, the store and the routing table hold exactly the desired LRPs.
//!
//! `BBS_SIMULATION_LRPS` and `BBS_SIMULATION_TASKS` set the size, `BBS_SIMULATION_SEED` the seed. A run prints its seed.
//! `updates` measures the outages during updates.

mod diego;
mod settle;
mod supervisor;
mod updates;

use std::time::{Duration, Instant};

use diego::{Diego, Fault};
use fastrand::Rng;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::controller::{Controller, Workload};
use crate::harness::diego::task_runs::TaskRuns;

const LRPS: u64 = 40;
const TASKS: u64 = 50;
/// Timeout of a run; reached only by a hang.
const LONGEST: Duration = Duration::from_secs(1800);

on_each_database!(desired_lrps_run_after_every_fault);
async fn desired_lrps_run_after_every_fault(kind: Kind) {
    let seed = seed();
    let lrps = number("BBS_SIMULATION_LRPS").unwrap_or(LRPS);
    let tasks = number("BBS_SIMULATION_TASKS").unwrap_or(TASKS);
    println!("BBS_SIMULATION_SEED={seed} on {kind:?}, {lrps} LRPs, {tasks} tasks");
    tokio::time::timeout(LONGEST, simulate(seed, kind, lrps, tasks)).await.expect("the simulation ends");
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    number("BBS_SIMULATION_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32))
}

async fn simulate(seed: u64, kind: Kind, lrps: u64, tasks: u64) {
    let mut random = Rng::with_seed(seed);
    let mut faults: Vec<_> = Fault::all().into_iter().filter(|fault| fault.is_possible_on(kind)).collect();
    random.shuffle(&mut faults);

    let mut diego = Diego::start(kind, lrps, random).await;
    let mut controller = Controller::start(&diego.home, Workload::Lifecycle, lrps, seed);
    let mut task_runs = TaskRuns::default();
    let operations_between_faults = (lrps / 2).max(10);
    // At least one callback for each fault, so that a faulty receiver is noticed.
    let at_once = tasks.div_ceil(faults.len() as u64).max(3);
    for fault in faults {
        controller.operations(operations_between_faults).await;
        task_runs.begin(&diego.home, &diego.receiver, at_once);
        let began = Instant::now();
        print!("{fault:?}, ");
        diego.inject(fault, &mut controller).await;
        println!("{:.1} s", began.elapsed().as_secs_f64());
    }
    let (wanted, operations) = controller.stop().await;
    let with_callback = task_runs.end().await;
    let (connections, events) = diego.emitter.counts();
    println!("{operations} operations, {events} events in {connections} connections");
    diego.wait_until_settled(&wanted, &with_callback).await;
}
