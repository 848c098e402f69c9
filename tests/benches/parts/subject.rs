//! The subject of the migration benchmarks: a large table on one of the three databases, the
//! database's own copy of it, and migrations of it. The servers have production durability
//! settings, unlike those of the tests.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs::testing::database::{Dialect, schema, sql};
use bbs::testing::migrate::Tuning;
use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::manifest::{Direction, Manifest};
use bbs_lens::layout::schema::Index;
use bbs_lens::transform::{RunArguments, Transform, TransformError};

use crate::harness::database::{Kind, TestDatabase};
use crate::harness::engine::Engine;
use crate::harness::stored::Stored;
use crate::harness::{fixture, modules};

const TABLE: &str = "desired_lrps";
const INSTANCES: &str = "actual_lrps";
const POSTGRES: &[&str] = &[
    "-c",
    "fsync=on",
    "-c",
    "full_page_writes=on",
    "-c",
    "shared_buffers=512MB",
    "-c",
    "max_wal_size=1GB",
];
const MARIADB: &[&str] = &[
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-doublewrite=ON",
    "--innodb-buffer-pool-size=512M",
    "--innodb-log-file-size=512M",
];
const MYSQL: &[&str] = &[
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-doublewrite=ON",
    "--innodb-flush-method=O_DIRECT",
    "--innodb-buffer-pool-size=512M",
    "--innodb-redo-log-capacity=512M",
];

/// The migrations of the default catalog, and the modules that are measured.
pub struct BenchCatalog {
    pub base: Vec<Arc<dyn Transform>>,
    pub newest: u64,
    /// Modules that rewrite a short column, another short column, and the encrypted run info.
    pub three: [Arc<dyn Transform>; 3],
}

impl BenchCatalog {
    pub fn load() -> Self {
        let base = fixture::migrations();
        let newest = base
            .last()
            .expect("the catalog has migrations")
            .manifest()
            .version;
        let sandbox = modules::sandbox();
        let three = ["bench-annotation", "bench-log-guid", "bench-run-info"]
            .map(|name| modules::migration(name, &sandbox) as Arc<dyn Transform>);
        Self {
            base,
            newest,
            three,
        }
    }

    /// A chain of `length` modules that alternate between two columns.
    pub fn chain(&self, length: u64) -> Vec<Arc<dyn Transform>> {
        let module =
            |number: u64| self.numbered(usize::from(number % 2 == 1), 1_910_000_000 + number);
        (0..length).map(module).collect()
    }

    /// The first module of a chain below this project's migrations, and one above all that does
    /// nothing.
    pub fn inserted(&self) -> Vec<Arc<dyn Transform>> {
        let below = self.numbered(0, 1_789_335_377);
        let manifest = Manifest {
            version: 1_910_000_000,
            name: "nothing".to_owned(),
            up: Vec::new(),
            down: Vec::new(),
            changes: Vec::new(),
            ..below.manifest().clone()
        };
        vec![
            Arc::clone(&below),
            Arc::new(Renumbered {
                inner: below,
                manifest,
            }),
        ]
    }

    fn numbered(&self, module: usize, version: u64) -> Arc<dyn Transform> {
        let inner = Arc::clone(&self.three[module]);
        let mut manifest = inner.manifest().clone();
        manifest.version = version;
        manifest.name = format!("{}-{version}", manifest.name);
        Arc::new(Renumbered { inner, manifest })
    }
}

/// A module with another version, so that chains of any length can be built from two modules.
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

    fn apply(
        &self,
        direction: Direction,
        run: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        self.inner.apply(direction, run, batch)
    }
}

/// The value of an environment variable; `otherwise` if it is not set.
pub fn setting<T: FromStr>(name: &str, otherwise: T) -> T {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} cannot be {text:?}"))
    })
}

/// The databases named by `BBS_BENCH_DATABASES`.
pub fn kinds() -> Vec<Kind> {
    let names = setting("BBS_BENCH_DATABASES", "sqlite,postgres,mariadb".to_owned());
    names
        .split(',')
        .map(|name| {
            Kind::named(name).unwrap_or_else(|| {
            panic!(
                "BBS_BENCH_DATABASES has {name:?}; it may have sqlite, postgres, mariadb and mysql"
            )
        })
        })
        .collect()
}

/// The server of one kind that the databases are created on; none for SQLite.
pub struct BenchServer {
    pub kind: Kind,
    engine: Option<Engine>,
}

impl BenchServer {
    pub fn new(kind: Kind) -> Self {
        let engine = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(kind.own_engine_with(POSTGRES)),
            Kind::Mariadb => Some(kind.own_engine_with(MARIADB)),
            Kind::Mysql => Some(kind.own_engine_with(MYSQL)),
        };
        Self { kind, engine }
    }

    pub fn database(&self) -> TestDatabase {
        self.engine.as_ref().map_or_else(
            || TestDatabase::new(self.kind),
            |engine| TestDatabase::on(self.kind, engine.address()),
        )
    }
}

/// A database with `rows` desired LRPs.
pub struct Subject {
    pub database: TestDatabase,
    pub rows: u64,
    /// The version of its data.
    version: u64,
    /// The tables with rows.
    tables: &'static [&'static str],
}

/// Durations of a migration.
pub struct MigrationTimes {
    /// Without verification.
    pub copying: Duration,
    pub whole: Duration,
    /// By the phase name of the host's progress.
    pub phases: BTreeMap<String, Duration>,
    /// Peak memory of this process, in which the migration engine runs.
    pub peak_memory_mb: u64,
}

impl Subject {
    /// Creates a database at the newest version with copies of the fixture's rows under random
    /// keys.
    pub async fn fill(server: &BenchServer, catalog: &BenchCatalog, rows: u64) -> Self {
        Self::fill_at(server, catalog, rows, catalog.newest, &[TABLE]).await
    }

    /// Fills the database at another version, with an instance of each desired LRP.
    pub async fn fill_with_instances(
        server: &BenchServer,
        catalog: &BenchCatalog,
        rows: u64,
        version: u64,
    ) -> Self {
        Self::fill_at(server, catalog, rows, version, &[TABLE, INSTANCES]).await
    }

    async fn fill_at(
        server: &BenchServer,
        catalog: &BenchCatalog,
        rows: u64,
        version: u64,
        tables: &'static [&'static str],
    ) -> Self {
        let database = server.database();
        fixture::write_to(&database).await;
        let stored = Stored::open(&database, catalog.base.clone()).await;
        stored.up(version).await.expect("the fixture migrates");
        let layout = stored.layout(version);
        let others = |table: &str| {
            let columns = layout.tables[table]
                .columns
                .iter()
                .map(|column| column.name.as_str());
            columns
                .filter(|name| *name != "process_guid")
                .collect::<Vec<_>>()
        };
        let others_of_instances = others(INSTANCES).join(", ");
        let run = async |statement: String| {
            let mut tx = stored
                .context
                .database
                .write()
                .await
                .expect("a transaction");
            let done = tx.execute(sql(statement.clone())).await;
            tx.commit().await.expect("a commit");
            done.unwrap_or_else(|error| panic!("{statement}: {error}"))
        };
        run("DELETE FROM tasks".to_owned()).await;
        // The first one is the template of all.
        let first =
            "SELECT MIN(process_guid) FROM actual_lrps WHERE instance_index = 0 AND presence = 0";
        run(format!(
            "DELETE FROM {INSTANCES} WHERE instance_index <> 0 OR presence <> 0"
        ))
        .await;
        run(format!(
            "DELETE FROM {INSTANCES} WHERE process_guid <> (SELECT * FROM ({first}) AS x)"
        ))
        .await;
        let filled = fixture::rows(TABLE).len() as u64;
        if rows < filled {
            run(format!(
                "DELETE FROM {TABLE} WHERE process_guid IN \
                 (SELECT g FROM (SELECT process_guid AS g FROM {TABLE} LIMIT {}) AS x)",
                filled - rows
            ))
            .await;
        }
        fixture::multiply(&stored.context.database, TABLE, &others(TABLE), rows).await;
        if tables.contains(&INSTANCES) {
            run(format!("UPDATE {INSTANCES} SET process_guid = 'template'")).await;
            run(format!(
                "INSERT INTO {INSTANCES} (process_guid, {others_of_instances}) SELECT guid, {others_of_instances} \
                 FROM {INSTANCES} CROSS JOIN (SELECT process_guid AS guid FROM {TABLE}) AS guids"
            ))
            .await;
            run(format!(
                "DELETE FROM {INSTANCES} WHERE process_guid = 'template'"
            ))
            .await;
        } else {
            run(format!("DELETE FROM {INSTANCES}")).await;
        }
        for table in tables {
            match stored.context.database.dialect() {
                Dialect::Sqlite => {}
                Dialect::Postgres => drop(run(format!("ANALYZE {table}")).await),
                Dialect::Mysql => drop(run(format!("ANALYZE TABLE {table}")).await),
            }
        }
        stored.context.database.close().await;
        Self {
            database,
            rows,
            version,
            tables,
        }
    }

    /// Copies the tables with the database's own `INSERT … SELECT`: the lower bound of a
    /// migration's time.
    pub async fn insert_select(&self, catalog: &BenchCatalog) -> Duration {
        let copy = self.database.copy();
        let stored = Stored::open(&copy, catalog.base.clone()).await;
        let dialect = stored.context.database.dialect();
        let mut statements = Vec::new();
        for name in self.tables {
            let table = stored.layout(self.version).tables[*name].clone();
            let copy = format!("copy_of_{name}");
            statements.push(schema::create_table(dialect, &table, &copy));
            statements.push(format!("INSERT INTO {copy} SELECT * FROM {name}"));
            let indexes = table.indexes.iter().map(|index| Index {
                name: format!("copy_{}", index.name),
                ..index.clone()
            });
            let indexes: Vec<_> = indexes.collect();
            statements.extend(schema::create_indexes(dialect, &copy, &indexes));
        }
        let began = Instant::now();
        let mut tx = stored.context.database.write().await.expect("a writer");
        for statement in statements {
            tx.execute(sql(statement))
                .await
                .expect("the database copies its table");
        }
        tx.commit().await.expect("a commit");
        let spent = began.elapsed();
        stored.context.database.close().await;
        spent
    }

    /// Migrates a copy of the database through these modules, to each of these versions in order.
    pub async fn migrate(
        &self,
        catalog: &BenchCatalog,
        modules: &[Arc<dyn Transform>],
        versions: &[u64],
    ) -> MigrationTimes {
        let copy = self.database.copy();
        let mut migrations: Vec<_> = catalog.base.iter().chain(modules).cloned().collect();
        migrations.sort_by_key(|module| module.manifest().version);
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
            stored.up(version).await.expect("the migration succeeds");
        }
        let whole = began.elapsed();
        let peak_memory_mb = peak_memory_kb() >> 10;
        stored.context.progress.enter("done", "", None);
        let phases = watch.await.expect("the sampling task ends");
        stored.context.database.close().await;
        let verifying = phases.get("verify").copied().unwrap_or_default();
        MigrationTimes {
            copying: whole.saturating_sub(verifying),
            whole,
            phases,
            peak_memory_mb,
        }
    }
}

fn forget_peak_memory() {
    // If the kernel refuses, the peak is that of all runs so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default()
}
