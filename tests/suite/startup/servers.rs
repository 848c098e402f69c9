//! Servers whose own settings differ from those that a host expects, and that accept no writes.

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

/// Asserts that a host writes nothing, and reports that the server accepts no writes instead of a missing privilege.
async fn assert_read_only_is_reported(database: &TestDatabase) {
    let before = dump(database).await;
    let installation = Installation::on(database.clone(), &modules::modules());
    installation.succeed(&["migrate", "plan"]);
    for arguments in [&["serve"][..], &["migrate", "up"]] {
        let message = fail(&installation, arguments);
        assert!(message.contains("the server of this database accepts no writes"), "{arguments:?}: {message}");
        assert!(!message.contains("must be allowed"), "{arguments:?}: {message}");
    }
    assert_eq!(dump(database).await, before);
}

on_one_server!(read_only_server_is_reported_as_such, mariadb);
async fn read_only_server_is_reported_as_such() {
    let engine = Kind::Mariadb.own_engine();
    let database = TestDatabase::on(Kind::Mariadb, engine.address());
    fixture::write_to(&database).await;
    engine.restart_with(&["--read-only=ON"]);
    assert_read_only_is_reported(&database).await;
}

on_one_server!(read_only_transactions_are_reported_as_such, postgres);
/// Method: the same error as that of a standby.
async fn read_only_transactions_are_reported_as_such() {
    let database = TestDatabase::new(Kind::Postgres);
    fixture::write_to(&database).await;
    let setting = |value| format!("ALTER DATABASE {} SET default_transaction_read_only = {value}", database.name());
    let opened = database.open().await;
    execute(&opened, &setting("on")).await;
    assert_read_only_is_reported(&database).await;
    execute(&opened, &setting("off")).await;
    opened.close().await;
}
