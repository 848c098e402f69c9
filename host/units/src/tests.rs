//! Loading, writing, residue and passing a lens, on SQLite. `tests/suite` has what differs on the
//! servers.

mod loading;
mod passing;
mod record_versions;
mod residue_table;
mod storable;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

use bbs_database::{Address, Database, Dialect, Transaction, bulk, schema, sql};
use bbs_encryption::Keyring;
use bbs_lens::layout::columns::{Batch, Outcome, TableData, Written};
use bbs_lens::layout::history::{LayoutHistory, Way};
use bbs_lens::layout::manifest::Direction;
use bbs_lens::layout::schema::{Column, Sealing, Table};
use bbs_lens::layout::values::{ColumnBuilder, Value};
use bbs_lens::transform::{RunArguments, Transform, TransformError};
use bbs_lens::{Arguments, Lens};
use tempfile::TempDir;

use super::*;

/// `apps` and their `instances` have units by the app's name; `pairs` has a unit for each row.
fn layout() -> Layout {
    let app = || Column::varchar("app", 9);
    let number = || Column::integer("number");
    let note = || Column::long_text("note").nullable();
    let apps = Table::new("apps")
        .column(app())
        .column(note())
        .column(number().nullable())
        .column(Column::long_text("secret").sealed().nullable())
        .column(Column::big_integer(RECORD_VERSION).nullable())
        .primary_key(["app"])
        .partition_key("app");
    let instances = Table::new("instances")
        .column(number())
        .column(app())
        .column(note())
        .primary_key(["number", "app"])
        .index("instances_app", ["app"])
        .partition_key("app");
    let pairs = Table::new("pairs")
        .column(app())
        .column(number())
        .column(note())
        .primary_key(["app", "number"]);
    let tables = [apps, instances, pairs].map(|table| (table.name.clone(), table));
    Layout {
        tables: tables.into(),
    }
}

fn place() -> Place {
    Place::new(layout())
}

fn keyring() -> Keyring {
    Keyring::new([("key", "passphrase")], "key").unwrap()
}

fn unit(name: &str) -> UnitKey {
    UnitKey::text(name)
}

fn units<const N: usize>(names: [&str; N]) -> Vec<UnitKey> {
    names.map(unit).into()
}

fn wanted(columns: &[(&str, &[&str])]) -> WantedColumns {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    columns
        .iter()
        .map(|(table, columns)| ((*table).to_owned(), names(columns)))
        .collect()
}

/// A database with the tables of the layout and these rows of `apps` (name, note), `instances` and
/// `pairs` (app, number).
async fn database(
    apps: &[(&str, &str)],
    instances: &[(&str, i64)],
    pairs: &[(&str, i64)],
) -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
        .await
        .unwrap();
    let mut tx = database.write().await.unwrap();
    for table in layout().tables.values().chain([&residue::table()]) {
        tx.execute(sql(schema::create_table(
            Dialect::Sqlite,
            table,
            &table.name,
        )))
        .await
        .unwrap();
    }
    for (app, note) in apps {
        tx.execute(
            sql("INSERT INTO apps (app, note) VALUES (?, ?)")
                .bind(*app)
                .bind(*note),
        )
        .await
        .unwrap();
    }
    for (name, rows) in [("instances", instances), ("pairs", pairs)] {
        for (app, number) in rows {
            let insert = sql(format!(
                "INSERT INTO {name} (app, number, note) VALUES (?, ?, 'n')"
            ));
            tx.execute(insert.bind(*app).bind(*number)).await.unwrap();
        }
    }
    tx.commit().await.unwrap();
    (folder, database)
}

/// The first column of a query's rows, as text.
async fn lines(tx: &mut Transaction, query: &'static str) -> Vec<String> {
    let rows = tx.fetch(sql(query)).await.unwrap();
    rows.iter()
        .map(|row| row.text(0).unwrap().unwrap_or("NULL").to_owned())
        .collect()
}

/// A column's values, with NULL as "NULL".
fn values(rows: &TableRows, table: &str, column: &str) -> Vec<String> {
    let value = |row| match rows
        .value(&layout().tables[table], column, row)
        .expect("a loaded column")
    {
        Value::Null => "NULL".to_owned(),
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
    };
    (0..rows.count()).map(value).collect()
}

/// The note, number and secret of an app.
type App<'a> = (&'a str, i64, &'a str);

/// A batch of whole `apps` as a lens returns them, without or with a row for each unit.
fn apps(rows: &[(&str, Option<App<'_>>)]) -> UnitBatch {
    let table = &layout().tables["apps"];
    let mut unit_offsets = vec![0];
    let mut columns: BTreeMap<_, _> = table
        .columns
        .iter()
        .map(|column| (column.name.clone(), ColumnBuilder::new(column.kind.into())))
        .collect();
    for (app, row) in rows {
        if let Some((note, number, secret)) = row {
            let mut push =
                |name: &str, value: Value<'_>| columns.get_mut(name).unwrap().push(value);
            push("app", Value::Text(app.as_bytes()));
            push("note", Value::Text(note.as_bytes()));
            push("number", Value::Integer(*number));
            push("secret", Value::Text(secret.as_bytes()));
            push(RECORD_VERSION, Value::Null);
        }
        unit_offsets.push(unit_offsets.last().unwrap() + u32::from(row.is_some()));
    }
    let plain = |(name, builder): (String, ColumnBuilder)| {
        (name, BatchColumn::new(builder.finish(), Sealing::Plain))
    };
    let rows_of = TableRows {
        unit_offsets,
        columns: columns.into_iter().map(plain).collect(),
    };
    let units = rows.iter().map(|(app, _)| unit(app)).collect();
    UnitBatch {
        units,
        tables: BTreeMap::from([("apps".to_owned(), rows_of)]),
    }
}

/// A migration whose row function returns rows of one table.
struct TestMigration<F> {
    manifest: Manifest,
    function: F,
}

impl<F: Fn(&TableData) -> Written + Send + Sync> Transform for TestMigration<F> {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        "d1935"
    }

    fn apply(
        &self,
        _: Direction,
        _: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        let [table] = batch.tables.as_slice() else {
            panic!("one table")
        };
        Ok(Outcome {
            tables: vec![(self.function)(table)],
            ..Outcome::default()
        })
    }
}

fn migration(
    manifest: Manifest,
    function: impl Fn(&TableData) -> Written + Send + Sync + 'static,
) -> Arc<dyn Transform> {
    Arc::new(TestMigration { manifest, function })
}

/// A migration without accesses.
fn layout_migration(manifest: Manifest) -> Arc<dyn Transform> {
    migration(manifest, |_| unreachable!("it has no row function"))
}

fn manifest(version: DataVersion) -> Manifest {
    Manifest::new(version, &format!("step-{version}"))
}

/// The lens between two versions of a history that creates the tables at version 1 and continues
/// with `migrations`.
fn lens_of(
    migrations: impl IntoIterator<Item = Arc<dyn Transform>>,
    source: DataVersion,
    target: DataVersion,
) -> Lens {
    let tables = layout().tables.into_values();
    let first = layout_migration(tables.fold(manifest(1), Manifest::create_table));
    let steps: Vec<_> = [first].into_iter().chain(migrations).collect();
    let layouts =
        LayoutHistory::new(steps.iter().map(|step| step.manifest())).expect("a valid history");
    Lens::restoring(Way::within(&layouts, source, target), &steps).expect("it composes")
}

fn pass<T>(lens: &Lens, writes_to: Option<Dialect>, pass: impl FnOnce(&Passage<'_>) -> T) -> T {
    let run = RunArguments {
        started_at_ns: 1,
        namespace: uuid::Uuid::nil(),
    };
    let arguments: Arguments = (1..9).map(|version| (version, run.clone())).collect();
    let groups: Vec<_> = (0..lens.groups.len()).collect();
    pass(&Passage {
        lens,
        groups: &groups,
        arguments: &arguments,
        keyring: &keyring(),
        writes_to,
    })
}
