//! A host whose connections to PostgreSQL go through a pooler.

use crate::harness::database::TestDatabase;
use crate::harness::on_each::on_one_server;
use crate::harness::pgbouncer::PgBouncer;
use crate::lock::upsert_domain;

use super::*;

on_one_server!(host_serves_through_pgbouncer_in_session_mode, postgres);
/// Method: migrates Diego's database up, serves a write, and migrates down.
async fn host_serves_through_pgbouncer_in_session_mode() {
    let pooler = PgBouncer::start();
    let database = TestDatabase::new(Kind::Postgres);
    fixture::write_to(&database).await;
    let installation = Installation::on(database.through(pooler.address()), &modules::modules());
    let host = installation.serve();
    upsert_domain(host.address, "pooled").await.unwrap();
    assert!(host.terminate().success());
    installation.succeed(&["migrate", "down", "--to", &fixture::VERSION.to_string()]);
    assert_eq!(installation.data_version(), fixture::VERSION);
}
