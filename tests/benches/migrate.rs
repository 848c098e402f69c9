//! Migrating a large table: the whole chain in one pass, layer by layer, and SQLite's own `INSERT … SELECT` of the
//! same table, in one run on one machine. What counts is the ratios.
//!
//! `BBS_BENCH_ROWS` sets the number of DesiredLRPs (200,000 without it), `BBS_BENCH_FOLDER` where they are put.

#![allow(unreachable_pub, dead_code, reason = "the harness is the suite's")]

#[path = "../harness/mod.rs"]
mod harness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs::database::{Dialect, schema, sql};
use bbs::lens::transform::Transform;
use bbs::migrate::Tuning;
use harness::database::TestDatabase;
use harness::stored::Stored;
use harness::{fixture, modules};

const GUESTS: [&str; 3] = ["bench-annotation", "bench-log-guid", "bench-run-info"];

#[tokio::main]
async fn main() {
    let rows: usize = std::env::var("BBS_BENCH_ROWS").map_or(200_000, |rows| rows.parse().expect("a number"));
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let folder = std::env::var_os("BBS_BENCH_FOLDER").map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let base = fixture::migrations();
    let newest = base.last().expect("a line").manifest().version;
    let sandbox = modules::sandbox();
    let mut all = base.clone();
    all.extend(GUESTS.map(|name| modules::migration(name, &sandbox) as Arc<dyn Transform>));
    let steps: Vec<_> = all[base.len()..].iter().map(|step| step.manifest().version).collect();

    let start = folder.join("start.db");
    fill(&start, &base, newest, rows).await;
    let bytes = std::fs::metadata(&start).expect("the database").len();
    println!("{rows} desired LRPs, {} MB of database, {} modules", bytes >> 20, GUESTS.len());

    let own = insert_select(&start, &folder, &base, newest).await;
    println!("INSERT … SELECT   {:8.2} s", own.as_secs_f64());
    let chain = migrate(&start, &folder, &all, &steps[2..]).await;
    for (phase, spent) in &chain.phases {
        println!("chain, {phase:<11}{:8.2} s   {:.2} x", spent.as_secs_f64(), ratio(*spent, own));
    }
    println!("chain, no verify  {:8.2} s   {:.2} x", chain.copying.as_secs_f64(), ratio(chain.copying, own));
    println!("chain, with verify{:8.2} s   {:.2} x", chain.whole.as_secs_f64(), ratio(chain.whole, own));
    let layers = migrate(&start, &folder, &all, &steps).await;
    println!(
        "layer by layer    {:8.2} s   {:.2} x the chain",
        layers.whole.as_secs_f64(),
        ratio(layers.whole, chain.whole)
    );
    println!("peak memory       {:8} MB", peak_memory_kb() >> 10);
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}

/// A database at the newest version with the fixture's rows over and over under keys of their own, in no order.
async fn fill(path: &Path, migrations: &[Arc<dyn Transform>], newest: u64, rows: usize) {
    let small = path.with_extension("fixture.db");
    fixture::write_to(&TestDatabase::at(&small)).await;
    Stored::open(&TestDatabase::at(&small), migrations.to_vec()).await.up(newest).await.expect("the fixture migrates");
    let stored = Stored::open(&TestDatabase::at(path), migrations.to_vec()).await;
    stored.up(newest).await.expect("a fresh database");
    let layout = stored.layout(newest);
    let columns: Vec<_> = layout.tables["desired_lrps"].columns.iter().map(|column| column.name.as_str()).collect();
    let others: Vec<_> = columns.iter().filter(|name| **name != "process_guid").copied().collect();
    let others = others.join(", ");
    let mut writer = stored.context.database.write().await.expect("a writer");
    writer.execute(sql("COMMIT")).await.expect("no transaction");
    writer.execute(sql("ATTACH ? AS small").bind(small.to_string_lossy().as_ref())).await.expect("attached");
    let copies = rows.div_ceil(300);
    let statement = format!(
        "WITH RECURSIVE copy(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < {copies}) \
         INSERT INTO main.desired_lrps (process_guid, {others}) \
         SELECT lower(hex(randomblob(16))) || '-' || n, {others} FROM copy, small.desired_lrps LIMIT {rows}"
    );
    writer.execute(sql(statement)).await.expect("filled");
    writer.execute(sql("DETACH small")).await.expect("detached");
    writer.execute(sql("BEGIN")).await.expect("as it was");
    drop(writer);
    stored.context.database.close().await;
}

fn copied(start: &Path, folder: &Path) -> PathBuf {
    let path = folder.join("run.db");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.join(format!("run.db{suffix}")));
    }
    std::fs::copy(start, &path).expect("a copy of the database");
    path
}

async fn insert_select(start: &Path, folder: &Path, migrations: &[Arc<dyn Transform>], newest: u64) -> Duration {
    let stored = Stored::open(&TestDatabase::at(&copied(start, folder)), migrations.to_vec()).await;
    let table = stored.layout(newest).tables["desired_lrps"].clone();
    let began = Instant::now();
    let mut tx = stored.context.database.write().await.expect("a writer");
    let mut statements = vec![
        schema::create_table(Dialect::Sqlite, &table, "copy"),
        "INSERT INTO copy SELECT * FROM desired_lrps".to_owned(),
    ];
    statements
        .extend(table.indexes.iter().map(|index| schema::drop_index(Dialect::Sqlite, "desired_lrps", &index.name)));
    statements.extend(table.indexes.iter().map(|index| schema::create_index(Dialect::Sqlite, "copy", index)));
    for statement in statements {
        tx.execute(sql(statement)).await.expect("SQLite copies");
    }
    tx.commit().await.expect("durable");
    let spent = began.elapsed();
    stored.context.database.close().await;
    spent
}

struct Spent {
    /// Without verification.
    copying: Duration,
    whole: Duration,
    /// By the name that progress gives them.
    phases: BTreeMap<String, Duration>,
}

/// Migrates to each of these versions in turn.
async fn migrate(start: &Path, folder: &Path, migrations: &[Arc<dyn Transform>], versions: &[u64]) -> Spent {
    let mut stored = Stored::open(&TestDatabase::at(&copied(start, folder)), migrations.to_vec()).await;
    stored.context.tuning = Tuning::default();
    let progress = stored.context.progress.clone();
    let watch = tokio::spawn(async move {
        let mut phases = BTreeMap::<String, Duration>::new();
        let mut last = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let snapshot = progress.snapshot();
            if snapshot.phase == "done" {
                return phases;
            }
            *phases.entry(snapshot.phase).or_default() += last.elapsed();
            last = Instant::now();
        }
    });
    let began = Instant::now();
    for &version in versions {
        stored.up(version).await.expect("it migrates");
    }
    let whole = began.elapsed();
    stored.context.progress.enter("done", "", None);
    let phases = watch.await.expect("the watch ends");
    stored.context.database.close().await;
    let verifying = phases.get("verify").copied().unwrap_or_default();
    Spent { copying: whole.saturating_sub(verifying), whole, phases }
}

fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}
