//! A whole Diego around the host, from a seed: a cloud controller desires, scales, changes and removes, tasks are run,
//! cells run containers, an emitter keeps a table of what runs where. Meanwhile each of them fails, and so do the host, and
//! the way to its database. In the end what runs is what is desired, on the cells, in the store and in the table.
//!
//! `BBS_SIMULATION_LRPS` and `BBS_SIMULATION_TASKS` set the size, `BBS_SIMULATION_SEED` the seed, which a run tells.

mod diego;
mod rest;
mod supervisor;

use std::time::{Duration, Instant};

use diego::{Diego, Fault};
use fastrand::Rng;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::controller::Controller;
use crate::harness::diego::errands::Errands;

const LRPS: u64 = 40;
const TASKS: u64 = 50;
/// Far above what a whole Diego takes: only a hang reaches it.
const LONGEST: Duration = Duration::from_secs(1800);

on_each_database!(what_is_desired_runs_whatever_fails);
async fn what_is_desired_runs_whatever_fails(kind: Kind) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = number("BBS_SIMULATION_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let lrps = number("BBS_SIMULATION_LRPS").unwrap_or(LRPS);
    let tasks = number("BBS_SIMULATION_TASKS").unwrap_or(TASKS);
    println!("BBS_SIMULATION_SEED={seed} on {kind:?}, {lrps} LRPs, {tasks} tasks");
    tokio::time::timeout(LONGEST, simulate(seed, kind, lrps, tasks)).await.expect("whatever fails is over some time");
}

async fn simulate(seed: u64, kind: Kind, lrps: u64, tasks: u64) {
    let mut random = Rng::with_seed(seed);
    let mut faults: Vec<_> = Fault::all().into_iter().filter(|fault| fault.is_possible_on(kind)).collect();
    random.shuffle(&mut faults);

    let mut diego = Diego::start(kind, lrps, random).await;
    let mut controller = Controller::start(&diego.home, lrps, seed);
    let mut errands = Errands::default();
    let between = (lrps / 2).max(10);
    // A callback or more for each, where somebody has to be told and is not.
    let at_once = tasks.div_ceil(faults.len() as u64).max(3);
    for fault in faults {
        controller.operations(between).await;
        errands.begin(&diego.home, &diego.receiver, at_once);
        let began = Instant::now();
        print!("{fault:?}, ");
        diego.suffer(fault, &mut controller).await;
        println!("{:.1} s", began.elapsed().as_secs_f64());
    }
    let (wanted, operations) = controller.stop().await;
    let told_of = errands.end().await;
    let (connections, events) = diego.emitter.heard();
    println!("{operations} operations, {events} events in {connections} connections");
    diego.come_to_rest(&wanted, &told_of).await;
}
