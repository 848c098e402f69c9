//! The API under Diego's load: desire, claim and start LRPs, list scheduling infos, list LRPs by
//! cell. Over HTTP, against this host as a process on each of the databases, and against any other
//! BBS in the same run. Then convergence of this host: at rest, and after the loss of one cell of a
//! hundred. Prints rates, latencies, processor time of the host for each call, and memory; asserts
//! nothing about time.
//!
//! - `BBS_BENCH_ROWS`: numbers of desired LRPs, each with one instance (`20000,200000`)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mariadb,mysql`
//! - `BBS_BENCH_CLIENTS`: concurrent calls (32)
//! - `BBS_BENCH_URL`: another BBS to measure as well, such as `https://127.0.0.1:8889`; its
//!   database should be empty
//! - `BBS_BENCH_CA`, `BBS_BENCH_CERT`, `BBS_BENCH_KEY`: the client's TLS files for it
//! - `BBS_BENCH_PID`: its process id, to measure its memory
//! - `BBS_BENCH_DIEGO`: if set, also measures this host as part of a Diego: mutual TLS, Locket, an
//!   auctioneer
//! - `BBS_BENCH_CONVERGE`: interval of convergence in that case (`1h`: none during the measurement)
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bbs_client::{Identity, TlsFiles};
use bbs_proto::models as proto;
use bench_client::BenchClient;
use futures_util::{StreamExt, stream};
use harness::database::Kind;
use harness::host::{Host, Installation};
use harness::modules;
use hdrhistogram::Histogram;
use stub_diego::{StubDiego, next_run};
use subject::{BenchServer, kinds, setting};

const CELLS: u64 = 100;
/// Number of timed lists of all records, and of timed lists by cell.
const WHOLE_LISTS: usize = 3;
const CELL_LISTS: u64 = 300;
/// Number of timed convergence runs with nothing to do.
const RUNS_AT_REST: usize = 3;

#[tokio::main]
async fn main() {
    bbs::choose_cryptography();
    let numbers = setting("BBS_BENCH_ROWS", "20000,200000".to_owned());
    let sizes: Vec<u64> = numbers
        .split(',')
        .map(|size| size.parse().expect("BBS_BENCH_ROWS has numbers"))
        .collect();
    let clients = setting("BBS_BENCH_CLIENTS", 32);
    for size in &sizes {
        for kind in kinds() {
            let server = BenchServer::new(kind);
            let installation = Installation::on(server.database(), &modules::modules());
            let host = installation.serve();
            println!(
                "this host on {}, {size} desired LRPs, {clients} calls at once",
                kind.name()
            );
            Load::of(&host, clients).measure(*size).await;
            host.terminate();
            let diego = StubDiego::start().await;
            let installation = diego.around(installation);
            let mut host = stub_diego::serve(&installation);
            Load::of(&host, clients).converge(&diego, &mut host);
            host.terminate();
        }
        if std::env::var_os("BBS_BENCH_DIEGO").is_some() {
            for kind in kinds() {
                as_part_of_a_diego(kind, *size, clients).await;
            }
        }
        if let Ok(url) = std::env::var("BBS_BENCH_URL") {
            let tls = tls_files(
                ["BBS_BENCH_CA", "BBS_BENCH_CERT", "BBS_BENCH_KEY"]
                    .map(|name| std::env::var_os(name).map(PathBuf::from)),
            );
            let pid = std::env::var("BBS_BENCH_PID")
                .ok()
                .map(|pid| pid.parse().expect("BBS_BENCH_PID is a number"));
            println!("the BBS at {url}, {size} desired LRPs, {clients} calls at once");
            Load {
                bbs: BenchClient::at(&url, tls, pid),
                clients,
            }
            .measure_other(*size)
            .await;
        }
    }
}

/// Measures this host as the other BBS is measured: with mutual TLS, Locket, and an auctioneer.
async fn as_part_of_a_diego(kind: Kind, size: u64, clients: usize) {
    let server = BenchServer::new(kind);
    let diego = StubDiego::start().await;
    let installation = diego.around(Installation::on(server.database(), &modules::modules()));
    let interval = setting("BBS_BENCH_CONVERGE", "1h".to_owned());
    let installation = installation.set("converge_repeat_interval", interval);
    let host = stub_diego::serve(&installation);
    println!(
        "this host on {} as part of a Diego, {size} desired LRPs, {clients} calls at once",
        kind.name()
    );
    let url = format!("https://{}", host.address);
    let client = BenchClient::at(&url, tls_files(diego.files().map(Some)), Some(host.pid()));
    let load = Load {
        bbs: client,
        clients,
    };
    load.measure_other(size).await;
    host.terminate();
}

/// The authority of the BBS, and the certificate and key of its client.
fn tls_files([ca_file, certificate, key]: [Option<PathBuf>; 3]) -> TlsFiles {
    let identity = certificate.zip(key).map(|(cert_file, key_file)| Identity {
        cert_file,
        key_file,
    });
    TlsFiles { ca_file, identity }
}

/// A BBS under load.
struct Load {
    bbs: BenchClient,
    /// Calls at once.
    clients: usize,
}

impl Load {
    fn of(host: &Host, clients: usize) -> Self {
        Self {
            bbs: BenchClient::of(host),
            clients,
        }
    }

    async fn measure(&self, rows: u64) {
        self.bbs
            .change("domains/upsert", requests::keep_fresh())
            .await;
        let desired = self.many("desire", 0..rows, |at| {
            self.bbs
                .change("desired_lrp/desire.r2", requests::desire(at))
        });
        desired.await;
        let claimed = self.many("claim", 0..rows, |at| {
            self.bbs
                .change("actual_lrps/claim", requests::claim(at, at % CELLS))
        });
        claimed.await;
        let started = |at| {
            self.bbs
                .change("actual_lrps/start.r1", requests::start(at, at % CELLS))
        };
        self.many("start", 0..rows, started).await;
        // A rep repeats the start call for every running container.
        self.many("start, unchanged", 0..rows.min(20_000), started)
            .await;
        self.lists("list scheduling infos", "desired_lrp_scheduling_infos/list")
            .await;
        self.lists("list actual LRPs", "actual_lrps/list").await;
        self.many("list LRPs by cell", 0..CELL_LISTS, |at| async move {
            self.bbs
                .call("actual_lrps/list", requests::of_cell(at % CELLS))
                .await
                .len();
        })
        .await;
    }

    async fn measure_other(&self, rows: u64) {
        self.measure(rows).await;
        println!(
            "  converge: not measurable from outside; the BBS reports it as ConvergenceLRPDuration"
        );
        self.empty(rows).await;
    }

    fn converge(&self, diego: &StubDiego, host: &mut Host) {
        self.bbs.forget_peak();
        let times: Vec<_> = (0..RUNS_AT_REST).map(|_| next_run(host)).collect();
        let best = times.into_iter().min().unwrap_or_default().as_secs_f64();
        println!(
            "  {:<24}{best:>9.2} s    {:>4} auctioned      {}",
            "converge, at rest",
            diego.auctioned(),
            self.bbs.peak()
        );
        self.bbs.forget_peak();
        diego.lose(0);
        let spent = next_run(host).as_secs_f64();
        println!(
            "  {:<24}{spent:>9.2} s    {:>4} auctioned      {}",
            "converge, a cell lost",
            diego.auctioned(),
            self.bbs.peak()
        );
    }

    /// Removes all LRPs, so that the next size begins with an empty database. Some instances are
    /// gone already: convergence removes those of an LRP that is not desired and of a cell without
    /// a presence.
    async fn empty(&self, rows: u64) {
        self.many("remove", 0..rows, |at| {
            self.bbs.change("desired_lrp/remove", requests::remove(at))
        })
        .await;
        let converged = AtomicU64::new(0);
        let count = &converged;
        self.many("remove instances", 0..rows, |at| async move {
            match self
                .bbs
                .error(
                    "actual_lrps/remove",
                    requests::remove_instance(at, at % CELLS),
                )
                .await
            {
                None => {}
                Some(error) if error.r#type() == proto::error::Type::ResourceNotFound => {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Some(error) => panic!("actual_lrps/remove: {error:?}"),
            }
        })
        .await;
        let converged = converged.into_inner();
        if converged > 0 {
            println!("  {converged} of these had been removed by convergence");
        }
    }

    /// Makes a call for each number of the range, `clients` at a time, and prints rate and
    /// latencies.
    async fn many<F: Future>(&self, what: &str, of: std::ops::Range<u64>, call: impl Fn(u64) -> F) {
        let mut times = Histogram::<u64>::new(3).expect("three digits");
        let count = of.end - of.start;
        self.bbs.forget_peak();
        let began = Instant::now();
        let processor = self.bbs.processor_seconds();
        let timed = stream::iter(of).map(|at| {
            let call = call(at);
            async {
                let began = Instant::now();
                call.await;
                began.elapsed()
            }
        });
        let mut calls = std::pin::pin!(timed.buffer_unordered(self.clients));
        while let Some(time) = calls.next().await {
            times
                .record(time.as_micros() as u64)
                .expect("the histogram grows");
        }
        let spent = began.elapsed();
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
        let rate = count as f64 / spent.as_secs_f64();
        let processor = self
            .bbs
            .processor_seconds()
            .zip(processor)
            .map(|(after, before)| after - before);
        let processor = processor.map_or_else(String::new, |seconds| {
            format!("cpu {:>4.0} us   ", seconds / count as f64 * 1e6)
        });
        let p50 = at(0.5);
        let p99 = at(0.99);
        println!(
            "  {what:<24}{rate:>9.0} /s   p50 {p50:>8.2} ms   p99 {p99:>8.2} ms   {processor}{}",
            self.bbs.peak()
        );
    }

    /// Times a list of all records, read as a stream to its end.
    async fn lists(&self, what: &str, method: &str) {
        self.bbs.forget_peak();
        let mut best = Duration::MAX;
        let mut bytes = 0;
        for _ in 0..WHOLE_LISTS {
            let began = Instant::now();
            bytes = self.bbs.list(method, Vec::new()).await;
            best = best.min(began.elapsed());
        }
        let megabytes = bytes as f64 / f64::from(1 << 20);
        println!(
            "  {what:<24}{:>9.2} s    {megabytes:>8.1} MiB   {}",
            best.as_secs_f64(),
            self.bbs.peak()
        );
    }
}
