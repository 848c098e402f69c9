//! Normal load in a simulated Diego, whose auctioneer and cells run what it desires, with every
//! attack at random, from a seed: no acknowledged write is lost, native calls are answered, memory
//! is bounded, and every attack is refused by name. Clients attack, components that the host calls
//! turn hostile, a running host is given hostile modules and bombs for its compiler, and hostile
//! migrations run over the records that it serves.
//!
//! `BBS_ATTACK_SECONDS` sets the time on each database (6). `BBS_ATTACK_SEED` sets the seed
//! (random): it decides the n-th attack of each attacker, after how many native calls it gives up,
//! and the n-th call of each client, but not how they interleave, nor how many of them there are
//! until the time is over. Runs below 60 s are without the attacks that take longer than they do.
//!
//! This is the only test that asserts how long a call takes, and only from 60 s on, because shorter
//! runs have too few calls for that: the latency of native calls is compared with that of a run
//! without attacks beside threads that compute, and each ping has a bound. Attacks compute in the
//! modules, the compilers and the clients of the test, and what that costs others on the same two
//! cores is the machine's: without attacks, p99 of reads was 5.4 ms, 10 ms beside two computing
//! processes and 17 ms beside four. A write that needs instances waits for an auctioneer that does
//! not answer, as in Diego, but not longer than for one request. From 600 s on, memory is compared
//! with that of the first half, too: pools grow for some minutes. The nightly run sets 600, so that
//! all these bounds are checked there; the run on each change checks the rest.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Report, Settings};
use crate::harness::seed::{OF_PROCESSES, number, seed};
use crate::harness::watch::Watch;
use crate::harness::{PATIENCE, pause};
use attacker::{Attack, AttackEnd, Attacker, attacks};
use diego::AttackedDiego;

mod attacker;
mod diego;
mod hostile_modules;

const SECONDS: u64 = 6;
/// From this time on, latency is compared.
const COMPARED: Duration = Duration::from_secs(60);
/// From this time on, memory is compared.
const WHOLE: Duration = Duration::from_secs(600);
const CALLS_PER_SECOND: f64 = 100.0;
const ATTACKERS: u64 = 6;
/// Native calls after which an attacker gives up an attack.
const PATIENCE_CALLS: Range<u64> = 100..800;
/// Threads that compute beside the run without attacks, for each core.
const COMPUTING: usize = 2;
/// Bound of the latency under attack, relative to the run without attacks: some 5 times that on an
/// idle machine.
const SLOWER: f64 = 1.5;
/// A write that needs instances waits so long for the auctioneer, as in Diego.
const COMMUNICATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Growth of the memory on SQLite in the second half, besides a tenth. Its cause is not known. It
/// is not SQLite's caches of pages: in a run that grew from 177 to 205 MiB, SQLite counted 1 to 17
/// MiB of its own at any time (`sqlite3_memory_used`).
const SQLITE_GROWTH_MB: u64 = 32;
/// Bound of each native ping.
const LONGEST_PING: Duration = Duration::from_secs(1);

on_each_database!(attacks_at_random_lose_no_write_and_block_no_call);
async fn attacks_at_random_lose_no_write_and_block_no_call(kind: Kind) {
    let seed = seed("BBS_ATTACK_SEED");
    let time = Duration::from_secs(number("BBS_ATTACK_SECONDS").unwrap_or(SECONDS));
    println!("BBS_ATTACK_SEED={seed} on {kind:?}; {OF_PROCESSES}");
    let (diego, host) = AttackedDiego::start(kind).await;
    let url = format!("https://{}", host.address);
    let new_caller = || Caller::over(diego.trust.client(), watch::channel(url.clone()).1);
    let caller = new_caller();

    let model = Model::of(&caller).await.expect("the list succeeds");
    let calls = watch::Sender::new(0);
    let load = loaded(new_caller(), model, seed, time / 3, calls.clone());
    let computing = (time >= COMPARED).then(Computing::start);
    let (unattacked, model) = on_its_own_thread(load).await;
    drop(computing);
    println!("unattacked: {unattacked}");
    let attacks = attacks(time < COMPARED);
    let attackers = Attackers::start(host.address, &diego, seed, &attacks, &calls);
    let watch = Watch::of(host.pid(), format!("{url}/v1/ping"), diego.trust.client());
    let load = loaded_by_minutes(new_caller(), model, seed + 1, time / 2, calls.clone());
    let (_, model) = on_its_own_thread(load).await;
    let first_half_mb = watch.median_memory_mb();
    let load = loaded_by_minutes(new_caller(), model, seed + 2, time / 2, calls.clone());
    let (attacked, model) = on_its_own_thread(load).await;
    let second_half_mb = watch.median_memory_mb();
    let refusals = attackers.stop().await;

    println!("attacked: {attacked}\n{first_half_mb} MiB, then {second_half_mb} MiB\n{refusals:#?}");
    for report in [&unattacked, &attacked] {
        assert_eq!(
            (report.differences, report.failures),
            (0, 0),
            "seed {seed}: {report}"
        );
    }
    assert_eq!(
        model.differences(&everything(&caller).await.expect("the list succeeds")),
        [""; 0],
        "seed {seed}"
    );
    assert_eq!(strays(&model, &caller).await, [""; 0], "seed {seed}");
    assert!(diego.containers() > 0, "seed {seed}: no cell runs anything");
    if time >= COMPARED {
        assert_not_slower(
            &attacked.reads_from_send,
            &unattacked.reads_from_send,
            Duration::ZERO,
        );
        assert_not_slower(
            &attacked.writes_from_send,
            &unattacked.writes_from_send,
            COMMUNICATION_TIMEOUT,
        );
        assert!(
            watch.slowest_call() <= LONGEST_PING,
            "seed {seed}: a ping took {:?}",
            watch.slowest_call()
        );
    }
    if time >= WHOLE {
        let growth_mb = if kind == Kind::Sqlite {
            SQLITE_GROWTH_MB
        } else {
            0
        };
        assert!(
            second_half_mb <= first_half_mb + first_half_mb / 10 + growth_mb,
            "seed {seed}: memory grows from {first_half_mb} to {second_half_mb} MiB"
        );
        let missing = attacks
            .iter()
            .filter(|attack| !attack.outlasts_attackers() && !refusals.contains_key(attack));
        assert_eq!(
            missing.collect::<Vec<_>>(),
            Vec::<&Attack>::new(),
            "seed {seed}: attacks that never ended"
        );
    }
    watch.assert_unharmed().await;
    for (attack, refusals) in refusals {
        assert!(
            !refusals.contains_key(&AttackEnd::Unrefused),
            "seed {seed}: {attack:?} was not refused: {refusals:?}"
        );
    }
    assert!(
        tokio::task::block_in_place(|| host.terminate()).success(),
        "seed {seed}"
    );
}

/// Threads that compute until this is dropped.
struct Computing(Arc<AtomicBool>);

impl Computing {
    fn start() -> Self {
        let computing = Arc::new(AtomicBool::new(true));
        let cores = std::thread::available_parallelism().expect("the number of cores");
        for _ in 0..cores.get() * COMPUTING {
            let computing = Arc::clone(&computing);
            std::thread::spawn(move || while computing.load(Ordering::Relaxed) {});
        }
        Self(computing)
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Asserts the bound of native calls under attack, besides a wait.
#[track_caller]
fn assert_not_slower(attacked: &Histogram<u64>, unattacked: &Histogram<u64>, wait: Duration) {
    let p99 = |calls: &Histogram<u64>| Duration::from_micros(calls.value_at_quantile(0.99));
    let attacked = p99(attacked);
    let unattacked = p99(unattacked);
    assert!(
        attacked <= unattacked.mul_f64(SLOWER) + wait,
        "native p99 {attacked:?} after {unattacked:?}"
    );
}

/// Differences between the instances of what is desired and those that there are, once cells that
/// could not be reached have ended the instances of what was removed.
async fn strays(model: &Model, caller: &Caller) -> Vec<String> {
    let differences = async || {
        model
            .differences_of_instances(caller)
            .await
            .expect("the list succeeds")
    };
    let settled = async {
        while !differences().await.is_empty() {
            pause().await;
        }
    };
    // The caller reports those that remain.
    let _ = tokio::time::timeout(PATIENCE, settled).await;
    differences().await
}

/// Runs a load on a thread of its own: the attackers, cells and peers of this process compute, too,
/// and a client among them would measure how long it waits for them. Its connections have to be its
/// own, since they end with it.
async fn on_its_own_thread(
    load: impl Future<Output = (Report, Model)> + Send + 'static,
) -> (Report, Model) {
    let run = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        runtime.block_on(load)
    };
    let load = tokio::task::spawn_blocking(run).await;
    load.expect("a load does not panic")
}

/// Makes the calls of some time, and counts them in `calls`.
async fn loaded(
    caller: Caller,
    model: Model,
    seed: u64,
    time: Duration,
    calls: watch::Sender<u64>,
) -> (Report, Model) {
    let settings = Settings {
        clients: 4,
        calls_per_second: CALLS_PER_SECOND,
        seed,
    };
    let mut load = Load::start_catching_up(&caller, model, &Aim::default(), settings);
    let before = *calls.borrow();
    let wanted = (time.as_secs_f64() * CALLS_PER_SECOND) as u64;
    while load.made() < wanted {
        load.calls(1).await;
        calls.send_replace(before + load.made());
    }
    load.stop().await
}

/// As [`loaded`]; prints the latencies of each minute.
async fn loaded_by_minutes(
    caller: Caller,
    mut model: Model,
    seed: u64,
    time: Duration,
    calls: watch::Sender<u64>,
) -> (Report, Model) {
    let minutes = (time.as_secs() / 60).max(1);
    let mut all = Report::new();
    for minute in 0..minutes {
        let part = time / u32::try_from(minutes).expect("a run of hours");
        let minute_seed = seed + 10 * minute;
        let (report, after) = loaded(caller.clone(), model, minute_seed, part, calls.clone()).await;
        println!("minute {}: {report}", minute + 1);
        all.elapsed += report.elapsed;
        all.add(report);
        model = after;
    }
    (all, model)
}

/// How each attack ended, and how often.
type AttackEnds = BTreeMap<Attack, BTreeMap<AttackEnd, u64>>;

/// Running attackers, which attack until they are stopped.
struct Attackers {
    stop: watch::Sender<bool>,
    running: JoinSet<AttackEnds>,
}

impl Attackers {
    fn start(
        address: SocketAddr,
        diego: &Arc<AttackedDiego>,
        seed: u64,
        attacks: &[Attack],
        calls: &watch::Sender<u64>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for number in 0..ATTACKERS {
            let attacker = Attacker::on(address, diego);
            let mut stopped = stopped.clone();
            let mut calls = calls.subscribe();
            let attacks = attacks.to_vec();
            let mut draws = Rng::with_seed(seed ^ number);
            running.spawn(async move {
                let mut refusals = AttackEnds::new();
                while !*stopped.borrow() {
                    let mut random = draws.fork();
                    let attack = *random.choice(&attacks).expect("there are attacks");
                    // It may leave before it is refused.
                    let last = *calls.borrow() + random.u64(PATIENCE_CALLS);
                    let is_over = async {
                        tokio::select! {
                            _ = calls.wait_for(|calls| *calls >= last) => {}
                            _ = stopped.changed() => {}
                        }
                        if !attack.may_be_given_up() {
                            std::future::pending::<()>().await;
                        }
                    };
                    let refusal = tokio::select! {
                        refusal = attacker.run(attack, &mut random) => refusal,
                        () = is_over => continue,
                    };
                    *refusals
                        .entry(attack)
                        .or_default()
                        .entry(refusal)
                        .or_default() += 1;
                }
                refusals
            });
        }
        Self { stop, running }
    }

    async fn stop(mut self) -> AttackEnds {
        self.stop.send_replace(true);
        let mut all = AttackEnds::new();
        while let Some(refusals) = self.running.join_next().await {
            for (attack, refusals) in refusals.expect("an attacker does not panic") {
                for (refusal, times) in refusals {
                    *all.entry(attack).or_default().entry(refusal).or_default() += times;
                }
            }
        }
        all
    }
}
