//! Servers whose own settings differ from those that a host expects, that accept no writes, few
//! connections, or clients with certificates alone, that stay silent, or that have a certificate.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::Duration;

use bbs::testing::database::{Address, Database, Dialect, Tls, sql};

use crate::harness::certificates::{Authority, Pair, VALID};
use crate::harness::database::{TestDatabase, dump, execute, on_each_server, texts};
use crate::harness::engine::{Engine, PASSWORD, USER};
use crate::harness::host::Host;
use crate::harness::on_each::{on_each_mysql, on_one_server};
use crate::harness::proxy::Proxy;
use crate::harness::{PATIENCE, pause};
use crate::lock::upsert_domain;

use super::*;

on_each_mysql!(settings_of_the_server_do_not_change_what_statements_mean);
/// Goal: a host serves and migrates as elsewhere where the SQL mode gives quotes, backslashes and
/// empty texts another meaning, updates by other columns than keys are refused, no statement
/// commits by itself, a query returns no rows and may examine a single one, messages are German,
/// and the binary log cannot hold what transactions at the isolation of the server write.
async fn settings_of_the_server_do_not_change_what_statements_mean(kind: Kind) {
    let engine = kind.own_engine_with(&[
        kind.with_other_sql_modes(),
        // MySQL has no option of a server for some of them.
        "--init-connect=SET sql_safe_updates = 1, autocommit = 0, completion_type = 1, sql_select_limit = 0, \
         max_join_size = 1, sql_big_selects = 0",
        "--lc-messages=de_DE",
        "--transaction-isolation=READ-COMMITTED",
        "--log-bin=log",
        "--binlog-format=STATEMENT",
    ]);
    let database = TestDatabase::on(kind, engine.address());
    fixture::write_to(&database).await;
    let opened = database.open().await;
    let variable = match kind {
        Kind::Mysql => "transaction_isolation",
        _ => "tx_isolation",
    };
    let isolation = texts(
        &opened,
        &format!("SELECT CONCAT(@@GLOBAL.{variable}, ' ', @@SESSION.{variable})"),
    )
    .await;
    assert_eq!(isolation, ["READ-COMMITTED REPEATABLE-READ"]);
    let settings = "SELECT CONCAT_WS(' ', @@autocommit + 0, @@completion_type, @@sql_select_limit, @@sql_big_selects + 0, \
                    @@lc_messages)";
    assert_eq!(
        texts(&opened, settings).await,
        ["1 NO_CHAIN 18446744073709551615 1 en_US"]
    );
    let original = dump(&database).await;
    let installation = Installation::on(database.clone(), &modules::modules());
    let host = installation.serve();
    let domain = r#"it's a "domain" \"#;
    upsert_domain(host.address, domain).await.unwrap();
    assert_eq!(
        texts(
            &opened,
            "SELECT domain FROM domains WHERE domain LIKE 'it%'"
        )
        .await,
        [domain]
    );
    assert!(host.terminate().success());
    execute(&opened, "DELETE FROM domains WHERE domain LIKE 'it%'").await;
    opened.close().await;
    installation.succeed(&["migrate", "down", "--to", &fixture::VERSION.to_string()]);
    let diegos = |dump: Vec<String>| {
        dump.into_iter()
            .filter(|line| fixture::TABLES.iter().any(|table| line.starts_with(table)))
            .collect::<Vec<_>>()
    };
    assert_eq!(diegos(dump(&database).await), diegos(original));
}

on_each_server!(records_that_are_made_at_once_do_not_wait_for_each_other);
/// Two transactions look for a record that does not exist, to change it, and make it: the gap
/// between existing keys is not locked.
async fn records_that_are_made_at_once_do_not_wait_for_each_other(kind: Kind) {
    let database = TestDatabase::new(kind);
    let opened = database.open().await;
    execute(&opened, "CREATE TABLE t (a VARCHAR(10) PRIMARY KEY)").await;
    let mut one = opened.write().await.unwrap();
    let mut other = opened.write().await.unwrap();
    for (tx, key) in [(&mut one, "one"), (&mut other, "other")] {
        if kind.dialect() == Dialect::Mysql {
            tx.execute(sql("SET SESSION innodb_lock_wait_timeout = 1"))
                .await
                .unwrap();
        }
        assert!(
            tx.fetch(sql("SELECT a FROM t WHERE a = ? FOR UPDATE").bind(key))
                .await
                .unwrap()
                .is_empty()
        );
    }
    for (mut tx, key) in [(one, "one"), (other, "other")] {
        tx.execute(sql("INSERT INTO t VALUES (?)").bind(key))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(
        texts(&opened, "SELECT a FROM t ORDER BY a").await,
        ["one", "other"]
    );
    opened.close().await;
}

/// Asserts that a host writes nothing, and reports that the server accepts no writes instead of a
/// missing privilege.
async fn assert_read_only_is_reported(database: &TestDatabase) {
    let before = dump(database).await;
    let installation = Installation::on(database.clone(), &modules::modules());
    installation.succeed(&["migrate", "plan"]);
    for arguments in [&["serve"][..], &["migrate", "up"]] {
        let message = installation.fail(arguments);
        assert!(
            message.contains("the server of this database accepts no writes"),
            "{arguments:?}: {message}"
        );
        assert!(
            !message.contains("must be allowed"),
            "{arguments:?}: {message}"
        );
    }
    assert_eq!(dump(database).await, before);
}

on_each_mysql!(read_only_server_is_reported_as_such);
async fn read_only_server_is_reported_as_such(kind: Kind) {
    let engine = kind.own_engine();
    let database = TestDatabase::on(kind, engine.address());
    fixture::write_small_to(&database).await;
    engine.restart_with(&[kind.without_writes()]);
    assert_read_only_is_reported(&database).await;
}

on_one_server!(server_in_offline_mode_is_waited_for, mysql);
/// Goal: a member that has left its group, which is in that mode then, counts as one that is away.
async fn server_in_offline_mode_is_waited_for() {
    let engine = Kind::Mysql.own_engine();
    let database = TestDatabase::on(Kind::Mysql, engine.address());
    let mut administrator = administrator(&engine).await;
    let on = sqlx::raw_sql("SET GLOBAL offline_mode = ON");
    on.execute(&mut administrator).await.unwrap();
    let mut opening = std::pin::pin!(database.open());
    let early = tokio::time::timeout(Duration::from_secs(1), opening.as_mut()).await;
    assert!(early.is_err(), "it goes on to wait");
    let off = sqlx::raw_sql("SET GLOBAL offline_mode = OFF");
    off.execute(&mut administrator).await.unwrap();
    opening.await.close().await;
}

on_one_server!(read_only_transactions_are_reported_as_such, postgres);
/// Method: the same error as that of a standby.
async fn read_only_transactions_are_reported_as_such() {
    let database = TestDatabase::new(Kind::Postgres);
    fixture::write_small_to(&database).await;
    let setting = |value| {
        format!(
            "ALTER DATABASE {} SET default_transaction_read_only = {value}",
            database.name()
        )
    };
    let opened = database.open().await;
    execute(&opened, &setting("on")).await;
    assert_read_only_is_reported(&database).await;
    execute(&opened, &setting("off")).await;
    opened.close().await;
}

on_each_server!(connections_keep_to_the_limit_with_those_of_the_lease);
/// Method: far more calls at once than connections; connections stay open for minutes. A migration
/// up and down, so that work that holds two connections at once would wait for ever.
async fn connections_keep_to_the_limit_with_those_of_the_lease(kind: Kind) {
    let all = if kind == Kind::Postgres {
        // Without the server's own processes, such as those that analyse a table.
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    } else {
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    };
    for (limit, most) in [(1, 3), (6, 6)] {
        let database = TestDatabase::new(kind);
        fixture::write_small_to(&database).await;
        let installation = Installation::on(database.clone(), &modules::modules())
            .set("max_open_database_connections", limit);
        let mut host = installation.serve();
        let calls = (0..50)
            .map(async |number| upsert_domain(host.address, &format!("domain-{number}")).await);
        futures_util::future::try_join_all(calls).await.unwrap();
        let Address::Server(mut server) = database.address() else {
            panic!("{kind:?} has no server")
        };
        server.limits.max_connections = 1;
        let opened = Database::open(&Address::Server(server)).await.unwrap();
        let open = async || texts(&opened, all).await[0].parse::<u64>().unwrap();
        // A process of the server may end later than its connection.
        let within = async {
            while !(2..=most).contains(&open().await) {
                pause().await;
            }
        };
        let kept = tokio::time::timeout(PATIENCE, within).await;
        assert!(kept.is_ok(), "{} connections", open().await);
        opened.close().await;
        let raised = format!("and this host needs {most} connections to this database");
        let output = host.output().join("\n");
        assert_eq!(output.contains(&raised), limit < most, "{output}");
        assert!(host.terminate().success());
        installation.succeed(&["migrate", "down", "--to", &fixture::VERSION.to_string()]);
    }
}

on_each_server!(silent_server_ends_a_start_and_a_command_within_the_connection_timeout);
/// Method: a proxy accepts connections and passes nothing on, as the machine of a server that has
/// frozen.
async fn silent_server_ends_a_start_and_a_command_within_the_connection_timeout(kind: Kind) {
    let database = TestDatabase::new(kind);
    let proxy = Proxy::to(kind.engine().address());
    proxy.stall();
    let silent = Installation::on(database.through(proxy.address()), &modules::modules())
        .set("db_connection_timeout", "2s");
    for arguments in [&["migrate", "status"][..], &["serve"]] {
        let message = silent.fail(arguments);
        assert!(
            message.contains("the server did not answer within 2s"),
            "{arguments:?}: {message}"
        );
    }
}

on_each_server!(call_during_a_takeover_waits_for_its_end);
/// Goal: Cloud Controller's calls succeed when a standby takes over: it repeats a call that is
/// refused a connection, and none that is answered with 503. Method: a transaction of the previous
/// master holds the fence until the host has waited for it in vain.
async fn call_during_a_takeover_waits_for_its_end(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    assert!(installation.serve().terminate().success());
    let previous = installation.database.open_with_idle_limit(PATIENCE).await;
    let mut open = previous.write().await.unwrap();
    open.execute(sql("UPDATE bbs_fence SET token = token WHERE id = 1"))
        .await
        .unwrap();
    let mut host = Host::start(installation.command(&["serve"]), "listening");
    let call = crate::harness::http_client().post(host.url("/v1/ping"));
    let call = tokio::spawn(async move { call.send().await });
    host.wait_for_line(|line| line.contains("a transaction of the previous master is still open"));
    open.commit().await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
    previous.close().await;
    assert!(host.terminate().success());
}

/// Lets only clients in that use TLS and present a certificate made out to their user.
fn require_certificates(engine: &Engine, authority: &Authority, server: &Pair) {
    let data = engine.folder().join("data");
    let owner = std::fs::metadata(&data).unwrap();
    let put = |name: &str, text: &str| {
        let path = data.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    };
    put("ca.crt", &authority.certificate());
    put("server.crt", &server.certificate);
    put("server.key", &server.key);
    // By the second line the server answers the harness, which waits for it without TLS.
    put(
        "pg_hba.conf",
        "hostssl all all 127.0.0.1/32 cert\nhostnossl all all 127.0.0.1/32 scram-sha-256\n",
    );
    let files = [
        "-c",
        "ssl=on",
        "-c",
        "ssl_cert_file=server.crt",
        "-c",
        "ssl_key_file=server.key",
    ];
    engine.restart_with(&[&files[..], &["-c", "ssl_ca_file=ca.crt"]].concat());
}

on_one_server!(
    client_certificate_in_a_connection_string_is_presented,
    postgres
);
async fn client_certificate_in_a_connection_string_is_presented() {
    let engine = Kind::Postgres.own_engine();
    let database = TestDatabase::on(Kind::Postgres, engine.address());
    let authority = Authority::new("the database's");
    require_certificates(&engine, &authority, &authority.issue("server", VALID));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.crt"), authority.certificate()).unwrap();
    authority.issue(USER, VALID).write(folder.path(), "own");
    authority
        .issue("another", VALID)
        .write(folder.path(), "others");
    let files = folder.path().display();
    let on = |presented: &str| {
        let address = engine.address();
        let name = database.name();
        let verified = format!("sslmode=verify-full&sslrootcert={files}/ca.crt");
        let text = format!("postgres://{USER}:{PASSWORD}@{address}/{name}?{verified}{presented}");
        Installation::on(database.clone(), &modules::modules())
            .set("database_connection_string", text)
    };
    let presenting = |name: &str| {
        on(&format!(
            "&sslcert={files}/{name}.crt&sslkey={files}/{name}.key"
        ))
    };
    let message = on("").fail(&["migrate", "status"]);
    assert!(
        message.contains("requires a valid client certificate"),
        "{message}"
    );
    let message = presenting("others").fail(&["migrate", "status"]);
    assert!(
        message.contains("certificate authentication failed"),
        "{message}"
    );
    let host = presenting("own").serve();
    upsert_domain(host.address, "certified").await.unwrap();
    assert!(host.terminate().success());
}

on_each_mysql!(certificate_of_a_server_is_verified_as_configured);
/// Method: the certificate names a host, and no address.
async fn certificate_of_a_server_is_verified_as_configured(kind: Kind) {
    const NAME: &str = "localhost";
    const ADDRESS: &str = "127.0.0.1";
    let folder = tempfile::tempdir().unwrap();
    // The server runs as another user.
    let readable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable).unwrap();
    let at = |name: &str| folder.path().join(name);
    let authority = Authority::new("the database's");
    std::fs::write(at("ca.crt"), authority.certificate()).unwrap();
    let stranger = Authority::new("a stranger's").certificate();
    std::fs::write(at("stranger.crt"), stranger).unwrap();
    let server = authority.issue_for("server", &[NAME], VALID);
    server.write(folder.path(), "server");
    let engine = kind.own_engine_with(&[
        &format!("--ssl-cert={}", at("server.crt").display()),
        &format!("--ssl-key={}", at("server.key").display()),
    ]);
    let database = TestDatabase::on(kind, engine.address());
    for (host, ca, identity, refusal) in [
        (NAME, "ca.crt", true, None),
        (ADDRESS, "ca.crt", false, None),
        (ADDRESS, "ca.crt", true, Some("not valid for name")),
        (NAME, "stranger.crt", false, Some("UnknownIssuer")),
    ] {
        let Address::Server(mut server) = database.address() else {
            panic!("{kind:?} has no server")
        };
        host.clone_into(&mut server.host);
        let ca_file = Some(at(ca));
        server.tls = Tls::Verified { ca_file, identity };
        let opened = Database::open(&Address::Server(server)).await;
        let case = format!("{host}, {ca}, {identity}");
        match (opened, refusal) {
            (Ok(opened), None) => opened.close().await,
            (Ok(_), Some(_)) => panic!("{case}: it was accepted"),
            (Err(error), refusal) => {
                let error = modules::chain(&error);
                let is_expected = refusal.is_some_and(|refusal| error.contains(refusal));
                assert!(is_expected, "{case}: {error}");
            }
        }
    }
}
