//! Servers whose own settings differ from those that a host expects.

use crate::harness::database::{TestDatabase, dump, execute, texts};
use crate::harness::on_each::on_one_server;
use crate::lock::upsert_domain;

use super::*;

on_one_server!(settings_of_the_server_do_not_change_what_statements_mean, mariadb);
/// Goal: a host serves and migrates as elsewhere where the SQL mode gives quotes, backslashes and empty texts another meaning,
/// and updates by other columns than keys are refused.
async fn settings_of_the_server_do_not_change_what_statements_mean() {
    let engine = Kind::Mariadb.own_engine_with(&[
        "--sql-mode=ORACLE,EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES",
        "--sql-safe-updates=ON",
        "--transaction-isolation=READ-COMMITTED",
    ]);
    let database = TestDatabase::on(Kind::Mariadb, engine.address());
    fixture::write_to(&database).await;
    let opened = database.open().await;
    let isolation = texts(&opened, "SELECT CONCAT(@@GLOBAL.tx_isolation, ' ', @@SESSION.tx_isolation)").await;
    assert_eq!(isolation, ["READ-COMMITTED REPEATABLE-READ"]);
    let original = dump(&database).await;
    let installation = Installation::on(database.clone(), &modules::modules());
    let host = installation.serve();
    let domain = r#"it's a "domain" \"#;
    upsert_domain(host.address, domain).await.unwrap();
    assert_eq!(texts(&opened, "SELECT domain FROM domains WHERE domain LIKE 'it%'").await, [domain]);
    assert!(host.terminate().success());
    execute(&opened, "DELETE FROM domains WHERE domain LIKE 'it%'").await;
    opened.close().await;
    installation.succeed(&["migrate", "down", "--to", &fixture::VERSION.to_string()]);
    let is_diegos = |line: &String| fixture::TABLES.iter().any(|table| line.starts_with(table));
    let diegos = |dump: Vec<String>| dump.into_iter().filter(is_diegos).collect::<Vec<_>>();
    assert_eq!(diegos(dump(&database).await), diegos(original));
}
