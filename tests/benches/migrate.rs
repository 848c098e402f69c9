//! Migration of a large table on each of the three databases: the whole chain in one pass, layer by
//! layer, and the database's own `INSERT … SELECT` of the same table, in one run on one machine.
//! The results are the ratios; asserts nothing about time, because timed assertions are unreliable.
//! Writes plots to `target/bench`.
//!
//! - `BBS_BENCH_ROWS`: the largest number of desired LRPs (200,000)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mariadb,mysql`
//! - `BBS_BENCH_PARTS`: of `table,records,chain,definitions,inserted,upward`, by default all but
//!   the last; `definitions` fills the ids of definitions, with an instance of each desired LRP;
//!   `inserted` has a module below this project's migrations, and the same above all; `upward`
//!   doubles the rows until the disk or [`PATIENCE`] is exhausted
//! - `BBS_BENCH_BATCH_MB`: bytes per batch, in MiB (the host's default)
//! - `TMPDIR`: the folder of the databases

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;
#[path = "parts/plot.rs"]
mod plot;
#[path = "parts/subject.rs"]
mod subject;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bbs_lens::transform::Transform;

use harness::database::Kind;
use plot::{Series, draw};
use subject::{BenchCatalog, BenchServer, Subject, kinds, setting};

const SIZES: [u64; 8] = [
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
];
/// `upward` stops after a run that took longer.
const PATIENCE: Duration = Duration::from_secs(900);
/// Disk space needed, in multiples of a database's size: itself, the copy that is migrated, its new
/// tables, logs.
const SPACE: u64 = 5;
const CHAIN_ROWS: u64 = 20_000;
const LONGEST_CHAIN: u64 = 10;
/// The version before that with definitions.
const BEFORE_DEFINITIONS: u64 = 1_795_000_000;

#[tokio::main]
async fn main() {
    let rows: u64 = setting("BBS_BENCH_ROWS", 200_000);
    let parts = "table,records,chain,definitions,inserted";
    let parts = setting("BBS_BENCH_PARTS", parts.to_owned());
    let catalog = BenchCatalog::load();
    for kind in kinds() {
        let server = BenchServer::new(kind);
        for part in parts.split(',') {
            match part {
                "table" => {
                    table(&server, &catalog, rows, true).await;
                }
                "records" => records(&server, &catalog, rows).await,
                "chain" => chain(&server, &catalog, rows.min(CHAIN_ROWS)).await,
                "definitions" => definitions(&server, &catalog, rows).await,
                "inserted" => inserted(&server, &catalog, rows).await,
                "upward" => upward(&server, &catalog, rows).await,
                other => {
                    panic!(
                        "BBS_BENCH_PARTS has {other:?}; it may have table, records, chain, definitions, inserted and upward"
                    )
                }
            }
        }
    }
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// Durations for one number of rows.
struct Measured {
    own: Duration,
    copying: Duration,
    whole: Duration,
    layers: Duration,
}

async fn table(server: &BenchServer, catalog: &BenchCatalog, rows: u64, verbose: bool) -> Measured {
    let subject = Subject::fill(server, catalog, rows).await;
    let versions = catalog
        .three
        .each_ref()
        .map(|module| module.manifest().version);
    // Each runs twice, alternating, and the faster run counts: the first run has cold caches.
    let mut own = subject.insert_select(catalog).await;
    let mut chain = subject
        .migrate(catalog, &catalog.three, &versions[2..])
        .await;
    own = own.min(subject.insert_select(catalog).await);
    let again = subject
        .migrate(catalog, &catalog.three, &versions[2..])
        .await;
    if again.whole < chain.whole {
        chain = again;
    }
    let layers = subject.migrate(catalog, &catalog.three, &versions).await;
    let kind = server.kind.name();
    let s = Duration::as_secs_f64;
    if verbose {
        println!("{kind}, {rows} desired LRPs, {} modules", versions.len());
        println!("  INSERT … SELECT    {:8.2} s", s(&own));
        for (phase, spent) in chain.phases.iter().filter(|(phase, _)| !phase.is_empty()) {
            println!(
                "  chain, {phase:<12}{:8.2} s   {:.2} x",
                s(spent),
                ratio(*spent, own)
            );
        }
        println!(
            "  chain, no verify   {:8.2} s   {:.2} x (bound 1.25)",
            s(&chain.copying),
            ratio(chain.copying, own)
        );
        println!(
            "  chain, with verify {:8.2} s   {:.2} x (bound 1.5)",
            s(&chain.whole),
            ratio(chain.whole, own)
        );
        let times = ratio(layers.whole, chain.whole);
        println!(
            "  layer by layer     {:8.2} s   {times:.2} x the chain (bound 2.5)",
            s(&layers.whole)
        );
        let memory = chain.peak_memory_mb.max(layers.peak_memory_mb);
        println!("  peak memory        {memory:8} MB (bound 256)");
    } else {
        println!(
            "{kind}, {rows:>8} records: own {:.2} s, chain {:.2} x, with verify {:.2} x, layers {:.2} x the chain, {} MB",
            s(&own),
            ratio(chain.copying, own),
            ratio(chain.whole, own),
            ratio(layers.whole, chain.whole),
            chain.peak_memory_mb
        );
    }
    Measured {
        own,
        copying: chain.copying,
        whole: chain.whole,
        layers: layers.whole,
    }
}

async fn records(server: &BenchServer, catalog: &BenchCatalog, most: u64) {
    let mut measured = Vec::new();
    for rows in SIZES.into_iter().filter(|rows| *rows <= most) {
        measured.push((rows, table(server, catalog, rows, false).await));
    }
    draw_records(server.kind, "records", &measured);
}

fn draw_records(kind: Kind, part: &str, measured: &[(u64, Measured)]) {
    let series = |of: fn(&Measured) -> Duration, label: &str| -> Series {
        let points = measured
            .iter()
            .map(|(rows, measured)| (*rows as f64, of(measured).as_secs_f64()));
        (label.to_owned(), points.collect())
    };
    let lines = [
        series(|one| one.own, "INSERT … SELECT"),
        series(|one| one.copying, "three modules, without verification"),
        series(|one| one.whole, "three modules"),
        series(|one| one.layers, "layer by layer"),
    ];
    let title = format!("Migrating desired LRPs of 4.7 KB on {}", kind.name());
    let path = draw(
        &format!("{}-{part}.svg", kind.name()),
        &title,
        "records",
        "seconds",
        &lines,
    );
    println!("{}", path.display());
}

async fn definitions(server: &BenchServer, catalog: &BenchCatalog, rows: u64) {
    let subject = Subject::fill_with_instances(server, catalog, rows, BEFORE_DEFINITIONS).await;
    let mut own = subject.insert_select(catalog).await;
    let filled = subject.migrate(catalog, &[], &[catalog.newest]).await;
    own = own.min(subject.insert_select(catalog).await);
    let kind = server.kind.name();
    let s = Duration::as_secs_f64;
    println!("{kind}, {rows} desired LRPs with an instance each: ids of definitions");
    println!("  INSERT … SELECT    {:8.2} s", s(&own));
    println!(
        "  without verify     {:8.2} s   {:.2} x",
        s(&filled.copying),
        ratio(filled.copying, own)
    );
    println!(
        "  with verify        {:8.2} s   {:.2} x",
        s(&filled.whole),
        ratio(filled.whole, own)
    );
    println!(
        "  peak memory        {:8} MB (bound 256)",
        filled.peak_memory_mb
    );
}

/// A module that is inserted below this project's migrations, whose row functions run down and up
/// again for it. Beside it, the same columns are written by a migration that only goes up: through
/// the last of those migrations, and the module above it.
async fn inserted(server: &BenchServer, catalog: &BenchCatalog, rows: u64) {
    let ran = Subject::fill_with_instances(server, catalog, rows, catalog.newest).await;
    let before = Subject::fill_with_instances(server, catalog, rows, BEFORE_DEFINITIONS).await;
    let [above, below] = [catalog.chain(1), catalog.inserted()];
    let newest =
        |modules: &[Arc<dyn Transform>]| [modules.last().expect("one at least").manifest().version];
    // Each runs twice, alternating, and the faster run counts.
    let mut times = Vec::new();
    for (subject, modules) in [
        (&before, &above),
        (&ran, &below),
        (&before, &above),
        (&ran, &below),
    ] {
        times.push(subject.migrate(catalog, modules, &newest(modules)).await);
    }
    let faster = |one: usize, other: usize| {
        let [one, other] = [&times[one], &times[other]];
        if one.whole < other.whole { one } else { other }
    };
    let above = faster(0, 2);
    let below = faster(1, 3);
    let kind = server.kind.name();
    let s = Duration::as_secs_f64;
    println!(
        "{kind}, {rows} desired LRPs with an instance each: a module that rewrites a column, and ids of definitions"
    );
    for (phase, spent) in below.phases.iter().filter(|(phase, _)| !phase.is_empty()) {
        let beside = above.phases.get(phase).copied().unwrap_or_default();
        println!(
            "  {phase:<19}{:8.2} s inserted, {:.2} s above all",
            s(spent),
            s(&beside)
        );
    }
    println!("  above all          {:8.2} s", s(&above.whole));
    println!(
        "  inserted           {:8.2} s   {:.2} x (bound 1.3)",
        s(&below.whole),
        ratio(below.whole, above.whole)
    );
}

/// Doubles the rows until the disk or [`PATIENCE`] is exhausted.
async fn upward(server: &BenchServer, catalog: &BenchCatalog, from: u64) {
    let mut rows = from;
    let mut measured = Vec::new();
    let why = loop {
        let needed = rows * 4_700 * SPACE;
        let free = free_bytes();
        if needed > free {
            break format!(
                "the disk: {rows} records need {} GB, {} GB are free",
                needed >> 30,
                free >> 30
            );
        }
        let one = table(server, catalog, rows, false).await;
        let slow = one.whole > PATIENCE || one.own > PATIENCE;
        measured.push((rows, one));
        if slow {
            break format!(
                "patience: {rows} records took more than {} s",
                PATIENCE.as_secs()
            );
        }
        rows *= 2;
    };
    println!("{}: stopped at {why}", server.kind.name());
    draw_records(server.kind, "upward", &measured);
}

fn free_bytes() -> u64 {
    let output = Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(std::env::temp_dir())
        .output();
    let text = String::from_utf8(output.expect("df runs").stdout).expect("numbers");
    text.lines()
        .nth(1)
        .and_then(|line| line.trim().parse().ok())
        .expect("df prints the free bytes")
}

async fn chain(server: &BenchServer, catalog: &BenchCatalog, rows: u64) {
    let subject = Subject::fill(server, catalog, rows).await;
    let mut seconds = Vec::new();
    for length in 1..=LONGEST_CHAIN {
        let chain = catalog.chain(length);
        let newest = chain.last().expect("one at least").manifest().version;
        let spent = subject.migrate(catalog, &chain, &[newest]).await;
        seconds.push((length as f64, spent.whole.as_secs_f64()));
    }
    let kind = server.kind.name();
    let three = seconds[2].1;
    let ten = seconds[9].1;
    println!(
        "{kind}, {rows} records: a chain of ten {:.2} x a chain of three (bound 1.3)",
        ten / three
    );
    let own = subject.insert_select(catalog).await.as_secs_f64();
    let lines = [
        (
            "INSERT … SELECT".to_owned(),
            vec![(1.0, own), (LONGEST_CHAIN as f64, own)],
        ),
        ("modules that touch two columns".to_owned(), seconds),
    ];
    let title = format!("Migrating {rows} desired LRPs on {kind}");
    let path = draw(
        &format!("{kind}-chain.svg"),
        &title,
        "modules in the chain",
        "seconds",
        &lines,
    );
    println!("{}", path.display());
}
