//! A database as a test looks at it: every row of every table of a layout, sealed columns opened, and the engine
//! ready to run on it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bbs::database::{Address, Database, Row, schema, sql};
use bbs::layout::schema::{Column, Layout};
use bbs::layout::values::Value;
use bbs::lens::transform::Transform;
use bbs::lock::fence::Fence;
use bbs::migrate::{self, Context, Decision, Intent, MigrateError, Tuning};
use bbs::progress::Progress;

/// Rows by table, then by column; text after decryption.
pub type Rows = BTreeMap<String, Vec<BTreeMap<String, String>>>;

pub struct Stored {
    pub context: Context,
}

impl Stored {
    pub async fn open(path: &Path, migrations: Vec<Arc<dyn Transform>>) -> Self {
        let context = Context {
            database: Database::open(&Address::Sqlite(path.to_owned())).await.expect("the folder is writable"),
            migrations,
            keyring: Arc::new(super::fixture::keyring()),
            progress: Progress::default(),
            now_ns: 1_800_000_000_000_000_000,
            replays: None,
            // Several batches even for the fixture's few rows.
            tuning: Tuning { batch_units: 60, batch_bytes: 100_000, ..Tuning::default() },
        };
        Self { context }
    }

    pub async fn up(&self, wanted: u64) -> Result<Decision, MigrateError> {
        let fence = Fence::raise(&self.context.database).await.expect("the fence can be raised");
        migrate::run(&self.context, &fence, Intent::Up { wanted }).await
    }

    pub async fn down(&self, to: u64) -> Result<Decision, MigrateError> {
        let fence = Fence::raise(&self.context.database).await.expect("the fence can be raised");
        migrate::run(&self.context, &fence, Intent::Down { to }).await
    }

    /// Runs a statement past the host, as an operator or another BBS might.
    pub async fn execute(&self, statement: &str) {
        let mut tx = self.context.database.write().await.expect("a transaction");
        tx.execute(sql(statement.to_owned())).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        tx.commit().await.expect("a commit");
    }

    pub fn layout(&self, version: u64) -> Layout {
        let line = migrate::line(&self.context.migrations).expect("the line is sound");
        line.at(version).expect("a version of the line").clone()
    }

    pub async fn fetch(&self, query: &str) -> Vec<Row> {
        let mut reader = self.context.database.read().await.expect("a reader");
        reader.fetch(sql(query.to_owned())).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// What the version row says.
    pub async fn version(&self) -> u64 {
        let rows = self.fetch("SELECT value FROM configurations WHERE id = 'version'").await;
        let text = rows[0].text(0).expect("text").expect("there is a version");
        let row: serde_json::Value = serde_json::from_str(text).expect("the version is JSON");
        row["CurrentVersion"].as_u64().expect("a number")
    }

    pub async fn assert_layout(&self, version: u64) {
        let mut reader = self.context.database.read().await.expect("a reader");
        for (name, table) in &self.layout(version).tables {
            let found = schema::read_back(&mut reader, name).await.expect("the schema can be read");
            let found = found.unwrap_or_else(|| panic!("table {name} is missing"));
            assert_eq!(
                schema::differences(&found, &schema::expected(self.context.database.dialect(), table)),
                Vec::<String>::new(),
                "{name}"
            );
        }
    }

    pub async fn rows(&self, version: u64) -> Rows {
        let mut everything = Rows::new();
        for (name, table) in &self.layout(version).tables {
            let columns: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
            let (columns, key) = (columns.join(", "), table.primary_key.join(", "));
            let statement = format!("SELECT {columns} FROM {name} ORDER BY {key}");
            let rows = self.fetch(&statement).await;
            let value =
                |row: &Row, at: usize, column: &Column| match row.value(at, column.kind.into()).expect("a value") {
                    Value::Null => "NULL".to_owned(),
                    Value::Boolean(value) => i32::from(value).to_string(),
                    Value::Integer(number) => number.to_string(),
                    Value::Text(b"") => String::new(),
                    Value::Text(text) => {
                        let plain = self.context.keyring.open(column.sealing, text).expect("records open");
                        String::from_utf8_lossy(&plain).into_owned()
                    }
                };
            let read = |row: &Row| {
                let columns = table.columns.iter().enumerate();
                columns.map(|(at, column)| (column.name.clone(), value(row, at, column))).collect()
            };
            everything.insert(name.clone(), rows.iter().map(read).collect());
        }
        everything
    }
}
