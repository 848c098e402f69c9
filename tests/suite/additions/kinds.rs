//! The kinds of objects that can hang on a table, read from the catalogs of the servers themselves:
//! a kind that a newer server brings is missing here, and so in what a migration examines, until it
//! is added to both and to `host/ADDITIONS.md`.

use std::collections::BTreeSet;

use crate::harness::database::{Kind, TestDatabase, on_each_server, texts};

/// Catalogs with a reference to a table, of PostgreSQL 15 to 18.
const POSTGRES: &[&str] = &[
    // Parts of the layout, and those of the table's type.
    "pg_attribute",
    "pg_attrdef",
    "pg_index",
    "pg_type",
    "pg_class",
    // Found as objects that depend on the table.
    "pg_constraint",
    "pg_inherits",
    "pg_partitioned_table",
    "pg_foreign_table",
    "pg_policy",
    "pg_rewrite",
    "pg_sequence",
    "pg_statistic_ext",
    "pg_subscription_rel",
    "pg_trigger",
    // Carried over.
    "pg_publication_rel",
    // Computed anew.
    "pg_statistic",
    // About objects of any kind: dependencies, comments and labels, what an extension has made.
    "pg_depend",
    "pg_description",
    "pg_extension",
    "pg_init_privs",
    "pg_seclabel",
    "pg_shdepend",
    "pg_shdescription",
    "pg_shseclabel",
];

/// Views of the information schema with the name of a table, of MariaDB 10.11 to 11.8 and MySQL 9.
const MYSQL: &[&str] = &[
    // Parts of the layout.
    "COLUMNS",
    "KEY_COLUMN_USAGE",
    "STATISTICS",
    "TABLES",
    // Found as objects of the table: constraints, triggers, histograms, periods, partitions; types
    // that no layout has.
    "CHECK_CONSTRAINTS",
    "COLUMN_STATISTICS",
    "KEY_PERIOD_USAGE",
    "PARTITIONS",
    "PERIODS",
    "REFERENTIAL_CONSTRAINTS",
    "ST_GEOMETRY_COLUMNS",
    "TABLE_CONSTRAINTS",
    "TRIGGERS",
    // Belong to the name of the table.
    "COLUMN_PRIVILEGES",
    "JSON_DUALITY_VIEWS",
    "JSON_DUALITY_VIEW_COLUMNS",
    "JSON_DUALITY_VIEW_LINKS",
    "JSON_DUALITY_VIEW_TABLES",
    "ROLE_COLUMN_GRANTS",
    "ROLE_TABLE_GRANTS",
    "SEQUENCES",
    "TABLE_PRIVILEGES",
    "VIEWS",
    "VIEW_ROUTINE_USAGE",
    "VIEW_TABLE_USAGE",
    // Attributes for secondary engines, which InnoDB ignores.
    "COLUMNS_EXTENSIONS",
    "TABLES_EXTENSIONS",
    "TABLE_CONSTRAINTS_EXTENSIONS",
    // What the server counts, and computes anew.
    "FILES",
    "INDEX_STATISTICS",
    "INNODB_BUFFER_PAGE",
    "INNODB_BUFFER_PAGE_LRU",
    "INNODB_CMP_PER_INDEX",
    "INNODB_CMP_PER_INDEX_RESET",
    "TABLE_STATISTICS",
];

on_each_server!(every_kind_of_object_of_a_table_is_known);
async fn every_kind_of_object_of_a_table_is_known(kind: Kind) {
    let (known, query) = match kind {
        Kind::Sqlite => unreachable!("its objects are tables, indexes, views and triggers"),
        Kind::Postgres => (
            POSTGRES,
            "SELECT DISTINCT fktable::text FROM pg_get_catalog_foreign_keys() WHERE pktable = 'pg_class'::regclass",
        ),
        Kind::Mariadb | Kind::Mysql => (
            MYSQL,
            "SELECT DISTINCT CAST(UPPER(table_name) AS CHAR) FROM information_schema.columns \
             WHERE table_schema = 'information_schema' \
             AND UPPER(column_name) IN ('TABLE_NAME', 'EVENT_OBJECT_TABLE', 'REFERENCED_TABLE_NAME')",
        ),
    };
    let test = TestDatabase::new(kind);
    let database = test.open().await;
    let found: BTreeSet<_> = texts(&database, query).await.into_iter().collect();
    database.close().await;
    assert!(found.len() > 10, "{found:?}");
    let unknown: Vec<_> = found
        .iter()
        .filter(|name| !known.contains(&name.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
