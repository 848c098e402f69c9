//! A host whose connections to PostgreSQL go through a pooler.

use crate::harness::database::{TestDatabase, dump};
use crate::harness::on_each::on_one_server;
use crate::harness::pgbouncer::PgBouncer;
use crate::lock::upsert_domain;

use super::*;

on_one_server!(host_serves_through_pgbouncer_in_session_mode, postgres);
/// Method: migrates Diego's database up, serves a write, and migrates down.
async fn host_serves_through_pgbouncer_in_session_mode() {
    let pooler = PgBouncer::in_session_mode();
    let database = TestDatabase::new(Kind::Postgres);
    fixture::write_small_to(&database).await;
    let installation = Installation::on(database.through(pooler.address()), &modules::modules());
    let host = installation.serve();
    upsert_domain(host.address, "pooled").await.unwrap();
    assert!(host.terminate().success());
    installation.succeed(&["migrate", "down", "--to", &fixture::VERSION.to_string()]);
    assert_eq!(installation.data_version(), fixture::VERSION);
}

on_one_server!(
    pgbouncer_in_transaction_mode_is_refused_by_name_before_the_first_write,
    postgres
);
/// Method: a database that no host has served, and one that a host has.
async fn pgbouncer_in_transaction_mode_is_refused_by_name_before_the_first_write() {
    let pooler = PgBouncer::in_transaction_mode();
    let database = TestDatabase::new(Kind::Postgres);
    fixture::write_small_to(&database).await;
    let pooled = Installation::on(database.through(pooler.address()), &modules::modules());
    for served in [false, true] {
        if served {
            Installation::on(database.clone(), &modules::modules()).succeed(&["migrate", "up"]);
        }
        let before = dump(&database).await;
        for arguments in [
            &["serve"][..],
            &["migrate", "up"],
            &["migrate", "status"],
            &["migrate", "plan"],
        ] {
            let message = pooled.fail(arguments);
            assert!(
                message.contains("set `pool_mode = session` for this database"),
                "{arguments:?}: {message}"
            );
            assert!(
                !message.contains("must be allowed"),
                "{arguments:?}: {message}"
            );
        }
        assert_eq!(dump(&database).await, before);
    }
}
