//! The API as a Diego under load uses it: desire, claim and start, list what is scheduled, list by cell. Over HTTP,
//! against this host as a process on each of the databases, and against any other BBS in the same run. Then convergence,
//! which is this host's own: at rest, and after one cell of a hundred has gone. Prints rates, latencies and memory;
//! fails at nothing that is a matter of time.
//!
//! - `BBS_BENCH_ROWS`: numbers of desired LRPs, each with one instance (`20000,200000`)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mysql`
//! - `BBS_BENCH_CLIENTS`: calls at once (32)
//! - `BBS_BENCH_URL`: another BBS to measure as well, such as `https://127.0.0.1:8889`; its database should be empty
//! - `BBS_BENCH_CA`, `BBS_BENCH_CERT`, `BBS_BENCH_KEY`: files for talking to it
//! - `BBS_BENCH_PID`: its process, for its memory
//! - `BBS_BENCH_DIEGO`: if it is there, this host is measured as part of a Diego too, through such a URL and such files
//! - `BBS_BENCH_CONVERGE`: how often it converges there (`1h`: not while it is measured)
//! - `TMPDIR`: where the databases are put

#![allow(unreachable_pub, dead_code, reason = "the harness is the suite's")]

#[path = "parts/diego.rs"]
mod diego;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "parts/rest.rs"]
mod rest;
#[path = "parts/subject.rs"]
mod subject;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use futures_util::{StreamExt, stream};
use harness::database::Kind;
use harness::host::{Host, Installation};
use harness::modules;
use hdrhistogram::Histogram;
use rest::{Rest, next_run};
use subject::{Place, kinds};

const CELLS: u64 = 100;
/// Lists of everything, and lists by cell, that are timed.
const WHOLE_LISTS: usize = 3;
const CELL_LISTS: u64 = 300;
/// Runs of convergence with nothing to do that are timed.
const RUNS_AT_REST: usize = 3;

#[tokio::main]
async fn main() {
    bbs::tls::choose_cryptography();
    let chosen = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let numbers = chosen("BBS_BENCH_ROWS", "20000,200000");
    let sizes: Vec<u64> = numbers.split(',').map(|size| size.parse().expect("BBS_BENCH_ROWS has numbers")).collect();
    let clients = chosen("BBS_BENCH_CLIENTS", "32").parse().expect("BBS_BENCH_CLIENTS is a number");
    for size in &sizes {
        for kind in kinds() {
            let place = Place::new(kind);
            let installation = Installation::on(place.database(), &modules::modules());
            let host = installation.serve();
            println!("this host on {}, {size} desired LRPs, {clients} calls at once", kind.name());
            Bbs::of(&host, clients).measure(*size).await;
            host.terminate();
            let rest = Rest::start().await;
            let installation = rest.around(installation);
            let mut host = rest::serve(&installation);
            Bbs::of(&host, clients).converge(&rest, &mut host);
            host.terminate();
        }
        if std::env::var_os("BBS_BENCH_DIEGO").is_some() {
            for kind in kinds() {
                as_part_of_a_diego(kind, *size, clients).await;
            }
        }
        if let Ok(url) = std::env::var("BBS_BENCH_URL") {
            let file = |name| std::env::var_os(name).map(PathBuf::from);
            let files = ["BBS_BENCH_CA", "BBS_BENCH_CERT", "BBS_BENCH_KEY"].map(file);
            let pid = std::env::var("BBS_BENCH_PID").ok().map(|pid| pid.parse().expect("BBS_BENCH_PID is a number"));
            println!("the BBS at {url}, {size} desired LRPs, {clients} calls at once");
            Bbs { url, client: client(files), pid, clients }.measure_other(*size).await;
        }
    }
}

/// With mutual TLS, Locket, and an auctioneer that is asked for cells: as the other BBS is measured.
async fn as_part_of_a_diego(kind: Kind, size: u64, clients: usize) {
    let (place, rest) = (Place::new(kind), Rest::start().await);
    let installation = rest.around(Installation::on(place.database(), &modules::modules()));
    let interval = std::env::var("BBS_BENCH_CONVERGE").unwrap_or_else(|_| "1h".to_owned());
    let installation = installation.set("converge_repeat_interval", interval);
    let host = rest::serve(&installation);
    println!("this host on {} as part of a Diego, {size} desired LRPs, {clients} calls at once", kind.name());
    let url = format!("https://{}", host.address);
    let bbs = Bbs { url, client: client(rest.files().map(Some)), pid: Some(host.pid()), clients };
    bbs.measure_other(size).await;
    host.terminate();
}

/// Believes the first of these files, and shows the certificate and key of the others.
fn client([ca, certificate, key]: [Option<PathBuf>; 3]) -> reqwest::Client {
    let read = |path: Option<PathBuf>| path.map(|path| std::fs::read(path).expect("a file of a certificate or key"));
    let mut builder = reqwest::Client::builder();
    if let Some(ca) = read(ca) {
        let roots = reqwest::Certificate::from_pem_bundle(&ca).expect("BBS_BENCH_CA has certificates");
        builder = builder.tls_certs_only(roots);
    }
    if let (Some(certificate), Some(key)) = (read(certificate), read(key)) {
        let identity = reqwest::Identity::from_pem(&[certificate, key].concat()).expect("BBS_BENCH_CERT and _KEY fit");
        builder = builder.identity(identity);
    }
    builder.build().expect("a client with these certificates")
}

/// A BBS that is measured, this host or another.
struct Bbs {
    url: String,
    client: reqwest::Client,
    pid: Option<u32>,
    clients: usize,
}

impl Bbs {
    fn of(host: &Host, clients: usize) -> Self {
        Self { url: host.url(""), client: harness::http_client(), pid: Some(host.pid()), clients }
    }

    async fn measure(&self, rows: u64) {
        self.change("domains/upsert", diego::keep_fresh()).await;
        let desired = self.many("desire", 0..rows, |at| self.change("desired_lrp/desire.r2", diego::desire(at)));
        desired.await;
        let claimed = self.many("claim", 0..rows, |at| self.change("actual_lrps/claim", diego::claim(at, at % CELLS)));
        claimed.await;
        let started = |at| self.change("actual_lrps/start.r1", diego::start(at, at % CELLS));
        self.many("start", 0..rows, started).await;
        // What a rep says of everything that it runs, over and over.
        self.many("start, unchanged", 0..rows.min(20_000), started).await;
        self.lists("list scheduling infos", "desired_lrp_scheduling_infos/list").await;
        self.lists("list actual LRPs", "actual_lrps/list").await;
        self.many("list LRPs by cell", 0..CELL_LISTS, |at| async move {
            self.call("actual_lrps/list", diego::of_cell(at % CELLS)).await.len();
        })
        .await;
    }

    async fn measure_other(&self, rows: u64) {
        self.measure(rows).await;
        println!("  converge: nobody outside sees how long it takes; it says so itself as ConvergenceLRPDuration");
        self.empty(rows).await;
    }

    fn converge(&self, rest: &Rest, host: &mut Host) {
        self.forget_peak();
        let times: Vec<_> = (0..RUNS_AT_REST).map(|_| next_run(host)).collect();
        let best = times.into_iter().min().unwrap_or_default().as_secs_f64();
        println!(
            "  {:<24}{best:>9.2} s    {:>4} auctioned      {}",
            "converge, at rest",
            rest.auctioned(),
            self.peak()
        );
        self.forget_peak();
        rest.lose(0);
        let spent = next_run(host).as_secs_f64();
        println!(
            "  {:<24}{spent:>9.2} s    {:>4} auctioned      {}",
            "converge, a cell lost",
            rest.auctioned(),
            self.peak()
        );
    }

    /// Removes what was desired, so that the next size finds the database empty. An instance may be gone before its cell
    /// says so: convergence removes one that nothing desires and whose cell is not there.
    async fn empty(&self, rows: u64) {
        self.many("remove", 0..rows, |at| self.change("desired_lrp/remove", diego::remove(at))).await;
        let converged = AtomicU64::new(0);
        let count = &converged;
        let gone = |at| async move {
            match self.error("actual_lrps/remove", diego::remove_instance(at, at % CELLS)).await {
                None => {}
                Some(error) if error.r#type() == proto::error::Type::ResourceNotFound => {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Some(error) => panic!("actual_lrps/remove: {error:?}"),
            }
        };
        self.many("remove instances", 0..rows, gone).await;
        let converged = converged.into_inner();
        if converged > 0 {
            println!("  {converged} of these were removed by convergence before");
        }
    }

    /// Everything once, so many at a time.
    async fn many<F: Future>(&self, what: &str, of: std::ops::Range<u64>, call: impl Fn(u64) -> F) {
        let mut times = Histogram::<u64>::new(3).expect("three digits");
        let count = of.end - of.start;
        self.forget_peak();
        let began = Instant::now();
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
            times.record(time.as_micros() as u64).expect("the histogram grows");
        }
        let spent = began.elapsed();
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
        let rate = count as f64 / spent.as_secs_f64();
        println!("  {what:<24}{rate:>9.0} /s   p50 {:>8.2} ms   p99 {:>8.2} ms   {}", at(0.5), at(0.99), self.peak());
    }

    /// A list of everything, read to its end as it comes.
    async fn lists(&self, what: &str, method: &str) {
        self.forget_peak();
        let (mut best, mut bytes) = (Duration::MAX, 0);
        for _ in 0..WHOLE_LISTS {
            let began = Instant::now();
            let mut response = self.send(method, Vec::new()).await;
            bytes = 0;
            while let Some(chunk) = response.chunk().await.expect("the list comes whole") {
                bytes += chunk.len();
            }
            best = best.min(began.elapsed());
        }
        let megabytes = bytes as f64 / f64::from(1 << 20);
        println!("  {what:<24}{:>9.2} s    {megabytes:>8.1} MiB   {}", best.as_secs_f64(), self.peak());
    }

    async fn send(&self, method: &str, body: Vec<u8>) -> reqwest::Response {
        let request = self.client.post(format!("{}/v1/{method}", self.url)).body(body);
        let response = request.send().await.unwrap_or_else(|fault| panic!("{method}: {fault:?}"));
        assert_eq!(response.status(), 200, "{method}");
        response
    }

    async fn call(&self, method: &str, body: Vec<u8>) -> Vec<u8> {
        self.send(method, body).await.bytes().await.expect("the answer comes whole").to_vec()
    }

    async fn change(&self, method: &str, body: Vec<u8>) {
        assert_eq!(self.error(method, body).await, None, "{method}");
    }

    async fn error(&self, method: &str, body: Vec<u8>) -> Option<proto::Error> {
        let answer = self.call(method, body).await;
        proto::ActualLrpLifecycleResponse::decode(&answer[..]).expect("an answer of the API").error
    }

    fn forget_peak(&self) {
        if let Some(pid) = self.pid {
            // Another's process may not let us; then the peak is that of its whole life.
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }

    fn peak(&self) -> String {
        let status = self.pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok());
        let line = status.as_deref().and_then(|text| text.lines().find(|line| line.starts_with("VmHWM")));
        let kb = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kb| kb.parse::<u64>().ok());
        kb.map_or_else(String::new, |kb| format!("peak {} MB", kb / 1024))
    }
}
