//! Another build of this host against this one under Diego's load, each on its own database of the
//! same server: desire, claim and start LRPs, list them, converge. Both serve at the same time and
//! take turns after each slice of the calls, so that both meet the same noise of the machine.
//! Prints for each kind of call its time and its processor time in the host, and the ratios of this
//! build to the other one.
//!
//! - `BBS_BENCH_OTHER`: the executable of the other build
//! - `BBS_BENCH_OTHER_MODULES`: its folder of modules
//! - `BBS_BENCH_ROWS`: the number of desired LRPs, each with one instance (20000)
//! - `BBS_BENCH_ROUNDS`: slices of each kind of call (20)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mariadb,mysql`
//! - `BBS_BENCH_CLIENTS`: concurrent calls (32)
//! - `BBS_BENCH_MOST`: if set, such as `1.1`, all is measured again where this build takes that
//!   share of the other one's time, and the benchmark fails if it does so twice
//! - `TMPDIR`: the folder of the databases

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[path = "parts/bench_client.rs"]
mod bench_client;
#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;
#[path = "parts/requests.rs"]
mod requests;
#[path = "parts/stub_diego.rs"]
mod stub_diego;
#[path = "parts/subject.rs"]
mod subject;

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use bench_client::BenchClient;
use futures_util::{StreamExt, stream};
use harness::database::Kind;
use harness::host::{Host, Installation};
use harness::modules;
use stub_diego::{SERVES, StubDiego, run_begins, run_ends};
use subject::{BenchServer, kinds, setting};

const CELLS: u64 = 100;
/// Lists by cell in a slice.
const CELL_LISTS: u64 = 100;

#[tokio::main]
async fn main() {
    bbs::choose_cryptography();
    let Some(other) = std::env::var_os("BBS_BENCH_OTHER") else {
        println!("compare: not measured; BBS_BENCH_OTHER names the executable of another build");
        return;
    };
    let other_modules =
        std::env::var_os("BBS_BENCH_OTHER_MODULES").expect("BBS_BENCH_OTHER_MODULES is set");
    let load = Load {
        rows: setting("BBS_BENCH_ROWS", 20_000),
        rounds: setting("BBS_BENCH_ROUNDS", 20),
        clients: setting("BBS_BENCH_CLIENTS", 32),
    };
    let most: Option<f64> = std::env::var("BBS_BENCH_MOST")
        .ok()
        .map(|text| text.parse().expect("a share"));
    let mut slower = Vec::new();
    for kind in kinds() {
        let builds = || {
            [
                Build {
                    executable: PathBuf::from(&other),
                    modules: PathBuf::from(&other_modules),
                },
                Build {
                    executable: harness::bbs().to_owned(),
                    modules: modules::modules(),
                },
            ]
        };
        let first = load.measure(kind, builds()).await.above(most);
        if first.is_empty() {
            continue;
        }
        println!(
            "{}: measured again, because of {}",
            kind.name(),
            first.join(", ")
        );
        let second = load.measure(kind, builds()).await.above(most);
        slower.extend(
            first
                .iter()
                .filter(|what| second.contains(what))
                .map(|what| format!("{}: {what}", kind.name())),
        );
    }
    assert!(
        slower.is_empty(),
        "this build is slower than the other one, twice: {}",
        slower.join("; ")
    );
}

/// The median of this build's share of the other's time, by kind of call.
#[derive(Default)]
struct Shares(Vec<(String, f64)>);

impl Shares {
    /// The kinds of calls that take this share or more.
    fn above(&self, most: Option<f64>) -> Vec<String> {
        let above = self
            .0
            .iter()
            .filter(|(_, share)| most.is_some_and(|most| *share >= most));
        above.map(|(what, _)| what.clone()).collect()
    }
}

/// A build of this host.
struct Build {
    executable: PathBuf,
    modules: PathBuf,
}

impl Build {
    fn serve(&self, installation: &Installation, sign: &str) -> Host {
        let this = installation.command(&["serve"]);
        let mut command = Command::new(&self.executable);
        command.args(this.get_args()).env_remove("RUST_LOG");
        Host::start(command, sign)
    }
}

/// Times of the slices of one kind of call, of the other build and of this one.
#[derive(Default)]
struct Slices {
    of: [Vec<Spent>; 2],
    /// In all slices of one build.
    calls: u64,
}

/// In seconds.
#[derive(Debug, Clone, Copy)]
struct Spent {
    time: f64,
    /// Processor time of the host's process, in user and kernel mode.
    processor: f64,
}

impl Slices {
    /// Prints the means of both builds for each call, and this build's share of the other's: the
    /// quartiles of the pairs for the time, which varies, and the ratio of the sums for the
    /// processor time, which is counted in hundredths of a second.
    fn print(&self, what: &str, shares: &mut Shares) {
        let [other, this] = self.of.each_ref();
        let sum = |slices: &[Spent], of: fn(&Spent) -> f64| slices.iter().map(of).sum::<f64>();
        let mean = |slices: &[Spent], of: fn(&Spent) -> f64| {
            time_text(sum(slices, of) / self.calls as f64)
        };
        let mut ratios: Vec<f64> = this
            .iter()
            .zip(other)
            .map(|(this, other)| this.time / other.time)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let [first, median, third] = [0.25, 0.5, 0.75]
            .map(|share| ratios[((ratios.len() - 1) as f64 * share).round() as usize]);
        shares.0.push((what.to_owned(), median));
        let processor = sum(this, |spent| spent.processor) / sum(other, |spent| spent.processor);
        println!(
            "  {what:<24}{:>12}{:>12}{:>12}{:>12}{:>19}{processor:>10.2}",
            mean(other, |spent| spent.time),
            mean(other, |spent| spent.processor),
            mean(this, |spent| spent.time),
            mean(this, |spent| spent.processor),
            format!("{median:.2} ({first:.2}-{third:.2})"),
        );
    }
}

fn time_text(seconds: f64) -> String {
    if seconds < 0.01 {
        format!("{:.0} us", seconds * 1e6)
    } else {
        format!("{:.1} ms", seconds * 1e3)
    }
}

/// The builds in the order of their turns: each goes first in every second round.
fn turns(round: u64) -> [usize; 2] {
    if round.is_multiple_of(2) {
        [0, 1]
    } else {
        [1, 0]
    }
}

#[derive(Debug, Clone, Copy)]
struct Load {
    /// Desired LRPs.
    rows: u64,
    /// Slices of each kind of call.
    rounds: u64,
    /// Calls at once.
    clients: usize,
}

impl Load {
    async fn measure(self, kind: Kind, builds: [Build; 2]) -> Shares {
        println!(
            "{}, {} desired LRPs, {} calls at once, {} rounds",
            kind.name(),
            self.rows,
            self.clients,
            self.rounds
        );
        println!(
            "  {:<24}{:>24}{:>24}{:>29}",
            "", "other build", "this build", "this / other"
        );
        println!(
            "  {:<24}{:>12}{:>12}{:>12}{:>12}{:>19}{:>10}",
            "", "time", "processor", "time", "processor", "time", "processor"
        );
        let server = BenchServer::new(kind);
        let installed =
            builds.map(|build| (Installation::on(server.database(), &build.modules), build));
        let mut shares = Shares::default();
        self.calls(&installed, &mut shares).await;
        self.convergence(installed, &mut shares).await;
        shares
    }

    async fn calls(self, installed: &[(Installation, Build); 2], shares: &mut Shares) {
        let hosts = installed
            .each_ref()
            .map(|(installation, build)| build.serve(installation, "serving"));
        let bbs = hosts.each_ref().map(BenchClient::of);
        for bbs in &bbs {
            bbs.change("domains/upsert", requests::keep_fresh()).await;
        }
        let lrps = self.rows / self.rounds;
        self.slices(
            "desire",
            &bbs,
            lrps,
            shares,
            async |bbs: &BenchClient, at| {
                bbs.change("desired_lrp/desire.r2", requests::desire(at))
                    .await;
            },
        )
        .await;
        self.slices(
            "claim",
            &bbs,
            lrps,
            shares,
            async |bbs: &BenchClient, at| {
                bbs.change("actual_lrps/claim", requests::claim(at, at % CELLS))
                    .await;
            },
        )
        .await;
        for what in ["start", "start, unchanged"] {
            self.slices(what, &bbs, lrps, shares, async |bbs: &BenchClient, at| {
                bbs.change("actual_lrps/start.r1", requests::start(at, at % CELLS))
                    .await;
            })
            .await;
        }
        self.slices(
            "list LRPs by cell",
            &bbs,
            CELL_LISTS,
            shares,
            async |bbs: &BenchClient, at| {
                bbs.list("actual_lrps/list", requests::of_cell(at % CELLS))
                    .await;
            },
        )
        .await;
        for (what, method) in [
            ("list scheduling infos", "desired_lrp_scheduling_infos/list"),
            ("list desired LRPs", "desired_lrps/list.r3"),
            ("list actual LRPs", "actual_lrps/list"),
        ] {
            self.slices(what, &bbs, 1, shares, async |bbs: &BenchClient, _| {
                bbs.list(method, Vec::new()).await;
            })
            .await;
        }
        for host in hosts {
            host.terminate();
        }
    }

    /// Makes the calls of all rounds and prints what they took.
    async fn slices(
        self,
        what: &str,
        bbs: &[BenchClient; 2],
        calls: u64,
        shares: &mut Shares,
        call: impl AsyncFn(&BenchClient, u64),
    ) {
        let mut slices = Slices {
            calls: calls * self.rounds,
            ..Slices::default()
        };
        for round in 0..self.rounds {
            for build in turns(round) {
                let of_slice = stream::iter(round * calls..(round + 1) * calls);
                let spent = spent(&bbs[build], async || {
                    of_slice
                        .for_each_concurrent(self.clients, |at| call(&bbs[build], at))
                        .await;
                });
                slices.of[build].push(spent.await);
            }
        }
        slices.print(what, shares);
    }

    /// Runs at rest, then runs after the loss of one more cell. The other build is stopped
    /// meanwhile.
    async fn convergence(self, installed: [(Installation, Build); 2], shares: &mut Shares) {
        let mut sides = Vec::new();
        for (installation, build) in installed {
            let diego = StubDiego::start().await;
            // A stopped host keeps its lock.
            let installation = diego.around(installation).set("lock_ttl", "1h");
            let host = build.serve(&installation, SERVES);
            let bbs = BenchClient::of(&host);
            host.signal("STOP");
            sides.push((installation, diego, host, bbs));
        }
        for loses_cells in [false, true] {
            let mut slices = Slices {
                calls: self.rounds,
                ..Slices::default()
            };
            for round in 0..self.rounds {
                for build in turns(round) {
                    let (_, diego, host, bbs) = &mut sides[build];
                    host.signal("CONT");
                    if loses_cells {
                        diego.lose(round % CELLS);
                    }
                    run_begins(host);
                    slices.of[build].push(spent(bbs, async || run_ends(host)).await);
                    host.signal("STOP");
                }
            }
            slices.print(
                if loses_cells {
                    "converge, a cell lost"
                } else {
                    "converge, at rest"
                },
                shares,
            );
        }
        for (_, _, host, _) in sides {
            host.signal("CONT");
            host.terminate();
        }
    }
}

async fn spent(bbs: &BenchClient, work: impl AsyncFnOnce()) -> Spent {
    let processor = || {
        bbs.processor_seconds()
            .expect("the processor time of the host can be read")
    };
    let began = Instant::now();
    let before = processor();
    work().await;
    Spent {
        time: began.elapsed().as_secs_f64(),
        processor: processor() - before,
    }
}
