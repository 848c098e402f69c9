//! DDL rendered for each database, and definitions read back from SQLite. `tests/suite/schema.rs`
//! covers the servers.

use super::*;
use crate::{Address, Database};

const SERVERS: [Dialect; 2] = [Dialect::Postgres, Dialect::Mysql];

fn sample() -> Table {
    Table::new("sample")
        .column(Column::varchar("guid", 255))
        .column(Column::integer("place").default(-3))
        .column(Column::boolean("flag").nullable().default(true))
        .column(Column::long_text("note").default("it's"))
        .column(Column::big_integer("time").nullable())
        .primary_key(["place", "guid"])
        .index("sample_idx", ["time", "note"])
}

async fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
        .await
        .unwrap();
    (folder, database)
}

async fn made(statements: &[String]) -> PhysicalTable {
    let (_folder, database) = database().await;
    let mut tx = database.write().await.unwrap();
    for statement in statements {
        tx.execute(sql(statement.clone())).await.unwrap();
    }
    read_back(&mut tx, "sample")
        .await
        .unwrap()
        .expect("the table is there")
}

fn lite(table: &Table) -> PhysicalTable {
    expected(Dialect::Sqlite, table)
}

fn created() -> [String; 2] {
    let table = sample();
    [
        create_table(Dialect::Sqlite, &table, "sample"),
        create_index(Dialect::Sqlite, "sample", &table.indexes[0]),
    ]
}

#[test]
fn index_holds_all_rows_unless_their_texts_may_be_too_long_for_postgres() {
    let of = |kinds: &[ColumnType]| {
        let names = ["a", "b", "c"].into_iter().zip(kinds);
        let columns: Vec<_> = names.map(|(name, kind)| Column::new(name, *kind)).collect();
        let index = Index {
            name: "i".into(),
            columns: columns.iter().map(|column| column.name.clone()).collect(),
        };
        let table = Table {
            columns,
            ..sample()
        };
        assert!(
            SERVERS[1..]
                .iter()
                .all(|dialect| holds_all_rows(*dialect, &table, &index))
        );
        holds_all_rows(Dialect::Postgres, &table, &index)
    };
    let name = ColumnType::Varchar(255);
    assert!(
        of(&[name]) && of(&[ColumnType::BigInteger, name, name]) && of(&[ColumnType::Varchar(600)])
    );
    assert!(
        !of(&[name, name, name])
            && !of(&[ColumnType::Varchar(1024)])
            && !of(&[ColumnType::LongText])
    );
}

#[tokio::test]
async fn created_table_reads_back_as_expected() {
    let found = made(&created()).await;
    assert_eq!(found, lite(&sample()));
    assert_eq!(differences(&found, &lite(&sample())), Vec::<String>::new());
}

#[tokio::test]
async fn missing_table_reads_back_as_none() {
    let (_folder, database) = database().await;
    let mut tx = database.read().await.unwrap();
    assert_eq!(read_back(&mut tx, "sample").await.unwrap(), None);
    assert!(!exists(&mut tx, "sample").await.unwrap());
}

#[tokio::test]
async fn ensure_table_is_idempotent() {
    let (_folder, database) = database().await;
    let mut tx = database.write().await.unwrap();
    for _ in 0..2 {
        tx.execute(sql(ensure_table(Dialect::Sqlite, &sample())))
            .await
            .unwrap();
    }
    assert!(exists(&mut tx, "sample").await.unwrap());
    let found = existing(&mut tx, &["absent", "Sample", "other"]).await;
    assert_eq!(found.unwrap(), BTreeSet::from(["Sample"]));
}

#[tokio::test]
async fn diegos_declaration_of_the_same_table_has_no_differences() {
    let declaration = "CREATE TABLE sample (guid VARCHAR(255), place INT NOT NULL DEFAULT -3, flag BOOL DEFAULT true, \
                 note MEDIUMTEXT NOT NULL DEFAULT 'it''s', time INTEGER DEFAULT NULL, PRIMARY KEY (place, guid))";
    let found = made(&[declaration.to_owned(), created()[1].clone()]).await;
    assert_eq!(differences(&found, &lite(&sample())), Vec::<String>::new());
}

#[tokio::test]
async fn every_difference_is_named() {
    let found = made(&created()).await;
    let said = |change: fn(&mut Table)| {
        let mut table = sample();
        change(&mut table);
        differences(&found, &lite(&table)).join("; ")
    };
    assert!(said(|table| table.columns[1].default = None).contains("place"));
    assert!(said(|table| table.columns[1].default = Some(Literal::Integer(4))).contains("place"));
    assert!(said(|table| table.columns[3].nullable = true).contains("note"));
    assert!(said(|table| table.columns[4].kind = ColumnType::Text).contains("time"));
    assert!(said(|table| table.columns[4].default = Some(Literal::Integer(0))).contains("time"));
    assert!(
        said(|table| table.columns[4].name = "other".into()).contains("column other is missing")
    );
    assert!(
        said(|table| table.primary_key.reverse())
            .contains("the primary key is (place, guid), not (guid, place)")
    );
    assert!(said(|table| table.indexes[0].columns.reverse()).contains("sample_idx"));
}

#[tokio::test]
async fn what_the_layout_does_not_have_is_no_difference() {
    let mut table = sample();
    table.columns.remove(4);
    table.indexes.clear();
    assert_eq!(
        differences(&made(&created()).await, &lite(&table)),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn unique_index_differs_from_a_plain_one() {
    let unique = created()[1].replace("CREATE INDEX", "CREATE UNIQUE INDEX");
    let found = made(&[created()[0].clone(), unique]).await;
    assert!(
        differences(&found, &lite(&sample()))
            .join("; ")
            .contains("sample_idx")
    );
}

#[tokio::test]
async fn missing_default_of_a_required_column_is_no_difference() {
    let found = made(&[created()[0].replace("DEFAULT -3", ""), created()[1].clone()]).await;
    assert_eq!(differences(&found, &lite(&sample())), Vec::<String>::new());
}

#[test]
fn create_table_uses_the_syntax_of_each_server() {
    assert_eq!(
        create_table(Dialect::Postgres, &sample(), "sample__7"),
        r#"CREATE TABLE "sample__7" ( "guid" VARCHAR(255) NOT NULL, "place" INTEGER NOT NULL DEFAULT -3, "#.to_owned()
            + r#""flag" BOOLEAN DEFAULT TRUE, "note" TEXT NOT NULL DEFAULT 'it''s', "time" BIGINT, "#
            + r#"CONSTRAINT "sample__7_pkey" PRIMARY KEY ("place", "guid") )"#
    );
    assert_eq!(
        create_table(Dialect::Mysql, &sample(), "sample__7"),
        "CREATE TABLE `sample__7` ( `guid` VARCHAR(255) NOT NULL, `place` INT NOT NULL DEFAULT -3, "
            .to_owned()
            + "`flag` BOOLEAN DEFAULT 1, `note` LONGTEXT NOT NULL DEFAULT ('it''s'), `time` BIGINT, "
            + "PRIMARY KEY (`place`, `guid`) ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
    );
    assert!(
        ensure_table(Dialect::Mysql, &sample()).starts_with("CREATE TABLE IF NOT EXISTS `sample` ")
    );
}

#[test]
fn columns_are_added_and_dropped_in_one_statement_on_mysql() {
    let columns = [
        Column::integer("place").default(0),
        Column::varchar("zone", 255).nullable(),
    ];
    assert_eq!(
        add_columns(Dialect::Mysql, "apps", &columns),
        [
            "ALTER TABLE `apps` ADD COLUMN `place` INT NOT NULL DEFAULT 0, \
             ADD COLUMN `zone` VARCHAR(255)"
        ]
    );
    assert_eq!(
        drop_columns(Dialect::Mysql, "apps", &columns),
        ["ALTER TABLE `apps` DROP COLUMN `place`, DROP COLUMN `zone`"]
    );
    for dialect in [Dialect::Sqlite, Dialect::Postgres] {
        assert_eq!(
            drop_columns(dialect, "apps", &columns),
            [
                r#"ALTER TABLE "apps" DROP COLUMN "place""#,
                r#"ALTER TABLE "apps" DROP COLUMN "zone""#,
            ]
        );
    }
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
        assert_eq!(add_columns(dialect, "apps", &[]), [""; 0]);
    }
}

#[test]
fn drop_index_uses_the_syntax_of_each_dialect() {
    assert_eq!(
        drop_index(Dialect::Mysql, "apps", "apps_idx"),
        "DROP INDEX `apps_idx` ON `apps`"
    );
    assert_eq!(
        drop_index(Dialect::Postgres, "apps", "apps_idx"),
        r#"DROP INDEX IF EXISTS "apps_idx""#
    );
    assert_eq!(
        drop_index(Dialect::Sqlite, "apps", "apps_idx"),
        r#"DROP INDEX IF EXISTS "apps_idx""#
    );
}

#[test]
fn quotes_and_backslashes_in_literals_are_escaped() {
    let said = |dialect, text: &str| spelled(dialect, &Literal::Text(text.into()));
    assert_eq!(said(Dialect::Postgres, r"a\'b"), r"'a\''b'");
    assert_eq!(said(Dialect::Mysql, r"a\'b"), r"'a\\''b'");
    assert_eq!(
        spelled(Dialect::Postgres, &Literal::Boolean(false)),
        "FALSE"
    );
    assert_eq!(spelled(Dialect::Mysql, &Literal::Boolean(false)), "0");
}

#[test]
fn sqlite_treats_types_of_one_affinity_as_the_same() {
    let is_same = |column: &Column, other: &Column| same_column(Dialect::Sqlite, column, other);
    let narrow = Column::varchar("x", 255);
    assert!(is_same(&narrow, &Column::long_text("x")));
    assert!(!is_same(&narrow, &Column::integer("x")));
    assert!(!is_same(&narrow, &Column::varchar("x", 255).nullable()));
    let default = Column::varchar("x", 255).default("");
    assert!(!is_same(&narrow, &default));
    assert_eq!(
        column_change(Dialect::Sqlite, &narrow, &default),
        ColumnChange::Other
    );
    assert!(is_same(
        &Column::integer("x").nullable(),
        &Column::big_integer("x").nullable()
    ));
}

#[test]
fn servers_widen_in_place_only_without_rewriting_rows() {
    use ColumnChange::{None as Same, Other, Widening};
    let varchar = ColumnType::Varchar;
    for (from, to, postgres, mysql) in [
        (varchar(255), varchar(255), Same, Same),
        (varchar(255), varchar(1024), Widening, Other),
        (varchar(256), varchar(1024), Widening, Widening),
        (varchar(1024), varchar(255), Other, Other),
        (varchar(255), ColumnType::Text, Widening, Other),
        (ColumnType::Text, varchar(255), Other, Other),
        (ColumnType::Text, ColumnType::LongText, Same, Other),
        (ColumnType::LongText, ColumnType::Text, Same, Other),
        (ColumnType::Integer, ColumnType::BigInteger, Other, Other),
        (ColumnType::Boolean, ColumnType::Integer, Other, Other),
    ] {
        let from = Column::new("x", from);
        let to = Column::new("x", to);
        assert_eq!(
            SERVERS.map(|dialect| column_change(dialect, &from, &to)),
            [postgres, mysql],
            "{from:?} {to:?}"
        );
    }
    let plain = Column::integer("x");
    let nullable = Column::integer("x").nullable();
    let change = |to: &Column| SERVERS.map(|dialect| column_change(dialect, &plain, to));
    assert_eq!(
        change(&nullable),
        [Widening, Other],
        "MySQL rewrites for NULL"
    );
    assert_eq!(
        change(&Column::integer("x").default(0)),
        [Widening, Widening]
    );
    assert_eq!(
        change(&Column::integer("y")),
        [Other, Other],
        "another column"
    );
    assert_eq!(
        SERVERS.map(|dialect| column_change(dialect, &nullable, &plain)),
        [Other, Other],
        "rows may have NULL"
    );
}

fn options_of_owner() -> ColumnOptions {
    ColumnOptions {
        collation: Some("latin1_bin".to_owned()),
        comment: Some("the owner's; which?".to_owned()),
        is_invisible: true,
        storage: Vec::new(),
    }
}

#[test]
fn column_is_created_with_the_options_of_its_owner() {
    let table = Table::new("apps")
        .column(Column::varchar("guid", 255))
        .column(Column::text("note").nullable())
        .primary_key(["guid"]);
    let options = TableOptions {
        of_columns: ["guid", "note"]
            .map(|name| (name.to_owned(), options_of_owner()))
            .into(),
        ..TableOptions::default()
    };
    let created = create_table_like(Dialect::Mysql, &table, "apps__2", &options).remove(0);
    let columns = "`guid` VARCHAR(255) COLLATE latin1_bin NOT NULL COMMENT 'the owner''s; which?', \
                   `note` TEXT COLLATE latin1_bin INVISIBLE COMMENT 'the owner''s; which?'";
    assert!(created.contains(columns), "{created}");
}

#[test]
fn alter_column_states_type_nullability_default_and_options() {
    let by_default = ColumnOptions::default();
    let rootfs = Column::varchar("rootfs", 1024).default("");
    assert_eq!(
        alter_column(Dialect::Postgres, "apps", &rootfs, &by_default),
        r#"ALTER TABLE "apps" ALTER COLUMN "rootfs" TYPE VARCHAR(1024), ALTER COLUMN "rootfs" SET NOT NULL, "#
            .to_owned()
            + r#"ALTER COLUMN "rootfs" SET DEFAULT ''"#
    );
    let stored = ColumnOptions {
        collation: Some(r#"pg_catalog."C""#.to_owned()),
        storage: vec!["SET STORAGE EXTERNAL".to_owned()],
        ..ColumnOptions::default()
    };
    assert_eq!(
        alter_column(Dialect::Postgres, "apps", &rootfs, &stored),
        r#"ALTER TABLE "apps" ALTER COLUMN "rootfs" TYPE VARCHAR(1024) COLLATE pg_catalog."C", "#
            .to_owned()
            + r#"ALTER COLUMN "rootfs" SET NOT NULL, ALTER COLUMN "rootfs" SET DEFAULT '', "#
            + r#"ALTER COLUMN "rootfs" SET STORAGE EXTERNAL"#
    );
    assert_eq!(
        alter_column(Dialect::Mysql, "apps", &rootfs, &by_default),
        "ALTER TABLE `apps` MODIFY COLUMN `rootfs` VARCHAR(1024) NOT NULL DEFAULT ''"
    );
    assert_eq!(
        alter_column(Dialect::Mysql, "apps", &rootfs, &options_of_owner()),
        "ALTER TABLE `apps` MODIFY COLUMN `rootfs` VARCHAR(1024) COLLATE latin1_bin NOT NULL DEFAULT '' "
            .to_owned()
            + "INVISIBLE COMMENT 'the owner''s; which?'"
    );
    let bare = Column::text("x").nullable();
    assert!(
        alter_column(Dialect::Postgres, "apps", &bare, &by_default)
            .ends_with(r#""x" DROP NOT NULL, ALTER COLUMN "x" DROP DEFAULT"#)
    );
}
