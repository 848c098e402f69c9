//! Settings and limits of a server's sessions: what a host sets itself, what it does not use up,
//! and which errors it repeats a transaction for.

use std::collections::BTreeSet;

use bbs::testing::database::{Address, Database, is_repeatable, sql};
use bbs::testing::lock::fence::FenceError;
use sqlx::{AssertSqlSafe, Row};

use crate::harness::database::{TestDatabase, execute, on_each_server, texts};
use crate::harness::engine::{PASSWORD, USER};
use crate::harness::fixture;
use crate::harness::on_each::{on_each_mysql, on_one_server};
use crate::harness::ports::free_address;
use crate::harness::proxy::{Proxy, Rewrite, replace};
use crate::harness::{tests_all, until_async};
use crate::lock::{SHORT_TTL, host, standby, upsert_domain};

use super::*;

on_each_mysql!(sessions_have_limits_of_the_host_and_not_of_the_server);
async fn sessions_have_limits_of_the_host_and_not_of_the_server(kind: Kind) {
    let engine = kind.own_engine_with(&[
        "--wait-timeout=2",
        "--lock-wait-timeout=7777",
        "--innodb-lock-wait-timeout=7777",
        "--loose-innodb-snapshot-isolation=ON",
    ]);
    let database = TestDatabase::on(kind, engine.address());
    let opened = database.open().await;
    let value = async |variable: &str| {
        let query = format!("SHOW SESSION VARIABLES WHERE Variable_name = '{variable}'");
        let mut tx = opened.look().await.unwrap();
        let row = tx.fetch_optional(sql(query)).await.unwrap();
        row.map(|row| row.text(1).unwrap().unwrap().to_owned())
    };
    for variable in [
        "wait_timeout",
        "lock_wait_timeout",
        "innodb_lock_wait_timeout",
    ] {
        let value: u32 = value(variable).await.expect(variable).parse().unwrap();
        assert!(value > 2 && value != 7777, "{variable} = {value}");
    }
    assert!(
        value("innodb_snapshot_isolation")
            .await
            .is_none_or(|value| value == "OFF")
    );
    opened.close().await;
}

on_each_mysql!(idle_connections_stay_open);
/// Method: more connections than calls at the same time, each of which rests for longer than a
/// transaction may.
async fn idle_connections_stay_open(kind: Kind) {
    let engine = kind.own_engine_with(&["--wait-timeout=2"]);
    let database = TestDatabase::on(kind, engine.address());
    let host = host(&database, "one")
        .set("lock_ttl", SHORT_TTL)
        .set("max_open_database_connections", 8)
        .serve();
    let calls =
        (0..50).map(async |number| upsert_domain(host.address, &format!("domain-{number}")).await);
    futures_util::future::try_join_all(calls).await.unwrap();
    let opened = database.open().await;
    let connections =
        "SELECT id FROM information_schema.processlist WHERE db = DATABASE() ORDER BY id";
    // A connection that a busy machine does not check in time is replaced.
    for attempts_left in (0..4).rev() {
        let before = texts(&opened, connections).await;
        assert!(before.len() > 4, "{before:?}");
        assert_eq!(texts(&opened, "SELECT SLEEP(4)").await, ["0"]);
        upsert_domain(host.address, "after").await.unwrap();
        let after = texts(&opened, connections).await;
        if before.iter().all(|connection| after.contains(connection)) {
            break;
        }
        assert!(attempts_left > 0, "{before:?} became {after:?}");
    }
    opened.close().await;
    assert!(host.terminate().success());
}

on_each_mysql!(prepared_statements_stay_below_the_limit_of_the_server);
async fn prepared_statements_stay_below_the_limit_of_the_server(kind: Kind) {
    let engine = kind.own_engine_with(&["--max-prepared-stmt-count=100"]);
    let database = TestDatabase::on(kind, engine.address());
    let host = host(&database, "one").serve();
    for round in 0..4 {
        let calls = (0..40).map(async |number| {
            upsert_domain(host.address, &format!("domain-{round}-{number}")).await
        });
        futures_util::future::try_join_all(calls).await.unwrap();
    }
    assert!(host.terminate().success());
}

on_each_mysql!(host_keeps_its_lock_while_others_use_all_prepared_statements);
/// Method: another session prepares statements until the server accepts no more, for as long as
/// the lease lasts.
async fn host_keeps_its_lock_while_others_use_all_prepared_statements(kind: Kind) {
    let engine = kind.own_engine_with(&["--max-prepared-stmt-count=200"]);
    let database = TestDatabase::on(kind, engine.address());
    let host = host(&database, "one").serve();
    upsert_domain(host.address, "before").await.unwrap();
    let server = format!("mysql://{USER}:{PASSWORD}@{}", engine.address());
    let mut other = MySqlConnection::connect(&format!("{server}/{}", database.name()))
        .await
        .unwrap();
    let mut prepared = 0;
    let refusal = loop {
        let prepare = format!("PREPARE s{prepared} FROM 'SELECT 1'");
        match sqlx::raw_sql(AssertSqlSafe(prepare))
            .execute(&mut other)
            .await
        {
            Ok(_) => prepared += 1,
            Err(refusal) => break refusal.to_string(),
        }
    };
    assert!(refusal.contains("max_prepared_stmt_count"), "{refusal}");
    let mut renewals = BTreeSet::new();
    until_async(async || {
        let renewed = sqlx::raw_sql("SELECT CAST(beat AS CHAR) FROM bbs_lease");
        let row = renewed.fetch_one(&mut other).await.unwrap();
        renewals.insert(row.get::<String, _>(0));
        renewals.len() == 4
    })
    .await;
    other.close().await.unwrap();
    // The server may forget the statements of a session a moment after its end.
    until_async(async || upsert_domain(host.address, "after").await.is_ok()).await;
    assert!(host.terminate().success());
}

on_each_server!(server_that_refuses_writes_is_left);
/// Method: an error as that of a primary server that has become a replica. The next transactions
/// use other connections, which may lead to the new primary.
async fn server_that_refuses_writes_is_left(kind: Kind) {
    let database = TestDatabase::new(kind);
    let Address::Server(mut server) = database.address() else {
        panic!("{kind:?} has no server")
    };
    server.limits.max_connections = 1;
    let (session, refusals) = match kind {
        Kind::Postgres => (
            "SELECT pg_backend_pid()::text",
            vec!["DO $$ BEGIN RAISE USING ERRCODE = '25006'; END $$".to_owned()],
        ),
        _ => (
            "SELECT CONNECTION_ID()",
            [
                (1290, "running with the --read-only option"),
                (1836, "Running in read-only mode"),
                (3100, "a member has left its group"),
                (1047, "WSREP has not yet prepared node for application use"),
            ]
            .map(|(number, text)| {
                format!(
                    "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{text}'"
                )
            })
            .to_vec(),
        ),
    };
    for refusal in refusals {
        let opened = Database::open(&Address::Server(server.clone()))
            .await
            .unwrap();
        let before = texts(&opened, session).await;
        assert_eq!(texts(&opened, session).await, before);
        let mut tx = opened.write().await.unwrap();
        tx.execute(sql(refusal.clone())).await.unwrap_err();
        drop(tx);
        for _ in 0..2 {
            assert_ne!(texts(&opened, session).await, before, "{refusal}");
        }
        opened.close().await;
    }
}

/// The beginning of an answer with the error of a statement that cannot be parsed, 1064.
const PARSE_ERROR: &[u8] = &[0xff, 0x28, 0x04];

/// The numbers of the sessions in a pool of two.
async fn both_sessions(opened: &Database) -> BTreeSet<i64> {
    let sessions = [opened.look().await.unwrap(), opened.look().await.unwrap()];
    let mut numbers = BTreeSet::new();
    for mut session in sessions {
        let number = sql("SELECT CAST(CONNECTION_ID() AS SIGNED)");
        numbers.insert(session.fetch_number(number).await.unwrap());
    }
    numbers
}

on_each_mysql!(server_that_begins_no_transaction_is_left);
/// Goal: no session stays on a node of Galera outside of the primary component, which answers
/// pings, and a transaction that did not begin there is repeated. Method: a proxy spoils the
/// statement that begins a transaction, and changes the number of its error into those of such a
/// node: 1205 and 1047.
async fn server_that_begins_no_transaction_is_left(kind: Kind) {
    let database = TestDatabase::new(kind);
    let answers: [fn(usize, &mut [u8]); 2] = [
        |_, bytes| replace(bytes, PARSE_ERROR, &[0xff, 0xb5, 0x04]),
        |_, bytes| replace(bytes, PARSE_ERROR, &[0xff, 0x17, 0x04]),
    ];
    for to_client in answers {
        let rewrite = Rewrite {
            to_target: |bytes| replace(bytes, b"START TRANSACTION", b"START TRANSACTIOM"),
            to_client,
        };
        let proxy = Proxy::rewriting(vec![kind.engine().address()], rewrite);
        let opened = database
            .through(proxy.address())
            .open_limited(|limits| limits.max_connections = 2)
            .await;
        let before = both_sessions(&opened).await;
        assert_eq!(both_sessions(&opened).await, before);
        let error = opened.write().await.unwrap_err();
        assert!(error.is_transient() && error.is_outage(), "{error:?}");
        assert!(FenceError::from(error).is_transient());
        let after = both_sessions(&opened).await;
        assert!(before.is_disjoint(&after), "{before:?}, {after:?}");
        opened.close().await;
    }
}

on_each_mysql!(lost_conflicts_are_repeated);
/// Conflicts of snapshots of MariaDB, nodes of Galera, locks, changed tables, and members of
/// MySQL's group replication; sessions that the server ends, or a proxy that has lost the server.
async fn lost_conflicts_are_repeated(kind: Kind) {
    let database = TestDatabase::new(kind);
    let opened = database.open().await;
    for (number, repeats) in [
        (1020, true),
        (1047, true),
        (1205, true),
        (1213, true),
        (1412, true),
        (3101, true),
        (4031, true),
        (2006, true),
        (2013, true),
        (9001, true),
        (1105, false),
    ] {
        let mut tx = opened.write().await.unwrap();
        let error = tx
            .execute(sql(format!(
                "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}"
            )))
            .await
            .unwrap_err();
        assert_eq!(is_repeatable(&error), repeats, "{error}");
    }
    opened.close().await;
}

on_one_server!(session_that_a_pooler_ends_is_lost, postgres);
/// Goal: a transaction whose session PgBouncer ends, because the server has crashed, is repeated in
/// another one, and one that fails with the same code of the server is not. Method: a statement
/// raises the code; a proxy gives it the severity with which sessions end.
async fn session_that_a_pooler_ends_is_lost() {
    let ending = Rewrite {
        to_client: |_, bytes| replace(bytes, b"SERROR\0VERROR\0", b"SFATAL\0VFATAL\0"),
        ..Rewrite::NOTHING
    };
    let session = "SELECT pg_backend_pid()::text";
    let database = TestDatabase::new(Kind::Postgres);
    for (rewrite, ends) in [(ending, true), (Rewrite::NOTHING, false)] {
        let proxy = Proxy::rewriting(vec![Kind::Postgres.engine().address()], rewrite);
        let opened = database
            .through(proxy.address())
            .open_limited(|limits| limits.max_connections = 1)
            .await;
        for code in ["08000", "08001", "08003", "08006", "08P01", "22012"] {
            let before = texts(&opened, session).await;
            let mut tx = opened.write().await.unwrap();
            let raise = format!("DO $$ BEGIN RAISE USING ERRCODE = '{code}'; END $$");
            let error = tx.execute(sql(raise)).await.unwrap_err();
            drop(tx);
            let is_lost = ends && code.starts_with("08");
            assert_eq!(is_repeatable(&error), is_lost, "{error:?}");
            let is_replaced = texts(&opened, session).await != before;
            assert_eq!(is_replaced, is_lost, "{error:?}");
        }
        opened.close().await;
    }
}

on_each_mysql!(standby_waits_beside_a_server_that_accepts_no_writes);
async fn standby_waits_beside_a_server_that_accepts_no_writes(kind: Kind) {
    let engine = kind.own_engine();
    let database = TestDatabase::on(kind, engine.address());
    assert!(host(&database, "one").serve().terminate().success());
    engine.restart_with(&[kind.without_writes()]);
    let health = crate::harness::ports::free_address().to_string();
    let other = host(&database, "other").set("health_address", health.clone());
    let waiting = standby(&other);
    let ping = async || {
        crate::harness::http_client()
            .get(format!("http://{health}/ping"))
            .send()
            .await
    };
    until_async(async || waiting.is_finished() || ping().await.is_ok()).await;
    assert!(
        !waiting.is_finished(),
        "the standby has ended: {:?}",
        waiting.await.err()
    );
    engine.restart();
    let host = waiting.await.unwrap();
    upsert_domain(host.address, "after").await.unwrap();
    assert!(host.terminate().success());
}

on_each_server!(master_that_gets_no_connection_gives_up_its_lock);
/// Goal: a host whose lease is renewed over a connection from before, while the server accepts no
/// other, ends, so that another host can serve.
async fn master_that_gets_no_connection_gives_up_its_lock(kind: Kind) {
    let database = TestDatabase::new(kind);
    let Address::Server(server) = database.address() else {
        panic!("{kind:?} has no server")
    };
    let target = format!("{}:{}", server.host, server.port).parse().unwrap();
    let proxy = Proxy::recognising(target, b"bbs_lease");
    // Under a lease that lasts as long as the start takes.
    host(&database, "one").succeed(&["migrate", "up"]);
    let host = host(&database.through(proxy.address()), "one")
        .set("lock_ttl", SHORT_TTL)
        .serve();
    upsert_domain(host.address, "before").await.unwrap();
    proxy.keep_only_recognised();
    let (status, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(
        !status.success() && output.contains("the lease of this database could not be renewed"),
        "{output}"
    );
}

on_one_server!(
    group_replication_with_several_primaries_is_refused_by_name,
    mysql
);
async fn group_replication_with_several_primaries_is_refused_by_name() {
    let engine = with_group_replication(&["--loose-group-replication-single-primary-mode=OFF"]);
    let database = TestDatabase::on(Kind::Mysql, engine.address());
    let installation = Installation::on(database, &modules::modules());
    for arguments in [&["serve"][..], &["migrate", "plan"], &["migrate", "up"]] {
        let message = installation.fail(arguments);
        assert!(
            message.contains("group replication with several primaries"),
            "{arguments:?}: {message}"
        );
    }
}

fn with_group_replication(arguments: &[&str]) -> Engine {
    let name = "--loose-group-replication-group-name=6f1b7c1e-30ad-4a0e-9d80-5f3a1f0c2b11";
    let plugin = "--plugin-load-add=group_replication.so";
    Kind::Mysql.own_engine_with(&[&[plugin, name], arguments].concat())
}

on_one_server!(primary_of_a_group_is_migrated_and_served, mysql);
/// Method: a group of one has the rules of all groups: every table has a primary key, and each
/// transaction is certified.
async fn primary_of_a_group_is_migrated_and_served() {
    let address = format!("--loose-group-replication-local-address={}", free_address());
    let engine = with_group_replication(&[
        &address,
        "--log-bin=binlog",
        "--server-id=1",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--performance-schema=ON",
        "--loose-group-replication-start-on-boot=OFF",
    ]);
    let database = TestDatabase::on(Kind::Mysql, engine.address());
    fixture::write_to(&database).await;
    let mut administrator = administrator(&engine).await;
    for statement in [
        "SET GLOBAL group_replication_bootstrap_group = ON",
        "START GROUP_REPLICATION",
    ] {
        let started = sqlx::raw_sql(statement).execute(&mut administrator).await;
        started.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let members = "SELECT member_state FROM performance_schema.replication_group_members";
    let member = async |administrator: &mut MySqlConnection| {
        let row = sqlx::raw_sql(members).fetch_one(administrator).await;
        row.unwrap().get::<String, _>(0)
    };
    until_async(async || member(&mut administrator).await == "ONLINE").await;
    let installation = Installation::on(database, &modules::modules());
    installation.succeed(&["migrate", "up"]);
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let host = installation.serve();
    upsert_domain(host.address, "member").await.unwrap();
    assert!(host.terminate().success());
    assert_eq!(member(&mut administrator).await, "ONLINE");
}

/// Collations of a database's tables, and of the database itself, as an upgrade of the server or a
/// restore leaves them.
const COLLATIONS: [[&str; 2]; 4] = [
    ["utf8mb4_general_ci", "utf8mb4_unicode_520_ci"],
    ["utf8mb4_general_ci", "utf8mb3_general_ci"],
    ["utf8mb3_general_ci", "utf8mb4_general_ci"],
    ["utf8mb4_bin", "utf8mb4_general_ci"],
];
/// The default of MySQL, which MariaDB of today's long-term release does not have.
const COLLATIONS_OF_MYSQL: [&str; 2] = ["utf8mb4_0900_ai_ci", "utf8mb4_general_ci"];
/// LRPs of the tables in `utf8mb4_bin`, which are one in the other collations.
const DIFFERENT_IN_CASE: &str = "('Guid-Aa', 'guid-aA')";

/// Writes a quarter of the fixture, as far as the character set of the tables has its characters.
async fn write_in_collation(database: &TestDatabase, opened: &Database, collation: &str) {
    fixture::write_small_to(database).await;
    let (character_set, _) = collation.split_once('_').expect("a character set");
    if character_set != "utf8mb4" {
        for texts in [
            "actual_lrps SET crash_reason = '', placement_error = ''",
            "tasks SET failure_reason = '', result = '', rejection_reason = ''",
        ] {
            execute(opened, &format!("UPDATE {texts}")).await;
        }
    }
    let names = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()";
    for table in texts(opened, names).await {
        let convert = "CONVERT TO CHARACTER SET";
        execute(
            opened,
            &format!("ALTER TABLE {table} {convert} {character_set} COLLATE {collation}"),
        )
        .await;
    }
    if collation == "utf8mb4_bin" {
        for guid in ["Guid-Aa", "guid-aA"] {
            let rename = format!(
                "UPDATE desired_lrps SET process_guid = '{guid}' \
                 WHERE process_guid NOT IN {DIFFERENT_IN_CASE} LIMIT 1"
            );
            execute(opened, &rename).await;
        }
    }
}

on_each_mysql!(tables_get_the_collation_of_those_that_are_there);
async fn tables_get_the_collation_of_those_that_are_there(kind: Kind) {
    let of_mysql = (kind == Kind::Mysql).then_some(COLLATIONS_OF_MYSQL);
    for [tables, own] in COLLATIONS.into_iter().chain(of_mysql) {
        let database = TestDatabase::new(kind);
        let opened = database.open().await;
        write_in_collation(&database, &opened, tables).await;
        let name = database.name();
        execute(&opened, &format!("ALTER DATABASE {name} COLLATE {own}")).await;
        // Tables whose texts are compared with literals alone.
        let collations = "SELECT DISTINCT CAST(table_collation AS CHAR) FROM \
             information_schema.tables WHERE table_schema = DATABASE() AND table_name NOT IN \
             ('bbs_fence', 'bbs_lease', 'bbs_key_rotation')";
        let installation = Installation::on(database.clone(), &modules::modules());
        let is_repeated = tests_all() || [tables, own] == COLLATIONS[0];
        let is_whole = is_repeated || tables == "utf8mb4_bin";
        let check = ["migrate", "plan", "--check"];
        let check = is_whole.then_some(&check[..]);
        let down = ["migrate", "down", "--to", &OLDEST.to_string()];
        let up_and_down = [&["migrate", "up"][..], &down];
        // From tables that a migration has made, not Diego.
        let again = is_repeated.then_some(up_and_down).into_iter().flatten();
        for arguments in check.into_iter().chain(up_and_down).chain(again) {
            installation.succeed(arguments);
            assert_eq!(texts(&opened, collations).await, [tables], "{arguments:?}");
        }
        if is_whole {
            let mut host = installation.set("migration_mode", "online").serve();
            host.wait_for_line(|line| line.contains("cut over"));
            assert_eq!(texts(&opened, collations).await, [tables], "online");
            assert!(host.terminate().success());
        }
        if tables == "utf8mb4_bin" {
            let query = format!(
                "SELECT COUNT(*) FROM desired_lrps WHERE process_guid IN {DIFFERENT_IN_CASE}"
            );
            assert_eq!(texts(&opened, &query).await, ["2"]);
        }
        opened.close().await;
    }
}

on_each_server!(host_that_is_stopped_as_it_begins_to_serve_waits_for_no_connection);
/// Method: a host looks for texts under its other key when the signal arrives, at its first start
/// on a database.
async fn host_that_is_stopped_as_it_begins_to_serve_waits_for_no_connection(kind: Kind) {
    let keys = serde_json::json!({ "key-2024": "correct horse battery staple", "other": "another passphrase" });
    for _ in 0..5 {
        let database = TestDatabase::new(kind);
        fixture::write_to(&database).await;
        let host = host(&database, "one")
            .set("encryption_keys", keys.clone())
            .serve();
        host.signal("TERM");
        let (status, log) = host.wait_for_end();
        assert!(status.success() && !log.contains("still in use"), "{log}");
    }
}
