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

/// A server that knows no password, with a database that a host has migrated.
async fn started_anew() -> (Engine, TestDatabase) {
    let engine = Kind::Mysql.own_engine();
    let database = TestDatabase::on(Kind::Mysql, engine.address());
    Installation::on(database.clone(), &modules::modules()).succeed(&["migrate", "up"]);
    engine.restart();
    (engine, database)
}

on_one_server!(restarted_server_is_logged_in_to_without_tls, mysql);
async fn restarted_server_is_logged_in_to_without_tls() {
    let (engine, database) = started_anew().await;
    let installation = Installation::on(database, &modules::modules()).set("lock_ttl", "60s");
    let host = installation.serve();
    upsert_domain(host.address, "before").await.unwrap();
    engine.restart();
    until_async(async || upsert_domain(host.address, "after").await.is_ok()).await;
    assert!(host.terminate().success());
}

on_one_server!(
    host_serves_on_after_the_server_has_forgotten_the_password,
    mysql
);
/// Method: all sessions but the one that renews the lease end, as after some seconds without a
/// call, so that the next calls log in.
async fn host_serves_on_after_the_server_has_forgotten_the_password() {
    let (engine, database) = started_anew().await;
    let host = Installation::on(database.clone(), &modules::modules()).serve();
    upsert_domain(host.address, "before").await.unwrap();
    database.end_sessions();
    // After that, which logs in as the same user.
    let mut administrator = administrator(&engine).await;
    let flush = sqlx::raw_sql("FLUSH PRIVILEGES");
    flush.execute(&mut administrator).await.unwrap();
    for number in 0..8 {
        upsert_domain(host.address, &format!("after-{number}"))
            .await
            .unwrap();
    }
    assert!(host.terminate().success());
    drop(engine);
}

on_one_server!(restarted_server_is_logged_in_to_over_its_unix_socket, mysql);
async fn restarted_server_is_logged_in_to_over_its_unix_socket() {
    let (engine, database) = started_anew().await;
    let socket = engine.folder().join("socket");
    let text = format!(
        "{USER}:{PASSWORD}@unix({})/{}",
        socket.display(),
        database.name()
    );
    let installation =
        Installation::on(database, &modules::modules()).set("database_connection_string", text);
    let host = installation.serve();
    upsert_domain(host.address, "socket").await.unwrap();
    assert!(host.terminate().success());
}

on_one_server!(wrong_password_is_reported_as_such, mysql);
async fn wrong_password_is_reported_as_such() {
    let (engine, database) = started_anew().await;
    let on = |place: String| format!("{USER}:wrong@{place}/{}", database.name());
    let socket = format!("unix({})", engine.folder().join("socket").display());
    for text in [on(format!("tcp({})", engine.address())), on(socket)] {
        let message = Installation::on(database.clone(), &modules::modules())
            .set("database_connection_string", text)
            .fail(&["migrate", "status"]);
        assert!(message.contains("Access denied for user"), "{message}");
    }
}

on_one_server!(password_is_accepted_after_a_switch_of_the_plugin, mysql);
/// Method: the server names another plugin in its greeting, and answers the client's log-in with
/// that plugin by a switch to the user's own.
async fn password_is_accepted_after_a_switch_of_the_plugin() {
    let (engine, database) = started_anew().await;
    let greeting = Rewrite {
        to_client: |before, bytes| {
            if before == 0 {
                replace(bytes, b"caching_sha2_password", b"mysql_native_password");
            }
        },
        ..Rewrite::NOTHING
    };
    let proxy = Proxy::rewriting(vec![engine.address()], greeting);
    let installation = Installation::on(database.through(proxy.address()), &modules::modules());
    let host = installation.serve();
    upsert_domain(host.address, "switched").await.unwrap();
    assert!(host.terminate().success());
}
