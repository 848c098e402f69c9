//! Rotation of the encryption key of large tables on each database, while the API answers a steady
//! load: rows per second, and the latency of the load. The bound on PostgreSQL and MariaDB is
//! 30,000 rows per second.
//!
//! - `BBS_BENCH_ROWS`: number of rows of each table (100,000)

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs::testing::clock::SystemClock;
use bbs::testing::database::Dialect;
use bbs::testing::keys::{self, KeyColumn, RotationContext, SealedScope, SealedTable};
use bbs::testing::throttle::Throttle;
use bbs_encryption::Keyring;
use bbs_lens::layout::values::Encoding;
use bbs_proto::models as proto;
use harness::database::{Kind, execute, texts};
use harness::fixture;
use harness::server::{Options, Server};
use hdrhistogram::Histogram;
use tokio::sync::watch;

/// Calls are due at fixed times: no coordinated omission.
const CALL_EVERY: Duration = Duration::from_millis(20);
const BEFORE: Duration = Duration::from_secs(3);

fn keys(active: &str) -> Keyring {
    let keys = [
        ("key-2024", "correct horse battery staple"),
        ("key-2026", "another passphrase"),
    ];
    Keyring::new(keys, active).expect("a valid keyring")
}

fn table(name: &str, key: &[(&str, Encoding)], columns: &[&str]) -> SealedTable {
    SealedTable {
        name: name.to_owned(),
        key: key
            .iter()
            .map(|(name, encoding)| KeyColumn {
                name: (*name).to_owned(),
                encoding: *encoding,
            })
            .collect(),
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn tables() -> [SealedTable; 2] {
    let guid = ("process_guid", Encoding::Text);
    let instance = [
        guid,
        ("instance_index", Encoding::Integer),
        ("presence", Encoding::Integer),
    ];
    [
        table(
            "actual_lrps",
            &instance,
            &["net_info", "internal_routes", "metric_tags"],
        ),
        table(
            "desired_lrps",
            &[guid],
            &["run_info", "volume_placement", "routes", "metric_tags"],
        ),
    ]
}

#[tokio::main]
async fn main() {
    let rows: usize =
        std::env::var("BBS_BENCH_ROWS").map_or(100_000, |rows| rows.parse().expect("a number"));
    println!(
        "{rows} rows a table; a call every {} ms, in microseconds at the median, p99 and most",
        CALL_EVERY.as_millis()
    );
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::Mariadb] {
        measure(kind, rows).await;
    }
}

async fn measure(kind: Kind, rows: usize) {
    let keyring = Some(keys("key-2026"));
    let server = Arc::new(
        Server::start(Options {
            with_fixture: true,
            keyring,
            ..Options::on(kind)
        })
        .await,
    );
    for table in tables() {
        fill(&server, &table.name, rows).await;
    }
    let baseline = loaded(&server, tokio::time::sleep(BEFORE)).await.1;
    println!("{kind:?}, before        {}", describe(&baseline));
    for table in tables() {
        let name = table.name.clone();
        let context = context(&server, vec![table]);
        let rotation = async {
            execute(
                &server.database,
                "DELETE FROM configurations WHERE id = 'encryption_key_label'",
            )
            .await;
            let began = Instant::now();
            let rotated = keys::rotate(&context, &server.fence)
                .await
                .expect("the rotation succeeds");
            assert_eq!(rotated.unreadable, 0);
            (rotated.rewritten, began.elapsed())
        };
        let ((rewritten, spent), calls) = loaded(&server, rotation).await;
        let rate = rewritten as f64 / spent.as_secs_f64();
        let own = own_update(&server, &context.scope.tables[0]).await;
        println!(
            "{kind:?}, {name:<14}{}   {rewritten} rows, {rate:.0} rows/s, {:.2} x the database's own UPDATE",
            describe(&calls),
            spent.as_secs_f64() / own.as_secs_f64()
        );
    }
}

/// The time of the database's own `UPDATE` that writes other text of the same length into the same
/// columns.
async fn own_update(server: &Server, table: &SealedTable) -> Duration {
    // SQLite has no REVERSE, and rewrites a row even if its values do not change.
    let sqlite = server.database.dialect() == Dialect::Sqlite;
    let sets = table
        .columns
        .iter()
        .map(|name| {
            if sqlite {
                format!("{name} = {name} || ''")
            } else {
                format!("{name} = REVERSE({name})")
            }
        })
        .collect::<Vec<_>>()
        .join(", ");
    let began = Instant::now();
    execute(
        &server.database,
        &format!("UPDATE {} SET {sets}", table.name),
    )
    .await;
    began.elapsed()
}

fn context(server: &Server, tables: Vec<SealedTable>) -> RotationContext {
    RotationContext {
        database: server.database.clone(),
        keyring: Arc::new(keys("key-2026")),
        scope: SealedScope {
            data_version: fixture::VERSION,
            tables,
        },
        progress: server.progress.clone(),
        lock_timeout: harness::PATIENCE,
        throttle: Throttle::default(),
        clock: Arc::new(SystemClock),
    }
}

/// The fixture's rows over and over, under keys of their own.
async fn fill(server: &Server, table: &str, rows: usize) {
    let database = &server.database;
    let count: usize = texts(database, &format!("SELECT COUNT(*) FROM {table}")).await[0]
        .parse()
        .expect("a count");
    let names = columns_of(table);
    let copies = rows.div_ceil(count);
    let statement = format!(
        "INSERT INTO {table} (process_guid, {names}) \
         WITH RECURSIVE copy (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < {copies}) \
         SELECT CONCAT(n, '-', process_guid), {names} FROM copy CROSS JOIN {table}"
    );
    execute(database, &statement).await;
}

fn columns_of(table: &str) -> String {
    let row = fixture::rows(table).remove(0);
    let names = row.keys().filter(|name| *name != "process_guid").cloned();
    names.collect::<Vec<_>>().join(", ")
}

/// Does something while the load runs; gives what the calls took.
async fn loaded<T>(server: &Arc<Server>, work: impl Future<Output = T>) -> (T, Histogram<u64>) {
    let (stop, stopped) = watch::channel(false);
    let load = tokio::spawn(call_until(Arc::clone(server), stopped));
    let done = work.await;
    stop.send(true).expect("the load listens");
    (done, load.await.expect("the load ends"))
}

/// Reads and changes desired LRPs of the fixture, one after another.
async fn call_until(server: Arc<Server>, stop: watch::Receiver<bool>) -> Histogram<u64> {
    let mut times = Histogram::new(3).expect("three digits");
    let guids: Vec<_> = fixture::rows("desired_lrps")
        .iter()
        .map(|row| {
            row["process_guid"]
                .as_str()
                .expect("a guid")
                .as_bytes()
                .to_vec()
        })
        .collect();
    let began = Instant::now();
    for number in 0.. {
        if *stop.borrow() {
            break;
        }
        let due = began + CALL_EVERY * number;
        tokio::time::sleep_until(due.into()).await;
        let process_guid = guids[number as usize % guids.len()].clone();
        if number % 2 == 0 {
            let request = proto::DesiredLrpByProcessGuidRequest { process_guid };
            let reply = server
                .call("/v1/desired_lrps/get_by_process_guid.r3", &request)
                .await;
            reply.assert_no_error();
        } else {
            let update = proto::DesiredLrpUpdate {
                annotation: Some(number.to_string().into()),
                ..Default::default()
            };
            server.update_lrp(process_guid, update).await;
        }
        let micros = u64::try_from(due.elapsed().as_micros()).expect("less than an age");
        times.record(micros.max(1)).expect("any time fits");
    }
    times
}

fn describe(times: &Histogram<u64>) -> String {
    let at = |quantile| times.value_at_quantile(quantile);
    format!(
        "{:>6} calls {:>7} {:>8} {:>8}",
        times.len(),
        at(0.5),
        at(0.99),
        times.max()
    )
}
