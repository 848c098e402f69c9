//! What else can happen to a migration: the network goes, the server goes, the disk is full, somebody holds a lock,
//! another master appears, a module is replaced. Whatever happens, a later start arrives where an undisturbed one does.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bbs::database::sql;
use bbs::layout::columns::{Batch, Outcome, RunArguments};
use bbs::layout::manifest::{Direction, Manifest};
use bbs::lens::transform::{Transform, TransformError};
use bbs::migrate::{Decision, fault};

use super::crash::{OLDEST, command, look, points, run, with_fixture};
use crate::harness::database::{IDLE_LIMIT_S, Kind, TestDatabase, execute, on_each_database, on_each_server, texts};
use crate::harness::engine::Engine;
use crate::harness::fixture::{self, VERSION};
use crate::harness::modules::chain;
use crate::harness::proxy::Proxy;
use crate::harness::stored::{Rows, Stored};

/// How many places of a migration are disturbed, evenly over what it sends.
const PLACES: u64 = 8;
/// How long somebody else's lock stands in the way: longer than the servers of these tests let anybody wait.
const HELD: Duration = Duration::from_secs(3);

/// The two directions: from where, by which word, to where.
async fn ways(database: TestDatabase) -> [(TestDatabase, &'static str, u64); 2] {
    let oldest = database.copy();
    assert!(!run("down", OLDEST, &oldest, None));
    [(database, "down", OLDEST), (oldest, "up", VERSION)]
}

/// What an undisturbed migration leaves, and how much it sends.
async fn undisturbed(start: &TestDatabase, server: &Engine, direction: &str, version: u64) -> (Rows, u64) {
    let (database, proxy) = (start.copy(), Proxy::to(server.address()));
    migrate(&database.through(proxy.address()), direction, version).await.unwrap();
    (look(&database, version).await, proxy.sent())
}

async fn migrate(database: &TestDatabase, direction: &str, version: u64) -> Result<Decision, String> {
    let stored = Stored::try_open(database, fixture::migrations()).await.map_err(|error| chain(&error))?;
    let done = match direction {
        "up" => stored.up(version).await,
        _ => stored.down(version).await,
    };
    stored.context.database.close().await;
    done.map_err(|error| chain(&error))
}

on_each_server!(a_connection_cut_anywhere_costs_nothing);
async fn a_connection_cut_anywhere_costs_nothing(kind: Kind) {
    let server = kind.engine();
    for (start, direction, version) in ways(with_fixture(kind).await).await {
        let (wanted, sent) = undisturbed(&start, server, direction, version).await;
        for place in 0..PLACES {
            let (database, proxy) = (start.copy(), Proxy::to(server.address()));
            proxy.cut_after(sent * place / PLACES);
            let cut = migrate(&database.through(proxy.address()), direction, version).await;
            assert!(proxy.is_cut() || cut.is_ok(), "{cut:?}");
            migrate(&database, direction, version).await.unwrap();
            assert!(look(&database, version).await == wanted, "{direction}, cut after {place}/{PLACES}");
        }
    }
}

on_each_server!(a_server_that_crashes_anywhere_costs_nothing);
async fn a_server_that_crashes_anywhere_costs_nothing(kind: Kind) {
    let server = Arc::new(kind.own_engine());
    let start = TestDatabase::on(kind, server.address());
    fixture::write_to(&start).await;
    for (start, direction, version) in ways(start).await {
        let (wanted, sent) = undisturbed(&start, &server, direction, version).await;
        for place in 1..PLACES / 2 {
            let (database, proxy) = (start.copy(), Arc::new(Proxy::to(server.address())));
            let crash = crash_after(&server, &proxy, sent * place * 2 / PLACES);
            let crashed = migrate(&database.through(proxy.address()), direction, version).await;
            crash.join().expect("the server starts again");
            assert!(crashed.is_err(), "the server was there all the time");
            migrate(&database, direction, version).await.unwrap();
            assert!(look(&database, version).await == wanted, "{direction}, crash after {place}");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "outside a runtime, with nothing to wait on but another process")]
fn crash_after(server: &Arc<Engine>, proxy: &Arc<Proxy>, bytes: u64) -> std::thread::JoinHandle<()> {
    let (server, proxy) = (Arc::clone(server), Arc::clone(proxy));
    std::thread::spawn(move || {
        while proxy.sent() < bytes {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.restart();
    })
}

on_each_server!(a_master_that_froze_changes_nothing_more);
/// At every crash point: the process stops, as a machine without air does, another master takes over and finishes,
/// and the first one wakes up.
async fn a_master_that_froze_changes_nothing_more(kind: Kind) {
    let start = with_fixture(kind).await;
    let undisturbed = start.copy();
    migrate(&undisturbed, "down", OLDEST).await.unwrap();
    let wanted = look(&undisturbed, OLDEST).await;
    for point in points(kind) {
        let database = start.copy();
        let mut frozen = command("down", OLDEST, &database);
        frozen.env("BBS_FAULT", format!("stop:{point}")).env(IDLE_LIMIT_S, "1");
        let mut frozen = frozen.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(stops(&mut frozen), "{point}: no migration comes by this point");
        migrate(&database, "down", OLDEST).await.unwrap_or_else(|error| panic!("{point}: {error}"));
        signal("CONT", &frozen);
        let woken = frozen.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&woken.stderr);
        // At the last point it has nothing left to do.
        let went_on = woken.status.success() && point != fault::AFTER_CLEAN_UP;
        assert!(!went_on, "{point}: it went on as if nothing had happened: {said}");
        assert!(look(&database, OLDEST).await == wanted, "{point}: {said}");
    }
}

/// Waits until the process has stopped; gives whether it did, and did not end instead.
#[expect(clippy::disallowed_methods, reason = "outside a runtime, with nothing to wait on but another process")]
pub(super) fn stops(process: &mut Child) -> bool {
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        if state == Some('T') {
            return true;
        }
        if process.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn signal(name: &str, process: &Child) {
    let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {}", process.id())]).status();
    assert!(sent.unwrap().success());
}

on_each_server!(a_lock_that_somebody_holds_only_delays);
/// Whoever reads the tables for a backup, or holds a row in a console, is waited for, however impatient the server is.
async fn a_lock_that_somebody_holds_only_delays(kind: Kind) {
    let server = match kind {
        Kind::Mysql => kind.own_engine_with(&["--lock-wait-timeout=1", "--innodb-lock-wait-timeout=1"]),
        _ => kind.own_engine_with(&["-c", "lock_timeout=1s"]),
    };
    let start = TestDatabase::on(kind, server.address());
    fixture::write_to(&start).await;
    for (start, direction, version) in ways(start).await {
        let undisturbed = start.copy();
        migrate(&undisturbed, direction, version).await.unwrap();
        let wanted = look(&undisturbed, version).await;
        let locks = ["SELECT process_guid FROM desired_lrps", "SELECT process_guid FROM actual_lrps FOR UPDATE"];
        for lock in locks {
            let database = start.copy();
            let other = database.open().await;
            let mut holding = other.write().await.unwrap();
            holding.fetch(sql(lock)).await.unwrap();
            let release = async {
                tokio::time::sleep(HELD).await;
                drop(holding);
                other.close().await;
            };
            let (delayed, ()) = tokio::join!(migrate(&database, direction, version), release);
            if let Err(error) = delayed {
                println!("{kind:?} {direction}, {lock}: {error}");
                migrate(&database, direction, version).await.unwrap();
            }
            assert!(look(&database, version).await == wanted, "{direction}, {lock}");
        }
    }
}

/// Goal: the cut-over is in no deadlock with an autovacuum, which locks a table and then waits for its indexes. Method:
/// another session takes the same locks in the same order, the second once the cut-over waits for the table.
#[tokio::test(flavor = "multi_thread")]
async fn cut_over_locks_a_table_before_its_indexes() {
    const WAITING: &str = "SELECT c.relname::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
                           WHERE NOT l.granted AND c.relname = 'desired_lrps' \
                           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let database = with_fixture(Kind::Postgres).await;
    let undisturbed = database.copy();
    migrate(&undisturbed, "down", OLDEST).await.unwrap();
    let other = database.open().await;
    let mut vacuum = other.write().await.unwrap();
    vacuum.execute(sql("LOCK TABLE desired_lrps IN SHARE UPDATE EXCLUSIVE MODE")).await.unwrap();
    let migration = tokio::spawn({
        let database = database.clone();
        async move { migrate(&database, "down", OLDEST).await }
    });
    while texts(&other, WAITING).await.is_empty() {
        assert!(!migration.is_finished(), "nothing was waited for: {:?}", migration.await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    vacuum.execute(sql("COMMENT ON INDEX desired_lrps_domain_idx IS 'visited'")).await.expect("the index is free");
    vacuum.commit().await.unwrap();
    other.close().await;
    migration.await.unwrap().expect("the cut-over comes to its end");
    assert!(look(&database, OLDEST).await == look(&undisturbed, OLDEST).await);
}

on_each_database!(a_full_disk_stops_a_migration_and_room_lets_it_go_on);
async fn a_full_disk_stops_a_migration_and_room_lets_it_go_on(kind: Kind) {
    for way in 0..2 {
        let disk = Disk::new(kind);
        let start = disk.database();
        fixture::write_to(&start).await;
        let (start, direction, version) = &ways(start).await[way];
        let (undisturbed, database) = (start.copy(), start.copy());
        migrate(&undisturbed, direction, *version).await.unwrap();
        let wanted = look(&undisturbed, *version).await;
        disk.fill(&database).await;
        assert!(!disk.has_room_for(&database, direction, *version).await, "{direction}: there was room");
        disk.make_room(&database).await;
        migrate(&database, direction, *version).await.unwrap();
        assert!(look(&database, *version).await == wanted, "{direction}");
    }
}

/// A disk without room, as each database can be given one without being root.
struct Disk {
    kind: Kind,
    server: Option<Engine>,
}

/// No file may be larger. A write-ahead log's segment of the tests' PostgreSQL still fits, a copied table does not.
const LARGEST_FILE: u64 = 1 << 20;
/// All tables in one file of limited size.
const SMALLER_DISK: &str = "--innodb-data-file-path=ibdata1:12M:autoextend:max:96M";
const LARGER_DISK: &str = "--innodb-data-file-path=ibdata1:12M:autoextend:max:512M";

impl Disk {
    fn new(kind: Kind) -> Self {
        let server = match kind {
            Kind::Sqlite => None,
            Kind::Postgres => Some(kind.own_engine_with(&["-c", "autovacuum=off"])),
            Kind::Mysql => {
                let one_file =
                    ["--innodb-file-per-table=OFF", "--innodb-data-file-path=ibdata1:12M:autoextend:max:64M"];
                Some(kind.own_engine_with(&one_file))
            }
        };
        Self { kind, server }
    }

    fn database(&self) -> TestDatabase {
        self.server
            .as_ref()
            .map_or_else(|| TestDatabase::new(Kind::Sqlite), |server| TestDatabase::on(self.kind, server.address()))
    }

    async fn fill(&self, database: &TestDatabase) {
        match self.kind {
            Kind::Sqlite => {}
            Kind::Postgres => {
                let server = self.server.as_ref().unwrap();
                // Once without a limit, so that everything is in its place and nothing old has to be written.
                server.restart();
                server.restart_with_largest_file(LARGEST_FILE);
            }
            Kind::Mysql => {
                self.server.as_ref().unwrap().restart_with(&[SMALLER_DISK]);
                let opened = database.open().await;
                execute(&opened, "CREATE TABLE ballast (a INT AUTO_INCREMENT PRIMARY KEY, b LONGTEXT)").await;
                for size in [1_000_000, 100_000] {
                    let mut full = false;
                    while !full {
                        let mut tx = opened.write().await.unwrap();
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
            Kind::Mysql => {
                self.server.as_ref().unwrap().restart_with(&[LARGER_DISK]);
                let opened = database.open().await;
                execute(&opened, "DROP TABLE ballast").await;
                opened.close().await;
            }
        }
    }

    /// Tries to migrate, and tells whether that worked.
    async fn has_room_for(&self, database: &TestDatabase, direction: &str, version: u64) -> bool {
        if self.kind != Kind::Sqlite {
            return migrate(database, direction, version).await.is_ok();
        }
        let process = command(direction, version, database);
        let limit = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", LARGEST_FILE / 512);
        let mut limited = Command::new("sh");
        limited.args(["-c", &limit, "limited"]).arg(process.get_program()).args(process.get_args());
        limited.envs(process.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("BBS_FAULT");
        let output = limited.output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), None, "it is told, not killed");
        output.status.success()
    }
}

on_each_database!(a_module_replaced_after_a_crash_starts_the_copy_again);
/// What the first module did is not mixed with what the other does.
async fn a_module_replaced_after_a_crash_starts_the_copy_again(kind: Kind) {
    let start = with_fixture(kind).await;
    for point in [fault::AFTER_BEGIN, fault::AFTER_PREPARE, fault::AFTER_BATCH, fault::AFTER_COPY] {
        let database = start.copy();
        assert!(run("down", OLDEST, &database, Some(point)));
        let stored = Stored::open(&database, with_replaced_module()).await;
        stored.down(OLDEST).await.unwrap_or_else(|error| panic!("{point}: {error}"));
        stored.assert_layout(OLDEST).await;
        let rows = stored.rows(OLDEST).await;
        let others: Vec<_> = rows["desired_lrps"].iter().filter(|row| row["run_info"] != Replaced::RUN_INFO).collect();
        assert!(others.is_empty(), "{point}: {:?} and {} more", others[0]["run_info"], others.len() - 1);
        stored.context.database.close().await;
    }
}

/// The migrations, the one that splits metric tags in another build of it.
fn with_replaced_module() -> Vec<Arc<dyn Transform>> {
    let replace = |migration: Arc<dyn Transform>| match migration.manifest().version {
        Replaced::VERSION => Arc::new(Replaced { replaced: migration }) as Arc<dyn Transform>,
        _ => migration,
    };
    fixture::migrations().into_iter().map(replace).collect()
}

/// Does what another module does, and on the way down leaves the same run info to every record.
struct Replaced {
    replaced: Arc<dyn Transform>,
}

impl Replaced {
    const VERSION: u64 = 1_722_634_733;
    /// A message with one field, which is empty.
    const RUN_INFO: &str = "\n\0";
}

impl Transform for Replaced {
    fn manifest(&self) -> &Manifest {
        self.replaced.manifest()
    }

    fn digest(&self) -> &str {
        "2222222222222222222222222222222222222222222222222222222222222222"
    }

    fn apply(&self, direction: Direction, run: &RunArguments, batch: &Batch) -> Result<Outcome, TransformError> {
        let mut outcome = self.replaced.apply(direction, run, batch)?;
        if direction == Direction::Down {
            let run_infos = &mut outcome.tables[0].columns[0];
            let rows = run_infos.offsets.len() - 1;
            run_infos.offsets = (0..=rows).map(|row| u32::try_from(row * Self::RUN_INFO.len()).unwrap()).collect();
            run_infos.values = Self::RUN_INFO.repeat(rows).into_bytes();
        }
        Ok(outcome)
    }
}
