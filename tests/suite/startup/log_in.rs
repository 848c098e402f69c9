//! Log-ins to MySQL with the plugin `caching_sha2_password`: until the server knows a user's
//! password, a client without TLS has to encrypt it with the server's key, and over a Unix socket
//! it sends it as it is.

use crate::harness::database::TestDatabase;
use crate::harness::engine::{PASSWORD, USER};
use crate::harness::on_each::on_one_server;
use crate::harness::proxy::{Proxy, Rewrite, replace};
use crate::harness::until_async;
use crate::lock::upsert_domain;

use super::*;

/// A MySQL server with a database that a host has migrated.
struct MigratedServer {
    database: TestDatabase,
    /// Dropped after its database.
    engine: Engine,
}

impl MigratedServer {
    fn installation(&self) -> Installation {
        Installation::on(self.database.clone(), &modules::modules())
    }
}

on_one_server!(server_without_the_password_digest_accepts_log_ins, mysql);
/// Method: the server is restarted for each case, after which it has no digest of the password.
async fn server_without_the_password_digest_accepts_log_ins() {
    let engine = Kind::Mysql.own_engine();
    let database = TestDatabase::on(Kind::Mysql, engine.address());
    let started = MigratedServer { database, engine };
    started.installation().succeed(&["migrate", "up"]);
    restarted_server_is_logged_in_to_without_tls(&started).await;
    host_serves_on_after_the_server_has_forgotten_the_password(&started).await;
    restarted_server_is_logged_in_to_over_its_unix_socket(&started).await;
    wrong_password_is_reported_as_such(&started);
    password_is_accepted_after_a_switch_of_the_plugin(&started).await;
}

async fn restarted_server_is_logged_in_to_without_tls(started: &MigratedServer) {
    let engine = &started.engine;
    engine.restart();
    let installation = started.installation().set("lock_ttl", "60s");
    let host = installation.serve();
    upsert_domain(host.address, "before").await.unwrap();
    engine.restart();
    until_async(async || upsert_domain(host.address, "after").await.is_ok()).await;
    assert!(host.terminate().success());
}

/// Method: all sessions but the one that renews the lease end, as after some seconds without a
/// call, so that the next calls log in.
async fn host_serves_on_after_the_server_has_forgotten_the_password(started: &MigratedServer) {
    started.engine.restart();
    let host = started.installation().serve();
    upsert_domain(host.address, "before").await.unwrap();
    started.database.end_sessions();
    // After that, which logs in as the same user.
    let mut administrator = administrator(&started.engine).await;
    let flush = sqlx::raw_sql("FLUSH PRIVILEGES");
    flush.execute(&mut administrator).await.unwrap();
    for number in 0..8 {
        upsert_domain(host.address, &format!("after-{number}"))
            .await
            .unwrap();
    }
    assert!(host.terminate().success());
}

async fn restarted_server_is_logged_in_to_over_its_unix_socket(started: &MigratedServer) {
    started.engine.restart();
    let socket = started.engine.folder().join("socket");
    let text = format!(
        "{USER}:{PASSWORD}@unix({})/{}",
        socket.display(),
        started.database.name()
    );
    let installation = started.installation();
    let host = installation.set("database_connection_string", text).serve();
    upsert_domain(host.address, "socket").await.unwrap();
    assert!(host.terminate().success());
}

fn wrong_password_is_reported_as_such(started: &MigratedServer) {
    let engine = &started.engine;
    engine.restart();
    let on = |place: String| format!("{USER}:wrong@{place}/{}", started.database.name());
    let socket = format!("unix({})", engine.folder().join("socket").display());
    for text in [on(format!("tcp({})", engine.address())), on(socket)] {
        let message = started
            .installation()
            .set("database_connection_string", text)
            .fail(&["migrate", "status"]);
        assert!(message.contains("Access denied for user"), "{message}");
    }
}

/// Method: the server names another plugin in its greeting, and answers the client's log-in with
/// that plugin by a switch to the user's own.
async fn password_is_accepted_after_a_switch_of_the_plugin(started: &MigratedServer) {
    started.engine.restart();
    let greeting = Rewrite {
        to_client: |before, bytes| {
            if before == 0 {
                replace(bytes, b"caching_sha2_password", b"mysql_native_password");
            }
        },
        ..Rewrite::NOTHING
    };
    let proxy = Proxy::rewriting(vec![started.engine.address()], greeting);
    let database = started.database.through(proxy.address());
    let host = Installation::on(database, &modules::modules()).serve();
    upsert_domain(host.address, "switched").await.unwrap();
    assert!(host.terminate().success());
}
