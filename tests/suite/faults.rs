//! Faults during a migration, other than crashes of the host: connections break, the server
//! crashes, the disk is full, another session holds a lock, another master takes over, a module is
//! replaced. After each, a later start reaches the state of an uninterrupted migration. `rounds`
//! and `serving` have faults beside a host that serves.

mod rounds;
mod serving;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bbs::testing::database::{Address, Database, Dialect, sql};
use bbs::testing::migrate::{Decision, fault};
use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::manifest::{Direction, Manifest};
use bbs_lens::transform::{RunArguments, Transform, TransformError};

use super::crash::{
    SHARE, at_newest, command, inspect, migrate_to_newest, points, run, with_fixture,
};
use crate::harness::database::{
    IDLE_LIMIT_S, Kind, LockTimeout, TestDatabase, execute, on_each_database, on_each_server, texts,
};
use crate::harness::engine::Engine;
use crate::harness::fixture::{self, OLDEST};
use crate::harness::host::signal;
use crate::harness::layouts::NEWEST;
use crate::harness::modules::chain;
use crate::harness::on_each::on_each_mysql;
use crate::harness::proxy::Proxy;
use crate::harness::stored::{Rows, Stored};
use crate::harness::{PATIENCE, block_until, has_all_rounds, pause, selected};

/// Number of points at which a migration is disturbed, evenly distributed over the bytes that it
/// sends.
const POINTS_OF_FAULT: u64 = 8;
/// The time to open a connection that may be cut: far above what one takes.
const LONGEST_CONNECT: Duration = Duration::from_secs(2);
/// A machine that is busy for seconds disturbs a migration before its point of fault, which is then
/// tried again.
const ATTEMPTS: usize = 6;

/// A migration between the newest and the oldest version, and its result without a fault.
struct Undisturbed {
    start: TestDatabase,
    direction: &'static str,
    version: u64,
    wanted: Rows,
    sent: Option<u64>,
}

impl Undisturbed {
    /// The migration down from a database at the newest version, and the one back up, which
    /// restores its rows.
    async fn both(newest: TestDatabase, server: &Engine) -> [Self; 2] {
        let newest_rows = inspect(&newest, NEWEST).await;
        let oldest = newest.copy();
        let sent = migrate_counted(&oldest, server, "down", OLDEST).await;
        let down = Self {
            start: newest,
            direction: "down",
            version: OLDEST,
            wanted: inspect(&oldest, OLDEST).await,
            sent: Some(sent),
        };
        let up = Self {
            start: oldest,
            direction: "up",
            version: NEWEST,
            wanted: newest_rows,
            sent: None,
        };
        [down, up]
    }

    /// The number of bytes that it sends.
    async fn sent(&self, server: &Engine) -> u64 {
        match self.sent {
            Some(sent) => sent,
            None => {
                let database = self.start.copy();
                migrate_counted(&database, server, self.direction, self.version).await
            }
        }
    }
}

/// Migrates, and returns the number of bytes that were sent.
async fn migrate_counted(
    database: &TestDatabase,
    server: &Engine,
    direction: &str,
    version: u64,
) -> u64 {
    let proxy = Proxy::to(server.address());
    let path = database.through(proxy.address());
    migrate(&path, direction, version).await.unwrap();
    proxy.sent()
}

async fn migrate(
    database: &TestDatabase,
    direction: &str,
    version: u64,
) -> Result<Decision, String> {
    let stored = Stored::try_open(database, fixture::migrations()).await;
    finish(stored.map_err(|error| chain(&error))?, direction, version).await
}

/// [`migrate`] through a proxy. A connection that is cut stays so, and the migration does not try
/// to open it again for as long as a host does.
async fn migrate_through(
    proxy: &Proxy,
    database: &TestDatabase,
    direction: &str,
    version: u64,
) -> Result<Decision, String> {
    let Address::Server(mut server) = database.through(proxy.address()).address() else {
        panic!("a file has no address")
    };
    server.limits.connect_timeout = LONGEST_CONNECT;
    let opened = Database::open(&Address::Server(server)).await;
    let opened = opened.map_err(|error| chain(&error))?;
    finish(
        Stored::over(opened, fixture::migrations()),
        direction,
        version,
    )
    .await
}

async fn finish(stored: Stored, direction: &str, version: u64) -> Result<Decision, String> {
    let done = match direction {
        "up" => stored.up(version).await,
        _ => stored.down(version).await,
    };
    stored.context.database.close().await;
    done.map_err(|error| chain(&error))
}

on_each_server!(connection_cut_at_any_point_loses_nothing);
async fn connection_cut_at_any_point_loses_nothing(kind: Kind) {
    let server = kind.engine();
    for undisturbed in Undisturbed::both(at_newest(kind).await, server).await {
        let mut sent = undisturbed.sent(server).await;
        let Undisturbed {
            start,
            direction,
            version,
            wanted,
            ..
        } = undisturbed;
        // Begins with the last one, which is nearest to the cut-over.
        for point in selected((0..POINTS_OF_FAULT).rev()) {
            let mut attempts = 0;
            let database = loop {
                let database = start.copy();
                let proxy = Proxy::to(server.address());
                proxy.cut_after(sent * point / POINTS_OF_FAULT);
                let cut = migrate_through(&proxy, &database, direction, version).await;
                if proxy.is_cut() {
                    break database;
                }
                if cut.is_ok() {
                    // Whatever is repeated on a busy machine is sent more than once.
                    sent = proxy.sent();
                }
                attempts += 1;
                assert!(attempts < ATTEMPTS, "{direction}, {point}: {cut:?}");
            };
            migrate(&database, direction, version).await.unwrap();
            assert!(
                inspect(&database, version).await == wanted,
                "{direction}, cut after {point}/{POINTS_OF_FAULT}"
            );
        }
    }
}

async fn version_of(database: &TestDatabase) -> u64 {
    let stored = Stored::try_open(database, fixture::migrations()).await;
    let stored = stored.expect("the database answers");
    let version = stored.version().await;
    stored.context.database.close().await;
    version
}

on_each_mysql!(cut_over_whose_answer_is_lost_keeps_its_version);
/// The server has renamed the tables, which is not known to the host.
async fn cut_over_whose_answer_is_lost_keeps_its_version(kind: Kind) {
    let server = kind.engine();
    for undisturbed in Undisturbed::both(at_newest(kind).await, server).await {
        let Undisturbed {
            start,
            direction,
            version,
            wanted,
            ..
        } = undisturbed;
        let mut attempts = 0;
        let (database, cut) = loop {
            let database = start.copy();
            let proxy = Proxy::losing_the_answer_to(server.address(), b"` TO `desired_lrps");
            let cut = migrate_through(&proxy, &database, direction, version).await;
            if proxy.has_lost_answer() {
                break (database, cut);
            }
            attempts += 1;
            assert!(
                attempts < ATTEMPTS,
                "{direction}: no answer was lost: {cut:?}"
            );
        };
        assert!(cut.is_err(), "{direction}");
        assert_eq!(version_of(&database).await, version, "{direction}: {cut:?}");
        migrate(&database, direction, version).await.unwrap();
        assert!(
            inspect(&database, version).await == wanted,
            "{direction}: {cut:?}"
        );
    }
}

on_each_server!(server_crash_at_any_point_loses_nothing);
async fn server_crash_at_any_point_loses_nothing(kind: Kind) {
    let server = Arc::new(kind.own_engine());
    let start = TestDatabase::on(kind, server.address());
    fixture::write_share_to(&start, SHARE).await;
    migrate_to_newest(&start).await;
    for undisturbed in Undisturbed::both(start, &server).await {
        let sent = undisturbed.sent(&server).await;
        let Undisturbed {
            start,
            direction,
            version,
            wanted,
            ..
        } = undisturbed;
        for point in 1..POINTS_OF_FAULT / 2 {
            let mut attempts = 0;
            let database = loop {
                let database = start.copy();
                let proxy = Arc::new(Proxy::to(server.address()));
                proxy.stall_after(sent * point * 2 / POINTS_OF_FAULT);
                let crash = crash_when_stalled(&server, &proxy);
                let path = database.through(proxy.address());
                let crashed = migrate(&path, direction, version).await;
                proxy.cut();
                if crash.join().expect("the server starts again") {
                    assert!(crashed.is_err(), "the migration did not notice the crash");
                    break database;
                }
                attempts += 1;
                assert!(attempts < ATTEMPTS, "{direction}, {point}: {crashed:?}");
            };
            migrate(&database, direction, version).await.unwrap();
            assert!(
                inspect(&database, version).await == wanted,
                "{direction}, crash after {point}"
            );
        }
    }
}

/// The result is whether the server has crashed: the proxy may be cut before it is stalled.
fn crash_when_stalled(server: &Arc<Engine>, proxy: &Arc<Proxy>) -> std::thread::JoinHandle<bool> {
    let server = Arc::clone(server);
    let proxy = Arc::clone(proxy);
    std::thread::spawn(move || {
        let is_stalled = proxy.wait_for_stall();
        if is_stalled {
            server.restart();
            proxy.cut();
        }
        is_stalled
    })
}

on_each_server!(frozen_master_writes_nothing_after_a_takeover);
/// At crash points: the process is stopped, another master takes over and completes the migration,
/// and the first process is continued.
async fn frozen_master_writes_nothing_after_a_takeover(kind: Kind) {
    let start = at_newest(kind).await;
    let undisturbed = start.copy();
    migrate(&undisturbed, "down", OLDEST).await.unwrap();
    let wanted = inspect(&undisturbed, OLDEST).await;
    for point in selected(points(kind)) {
        let (database, frozen) = frozen_at(point, async || start.copy(), Clone::clone).await;
        migrate(&database, "down", OLDEST)
            .await
            .unwrap_or_else(|error| panic!("{point}: {error}"));
        signal("CONT", &frozen);
        let continued = frozen.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&continued.stderr);
        // At the last point the migration is complete.
        let succeeded = continued.status.success() && point != fault::AFTER_CLEAN_UP;
        assert!(
            !succeeded,
            "{point}: the frozen master did not notice the takeover: {stderr}"
        );
        assert!(
            inspect(&database, OLDEST).await == wanted,
            "{point}: {stderr}"
        );
    }
}

/// Starts a migration down that stops itself at a point, over `path` to a new database. The server
/// ends idle transactions after 2 s, so on a busy machine the migration may fail before the point;
/// then it is tried again on another database.
pub(super) async fn frozen_at(
    point: &str,
    new_database: impl AsyncFn() -> TestDatabase,
    path: impl Fn(&TestDatabase) -> TestDatabase,
) -> (TestDatabase, Child) {
    let mut failure = String::new();
    for _ in 0..ATTEMPTS {
        let database = new_database().await;
        let mut frozen = command("down", OLDEST, &path(&database))
            .env("BBS_FAULT", format!("stop:{point}"))
            .env(IDLE_LIMIT_S, "2")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if stops(&mut frozen) {
            return (database, frozen);
        }
        let ended = frozen.wait_with_output().unwrap();
        failure = String::from_utf8_lossy(&ended.stderr).into_owned();
    }
    panic!("{point}: the migration does not reach this point: {failure}");
}

/// Waits until the process is stopped (true) or has ended (false).
pub(super) fn stops(process: &mut Child) -> bool {
    let mut is_stopped = false;
    block_until(|| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        is_stopped = stat
            .rsplit(") ")
            .next()
            .is_some_and(|state| state.starts_with('T'));
        is_stopped || process.try_wait().unwrap().is_some()
    });
    is_stopped
}

on_each_server!(lock_of_another_session_only_delays_a_migration);
/// A session that reads the tables for a backup or holds a row lock is waited for, even with a lock
/// timeout of 1 s. On MySQL sessions have a lock timeout of their own.
async fn lock_of_another_session_only_delays_a_migration(kind: Kind) {
    let server = match kind.dialect() {
        Dialect::Mysql => kind.own_engine(),
        _ => kind.own_engine_with(&["-c", "lock_timeout=1s"]),
    };
    let start = TestDatabase::on(kind, server.address());
    fixture::write_share_to(&start, SHARE).await;
    migrate_to_newest(&start).await;
    let lock_timeout = LockTimeout::on(kind, server.address()).await;
    for undisturbed in Undisturbed::both(start, &server).await {
        let Undisturbed {
            start,
            direction,
            version,
            wanted,
            ..
        } = undisturbed;
        let locks = [
            "SELECT process_guid FROM desired_lrps",
            "SELECT process_guid FROM actual_lrps FOR UPDATE",
        ];
        for lock in locks {
            let database = start.copy();
            // Idle until the migration waits, however long that takes.
            let other = database.open_with_idle_limit(PATIENCE * 2).await;
            let mut holding = other.write().await.unwrap();
            holding.fetch(sql(lock)).await.unwrap();
            let release = async {
                database.wait_for_lock_wait().await;
                lock_timeout.pass().await;
                drop(holding);
                other.close().await;
            };
            let (delayed, ()) = tokio::join!(migrate(&database, direction, version), release);
            delayed.unwrap_or_else(|error| panic!("{direction}, {lock}: {error}"));
            assert!(
                inspect(&database, version).await == wanted,
                "{direction}, {lock}"
            );
        }
    }
}

/// Goal: the cut-over does not deadlock with an autovacuum, which locks a table and then its
/// indexes. Method: another session takes the same locks in the same order, the second one when the
/// cut-over waits for the table.
#[tokio::test(flavor = "multi_thread")]
async fn cut_over_locks_a_table_before_its_indexes() {
    const WAITING: &str = "SELECT c.relname::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                           WHERE NOT l.granted AND c.relname = 'desired_lrps' \
                           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let database = at_newest(Kind::Postgres).await;
    let undisturbed = database.copy();
    migrate(&undisturbed, "down", OLDEST).await.unwrap();
    // Idle until the migration waits, however long that takes.
    let other = database.open_with_idle_limit(PATIENCE * 2).await;
    let mut vacuum = other.write().await.unwrap();
    vacuum
        .execute(sql(
            "LOCK TABLE desired_lrps IN SHARE UPDATE EXCLUSIVE MODE",
        ))
        .await
        .unwrap();
    let migration = tokio::spawn({
        let database = database.clone();
        async move { migrate(&database, "down", OLDEST).await }
    });
    while texts(&other, WAITING).await.is_empty() {
        assert!(
            !migration.is_finished(),
            "the migration did not wait: {:?}",
            migration.await
        );
        pause().await;
    }
    vacuum
        .execute(sql("COMMENT ON INDEX desired_lrps_domain_idx IS 'visited'"))
        .await
        .expect("the index is not locked");
    vacuum.commit().await.unwrap();
    other.close().await;
    migration.await.unwrap().expect("the cut-over completes");
    assert!(inspect(&database, OLDEST).await == inspect(&undisturbed, OLDEST).await);
}

on_each_database!(full_disk_stops_a_migration_that_resumes_with_free_space);
/// The difference between the directions does not depend on the database: servers have the way up
/// in `tests/run --all` alone.
async fn full_disk_stops_a_migration_that_resumes_with_free_space(kind: Kind) {
    let rounds = if has_all_rounds(kind) { 2 } else { 1 };
    let directions = [("down", OLDEST), ("up", NEWEST)];
    for (direction, version) in directions.into_iter().take(rounds) {
        let disk = Disk::new(kind);
        let start = disk.database();
        fixture::write_to(&start).await;
        migrate_to_newest(&start).await;
        if direction == "up" {
            assert!(!run("down", OLDEST, &start, None));
        }
        let undisturbed = start.copy();
        let database = start.copy();
        migrate(&undisturbed, direction, version).await.unwrap();
        let wanted = inspect(&undisturbed, version).await;
        disk.fill(&database).await;
        assert!(
            !disk.migrates(&database, direction, version).await,
            "{direction}: the disk was not full"
        );
        disk.make_room(&database).await;
        migrate(&database, direction, version).await.unwrap();
        assert!(inspect(&database, version).await == wanted, "{direction}");
    }
}

/// A full disk, simulated for each database by means that need no root privileges.
struct Disk {
    kind: Kind,
    server: Option<Engine>,
}

/// Maximum file size: large enough for a segment of PostgreSQL's write-ahead log, too small for a
/// copied table.
const LARGEST_FILE: u64 = 1 << 20;
/// Settings of MariaDB and MySQL for all tables in one file of limited size.
const SMALLER_DISK: &str = "--innodb-data-file-path=ibdata1:12M:autoextend:max:96M";
const LARGER_DISK: &str = "--innodb-data-file-path=ibdata1:12M:autoextend:max:512M";

impl Disk {
    fn new(kind: Kind) -> Self {
        let server = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(kind.own_engine_with(&["-c", "autovacuum=off"])),
            Kind::Mariadb | Kind::Mysql => {
                let one_file = [
                    "--innodb-file-per-table=OFF",
                    "--innodb-data-file-path=ibdata1:12M:autoextend:max:64M",
                ];
                Some(kind.own_engine_with(&one_file))
            }
        };
        Self { kind, server }
    }

    fn database(&self) -> TestDatabase {
        self.server.as_ref().map_or_else(
            || TestDatabase::new(Kind::Sqlite),
            |server| TestDatabase::on(self.kind, server.address()),
        )
    }

    async fn fill(&self, database: &TestDatabase) {
        match self.kind {
            Kind::Sqlite => {}
            Kind::Postgres => {
                let server = self.server.as_ref().unwrap();
                // A restart without the limit first, so that recovery has nothing to write under
                // the limit.
                server.restart();
                server.restart_with_largest_file(LARGEST_FILE);
            }
            Kind::Mariadb | Kind::Mysql => {
                self.server.as_ref().unwrap().restart_with(&[SMALLER_DISK]);
                let opened = database.open().await;
                execute(
                    &opened,
                    "CREATE TABLE ballast (a INT AUTO_INCREMENT PRIMARY KEY, b LONGTEXT)",
                )
                .await;
                for size in [1_000_000, 100_000] {
                    let mut full = false;
                    while !full {
                        // MariaDB 11.8 ends when there is no room.
                        let Ok(mut tx) = opened.write().await else {
                            self.server.as_ref().unwrap().restart_with(&[SMALLER_DISK]);
                            break;
                        };
                        let row = sql("INSERT INTO ballast (b) VALUES (REPEAT('x', ?))").bind(size);
                        full = tx.execute(row).await.is_err();
                        if !full {
                            tx.commit().await.unwrap();
                        }
                    }
                }
                opened.close().await;
            }
        }
    }

    async fn make_room(&self, database: &TestDatabase) {
        match self.kind {
            Kind::Sqlite => {}
            Kind::Postgres => self.server.as_ref().unwrap().restart(),
            Kind::Mariadb | Kind::Mysql => {
                self.server.as_ref().unwrap().restart_with(&[LARGER_DISK]);
                let opened = database.open().await;
                execute(&opened, "DROP TABLE ballast").await;
                opened.close().await;
            }
        }
    }

    /// Tries to migrate; returns whether it succeeded.
    async fn migrates(&self, database: &TestDatabase, direction: &str, version: u64) -> bool {
        if self.kind != Kind::Sqlite {
            return migrate(database, direction, version).await.is_ok();
        }
        let process = command(direction, version, database);
        let limit = format!(
            "trap '' XFSZ; ulimit -f {}; exec \"$@\"",
            LARGEST_FILE / 512
        );
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &limit, "limited"])
            .arg(process.get_program())
            .args(process.get_args());
        limited
            .envs(
                process
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env_remove("BBS_FAULT");
        let output = limited.output().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&output.status),
            None,
            "the write fails without a signal"
        );
        output.status.success()
    }
}

on_each_database!(module_replaced_after_a_crash_restarts_the_copy);
/// The output of the first module is not mixed with that of the second. Without rows of the first
/// one, a start does not depend on the database: servers have it in `tests/run --all` alone.
async fn module_replaced_after_a_crash_restarts_the_copy(kind: Kind) {
    let start = with_fixture(kind).await;
    let points = [
        fault::AFTER_BATCH,
        fault::AFTER_COPY,
        fault::AFTER_BEGIN,
        fault::AFTER_PREPARE,
    ];
    let rounds = if has_all_rounds(kind) { 4 } else { 2 };
    for point in points.into_iter().take(rounds) {
        let database = start.copy();
        assert!(run("down", OLDEST, &database, Some(point)));
        let stored = Stored::open(&database, with_replaced_module()).await;
        stored
            .down(OLDEST)
            .await
            .unwrap_or_else(|error| panic!("{point}: {error}"));
        stored.assert_layout(OLDEST).await;
        let rows = stored.rows(OLDEST).await;
        let others: Vec<_> = rows["desired_lrps"]
            .iter()
            .filter(|row| row["run_info"] != Replaced::RUN_INFO)
            .collect();
        assert!(
            others.is_empty(),
            "{point}: {:?} and {} more",
            others[0]["run_info"],
            others.len() - 1
        );
        stored.context.database.close().await;
    }
}

/// The default migrations with another build of the one that splits metric tags.
fn with_replaced_module() -> Vec<Arc<dyn Transform>> {
    fixture::migrations()
        .into_iter()
        .map(|migration| match migration.manifest().version {
            Replaced::VERSION => Arc::new(Replaced {
                replaced: migration,
            }) as Arc<dyn Transform>,
            _ => migration,
        })
        .collect()
}

/// Behaves as the module that it replaces, except that `down` writes the same run info to every
/// record.
struct Replaced {
    replaced: Arc<dyn Transform>,
}

impl Replaced {
    const VERSION: u64 = 1_722_634_733;
    /// A protobuf message with one empty field.
    const RUN_INFO: &str = "\n\0";
}

impl Transform for Replaced {
    fn manifest(&self) -> &Manifest {
        self.replaced.manifest()
    }

    fn digest(&self) -> &str {
        "2222222222222222222222222222222222222222222222222222222222222222"
    }

    fn apply(
        &self,
        direction: Direction,
        run: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        let mut outcome = self.replaced.apply(direction, run, batch)?;
        if direction == Direction::Down {
            let run_infos = &mut outcome.tables[0].columns[0];
            let rows = run_infos.offsets.len() - 1;
            run_infos.offsets = (0..=rows)
                .map(|row| u32::try_from(row * Self::RUN_INFO.len()).unwrap())
                .collect();
            run_infos.values = Self::RUN_INFO.repeat(rows).into_bytes();
        }
        Ok(outcome)
    }
}
