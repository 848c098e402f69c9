//! A load of reads and writes on a running host, and the proof that nothing of it was lost: a model of every
//! acknowledged write, which at the end is compared with the whole state.
//!
//! Each client owns the keys that it writes, so what it reads of them has to be what it wrote. Calls are due at fixed
//! times whether or not the last has come back, and latency counts from the time at which a call was due.

pub mod across;
pub mod calls;
mod client;
pub mod listing;
pub mod model;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;

use calls::Caller;
use client::Client;
use model::Model;

/// How many failures and differences are told; all are counted.
const TOLD: usize = 20;
/// Latencies above are counted as this.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub clients: u64,
    /// Over all clients.
    pub calls_per_second: f64,
    pub seed: u64,
}

/// Where among the keys, in order, the writes go: the part of them that lies before, in millionths.
#[derive(Debug, Clone, Default)]
pub struct Aim(Arc<AtomicU64>);

impl Aim {
    /// At the keys where the work has come to, such as a copy that has done that part of all.
    pub fn at(&self, part: f64) {
        self.0.store((part.clamp(0.0, 1.0) * 1e6) as u64, Ordering::Relaxed);
    }

    fn part(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// What the calls met.
#[derive(Debug)]
pub struct Report {
    /// In microseconds, of calls that succeeded, from when they were due.
    pub reads: Histogram<u64>,
    pub writes: Histogram<u64>,
    /// The same, from when they were made: a client that waits for one call makes the next too late.
    pub taken: Histogram<u64>,
    pub elapsed: Duration,
    pub failures: u64,
    /// Reads that were not what the model says.
    pub differences: u64,
    /// The first of both.
    pub told: Vec<String>,
}

impl Report {
    fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_micros()).expect("minutes");
        let empty = || Histogram::new_with_bounds(1, longest, 3).expect("bounds in order");
        Self {
            reads: empty(),
            writes: empty(),
            taken: empty(),
            elapsed: Duration::ZERO,
            failures: 0,
            differences: 0,
            told: Vec::new(),
        }
    }

    fn tell(&mut self, text: String) {
        if self.told.len() < TOLD {
            self.told.push(text);
        }
    }

    fn add(&mut self, other: Self) {
        self.reads.add(other.reads).expect("they are alike");
        self.writes.add(other.writes).expect("they are alike");
        self.taken.add(other.taken).expect("they are alike");
        self.failures += other.failures;
        self.differences += other.differences;
        other.told.into_iter().for_each(|text| self.tell(text));
    }

    pub fn calls_per_second(&self) -> f64 {
        (self.reads.len() + self.writes.len()) as f64 / self.elapsed.as_secs_f64()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        for (name, histogram) in [("reads", &self.reads), ("writes", &self.writes), ("once made", &self.taken)] {
            writeln!(
                f,
                "{name:<10}{:8}   p50 {:8.2} ms   p99 {:8.2} ms   longest {:8.2} ms",
                histogram.len(),
                ms(histogram, 0.5),
                ms(histogram, 0.99),
                histogram.max() as f64 / 1e3
            )?;
        }
        let rate = self.calls_per_second();
        write!(f, "{rate:.0} calls/s, {} failures, {} wrong answers", self.failures, self.differences)?;
        self.told.iter().try_for_each(|text| write!(f, "\n  {text}"))
    }
}

/// Clients at work. Dropping it ends them.
pub struct Load {
    stop: watch::Sender<bool>,
    calls: watch::Receiver<u64>,
    clients: JoinSet<Client>,
    began: Instant,
}

impl Load {
    /// Starts clients that share the model's keys among them.
    pub fn start(caller: &Caller, model: Model, aim: &Aim, settings: Settings) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (count, calls) = watch::channel(0);
        let order: Arc<[_]> = model.keys.keys().cloned().collect();
        let mut shares = vec![Model::default(); usize::try_from(settings.clients).expect("a few")];
        shares[0].interrupted = model.interrupted;
        for (guid, known) in model.keys {
            let mut hasher = DefaultHasher::new();
            guid.hash(&mut hasher);
            let owner = hasher.finish() % settings.clients;
            shares[usize::try_from(owner).expect("a few")].keys.insert(guid, known);
        }
        let mut clients = JoinSet::new();
        for (number, share) in (0..).zip(shares) {
            let client = Client::new(number, caller.clone(), share, Arc::clone(&order), aim.clone(), settings.seed);
            let between = Duration::from_secs_f64(settings.clients as f64 / settings.calls_per_second);
            clients.spawn(client.run(between, stopped.clone(), count.clone()));
        }
        Self { stop, calls, clients, began: Instant::now() }
    }

    /// Waits until that many calls more have been made.
    pub async fn calls(&mut self, more: u64) {
        let wanted = *self.calls.borrow() + more;
        self.calls.wait_for(|calls| *calls >= wanted).await.expect("clients are at work");
    }

    /// Ends every client after the call that it is at, and puts together what they saw and know.
    pub async fn stop(mut self) -> (Report, Model) {
        self.stop.send_replace(true);
        let (mut report, mut model) = (Report::new(), Model::default());
        while let Some(client) = self.clients.join_next().await {
            let client = client.expect("a client does not panic");
            report.add(client.report);
            model.keys.extend(client.model.keys);
            model.interrupted.extend(client.model.interrupted);
        }
        report.elapsed = self.began.elapsed();
        (report, model)
    }
}
