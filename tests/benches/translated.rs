//! Translated calls against their native twins, interleaved in one run, over HTTP against this host
//! as a process: single calls through one, two and three translators, lists of everything, and
//! event streams with many subscribers. Prints latencies, rates, memory and ratios; asserts nothing
//! about time.
//!
//! - `BBS_BENCH_ROWS`: number of desired LRPs, each with one instance (`20000`)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mariadb,mysql`
//! - `BBS_BENCH_CLIENTS`: concurrent calls for rates (32)
//! - `BBS_BENCH_ROUNDS`: interleaved rounds (9)
//! - `BBS_BENCH_SUBSCRIBERS`: subscribers of a stream (20)
//! - `TMPDIR`: the folder of the databases

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;
#[path = "parts/requests.rs"]
mod requests;
#[path = "parts/subject.rs"]
mod subject;

use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use futures_util::{StreamExt, stream};
use harness::event_stream::EventStream;
use harness::host::{Host, Installation};
use harness::modules;
use hdrhistogram::Histogram;
use reqwest::Method;
use subject::{BenchServer, kinds, setting};

/// Calls of one side in a round.
const CALLS: u64 = 400;
/// LRPs that are desired while subscribers listen, in each round.
const DESIRED: u64 = 300;

/// A native route, and older ones of the same content with the number of their translators.
struct Family {
    name: &'static str,
    native: Route,
    older: &'static [(usize, Route)],
    body: fn(u64) -> Vec<u8>,
}

impl Family {
    /// The native route and then the older ones, each with the number of its translators.
    fn sides(&self) -> Vec<(usize, &Route)> {
        let older = self.older.iter().map(|(steps, route)| (*steps, route));
        std::iter::once((0, &self.native)).chain(older).collect()
    }
}

#[derive(Clone)]
struct Route(Method, &'static str);

const fn post(path: &'static str) -> Route {
    Route(Method::POST, path)
}

fn by_guid(at: u64) -> Vec<u8> {
    proto::DesiredLrpByProcessGuidRequest {
        process_guid: requests::guid(at),
    }
    .encode_to_vec()
}

fn by_process(at: u64) -> Vec<u8> {
    proto::ActualLrPsRequest {
        process_guid: requests::guid(at),
        ..Default::default()
    }
    .encode_to_vec()
}

/// Without what an old start ignores, so that it changes as little as a new one.
fn start(at: u64) -> Vec<u8> {
    let start = proto::StartActualLrpRequest::decode(&requests::start(at, at % 100)[..])
        .expect("a request");
    proto::StartActualLrpRequest {
        metric_tags: Vec::new(),
        ..start
    }
    .encode_to_vec()
}

/// One object each. Cells are not in the database, and this host has no Locket: what is left is the
/// cost of the call itself.
const CALLED: [Family; 3] = [
    Family {
        name: "list cells, no Locket",
        native: post("v1/cells/list.r1"),
        older: &[(1, Route(Method::GET, "v1/cells/list.r1"))],
        body: |_| Vec::new(),
    },
    Family {
        name: "get a desired LRP",
        native: post("v1/desired_lrps/get_by_process_guid.r3"),
        older: &[
            (1, post("v1/desired_lrps/get_by_process_guid.r2")),
            (2, post("v1/desired_lrps/get_by_process_guid.r1")),
            (3, post("v1/desired_lrps/get_by_process_guid")),
        ],
        body: by_guid,
    },
    Family {
        name: "start, unchanged",
        native: post("v1/actual_lrps/start.r1"),
        older: &[(1, post("v1/actual_lrps/start"))],
        body: start,
    },
];

/// Everything.
const LISTED: [Family; 2] = [
    Family {
        name: "list desired LRPs",
        native: post("v1/desired_lrps/list.r3"),
        older: &[
            (1, post("v1/desired_lrps/list.r2")),
            (3, post("v1/desired_lrps/list")),
            (2, post("v0.9/desired_lrps/list")),
        ],
        body: |_| Vec::new(),
    },
    Family {
        name: "list actual LRPs",
        native: post("v1/actual_lrps/list"),
        older: &[(1, post("v1/actual_lrp_groups/list"))],
        body: |_| Vec::new(),
    },
];

/// Native and older event streams.
const STREAMS: [(&str, Method, &str); 3] = [
    (
        "instances, native",
        Method::POST,
        "v1/events/lrp_instances.r1",
    ),
    ("instances, r0", Method::POST, "v1/events/lrp_instances"),
    ("groups, r0", Method::GET, "v1/events"),
];

struct Bench {
    host: Host,
    client: reqwest::Client,
    rows: u64,
    clients: usize,
    rounds: usize,
}

#[tokio::main]
async fn main() {
    bbs::choose_cryptography();
    for kind in kinds() {
        let server = BenchServer::new(kind);
        let installation = Installation::on(server.database(), &modules::modules());
        let bench = Bench {
            host: installation.serve(),
            client: harness::http_client(),
            rows: setting("BBS_BENCH_ROWS", 20_000),
            clients: setting("BBS_BENCH_CLIENTS", 32),
            rounds: setting("BBS_BENCH_ROUNDS", 9),
        };
        println!("this host on {}, {} desired LRPs", kind.name(), bench.rows);
        bench.fill().await;
        for family in &CALLED {
            bench.calls(family).await;
        }
        for family in &LISTED {
            bench.lists(family).await;
        }
        bench.streams(setting("BBS_BENCH_SUBSCRIBERS", 20)).await;
        bench.host.terminate();
    }
}

impl Bench {
    async fn fill(&self) {
        self.call(&post("v1/domains/upsert"), requests::keep_fresh())
            .await;
        let desire = post("v1/desired_lrp/desire.r2");
        let start_route = post("v1/actual_lrps/start.r1");
        let desire = &desire;
        let start_route = &start_route;
        let calls = stream::iter(0..self.rows).map(|at| async move {
            self.call(desire, requests::desire(at)).await;
            self.call(start_route, start(at)).await;
        });
        calls
            .buffer_unordered(self.clients)
            .collect::<Vec<()>>()
            .await;
    }

    async fn call(&self, route: &Route, body: Vec<u8>) -> usize {
        let request = self
            .client
            .request(route.0.clone(), self.host.url(&format!("/{}", route.1)))
            .body(body);
        let mut response = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("{}: {error:?}", route.1));
        assert_eq!(response.status(), 200, "{}", route.1);
        let mut bytes = 0;
        while let Some(chunk) = response.chunk().await.expect("the answer is complete") {
            bytes += chunk.len();
        }
        bytes
    }

    /// Latencies of one call at a time, and rates of many at once.
    async fn calls(&self, family: &Family) {
        let sides = family.sides();
        let mut times = vec![Histogram::<u64>::new(3).expect("three digits"); sides.len()];
        let mut spent = vec![Duration::ZERO; sides.len()];
        for round in 0..self.rounds as u64 {
            for (side, (_, route)) in sides.iter().enumerate() {
                for at in 0..CALLS {
                    let began = Instant::now();
                    self.call(route, (family.body)((round * CALLS + at) % self.rows))
                        .await;
                    times[side]
                        .record(began.elapsed().as_micros() as u64)
                        .expect("the histogram grows");
                }
                let began = Instant::now();
                let calls = stream::iter(0..CALLS)
                    .map(|at| self.call(route, (family.body)(at % self.rows)));
                calls
                    .buffer_unordered(self.clients)
                    .collect::<Vec<_>>()
                    .await;
                spent[side] += began.elapsed();
            }
        }
        for (side, (steps, route)) in sides.iter().enumerate() {
            let at = |side: usize, quantile| times[side].value_at_quantile(quantile) as i64;
            let rate =
                |side: usize| (CALLS * self.rounds as u64) as f64 / spent[side].as_secs_f64();
            println!(
                "  {:<22}{steps} translators  p50 {:>6} us {:>+6}   p99 {:>6} us {:>+6}   {:>7.0} /s  x {:.2}   {}",
                family.name,
                at(side, 0.5),
                at(side, 0.5) - at(0, 0.5),
                at(side, 0.99),
                at(side, 0.99) - at(0, 0.99),
                rate(side),
                rate(side) / rate(0),
                route.1,
            );
        }
    }

    /// The best time of each list.
    async fn lists(&self, family: &Family) {
        let sides = family.sides();
        let mut best = vec![(Duration::MAX, 0); sides.len()];
        let mut peaks = vec![0; sides.len()];
        for _ in 0..self.rounds {
            for (side, (_, route)) in sides.iter().enumerate() {
                self.forget_peak();
                let began = Instant::now();
                let bytes = self.call(route, (family.body)(0)).await;
                best[side] = best[side].min((began.elapsed(), bytes));
                peaks[side] = peaks[side].max(self.peak_mb());
            }
        }
        for (side, (steps, route)) in sides.iter().enumerate() {
            let (time, bytes) = best[side];
            println!(
                "  {:<22}{steps} translators  {:>7.3} s  x {:.2}   {:>6.1} MiB   peak {} MB   {}",
                family.name,
                time.as_secs_f64(),
                time.as_secs_f64() / best[0].0.as_secs_f64(),
                bytes as f64 / f64::from(1 << 20),
                peaks[side],
                route.1,
            );
        }
    }

    /// Events a second until every subscriber of a stream has all of them; each desired LRP has
    /// two.
    async fn streams(&self, subscribers: usize) {
        let mut spent = [Duration::ZERO; STREAMS.len()];
        let mut next = self.rows;
        for _ in 0..self.rounds {
            for (side, (_, verb, path)) in STREAMS.iter().enumerate() {
                let url = self.host.url(&format!("/{path}"));
                let mut listening = Vec::new();
                for _ in 0..subscribers {
                    let stream = match *verb {
                        Method::GET => EventStream::get(url.clone(), "").await,
                        _ => EventStream::open(url.clone(), "").await,
                    };
                    listening.push(stream);
                }
                let began = Instant::now();
                let received = listening.into_iter().map(|mut stream| {
                    tokio::spawn(async move {
                        for _ in 0..2 * DESIRED {
                            stream.next().await.expect("the stream goes on");
                        }
                    })
                });
                let received: Vec<_> = received.collect();
                let desire = &post("v1/desired_lrp/desire.r2");
                let calls = stream::iter(next..next + DESIRED)
                    .map(|at| self.call(desire, requests::desire(at)));
                calls
                    .buffer_unordered(self.clients)
                    .collect::<Vec<_>>()
                    .await;
                for stream in received {
                    stream.await.expect("a subscriber receives all events");
                }
                spent[side] += began.elapsed();
                next += DESIRED;
            }
        }
        for (side, (name, _, path)) in STREAMS.iter().enumerate() {
            let rate =
                |side: usize| (2 * DESIRED * self.rounds as u64) as f64 / spent[side].as_secs_f64();
            println!(
                "  events of {name:<20}{:>7.0} /s to each of {subscribers} subscribers  x {:.2}   {path}",
                rate(side),
                rate(side) / rate(0),
            );
        }
    }

    fn forget_peak(&self) {
        // If the kernel refuses, the peak is that of all calls so far.
        let _ = std::fs::write(format!("/proc/{}/clear_refs", self.host.pid()), "5");
    }

    fn peak_mb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.host.pid()))
            .unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmHWM"));
        line.and_then(|line| line.split_whitespace().nth(1))
            .and_then(|kb| kb.parse::<u64>().ok())
            .unwrap_or(0)
            >> 10
    }
}
