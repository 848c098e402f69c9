//! A load of reads and writes on a running host, and the check that no acknowledged write was lost:
//! a model of every acknowledged write, which is compared with the whole state at the end.
//!
//! Each client owns the keys that it writes, so it must read what it wrote. Latency counts from the
//! time at which a call was due.

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
use tokio::time::MissedTickBehavior;

use calls::Caller;
use client::LoadClient;
use model::Model;

/// Failures and differences that a report describes; all are counted.
const MAX_NOTES: usize = 20;
/// Upper bound of the histograms; longer latencies are recorded as this.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub clients: u64,
    /// Total over all clients.
    pub calls_per_second: f64,
    pub seed: u64,
}

/// The position in the ordered keys that writes go to, in millionths of their number.
#[derive(Debug, Clone, Default)]
pub struct Aim(Arc<AtomicU64>);

impl Aim {
    /// Aims at the position that a copy has reached: the fraction of the keys that is done, 0 to 1.
    pub fn at(&self, part: f64) {
        self.0
            .store((part.clamp(0.0, 1.0) * 1e6) as u64, Ordering::Relaxed);
    }

    fn part(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// The results of the calls.
#[derive(Debug)]
pub struct Report {
    /// Latencies of successful calls from their due time, in µs.
    pub reads: Histogram<u64>,
    pub writes: Histogram<u64>,
    /// Latencies from when the calls were made, in µs: a client that waits for one call makes the
    /// next one late.
    pub reads_from_send: Histogram<u64>,
    pub writes_from_send: Histogram<u64>,
    pub elapsed: Duration,
    pub failures: u64,
    /// Reads that contradict the model.
    pub differences: u64,
    /// Descriptions of the first [`MAX_NOTES`] failures and differences.
    pub notes: Vec<String>,
}

impl Report {
    pub fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_micros()).expect("minutes");
        let empty = || Histogram::new_with_bounds(1, longest, 3).expect("bounds in order");
        Self {
            reads: empty(),
            writes: empty(),
            reads_from_send: empty(),
            writes_from_send: empty(),
            elapsed: Duration::ZERO,
            failures: 0,
            differences: 0,
            notes: Vec::new(),
        }
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(text);
        }
    }

    /// Adds the calls of another report, but not its time.
    pub fn add(&mut self, other: Self) {
        self.reads.add(other.reads).expect("equal bounds");
        self.writes.add(other.writes).expect("equal bounds");
        self.reads_from_send
            .add(other.reads_from_send)
            .expect("equal bounds");
        self.writes_from_send
            .add(other.writes_from_send)
            .expect("equal bounds");
        self.failures += other.failures;
        self.differences += other.differences;
        other.notes.into_iter().for_each(|text| self.note(text));
    }

    pub fn calls_per_second(&self) -> f64 {
        (self.reads.len() + self.writes.len()) as f64 / self.elapsed.as_secs_f64()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |histogram: &Histogram<u64>, quantile| {
            histogram.value_at_quantile(quantile) as f64 / 1e3
        };
        let histograms = [
            ("reads", &self.reads),
            ("writes", &self.writes),
            ("reads from send", &self.reads_from_send),
            ("writes from send", &self.writes_from_send),
        ];
        for (name, histogram) in histograms {
            writeln!(
                f,
                "{name:<16}{:8}   p50 {:8.2} ms   p99 {:8.2} ms   longest {:8.2} ms",
                histogram.len(),
                ms(histogram, 0.5),
                ms(histogram, 0.99),
                histogram.max() as f64 / 1e3
            )?;
        }
        let rate = self.calls_per_second();
        write!(
            f,
            "{rate:.0} calls/s, {} failures, {} wrong answers",
            self.failures, self.differences
        )?;
        self.notes
            .iter()
            .try_for_each(|text| write!(f, "\n  {text}"))
    }
}

/// Running clients. They end when it is dropped.
pub struct Load {
    stop: watch::Sender<bool>,
    calls: watch::Receiver<u64>,
    clients: JoinSet<LoadClient>,
    began: Instant,
}

impl Load {
    /// Starts clients, each of which owns a part of the model's keys. After an outage they go on at
    /// their rate: calls that came due meanwhile, made as fast as possible, would slow down the
    /// tests beside this one.
    pub fn start(caller: &Caller, model: Model, aim: &Aim, settings: Settings) -> Self {
        Self::with(caller, model, aim, settings, MissedTickBehavior::Delay)
    }

    /// [`Self::start`] with calls that are due at fixed times, whether or not the previous one has
    /// returned: no coordinated omission.
    pub fn start_catching_up(caller: &Caller, model: Model, aim: &Aim, settings: Settings) -> Self {
        Self::with(caller, model, aim, settings, MissedTickBehavior::Burst)
    }

    fn with(
        caller: &Caller,
        model: Model,
        aim: &Aim,
        settings: Settings,
        missed: MissedTickBehavior,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (count, calls) = watch::channel(0);
        let order: Arc<[_]> = model.keys.keys().cloned().collect();
        let mut shares = vec![Model::default(); usize::try_from(settings.clients).expect("a few")];
        shares[0].interrupted = model.interrupted;
        for (guid, known) in model.keys {
            let mut hasher = DefaultHasher::new();
            guid.hash(&mut hasher);
            let owner = hasher.finish() % settings.clients;
            shares[usize::try_from(owner).expect("a few")]
                .keys
                .insert(guid, known);
        }
        let mut clients = JoinSet::new();
        for (number, share) in (0..).zip(shares) {
            let client = LoadClient::new(
                number,
                caller.clone(),
                share,
                Arc::clone(&order),
                aim.clone(),
                settings.seed,
            );
            let between =
                Duration::from_secs_f64(settings.clients as f64 / settings.calls_per_second);
            clients.spawn(client.run(between, missed, stopped.clone(), count.clone()));
        }
        Self {
            stop,
            calls,
            clients,
            began: Instant::now(),
        }
    }

    /// The number of calls so far.
    pub fn made(&self) -> u64 {
        *self.calls.borrow()
    }

    /// Waits until `more` further calls have been made.
    pub async fn calls(&mut self, more: u64) {
        let wanted = *self.calls.borrow() + more;
        self.calls
            .wait_for(|calls| *calls >= wanted)
            .await
            .expect("the clients run");
    }

    /// Stops every client after its current call, and merges their reports and models.
    pub async fn stop(mut self) -> (Report, Model) {
        self.stop.send_replace(true);
        let mut report = Report::new();
        let mut model = Model::default();
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
