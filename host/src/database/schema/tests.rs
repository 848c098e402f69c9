//! What SQLite makes of a layout, and what it says of it afterwards.

use super::*;
use crate::database::{Address, Database};
use crate::layout::schema::Sealing;

fn column(name: &str, kind: ColumnType, nullable: bool, default: Option<Literal>) -> Column {
    Column { name: name.into(), kind, nullable, default, sealing: Sealing::Plain }
}

fn sample() -> Table {
    Table {
        name: "sample".into(),
        columns: vec![
            column("guid", ColumnType::Varchar(255), false, None),
            column("place", ColumnType::Integer, false, Some(Literal::Integer(-3))),
            column("flag", ColumnType::Boolean, true, Some(Literal::Boolean(true))),
            column("note", ColumnType::LongText, false, Some(Literal::Text("it's".into()))),
            column("time", ColumnType::BigInteger, true, None),
        ],
        primary_key: vec!["place".into(), "guid".into()],
        indexes: vec![Index { name: "sample_idx".into(), columns: vec!["time".into(), "note".into()] }],
        partition_key: None,
    }
}

async fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db"))).await.unwrap();
    (folder, database)
}

async fn made(statements: &[String]) -> PhysicalTable {
    let (_folder, database) = database().await;
    let mut tx = database.write().await.unwrap();
    for statement in statements {
        tx.execute(sql(statement.clone())).await.unwrap();
    }
    read_back(&mut tx, "sample").await.unwrap().expect("the table is there")
}

#[tokio::test]
async fn what_is_created_reads_back_as_expected() {
    let table = sample();
    let found = made(&[
        create_table(Dialect::Sqlite, &table, "sample"),
        create_index(Dialect::Sqlite, "sample", &table.indexes[0]),
    ])
    .await;
    assert_eq!(found, expected(Dialect::Sqlite, &table));
    assert_eq!(differences(&found, &expected(Dialect::Sqlite, &table)), Vec::<String>::new());
}

#[tokio::test]
async fn a_table_that_is_not_there_reads_back_as_nothing() {
    let (_folder, database) = database().await;
    let mut reader = database.read().await.unwrap();
    assert_eq!(read_back(&mut reader, "sample").await.unwrap(), None);
}

#[tokio::test]
async fn diegos_own_words_for_the_same_table_make_no_difference() {
    let words = "CREATE TABLE sample (guid VARCHAR(255), place INT NOT NULL DEFAULT -3, flag BOOL DEFAULT true, \
                 note MEDIUMTEXT NOT NULL DEFAULT 'it''s', time INTEGER, PRIMARY KEY (place, guid))";
    let index = create_index(Dialect::Sqlite, "sample", &sample().indexes[0]);
    let found = made(&[words.to_owned(), index]).await;
    assert_eq!(differences(&found, &expected(Dialect::Sqlite, &sample())), Vec::<String>::new());
}

#[tokio::test]
async fn every_difference_is_named() {
    let found = made(&[
        create_table(Dialect::Sqlite, &sample(), "sample"),
        create_index(Dialect::Sqlite, "sample", &sample().indexes[0]),
    ])
    .await;
    let said = |change: fn(&mut Table)| {
        let mut table = sample();
        change(&mut table);
        differences(&found, &expected(Dialect::Sqlite, &table)).join("; ")
    };
    assert!(said(|table| table.columns[1].default = None).contains("place"));
    assert!(said(|table| table.columns[1].nullable = true).contains("place"));
    assert!(said(|table| table.columns[4].kind = ColumnType::Text).contains("time"));
    assert!(said(|table| table.columns[4].name = "other".into()).contains("column other is missing"));
    assert!(said(|table| drop(table.columns.remove(4))).contains("column time is not in the layout"));
    assert!(said(|table| table.primary_key.reverse()).contains("the primary key is (place, guid), not (guid, place)"));
    assert!(said(|table| table.indexes[0].columns.reverse()).contains("sample_idx"));
    assert!(said(|table| table.indexes.clear()).contains("index sample_idx is not in the layout"));
}

#[test]
fn a_widening_is_nothing_and_other_changes_are_something() {
    let narrow = column("x", ColumnType::Varchar(255), false, None);
    assert!(same_column(Dialect::Sqlite, &narrow, &column("x", ColumnType::LongText, false, None)));
    assert!(!same_column(Dialect::Sqlite, &narrow, &column("x", ColumnType::Integer, false, None)));
    assert!(!same_column(Dialect::Sqlite, &narrow, &column("x", ColumnType::Varchar(255), true, None)));
    assert!(!same_column(
        Dialect::Sqlite,
        &narrow,
        &column("x", ColumnType::Varchar(255), false, Some(Literal::Text("".into())))
    ));
    let integer = column("x", ColumnType::Integer, true, None);
    assert!(same_column(Dialect::Sqlite, &integer, &column("x", ColumnType::BigInteger, true, None)));
}
