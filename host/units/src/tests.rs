//! Loading, writing, residue and passing a lens, on SQLite. `tests/suite` has what differs on the
//! servers.

mod loading;
mod passing;
mod record_versions;
mod residue_table;
mod storable;
mod writing;

use std::collections::BTreeMap;

use bbs_database::{Address, Database, Dialect, Transaction, bulk, schema, sql};
use bbs_encryption::Keyring;
use bbs_lens::layout::schema::{Column, ColumnType, Index, Sealing, Table};
use bbs_lens::layout::values::{ColumnBuilder, Value};
use tempfile::TempDir;

use super::*;

fn column(name: &str, kind: ColumnType) -> Column {
    Column {
        name: name.into(),
        kind,
        nullable: true,
        default: None,
        sealing: Sealing::Plain,
    }
}

fn table(name: &str, key: &[Column], columns: &[Column], partition_key: Option<&str>) -> Table {
    let not_null = |column: &Column| Column {
        nullable: false,
        ..column.clone()
    };
    Table {
        name: name.into(),
        columns: key
            .iter()
            .map(not_null)
            .chain(columns.iter().cloned())
            .collect(),
        primary_key: key.iter().map(|column| column.name.clone()).collect(),
        indexes: Vec::new(),
        partition_key: partition_key.map(str::to_owned),
    }
}

/// `apps` and their `instances` have units by the app's name; `pairs` has a unit for each row.
fn layout() -> Layout {
    let (app, number) = (
        column("app", ColumnType::Varchar(9)),
        column("number", ColumnType::Integer),
    );
    let note = column("note", ColumnType::LongText);
    let secret = Column {
        sealing: Sealing::Sealed,
        ..column("secret", ColumnType::LongText)
    };
    let version = column(RECORD_VERSION, ColumnType::BigInteger);
    let apps = [note.clone(), number.clone(), secret, version];
    let by_app = Index {
        name: "instances_app".into(),
        columns: vec!["app".into()],
    };
    let instances = table(
        "instances",
        &[number.clone(), app.clone()],
        std::slice::from_ref(&note),
        Some("app"),
    );
    let tables = [
        table("apps", std::slice::from_ref(&app), &apps, Some("app")),
        Table {
            indexes: vec![by_app],
            ..instances
        },
        table("pairs", &[app, number], &[note], None),
    ];
    Layout {
        tables: tables
            .into_iter()
            .map(|table| (table.name.clone(), table))
            .collect(),
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
