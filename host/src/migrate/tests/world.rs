//! A database in a temporary folder, with generated rows, and ways to read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bbs_database::{Address, Database, Dialect, Row, schema, sql};
use bbs_encryption::Keyring;
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Layout, Sealing};
use bbs_work::progress::Progress;
use bbs_work::throttle::Throttle;
use tempfile::TempDir;

use super::migrations;
use crate::lock::fence::Fence;
use crate::migrate::copy::UnitBudget;
use crate::migrate::{
    Context, Decision, GivenUp, Intent, MigrateError, Tuning, abort, begin, finish, run, steps,
};

pub(super) type TestRows = Vec<BTreeMap<String, String>>;

pub(super) struct TestEngine {
    _folder: TempDir,
    pub(super) context: Context,
    /// The number of runs so far.
    runs: AtomicI64,
}

/// The failure at a unit that stopped a migration.
pub(super) fn at_unit(error: MigrateError) -> MigrateError {
    let MigrateError::Stopped { source, .. } = error else {
        panic!("{error:?}")
    };
    *source
}

impl TestEngine {
    pub(super) async fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
            .await
            .unwrap();
        let context = Context {
            database,
            migrations: migrations::all(),
            known_layouts: None,
            keyring: Arc::new(Keyring::new([("key", "secret")], "key").unwrap()),
            progress: Progress::default(),
            throttle: Throttle::default(),
            clock: Arc::new(crate::clock::SystemClock),
            runner: crate::migrate::Runner {
                host: "z1".to_owned(),
                release: "1.2.3".to_owned(),
            },
            now_ns: 1_795_000_000_000_000_000,
            tuning: Tuning::default(),
            is_online: false,
        };
        Self {
            _folder: folder,
            context,
            runs: AtomicI64::new(0),
        }
    }

    /// At version 1, with a number of apps, two instances each, and three domains.
    pub(super) async fn with_rows(apps: usize) -> Self {
        let world = Self::empty().await;
        world.up(1).await.unwrap();
        let mut tx = world.context.database.write().await.unwrap();
        for number in 0..apps {
            let guid = format!("app-{number:05}");
            let run_info = world.seal(Sealing::Enveloped, &format!("run {number} tags=t{number}"));
            let app = sql(
                "INSERT INTO desired_lrps (guid, domain, routes, run_info, annotation) VALUES (?, 'd', ?, ?, ?)",
            );
            let app = app
                .bind(guid.as_str())
                .bind(format!("routes of {number}"))
                .bind(run_info);
            tx.execute(app.bind((number % 3 > 0).then(|| "ä".repeat(number))))
                .await
                .unwrap();
            for place in 0..2_i64 {
                let net_info = world.seal(Sealing::Enveloped, &format!("net {number}.{place}"));
                let instance = sql(
                    "INSERT INTO actual_lrps (guid, place, evacuating, state, net_info) VALUES (?, ?, ?, 'RUNNING', ?)",
                );
                let instance = instance
                    .bind(guid.as_str())
                    .bind(place)
                    .bind(number % 4 == 0 && place == 1);
                tx.execute(instance.bind(net_info)).await.unwrap();
            }
        }
        tx.execute(sql(
            "INSERT INTO domains (domain) VALUES ('a'), ('b'), ('c')",
        ))
        .await
        .unwrap();
        tx.commit().await.unwrap();
        world
    }

    pub(super) fn tuned(mut self, tuning: Tuning) -> Self {
        self.context.tuning = tuning;
        self
    }

    fn seal(&self, sealing: Sealing, plain: &str) -> String {
        String::from_utf8(self.context.keyring.seal(sealing, plain.as_bytes())).unwrap()
    }

    /// The context of a process that starts later than those before it.
    fn next_start(&self) -> Context {
        let now_ns = self.context.now_ns + self.runs.fetch_add(1, Ordering::Relaxed);
        Context {
            now_ns,
            ..self.context.clone()
        }
    }

    pub(super) async fn up(&self, wanted: DataVersion) -> Result<Decision, MigrateError> {
        let fence = Fence::raise(&self.context.database).await.unwrap();
        run(&self.next_start(), &fence, Intent::Up { wanted }).await
    }

    pub(super) async fn down(&self, to: DataVersion) -> Result<Decision, MigrateError> {
        let fence = Fence::raise(&self.context.database).await.unwrap();
        run(&self.next_start(), &fence, Intent::Down { to }).await
    }

    pub(super) async fn abort(&self) -> Result<Option<GivenUp>, MigrateError> {
        let fence = Fence::raise(&self.context.database).await.unwrap();
        abort(&self.context, &fence).await
    }

    pub(super) async fn execute(&self, statement: &str) {
        let mut tx = self.context.database.write().await.unwrap();
        tx.execute(sql(statement.to_owned())).await.unwrap();
        tx.commit().await.unwrap();
    }

    pub(super) async fn set_run_info(&self, guid: &str, run_info: &str) {
        let sealed = self.seal(Sealing::Enveloped, run_info);
        self.execute(&format!(
            "UPDATE desired_lrps SET run_info = '{sealed}' WHERE guid = '{guid}'"
        ))
        .await;
    }

    /// Gives an app a text in which no tags are found.
    pub(super) async fn spoil_run_info(&self, table: &str, guid: &str) {
        let sealed = self.seal(Sealing::Enveloped, "nothing");
        self.execute(&format!(
            "UPDATE {table} SET run_info = '{sealed}' WHERE guid = '{guid}'"
        ))
        .await;
    }

    pub(super) async fn seal_routes(&self) {
        let sealed = self.seal(Sealing::Sealed, "routes");
        self.execute(&format!("UPDATE desired_lrps SET routes = '{sealed}'"))
            .await;
    }

    pub(super) async fn fetch(&self, query: &str) -> Vec<Row> {
        self.context
            .database
            .read()
            .await
            .unwrap()
            .fetch(sql(query.to_owned()))
            .await
            .unwrap()
    }

    pub(super) async fn text(&self, query: &str) -> String {
        self.fetch(query).await[0]
            .text(0)
            .unwrap()
            .unwrap()
            .to_owned()
    }

    pub(super) async fn count(&self, table: &str) -> i64 {
        self.fetch(&format!("SELECT COUNT(*) FROM {table}")).await[0]
            .integer(0)
            .unwrap()
            .unwrap()
    }

    pub(super) async fn version(&self) -> (DataVersion, DataVersion) {
        let text = self
            .text("SELECT value FROM configurations WHERE id = 'version'")
            .await;
        let row: serde_json::Value = serde_json::from_str(&text).unwrap();
        let of = |name: &str| row[name].as_u64().unwrap();
        let current = of("CurrentVersion");
        (
            current,
            row.get("TargetVersion")
                .map_or(current, |_| of("TargetVersion")),
        )
    }

    async fn names(&self, query: &str) -> Vec<String> {
        self.fetch(query)
            .await
            .iter()
            .map(|row| row.text(0).unwrap().unwrap().to_owned())
            .collect()
    }

    pub(super) async fn leftovers(&self) -> Vec<String> {
        self.names(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%!_!_%' ESCAPE '!'",
        )
        .await
    }

    /// Every statement that created something, to show that nothing was created.
    pub(super) async fn master(&self) -> Vec<String> {
        let mut names = self
            .names("SELECT name FROM sqlite_master ORDER BY name")
            .await;
        names.retain(|name| !name.contains("bbs_fence"));
        names
    }

    fn layout(&self, version: DataVersion) -> Layout {
        let layouts = self.context.layouts().unwrap();
        layouts.at(version).unwrap().clone()
    }

    pub(super) async fn assert_layout(&self, version: DataVersion) {
        let mut reader = self.context.database.read().await.unwrap();
        for (name, table) in &self.layout(version).tables {
            let found = schema::read_back(&mut reader, name)
                .await
                .unwrap()
                .unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(
                schema::differences(&found, &schema::expected(Dialect::Sqlite, table)),
                Vec::<String>::new(),
                "{name}"
            );
        }
    }

    /// The database's rows for each table of its version, columns in a fixed order.
    pub(super) async fn schema(&self) -> BTreeMap<String, schema::PhysicalTable> {
        let mut reader = self.context.database.read().await.unwrap();
        let mut schema = BTreeMap::new();
        for name in self.layout(self.version().await.0).tables.keys() {
            let mut found = schema::read_back(&mut reader, name).await.unwrap().unwrap();
            found
                .columns
                .sort_by(|one, other| one.name.cmp(&other.name));
            schema.insert(name.clone(), found);
        }
        schema
    }

    /// The rows of a table with sealed columns opened, in the order of the primary key.
    pub(super) async fn rows(&self, table: &str) -> TestRows {
        let layout = self.layout(self.version().await.0);
        let known = &layout.tables[table];
        let key = known.primary_key.join(", ");
        let names: Vec<_> = known
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        let rows = self
            .fetch(&format!(
                "SELECT {} FROM {table} ORDER BY {key}",
                names.join(", ")
            ))
            .await;
        let read = |row: &Row| {
            let columns = known.columns.iter().enumerate();
            columns
                .map(|(at, column)| {
                    let raw = row.bytes(at).unwrap();
                    let open = |raw: &[u8]| {
                        self.context
                            .keyring
                            .open(column.sealing, raw)
                            .unwrap_or(raw.to_vec())
                    };
                    let text = raw.map_or("NULL".to_owned(), |raw| {
                        String::from_utf8(open(raw)).unwrap()
                    });
                    (column.name.clone(), text)
                })
                .collect()
        };
        rows.iter().map(read).collect()
    }

    /// All rows of all tables of the database's version.
    pub(super) async fn everything(&self) -> BTreeMap<String, TestRows> {
        let mut everything = BTreeMap::new();
        for table in self.layout(self.version().await.0).tables.keys() {
            everything.insert(table.clone(), self.rows(table).await);
        }
        everything
    }

    /// Migrates up to a version with a copy that is damaged just before it is verified.
    pub(super) async fn damaged_before_verify(
        &self,
        to: DataVersion,
        damage: &str,
    ) -> MigrateError {
        let fence = Fence::raise(&self.context.database).await.unwrap();
        let ends = (self.version().await.0, to);
        let job = begin(&self.context, &fence, ends).await.unwrap();
        let budget = Arc::new(UnitBudget::of(None));
        let copied = steps::copy(&self.context, &fence, &job, &budget).await;
        assert!(copied.unwrap(), "all units are copied");
        self.execute(damage).await;
        finish(&self.context, &fence, &job).await.unwrap_err()
    }
}
