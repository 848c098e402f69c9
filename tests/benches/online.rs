//! Serving while a large table is migrated: a load of reads and writes, aimed at what is being copied, from the moment
//! at which the host serves until after the cut-over. Prints latencies, failures, and whether the final state is what
//! was acknowledged; fails at nothing that is a matter of time.
//!
//! - `BBS_BENCH_ROWS`: the number of desired LRPs (200,000)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mysql`
//! - `BBS_BENCH_CALLS`: calls a second (250)
//! - `BBS_BENCH_RUNS`: how often on each database, with a summary at the end (1)
//! - `TMPDIR`: where the databases are put

#![allow(unreachable_pub, dead_code, reason = "the harness is the suite's")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "parts/subject.rs"]
mod subject;

use std::time::{Duration, Instant};

use bbs::migrate::Tuning;
use harness::database::Kind;
use harness::host::Installation;
use harness::load::across::migration;
use harness::load::calls::Caller;
use harness::load::model::Model;
use harness::load::{Load, Settings};
use harness::modules;
use harness::stored::Stored;
use subject::{Line, Place, Subject, kinds};
use tokio::sync::watch;

/// From before every desired LRP is decoded, split and sealed again.
const FROM: u64 = 1_698_182_853;

/// What one run came to, for the summary.
struct Ran {
    migrating: Duration,
    failures: u64,
    /// Wrong answers, and differences of the final state.
    differences: u64,
}

#[tokio::main]
async fn main() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
    };
    let (rows, calls) = (number("BBS_BENCH_ROWS", 200_000), number("BBS_BENCH_CALLS", 250));
    let runs = number("BBS_BENCH_RUNS", 1);
    let settings = Settings { clients: 16, calls_per_second: calls as f64, seed: 7 };
    let line = Line::load();
    for kind in kinds() {
        let mut finished = Vec::new();
        for number in 1..=runs {
            println!("{}, {rows} desired LRPs, run {number} of {runs}", kind.name());
            finished.extend(run(kind, &line, rows, calls, settings).await);
        }
        if runs > 1 {
            summarise(kind, runs, &finished);
        }
    }
}

fn summarise(kind: Kind, runs: u64, finished: &[Ran]) {
    let mut times: Vec<_> = finished.iter().map(|ran| ran.migrating.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let sum = |of: fn(&Ran) -> u64| finished.iter().map(of).sum::<u64>();
    println!(
        "{}: {} of {runs} runs finished, with {} failures and {} differences, after {times:.1?} s",
        kind.name(),
        finished.len(),
        sum(|ran| ran.failures),
        sum(|ran| ran.differences),
    );
}

/// Nothing where the migration did not get to its end.
async fn run(kind: Kind, line: &Line, rows: u64, calls: u64, settings: Settings) -> Option<Ran> {
    let place = Place::new(kind);
    let subject = Subject::fill(&place, line, rows).await;
    let installation = Installation::on(subject.database, &modules::modules());

    let host = installation.serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    let at_rest = Model::of(&caller).await.expect("everything can be listed");
    let mut load = Load::start(&caller, at_rest, &Default::default(), settings);
    load.calls(calls * 10).await;
    println!("at rest:\n{}", load.stop().await.0);
    let before = Model::of(&caller).await.expect("everything can be listed");
    host.terminate();
    let mut stored = Stored::open(&installation.database, line.base.clone()).await;
    stored.context.tuning = Tuning::default();
    stored.down(FROM).await.expect("the line is reversible");
    stored.context.database.close().await;

    let installation = installation.set("migration_mode", "online");
    let began = Instant::now();
    let mut host = installation.serve();
    println!("serving after {:.2} s", began.elapsed().as_secs_f64());
    let ran = match migration(&installation, &mut host, before, line.newest, settings).await {
        Err(failure) => {
            println!("the run could not be finished: {failure}\n{}", host.said().join("\n"));
            None
        }
        Ok(outcome) => {
            let part = outcome.began_at.map_or("no part".to_owned(), |part| format!("{:.0} %", part * 100.0));
            println!("migrated after {:.1} s, calls began at {part} of the copy", outcome.migrating.as_secs_f64());
            println!("{}\n{}", outcome.cut_over, outcome.report);
            println!("{} differences from what was acknowledged", outcome.differences.len());
            outcome.differences.iter().take(20).for_each(|difference| println!("  {difference}"));
            Some(Ran {
                migrating: outcome.migrating,
                failures: outcome.report.failures,
                differences: outcome.report.differences + outcome.differences.len() as u64,
            })
        }
    };
    host.terminate();
    ran
}
