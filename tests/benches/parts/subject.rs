//! What is measured: a large table on one of the three databases, the database's own copy of it, and migrations of it.
//! Servers are as durable as an operator's, unlike those of the tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs::database::{Dialect, schema, sql};
use bbs::layout::columns::{Batch, Outcome, RunArguments};
use bbs::layout::manifest::{Direction, Manifest};
use bbs::layout::schema::Index;
use bbs::lens::transform::{Transform, TransformError};
use bbs::migrate::Tuning;

use crate::harness::database::{Kind, TestDatabase};
use crate::harness::engine::Engine;
use crate::harness::stored::Stored;
use crate::harness::{fixture, modules};

const TABLE: &str = "desired_lrps";
const POSTGRES: &[&str] =
    &["-c", "fsync=on", "-c", "full_page_writes=on", "-c", "shared_buffers=512MB", "-c", "max_wal_size=1GB"];
const MARIADB: &[&str] = &[
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-doublewrite=ON",
    "--innodb-buffer-pool-size=512M",
    "--innodb-log-file-size=512M",
];

/// The migrations of the default catalog, and those that are measured.
pub struct Line {
    pub base: Vec<Arc<dyn Transform>>,
    pub newest: u64,
    /// One short column, another, and the encrypted message decoded, rewritten and sealed again.
    pub three: [Arc<dyn Transform>; 3],
}

impl Line {
    pub fn load() -> Self {
        let base = fixture::migrations();
        let newest = base.last().expect("a line").manifest().version;
        let sandbox = modules::sandbox();
        let guest = |name| modules::migration(name, &sandbox) as Arc<dyn Transform>;
        let three = ["bench-annotation", "bench-log-guid", "bench-run-info"].map(guest);
        Self { base, newest, three }
    }

    /// A chain of that many modules that touch two columns between them.
    pub fn chain(&self, length: u64) -> Vec<Arc<dyn Transform>> {
        let module = |number: u64| {
            let inner = Arc::clone(&self.three[usize::from(number % 2 == 1)]);
            let mut manifest = inner.manifest().clone();
            manifest.version = 1_910_000_000 + number;
            manifest.name = format!("{}-{number}", manifest.name);
            Arc::new(Renumbered { inner, manifest }) as Arc<dyn Transform>
        };
        (0..length).map(module).collect()
    }
}

/// A module under a version of its own, so that a chain of any length can be made of two.
struct Renumbered {
    inner: Arc<dyn Transform>,
    manifest: Manifest,
}

impl Transform for Renumbered {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        self.inner.digest()
    }

    fn apply(&self, direction: Direction, run: &RunArguments, batch: &Batch) -> Result<Outcome, TransformError> {
        self.inner.apply(direction, run, batch)
    }
}

/// The databases that were asked for.
pub fn kinds() -> Vec<Kind> {
    let names = std::env::var("BBS_BENCH_DATABASES").unwrap_or_else(|_| "sqlite,postgres,mysql".to_owned());
    let kind = |name: &str| {
        let known = [Kind::Sqlite, Kind::Postgres, Kind::Mysql].into_iter().find(|kind| kind.name() == name);
        known.unwrap_or_else(|| panic!("BBS_BENCH_DATABASES has {name:?}; it may have sqlite, postgres and mysql"))
    };
    names.split(',').map(kind).collect()
}

/// Where databases of one kind are put.
pub struct Place {
    pub kind: Kind,
    engine: Option<Engine>,
}

impl Place {
    pub fn new(kind: Kind) -> Self {
        let engine = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(kind.own_engine_with(POSTGRES)),
            Kind::Mysql => Some(kind.own_engine_with(MARIADB)),
        };
        Self { kind, engine }
    }

    pub fn database(&self) -> TestDatabase {
        self.engine
            .as_ref()
            .map_or_else(|| TestDatabase::new(self.kind), |engine| TestDatabase::on(self.kind, engine.address()))
    }
}

/// A database at the newest version with that many desired LRPs.
pub struct Subject {
    pub database: TestDatabase,
    pub rows: u64,
}

/// How long a migration took.
pub struct Spent {
    /// Without verification.
    pub copying: Duration,
    pub whole: Duration,
    /// By the name that progress gives them.
    pub phases: BTreeMap<String, Duration>,
    /// Of this process, which the engine runs in.
    pub peak_memory_mb: u64,
}

impl Subject {
    /// The fixture's rows over and over under keys of their own, in no order.
    pub async fn fill(place: &Place, line: &Line, rows: u64) -> Self {
        let database = place.database();
        fixture::write_to(&database).await;
        let stored = Stored::open(&database, line.base.clone()).await;
        stored.up(line.newest).await.expect("the fixture migrates");
        let layout = stored.layout(line.newest);
        let columns = layout.tables[TABLE].columns.iter().map(|column| column.name.as_str());
        let others = columns.filter(|name| *name != "process_guid").collect::<Vec<_>>().join(", ");
        let key = match stored.context.database.dialect() {
            Dialect::Sqlite => "lower(hex(randomblob(16)))",
            Dialect::Postgres => "md5(random()::text || clock_timestamp()::text || process_guid)",
            Dialect::Mysql => "MD5(CONCAT(RAND(), UUID(), process_guid))",
        };
        let run = async |statement: String| {
            let mut tx = stored.context.database.write().await.expect("a transaction");
            let done = tx.execute(sql(statement.clone())).await;
            tx.commit().await.expect("kept");
            done.unwrap_or_else(|error| panic!("{statement}: {error}"))
        };
        for table in ["actual_lrps", "tasks"] {
            run(format!("DELETE FROM {table}")).await;
        }
        let mut there = fixture::rows(TABLE).len() as u64;
        if rows < there {
            run(format!(
                "DELETE FROM {TABLE} WHERE process_guid IN \
                 (SELECT g FROM (SELECT process_guid AS g FROM {TABLE} LIMIT {}) AS x)",
                there - rows
            ))
            .await;
        }
        while there < rows {
            let more = there.min(rows - there);
            there += run(format!(
                "INSERT INTO {TABLE} (process_guid, {others}) SELECT {key}, {others} FROM {TABLE} LIMIT {more}"
            ))
            .await;
        }
        match stored.context.database.dialect() {
            Dialect::Sqlite => {}
            Dialect::Postgres => drop(run(format!("ANALYZE {TABLE}")).await),
            Dialect::Mysql => drop(run(format!("ANALYZE TABLE {TABLE}")).await),
        }
        stored.context.database.close().await;
        Self { database, rows }
    }

    /// The database's own copy of the table: what no migration can be faster than.
    pub async fn insert_select(&self, line: &Line) -> Duration {
        let copy = self.database.copy();
        let stored = Stored::open(&copy, line.base.clone()).await;
        let table = stored.layout(line.newest).tables[TABLE].clone();
        let dialect = stored.context.database.dialect();
        let mut statements =
            vec![schema::create_table(dialect, &table, "copy"), format!("INSERT INTO copy SELECT * FROM {TABLE}")];
        let renamed = |index: &Index| Index { name: format!("copy_{}", index.name), ..index.clone() };
        statements.extend(table.indexes.iter().map(|index| schema::create_index(dialect, "copy", &renamed(index))));
        let began = Instant::now();
        let mut tx = stored.context.database.write().await.expect("a writer");
        for statement in statements {
            tx.execute(sql(statement)).await.expect("a database copies its own tables");
        }
        tx.commit().await.expect("durable");
        let spent = began.elapsed();
        stored.context.database.close().await;
        spent
    }

    /// Migrates a copy by these modules, to each of these versions in turn.
    pub async fn migrate(&self, line: &Line, modules: &[Arc<dyn Transform>], versions: &[u64]) -> Spent {
        let copy = self.database.copy();
        let migrations = line.base.iter().chain(modules).cloned().collect();
        let mut stored = Stored::open(&copy, migrations).await;
        stored.context.tuning = Tuning::default();
        if let Ok(megabytes) = std::env::var("BBS_BENCH_BATCH_MB") {
            stored.context.tuning.batch_bytes = megabytes.parse::<u64>().expect("a number") << 20;
        }
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
        forget_peak_memory();
        let began = Instant::now();
        for &version in versions {
            stored.up(version).await.expect("it migrates");
        }
        let whole = began.elapsed();
        let peak_memory_mb = peak_memory_kb() >> 10;
        stored.context.progress.enter("done", "", None);
        let phases = watch.await.expect("the watch ends");
        stored.context.database.close().await;
        let verifying = phases.get("verify").copied().unwrap_or_default();
        Spent { copying: whole.saturating_sub(verifying), whole, phases, peak_memory_mb }
    }
}

fn forget_peak_memory() {
    // Where the kernel refuses, the peak is that of all runs so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}
