//! A database for tests of the migration engine: runs migrations on it and reads every row of a
//! layout, encrypted columns decrypted.

use std::collections::BTreeMap;
use std::sync::Arc;

use bbs::testing::database::{Database, DatabaseError, Row, schema, sql};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::{self, Context, Decision, Intent, MigrateError, Tuning};
use bbs::testing::progress::Progress;
use bbs::testing::throttle::Throttle;
use bbs_lens::layout::schema::{Column, Layout};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::Transform;

use super::database::{Kind, TestDatabase, data_version};
use super::fixture;

/// Rows as column values by name, by table. Text is decrypted.
pub type Rows = BTreeMap<String, Vec<BTreeMap<String, String>>>;

pub struct Stored {
    pub context: Context,
    test_database: Option<TestDatabase>,
}

impl Stored {
    /// A new database with the rows of the fixture.
    pub async fn with_fixture(kind: Kind, migrations: Vec<Arc<dyn Transform>>) -> Self {
        let database = TestDatabase::new(kind);
        fixture::write_to(&database).await;
        Self::open(&database, migrations).await
    }

    /// [`Self::with_fixture`] with a quarter of its records.
    pub async fn with_small_fixture(kind: Kind, migrations: Vec<Arc<dyn Transform>>) -> Self {
        let database = TestDatabase::new(kind);
        fixture::write_small_to(&database).await;
        Self::open(&database, migrations).await
    }

    pub async fn open(database: &TestDatabase, migrations: Vec<Arc<dyn Transform>>) -> Self {
        Self::try_open(database, migrations)
            .await
            .expect("the database can be opened")
    }

    pub async fn try_open(
        database: &TestDatabase,
        migrations: Vec<Arc<dyn Transform>>,
    ) -> Result<Self, DatabaseError> {
        let opened = Database::open(&database.address()).await?;
        Ok(Self {
            test_database: Some(database.clone()),
            ..Self::over(opened, migrations)
        })
    }

    /// [`Self::open`] with an open connection pool.
    pub fn over(database: Database, migrations: Vec<Arc<dyn Transform>>) -> Self {
        let context = Context {
            database,
            migrations,
            // Tests change the migrations.
            known_layouts: None,
            keyring: Arc::new(fixture::keyring()),
            progress: Progress::default(),
            throttle: Throttle::default(),
            clock: Arc::new(bbs::testing::clock::SystemClock),
            runner: migrate::Runner::default(),
            now_ns: 1_800_000_000_000_000_000,
            // Small enough for the fixture to take several batches.
            tuning: Tuning {
                batch_units: 60,
                batch_bytes: 100_000,
                ..Tuning::default()
            },
            is_online: false,
        };
        Self {
            context,
            test_database: None,
        }
    }

    /// The database, which is not removed as long as this is open.
    ///
    /// # Panics
    /// If a pool of the caller's is over it.
    pub fn test_database(&self) -> &TestDatabase {
        let database = self.test_database.as_ref();
        database.expect("it was opened from a test database")
    }

    pub async fn up(&self, wanted: u64) -> Result<Decision, MigrateError> {
        let fence = Fence::raise(&self.context.database).await?;
        migrate::run(&self.next_start().await, &fence, Intent::Up { wanted }).await
    }

    pub async fn down(&self, to: u64) -> Result<Decision, MigrateError> {
        let fence = Fence::raise(&self.context.database).await?;
        migrate::run(&self.next_start().await, &fence, Intent::Down { to }).await
    }

    /// The context of a process that starts after all migrations that the database has been
    /// through.
    async fn next_start(&self) -> Context {
        let ran = migrate::migrations_ran(&self.context)
            .await
            .expect("the history can be read")
            .len();
        Context {
            now_ns: self.context.now_ns + i64::try_from(ran).expect("a few"),
            ..self.context.clone()
        }
    }

    /// Runs a statement that bypasses the host, as an operator or another BBS might.
    pub async fn execute(&self, statement: &str) {
        let mut tx = self.context.database.write().await.expect("a transaction");
        tx.execute(sql(statement.to_owned()))
            .await
            .expect("the statement succeeds");
        tx.commit().await.expect("a commit");
    }

    pub fn layout(&self, version: u64) -> Layout {
        let history = self.context.layouts().expect("the layout history is sound");
        history
            .at(version)
            .expect("a version of the layout history")
            .clone()
    }

    /// The current version according to the version row.
    pub async fn version(&self) -> u64 {
        data_version(&self.context.database).await
    }

    /// Asserts that the schema of every table is that of the layout at `version`.
    pub async fn assert_layout(&self, version: u64) {
        let dialect = self.context.database.dialect();
        let mut reader = self.context.database.read().await.expect("a reader");
        for (name, table) in &self.layout(version).tables {
            let found = schema::read_back(&mut reader, name)
                .await
                .expect("the schema can be read");
            let found = found.unwrap_or_else(|| panic!("table {name} is missing"));
            let wanted = schema::expected(dialect, table);
            assert_eq!(
                schema::differences(&found, &wanted),
                Vec::<String>::new(),
                "{name}"
            );
        }
    }

    /// All tables of the database, also those outside of every layout.
    pub async fn tables(&self) -> Vec<String> {
        super::database::tables(&self.context.database).await
    }

    /// All rows of the layout at `version`, in primary key order.
    pub async fn rows(&self, version: u64) -> Rows {
        let mut reader = self.context.database.read().await.expect("a reader");
        let mut all = Rows::new();
        for (name, table) in &self.layout(version).tables {
            let columns: Vec<_> = table
                .columns
                .iter()
                .map(|column| column.name.as_str())
                .collect();
            let columns = columns.join(", ");
            let key = table.primary_key.join(", ");
            let statement = format!("SELECT {columns} FROM {name} ORDER BY {key}");
            let rows = reader
                .fetch(sql(statement))
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            all.insert(
                name.clone(),
                rows.iter()
                    .map(|row| {
                        let columns = table.columns.iter().enumerate();
                        columns
                            .map(|(at, column)| {
                                (column.name.clone(), self.text_of(row, at, column))
                            })
                            .collect()
                    })
                    .collect(),
            );
        }
        all
    }

    /// A column value as text, decrypted if the column is encrypted.
    fn text_of(&self, row: &Row, at: usize, column: &Column) -> String {
        match row
            .value(at, Encoding::from(column.kind))
            .expect("a value of the column's type")
        {
            Value::Null => "NULL".to_owned(),
            Value::Boolean(value) => i32::from(value).to_string(),
            Value::Integer(value) => value.to_string(),
            Value::Text([]) => String::new(),
            Value::Text(text) => {
                let plain = self
                    .context
                    .keyring
                    .open(column.sealing, text)
                    .expect("the value decrypts");
                String::from_utf8_lossy(&plain).into_owned()
            }
        }
    }
}
