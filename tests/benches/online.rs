//! Online migration of a large table: a load of reads and writes aimed at the units being copied,
//! from the moment at which the host serves until after the cut-over. Prints latencies, failures
//! and differences between the final state and the acknowledged writes; asserts nothing about time.
//!
//! - `BBS_BENCH_ROWS`: the number of desired LRPs (200,000)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mariadb,mysql`
//! - `BBS_BENCH_CALLS`: calls per second (250)
//! - `BBS_BENCH_RUNS`: runs on each database, with a summary if there are several (1)
//! - `TMPDIR`: the folder of the databases

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;
#[path = "parts/subject.rs"]
mod subject;

use std::time::{Duration, Instant};

use bbs::testing::migrate::Tuning;
use harness::database::Kind;
use harness::fixture::UNSPLIT_TAGS;
use harness::host::Installation;
use harness::load::across::migration;
use harness::load::calls::Caller;
use harness::load::model::Model;
use harness::load::{Load, Settings};
use harness::modules;
use harness::stored::Stored;
use subject::{BenchCatalog, BenchServer, Subject, kinds, setting};
use tokio::sync::watch;

/// The result of one run, for the summary.
struct RunResult {
    migrating: Duration,
    failures: u64,
    /// Reads that contradict the model, and differences of the final state.
    differences: u64,
}

#[tokio::main]
async fn main() {
    let rows = setting("BBS_BENCH_ROWS", 200_000);
    let calls: u64 = setting("BBS_BENCH_CALLS", 250);
    let runs = setting("BBS_BENCH_RUNS", 1);
    let settings = Settings {
        clients: 16,
        calls_per_second: calls as f64,
        seed: 7,
    };
    let catalog = BenchCatalog::load();
    for kind in kinds() {
        let mut finished = Vec::new();
        for number in 1..=runs {
            println!(
                "{}, {rows} desired LRPs, run {number} of {runs}",
                kind.name()
            );
            finished.extend(run(kind, &catalog, rows, calls, settings).await);
        }
        if runs > 1 {
            summarise(kind, runs, &finished);
        }
    }
}

fn summarise(kind: Kind, runs: u64, finished: &[RunResult]) {
    let mut times: Vec<_> = finished
        .iter()
        .map(|ran| ran.migrating.as_secs_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    let sum = |of: fn(&RunResult) -> u64| finished.iter().map(of).sum::<u64>();
    println!(
        "{}: {} of {runs} runs finished, with {} failures and {} differences, after {times:.1?} s",
        kind.name(),
        finished.len(),
        sum(|ran| ran.failures),
        sum(|ran| ran.differences),
    );
}

/// Migrates once under load. `None` if the migration did not finish.
async fn run(
    kind: Kind,
    catalog: &BenchCatalog,
    rows: u64,
    calls: u64,
    settings: Settings,
) -> Option<RunResult> {
    let server = BenchServer::new(kind);
    let subject = Subject::fill(&server, catalog, rows).await;
    let installation = Installation::on(subject.database, &modules::modules());

    let host = installation.serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    let at_rest = Model::of(&caller).await.expect("everything can be listed");
    let mut load = Load::start_catching_up(&caller, at_rest, &Default::default(), settings);
    load.calls(calls * 10).await;
    println!("at rest:\n{}", load.stop().await.0);
    let before = Model::of(&caller).await.expect("everything can be listed");
    host.terminate();
    let mut stored = Stored::open(&installation.database, catalog.base.clone()).await;
    stored.context.tuning = Tuning::default();
    stored
        .down(UNSPLIT_TAGS)
        .await
        .expect("the migrations are reversible");
    stored.context.database.close().await;

    let installation = installation.set("migration_mode", "online");
    let began = Instant::now();
    let mut host = installation.serve();
    println!("serving after {:.2} s", began.elapsed().as_secs_f64());
    let ran = match migration(&installation, &mut host, before, catalog.newest, settings).await {
        Err(failure) => {
            println!(
                "the run could not be finished: {failure}\n{}",
                host.output().join("\n")
            );
            None
        }
        Ok(outcome) => {
            let part = outcome.began_at.map_or("no part".to_owned(), |part| {
                format!("{:.0} %", part * 100.0)
            });
            println!(
                "migrated after {:.1} s, calls began at {part} of the copy",
                outcome.migrating.as_secs_f64()
            );
            println!("{}\n{}", outcome.cut_over, outcome.report);
            println!(
                "{} differences from what was acknowledged",
                outcome.differences.len()
            );
            outcome
                .differences
                .iter()
                .take(20)
                .for_each(|difference| println!("  {difference}"));
            Some(RunResult {
                migrating: outcome.migrating,
                failures: outcome.report.failures,
                differences: outcome.report.differences + outcome.differences.len() as u64,
            })
        }
    };
    host.terminate();
    ran
}
