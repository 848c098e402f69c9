//! The shared test harness: temporary folders, databases on servers that the tests start, the built
//! modules, the fixture, the host as a process. Waits for conditions, never for a fixed time.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bbs::testing::migrate::fault;

pub mod bosh;
pub mod certificates;
pub mod console;
pub mod database;
pub mod declared;
pub mod deployment;
pub mod diego;
pub mod engine;
pub mod etcd;
pub mod event_stream;
pub mod fixture;
pub mod galera;
pub mod host;
pub mod layouts;
pub mod load;
pub mod locket;
pub mod log_lines;
pub mod loggregator;
pub mod mariadb;
pub mod modules;
pub mod mysql;
pub mod neighbours;
pub mod on_each;
pub mod once;
pub mod output;
pub mod packages;
pub mod pgbouncer;
pub mod ports;
pub mod postgres;
pub mod proxy;
pub mod registry;
pub mod seed;
pub mod server;
pub mod stored;
pub mod templates;
pub mod terminal;
pub mod watch;

/// Longest wait for a condition.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Environment variable that `tests/run --all` sets.
pub const ALL: &str = "BBS_TEST_ALL";

/// The crash points in loops that pass them at least twice in each test of crashes. Those of a
/// rotation's tables are not among them: the tests rotate the keys of one table.
const REPEATED_POINTS: [&str; 7] = [
    fault::BEFORE_BATCH,
    fault::AFTER_BATCH,
    fault::BETWEEN_CLEAN_UPS,
    fault::BEFORE_ROTATION_BATCH,
    fault::AFTER_ROTATION_BATCH,
    fault::BEFORE_IMPORT_BATCH,
    fault::AFTER_IMPORT_BATCH,
];

/// Whether tests that repeat themselves do so for everything, and not for a selection.
pub fn tests_all() -> bool {
    std::env::var_os(ALL).is_some()
}

/// Every other point of a fault, from the first one on; all of them in `tests/run --all`.
pub fn selected<T>(points: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    points.step_by(if tests_all() { 1 } else { 2 })
}

/// Whether a test has those rounds that show the same on each database: servers have them in
/// `tests/run --all` alone.
pub fn has_all_rounds(kind: database::Kind) -> bool {
    kind == database::Kind::Sqlite || tests_all()
}

/// The passages of a crash point at which a test kills the process. The second passage differs from
/// the first in the progress that is stored, which is the same on each database.
pub fn killed_passages(kind: database::Kind, point: &str) -> RangeInclusive<u32> {
    if has_all_rounds(kind) && REPEATED_POINTS.contains(&point) {
        1..=2
    } else {
        1..=1
    }
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the host is a folder of the workspace")
        .to_owned()
}

/// The host's executable.
pub fn bbs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bbs"))
}

/// A command of the host's executable that finds the compiled modules which all tests share.
pub fn command() -> std::process::Command {
    let mut command = std::process::Command::new(bbs());
    command
        .env("XDG_CACHE_HOME", once::folder())
        .env_remove("CACHE_DIRECTORY");
    command
}

/// A client for plain HTTP. It has no certificates of authorities: reading those of the system takes
/// longer than most calls.
pub fn http_client() -> reqwest::Client {
    bbs::choose_cryptography();
    let client = reqwest::Client::builder().tls_certs_only([]);
    client.build().expect("a client without TLS")
}

/// Waits before a condition is checked again.
pub async fn pause() {
    tokio::time::sleep(POLL_INTERVAL).await;
}

/// Checks `condition` again and again until it holds.
///
/// # Panics
/// After 60 s without it.
pub async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            pause().await;
        }
    };
    in_time(waiting).await;
}

/// [`until`] for a condition whose check waits, as for an answer.
///
/// # Panics
/// After 60 s without it.
pub async fn until_async(mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            pause().await;
        }
    };
    in_time(waiting).await;
}

async fn in_time(waiting: impl Future<Output = ()>) {
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("the condition holds within 60 s");
}

/// [`until`] for a thread outside of a runtime. Blocks.
///
/// # Panics
/// After 60 s without it.
#[track_caller]
pub fn block_until(condition: impl FnMut() -> bool) {
    assert!(
        holds_within(PATIENCE, condition),
        "the condition holds within 60 s"
    );
}

/// Checks `condition` again and again until it holds; returns whether it did in time. Blocks.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where a thread polls a condition"
)]
pub fn holds_within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}
