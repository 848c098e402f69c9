//! The database servers that the other tests run on: they start, keep acknowledged writes over a
//! crash, and end with the process that started them, also when it is killed.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bbs::testing::database::{Dialect, sql};
use futures_util::FutureExt;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use tracing_subscriber::layer::SubscriberExt;

use crate::harness::database::{Kind, TestDatabase, execute, on_each_server, texts};
use crate::harness::engine::{PASSWORD, USER};
use crate::harness::ports::IS_CHILD;
use crate::harness::proxy::Proxy;
use crate::harness::{block_until, until_async};

/// Makes [`address_of_a_started_server_answers`] wait until its process is killed.
const WAITS: &str = "BBS_TEST_SERVER_WAITS";

/// Runs a statement on a new connection. Returns the first column of its rows.
async fn query(
    database: &TestDatabase,
    address: std::net::SocketAddr,
    statement: &str,
) -> sqlx::Result<Vec<String>> {
    let name = database.name();
    let statement = AssertSqlSafe(statement.to_owned());
    if database.kind.dialect() == Dialect::Mysql {
        let mut connection =
            MySqlConnection::connect(&format!("mysql://{USER}:{PASSWORD}@{address}/{name}"))
                .await?;
        let rows = sqlx::raw_sql(statement).fetch_all(&mut connection).await?;
        return Ok(rows.iter().map(|row| sqlx::Row::get(row, 0)).collect());
    }
    let mut connection =
        PgConnection::connect(&format!("postgres://{USER}:{PASSWORD}@{address}/{name}")).await?;
    let rows = sqlx::raw_sql(statement).fetch_all(&mut connection).await?;
    Ok(rows.iter().map(|row| sqlx::Row::get(row, 0)).collect())
}

on_each_server!(acknowledged_writes_survive_a_server_crash);
async fn acknowledged_writes_survive_a_server_crash(kind: Kind) {
    let engine = kind.own_engine();
    let database = TestDatabase::on(kind, engine.address());
    query(
        &database,
        engine.address(),
        "CREATE TABLE t (a VARCHAR(10) PRIMARY KEY)",
    )
    .await
    .unwrap();
    query(&database, engine.address(), "INSERT INTO t VALUES ('kept')")
        .await
        .unwrap();
    engine.crash();
    assert!(
        query(&database, engine.address(), "SELECT a FROM t")
            .await
            .is_err()
    );
    engine.restart();
    assert_eq!(
        query(&database, engine.address(), "SELECT a FROM t")
            .await
            .unwrap(),
        ["kept"]
    );
}

on_each_server!(test_databases_are_isolated_and_can_be_copied);
async fn test_databases_are_isolated_and_can_be_copied(kind: Kind) {
    let one = TestDatabase::new(kind);
    let other = TestDatabase::new(kind);
    let address = kind.engine().address();
    query(&one, address, "CREATE TABLE t (a VARCHAR(10) PRIMARY KEY)")
        .await
        .unwrap();
    query(&one, address, "INSERT INTO t VALUES ('row')")
        .await
        .unwrap();
    assert!(query(&other, address, "SELECT a FROM t").await.is_err());
    let copy = one.copy();
    query(&copy, address, "INSERT INTO t VALUES ('more')")
        .await
        .unwrap();
    assert_eq!(
        query(&one, address, "SELECT a FROM t").await.unwrap(),
        ["row"]
    );
}

on_each_server!(text_comparison_follows_the_engines_collation);
/// The engines order text differently from its bytes, and differ in whether case matters.
async fn text_comparison_follows_the_engines_collation(kind: Kind) {
    let database = TestDatabase::new(kind);
    let address = kind.engine().address();
    query(
        &database,
        address,
        "CREATE TABLE t (a VARCHAR(10) PRIMARY KEY)",
    )
    .await
    .unwrap();
    query(&database, address, "INSERT INTO t VALUES ('B'), ('a')")
        .await
        .unwrap();
    assert_eq!(
        query(&database, address, "SELECT a FROM t ORDER BY a")
            .await
            .unwrap(),
        ["a", "B"]
    );
    let ignores_case = kind.dialect() == Dialect::Mysql;
    assert_eq!(
        query(&database, address, "INSERT INTO t VALUES ('A')")
            .await
            .is_err(),
        ignores_case
    );
}

on_each_server!(proxy_can_be_cut_and_restored);
async fn proxy_can_be_cut_and_restored(kind: Kind) {
    let database = TestDatabase::new(kind);
    let proxy = Proxy::to(kind.engine().address());
    assert_eq!(
        query(&database, proxy.address(), "SELECT 'x'")
            .await
            .unwrap(),
        ["x"]
    );
    proxy.cut();
    assert!(
        query(&database, proxy.address(), "SELECT 'x'")
            .await
            .is_err()
    );
    proxy.heal();
    assert_eq!(
        query(&database, proxy.address(), "SELECT 'x'")
            .await
            .unwrap(),
        ["x"]
    );
    proxy.cut_after(10);
    assert!(
        query(&database, proxy.address(), "SELECT 'x'")
            .await
            .is_err()
    );
    assert!(proxy.is_cut());
}

on_each_server!(address_of_a_started_server_answers);
/// The test below runs this one in a child process, which it kills.
async fn address_of_a_started_server_answers(kind: Kind) {
    let address = kind.engine().address();
    std::net::TcpStream::connect(address).expect("the server accepts connections");
    println!("\naddress {address}");
    if std::env::var_os(WAITS).is_some() {
        std::future::pending::<()>().await;
    }
}

#[test]
fn server_ends_when_its_test_process_is_killed() {
    use std::io::{BufRead, BufReader};
    for kind in ["postgres", "mariadb"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = format!("databases::address_of_a_started_server_answers::{kind}");
        command
            .args(["--exact", &name, "--nocapture"])
            .env(WAITS, "1")
            .env(IS_CHILD, "1")
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let address = lines
            .filter_map(|line| Some(line.strip_prefix("address ")?.to_owned()))
            .next()
            .unwrap();
        assert!(std::net::TcpStream::connect(&address).is_ok());
        process.kill().unwrap();
        process.wait().unwrap();
        // Until the server has ended.
        block_until(|| std::net::TcpStream::connect(&address).is_err());
    }
}

/// Notices that the server sends besides results, as log lines.
#[derive(Clone, Default)]
struct Notices(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Notices {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs on one thread, because the log subscriber is set per thread. Each commit is abandoned after
/// it is sent and before it is answered, as at the termination of a host.
#[tokio::test]
async fn abandoned_commit_is_completed_and_nothing_is_sent_after_it() {
    let test = TestDatabase::new(Kind::Postgres);
    let database = test.open().await;
    execute(&database, "CREATE TABLE abandoned (id INTEGER PRIMARY KEY)").await;
    let notices = Notices::default();
    let place = notices.clone();
    let lines = tracing_subscriber::fmt::layer().with_writer(move || place.clone());
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines));
    // Such a notice would be in the log.
    execute(&database, "DO $$ BEGIN RAISE NOTICE 'seen'; END $$").await;
    let mut rows = 0_i32;
    let mut abandoned = 0;
    while abandoned < 10 {
        let mut tx = database.write().await.unwrap();
        tx.execute(sql("INSERT INTO abandoned VALUES (?)").bind(rows))
            .await
            .unwrap();
        rows += 1;
        // The server may answer before the commit is polled; such a commit is not abandoned.
        abandoned += i32::from(tx.commit().now_or_never().is_none());
    }
    let stored = "SELECT CAST(id AS VARCHAR(9)) FROM abandoned";
    until_async(async || texts(&database, stored).await.len() >= rows as usize).await;
    database.close().await;
    let log = String::from_utf8(notices.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("sqlx::postgres::notice").count(), 1, "{log}");
}
