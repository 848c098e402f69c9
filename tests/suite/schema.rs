//! Schemas on each database: a layout is created, read back from the catalog tables, and compared.

use bbs::testing::database::schema::{self, ColumnChange, ColumnOptions, PhysicalTable};
use bbs::testing::database::{Database, Dialect, is_missing_table, sql};
use bbs_lens::layout::schema::{Column, ColumnType, Index, Literal, Sealing, Table};

use crate::harness::database::{
    Kind, TestDatabase, execute, on_each_database, on_each_server, texts,
};
use crate::harness::on_each::on_each_mysql;

fn column(name: &str, kind: ColumnType, nullable: bool, default: Option<Literal>) -> Column {
    Column {
        name: name.into(),
        kind,
        nullable,
        default,
        sealing: Sealing::Plain,
    }
}

/// A table with every column type, nullable or not, with and without a default.
fn sample() -> Table {
    Table {
        name: "sample".into(),
        columns: vec![
            column("guid", ColumnType::Varchar(255), false, None),
            column(
                "place",
                ColumnType::Integer,
                false,
                Some(Literal::Integer(-3)),
            ),
            column(
                "flag",
                ColumnType::Boolean,
                true,
                Some(Literal::Boolean(true)),
            ),
            column(
                "off",
                ColumnType::Boolean,
                false,
                Some(Literal::Boolean(false)),
            ),
            column(
                "note",
                ColumnType::LongText,
                false,
                Some(Literal::Text(r"it's a \'größe ✓\'".into())),
            ),
            column(
                "short",
                ColumnType::Varchar(1024),
                false,
                Some(Literal::Text(String::new())),
            ),
            column("medium", ColumnType::MediumText, true, None),
            column(
                "plain",
                ColumnType::Text,
                true,
                Some(Literal::Text("x".into())),
            ),
            column(
                "time",
                ColumnType::BigInteger,
                true,
                Some(Literal::Integer(i64::MAX)),
            ),
            column("order", ColumnType::BigInteger, true, None),
        ],
        primary_key: vec!["place".into(), "guid".into()],
        indexes: vec![
            Index {
                name: "sample_time_idx".into(),
                columns: vec!["time".into(), "order".into()],
            },
            Index {
                name: "sample_flag_idx".into(),
                columns: vec!["flag".into()],
            },
        ],
        partition_key: None,
    }
}

async fn run(database: &Database, statements: impl IntoIterator<Item = String>) {
    for statement in statements {
        execute(database, &statement).await;
    }
}

fn creation(dialect: Dialect, table: &Table) -> Vec<String> {
    let indexes = table
        .indexes
        .iter()
        .map(|index| schema::create_index(dialect, &table.name, index));
    [schema::create_table(dialect, table, &table.name)]
        .into_iter()
        .chain(indexes)
        .collect()
}

async fn found(database: &Database, name: &str) -> Option<PhysicalTable> {
    schema::read_back(&mut database.read().await.unwrap(), name)
        .await
        .unwrap()
}

async fn differences(database: &Database, name: &str, table: &Table) -> Vec<String> {
    let found = found(database, name).await.expect("the table is there");
    schema::differences(&found, &schema::expected(database.dialect(), table))
}

const NONE: Vec<String> = Vec::new();

on_each_database!(created_table_reads_back_without_a_difference);
async fn created_table_reads_back_without_a_difference(kind: Kind) {
    assert_sample_reads_back(&TestDatabase::new(kind)).await;
}

on_each_mysql!(sql_mode_of_the_server_does_not_change_the_defaults_of_columns);
async fn sql_mode_of_the_server_does_not_change_the_defaults_of_columns(kind: Kind) {
    let engine = kind.own_engine_with(&[kind.with_other_sql_modes()]);
    assert_sample_reads_back(&TestDatabase::on(kind, engine.address())).await;
}

async fn assert_sample_reads_back(test: &TestDatabase) {
    let database = test.open().await;
    assert_eq!(found(&database, "sample").await, None);
    run(&database, creation(database.dialect(), &sample())).await;
    assert_eq!(differences(&database, "sample", &sample()).await, NONE);
    let read = found(&database, "sample").await.unwrap();
    assert_eq!(
        read,
        schema::expected(database.dialect(), &sample()),
        "the schema read back is the expected one"
    );
    execute(
        &database,
        "INSERT INTO sample (guid, place) VALUES ('g', 1)",
    )
    .await;
    let mut tx = database.read().await.unwrap();
    let row = tx
        .fetch_one(sql("SELECT note, flag, off, short FROM sample"))
        .await
        .unwrap();
    assert_eq!(
        row.text(0).unwrap(),
        Some(r"it's a \'größe ✓\'"),
        "the default is that of the layout"
    );
    assert_eq!(
        (row.flag(1).unwrap(), row.flag(2).unwrap()),
        (Some(true), Some(false))
    );
    assert_eq!(row.text(3).unwrap(), Some(""));
}

on_each_database!(added_column_reads_back_like_a_created_one);
async fn added_column_reads_back_like_a_created_one(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let mut before = sample();
    let mut added = sample().columns.split_off(4);
    before.columns.truncate(4);
    before.indexes.truncate(0);
    run(&database, creation(database.dialect(), &before)).await;
    run(
        &database,
        added
            .iter()
            .map(|column| schema::add_column(database.dialect(), "sample", column)),
    )
    .await;
    before.columns.append(&mut added);
    assert_eq!(differences(&database, "sample", &before).await, NONE);
}

on_each_database!(replacement_table_takes_over_table_index_and_key_names);
async fn replacement_table_takes_over_table_index_and_key_names(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let dialect = database.dialect();
    let table = sample();
    run(&database, creation(dialect, &table)).await;
    run(
        &database,
        [schema::create_table(dialect, &table, "sample__2")],
    )
    .await;
    run(
        &database,
        schema::index_ahead(dialect, &table, "sample__2", &table.indexes),
    )
    .await;
    if dialect == Dialect::Mysql {
        let pairs = [("sample", "sample__1"), ("sample__2", "sample")]
            .map(|(from, to)| (from.into(), to.into()));
        run(&database, [schema::rename_tables(&pairs)]).await;
    } else {
        let mut renames = schema::set_aside(dialect, &table, "sample__1");
        renames.extend(schema::take_place(dialect, &table, "sample__2"));
        execute(&database, &renames.join(";\n")).await;
    }
    assert_eq!(differences(&database, "sample", &table).await, NONE);
    assert_eq!(found(&database, "sample__2").await, None);
    assert!(found(&database, "sample__1").await.is_some());
    if kind == Kind::Postgres {
        let keys = "SELECT conrelid::regclass::text || ' ' || conname FROM pg_constraint \
                    WHERE contype = 'p' AND conname LIKE 'sample%' ORDER BY 1";
        let keys = texts(&database, keys).await;
        assert_eq!(keys, ["sample sample_pkey", "sample__1 sample__1_pkey"]);
    }
}

/// The page at which an index of SQLite begins.
async fn root(database: &Database, index: &str) -> Vec<String> {
    let query = format!("SELECT rootpage || '' FROM sqlite_schema WHERE name = '{index}'");
    texts(database, &query).await
}

/// Replaces the sample's table as a cut-over does, with these indexes made ahead.
async fn replace_sample(database: &Database, ahead: &[Index]) {
    let dialect = database.dialect();
    let table = sample();
    let mut statements = vec![schema::create_table(dialect, &table, "sample__2")];
    statements.extend(schema::index_ahead(dialect, &table, "sample__2", ahead));
    run(database, statements).await;
    let mut renames = schema::set_aside(dialect, &table, "sample__1");
    renames.extend(schema::take_place(dialect, &table, "sample__2"));
    execute(database, &renames.join(";\n")).await;
    assert_eq!(differences(database, "sample", &table).await, NONE);
    assert_eq!(texts(database, "PRAGMA integrity_check").await, ["ok"]);
}

#[tokio::test]
async fn sqlite_keeps_the_content_of_indexes_that_it_renames() {
    let test = TestDatabase::new(Kind::Sqlite);
    let database = test.open().await;
    run(&database, creation(Dialect::Sqlite, &sample())).await;
    let original = root(&database, "sample_flag_idx").await;
    assert_eq!(original.len(), 1);
    replace_sample(&database, &sample().indexes).await;
    assert_eq!(root(&database, "sample_flag_idx__1").await, original);
    // Pages in use are not given to other indexes.
    assert_eq!(root(&database, "sample_flag_idx").await.len(), 1);
    execute(
        &database,
        "INSERT INTO sample (guid, place, flag) VALUES ('g', 1, 0)",
    )
    .await;
    let guids = "SELECT guid FROM sample INDEXED BY sample_flag_idx WHERE flag = 0";
    assert_eq!(texts(&database, guids).await, ["g"]);
    execute(&database, "DROP TABLE sample__1").await;
    assert_eq!(texts(&database, "PRAGMA integrity_check").await, ["ok"]);
}

/// Goal: an index that an operator declared under the name of one of the layout's has its text and
/// content together; the copy has the layout's indexes, also those that were not made ahead.
#[tokio::test]
async fn sqlite_drops_other_indexes_and_creates_missing_ones() {
    let test = TestDatabase::new(Kind::Sqlite);
    let database = test.open().await;
    let table = schema::create_table(Dialect::Sqlite, &sample(), "sample");
    let other = "CREATE INDEX sample_flag_idx ON sample (guid, place)";
    run(&database, [table, other.to_owned()]).await;
    replace_sample(&database, &sample().indexes[..1]).await;
    assert_eq!(
        root(&database, "sample_flag_idx__1").await,
        Vec::<String>::new()
    );
}

on_each_server!(widening_alters_the_column_in_place);
async fn widening_alters_the_column_in_place(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let dialect = database.dialect();
    let mut table = sample();
    run(&database, creation(dialect, &table)).await;
    let wide = column(
        "short",
        ColumnType::Varchar(4096),
        false,
        Some(Literal::Text("new".into())),
    );
    assert_eq!(
        schema::column_change(dialect, table.find_column("short").unwrap(), &wide),
        ColumnChange::Widening
    );
    // Twice: a host that was killed after it repeats it.
    for _ in 0..2 {
        let options = ColumnOptions::default();
        let widened = schema::alter_column(dialect, "sample", &wide, &options);
        run(&database, [widened]).await;
    }
    *table
        .columns
        .iter_mut()
        .find(|column| column.name == "short")
        .unwrap() = wide;
    assert_eq!(differences(&database, "sample", &table).await, NONE);
}

on_each_server!(widened_column_keeps_the_options_of_its_owner);
async fn widened_column_keeps_the_options_of_its_owner(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let dialect = database.dialect();
    run(&database, creation(dialect, &sample())).await;
    let given: &[&str] = match kind {
        Kind::Sqlite => unreachable!("it has no such options"),
        Kind::Postgres => &[
            "ALTER TABLE sample ALTER short TYPE VARCHAR(1024) COLLATE \"C\"",
            "ALTER TABLE sample ALTER short SET STORAGE EXTERNAL",
            "ALTER TABLE sample ALTER short SET COMPRESSION pglz",
            "COMMENT ON COLUMN sample.short IS 'why? it''s \\ here'",
        ],
        Kind::Mariadb | Kind::Mysql => &[
            "ALTER TABLE sample MODIFY short VARCHAR(1024) COLLATE latin1_bin NOT NULL \
               DEFAULT '' INVISIBLE COMMENT 'why? it''s \\\\ here'",
        ],
    };
    let query = if kind == Kind::Postgres {
        "SELECT concat_ws(' ', collname, attstorage, attcompression, description) \
         FROM pg_attribute JOIN pg_collation l ON l.oid = attcollation \
         JOIN pg_description ON objoid = attrelid AND objsubid = attnum \
         WHERE attrelid = 'sample'::regclass AND attname = 'short'"
    } else {
        "SELECT CONCAT_WS(' ', collation_name, extra, column_comment) \
         FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = 'sample' AND column_name = 'short'"
    };
    for statement in given {
        execute(&database, statement).await;
    }
    let before = texts(&database, query).await;
    assert!(before[0].ends_with(r"why? it's \ here"), "{before:?}");
    let default = Some(Literal::Text("new".into()));
    let wide = column("short", ColumnType::Varchar(4096), false, default);
    for _ in 0..2 {
        let table = found(&database, "sample").await.unwrap();
        let options = table.options_of("short");
        let widened = schema::alter_column(dialect, "sample", &wide, &options);
        run(&database, [widened]).await;
        assert_eq!(texts(&database, query).await, before);
    }
}

on_each_server!(schema_difference_is_described_in_sql_terms);
async fn schema_difference_is_described_in_sql_terms(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let statements = creation(database.dialect(), &sample());
    for (original, other, expected) in [
        (
            "VARCHAR(255) NOT NULL",
            "VARCHAR(191) NOT NULL",
            "column guid is VARCHAR(191) NOT NULL, not VARCHAR(255)",
        ),
        (
            "NOT NULL DEFAULT -3",
            "NOT NULL DEFAULT -4",
            "NOT NULL DEFAULT -4, not",
        ),
        (
            "VARCHAR(1024) NOT NULL",
            "VARCHAR(1024)",
            "column short is VARCHAR(1024) NULL DEFAULT '', not",
        ),
        ("BIGINT,", "TIMESTAMP NULL,", "column order is TIMESTAMP"),
    ] {
        execute(&database, "DROP TABLE IF EXISTS sample").await;
        let mut changed = statements.clone();
        changed[0] = match changed[0].rsplit_once(original) {
            // Replaces the last column of this type, but for the key column, which is the first.
            Some(_) if original.starts_with("VARCHAR(255)") => {
                changed[0].replacen(original, other, 1)
            }
            Some((before, after)) => format!("{before}{other}{after}"),
            None => panic!("{original} is not in {}", changed[0]),
        };
        run(&database, changed).await;
        let differences = differences(&database, "sample", &sample()).await.join("; ");
        assert!(differences.contains(expected), "{differences}");
    }
    execute(&database, "DROP TABLE sample").await;
    run(&database, statements.clone()).await;
    execute(
        &database,
        "CREATE UNIQUE INDEX sample_more_idx ON sample (time)",
    )
    .await;
    assert_eq!(
        differences(&database, "sample", &sample()).await,
        NONE,
        "the layout does not have it"
    );
}

on_each_server!(table_of_another_database_or_schema_is_not_seen);
async fn table_of_another_database_or_schema_is_not_seen(kind: Kind) {
    let test = TestDatabase::new(kind);
    let other = TestDatabase::new(kind);
    let database = test.open().await;
    let elsewhere = other.open().await;
    run(&elsewhere, creation(elsewhere.dialect(), &sample())).await;
    if kind == Kind::Postgres {
        execute(
            &database,
            "CREATE SCHEMA foreign_one; CREATE TABLE foreign_one.sample (a TEXT)",
        )
        .await;
    }
    assert_eq!(found(&database, "sample").await, None);
    assert!(
        !schema::exists(&mut database.read().await.unwrap(), "sample")
            .await
            .unwrap()
    );
    execute(&database, "CREATE VIEW sample AS SELECT 1 AS a").await;
    assert!(
        !schema::exists(&mut database.read().await.unwrap(), "sample")
            .await
            .unwrap(),
        "a view is not a table"
    );
}

on_each_database!(only_mysql_rewrites_a_table_to_add_a_column);
async fn only_mysql_rewrites_a_table_to_add_a_column(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let default = Some(Literal::Text(String::new()));
    let added = |kind, default| [column("added", kind, true, default)];
    let rewrites = |columns: &[Column]| schema::rewrites_to_add(database.server_kind(), columns);
    assert_eq!(
        rewrites(&added(ColumnType::LongText, default.clone())),
        kind == Kind::Mysql
    );
    for columns in [
        added(ColumnType::Varchar(9), default),
        added(ColumnType::LongText, None),
    ] {
        assert!(!rewrites(&columns), "{columns:?}");
    }
}

on_each_server!(auto_increment_id_matches_the_health_check_layout);
/// Diego creates its table with an auto-increment id, this host does not; Diego always writes the
/// id explicitly.
async fn auto_increment_id_matches_the_health_check_layout(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let id = if kind == Kind::Postgres {
        "SERIAL"
    } else {
        "INT AUTO_INCREMENT"
    };
    execute(
        &database,
        &format!("CREATE TABLE bbs_health_check (id {id} PRIMARY KEY, time BIGINT NOT NULL)"),
    )
    .await;
    let table = Table {
        name: "bbs_health_check".into(),
        columns: vec![
            column("id", ColumnType::Integer, false, None),
            column("time", ColumnType::BigInteger, false, None),
        ],
        primary_key: vec!["id".into()],
        indexes: Vec::new(),
        partition_key: None,
    };
    assert_eq!(
        differences(&database, "bbs_health_check", &table).await,
        NONE
    );
}

on_each_database!(only_the_error_of_a_missing_table_is_taken_for_it);
/// Method: a client's error has the message of SQLite about a missing table.
async fn only_the_error_of_a_missing_table_is_taken_for_it(kind: Kind) {
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let raises = match kind {
        Kind::Sqlite => {
            execute(&database, "CREATE TABLE raising (id INT)").await;
            let trigger = "CREATE TRIGGER raises BEFORE INSERT ON raising \
                           BEGIN SELECT RAISE(ABORT, 'no such table: raised'); END";
            execute(&database, trigger).await;
            "INSERT INTO raising VALUES (1)"
        }
        Kind::Postgres => "DO $$ BEGIN RAISE EXCEPTION 'no such table: raised'; END $$",
        Kind::Mariadb | Kind::Mysql => {
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no such table: raised'"
        }
    };
    for (statement, is_missing) in [("DELETE FROM missing", true), (raises, false)] {
        let mut tx = database.write().await.unwrap();
        let error = tx.execute(sql(statement)).await.unwrap_err();
        assert_eq!(is_missing_table(&error), is_missing, "{error}");
    }
    database.close().await;
}
