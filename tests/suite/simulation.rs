//! A seeded simulation of a Diego around the host: a cloud controller desires, scales, updates and
//! removes LRPs and runs tasks, cells run containers, a route emitter keeps a routing table.
//! Meanwhile each component fails, as do the host and its connection to the database, and the
//! database is migrated: up online, at a reload of newer modules, and down while no host runs; the
//! seed decides which comes first. At the end the cells, the store and the routing table hold
//! exactly the desired LRPs, and the database has the version of the installed modules.
//!
//! `BBS_SIMULATION_LRPS` and `BBS_SIMULATION_TASKS` set the size, `BBS_SIMULATION_SEED` the seed.
//! The seed decides, before the run begins, which faults there are, in which order, on which cell,
//! which instances crash, and after how many operations each begins and ends; and what the n-th
//! operation of each client does. No decision follows from the time. The host, the components and
//! the clients run side by side, so the seed does not repeat how their steps interleave: a run
//! prints its decisions, and a failure the steps that led to it, in the order in which they were
//! recorded.
//!
//! `updates` measures the outages during updates.

mod diego;
mod plan;
mod settle;
mod supervisor;
mod updates;

use std::time::{Duration, Instant};

use diego::{Diego, Fault};
use plan::{first_version, plan};

use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::controller::{Controller, Workload};
use crate::harness::diego::task_runs::TaskRuns;
use crate::harness::seed::{OF_PROCESSES, number, seed};
use crate::harness::tests_all;

const SEED: &str = "BBS_SIMULATION_SEED";
/// Four for each client and cell.
const LRPS: u64 = 24;
/// LRPs in `tests/run --all`.
const ALL_LRPS: u64 = 40;
const TASKS: u64 = 50;
/// Timeout of a run; reached only by a hang.
const LONGEST: Duration = Duration::from_secs(1800);

on_each_database!(desired_lrps_run_after_every_fault);
async fn desired_lrps_run_after_every_fault(kind: Kind) {
    let seed = seed(SEED);
    let lrps = number("BBS_SIMULATION_LRPS");
    let lrps = lrps.unwrap_or(if tests_all() { ALL_LRPS } else { LRPS });
    let tasks = number("BBS_SIMULATION_TASKS").unwrap_or(TASKS);
    println!("{SEED}={seed} on {kind:?}, {lrps} LRPs, {tasks} tasks; {OF_PROCESSES}");
    tokio::time::timeout(LONGEST, simulate(seed, kind, lrps, tasks))
        .await
        .expect("the simulation ends");
}

async fn simulate(seed: u64, kind: Kind, lrps: u64, tasks: u64) {
    let faults = plan(seed, kind, &Fault::all(), (lrps / 2).max(10));
    let diego = Diego::start(kind, lrps, first_version(&faults)).await;
    let mut controller =
        Controller::start(&diego.home, Workload::Lifecycle, lrps, seed, &diego.trace);
    let mut task_runs = TaskRuns::default();
    // At least one callback for each fault, so that a faulty receiver is noticed.
    let at_once = tasks.div_ceil(faults.len() as u64).max(3);
    for planned in faults {
        controller.operations(planned.operations_before).await;
        task_runs.begin(&diego.home, &diego.receiver, at_once);
        let began = Instant::now();
        diego.inject(&planned, &mut controller).await;
        println!(
            "{:?} took {:.1} s",
            planned.fault,
            began.elapsed().as_secs_f64()
        );
    }
    let (wanted, operations) = controller.stop().await;
    let with_callback = task_runs.end().await;
    let (connections, events) = diego.emitter.counts();
    println!("{operations} operations, {events} events in {connections} connections");
    diego.wait_until_settled(&wanted, &with_callback).await;
}
