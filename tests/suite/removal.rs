//! Removal of rows that the host keeps beside Diego's tables, and of units in quarantine from
//! these: in transactions of bounded size, which may end between any two of them.

use bbs::testing::database::{Dialect, sql};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::fault::AFTER_IMPORT_BEGIN;
use bbs::testing::migrate::online::{self, Start};
use bbs::testing::migrate::{self, Intent, MigrateError};
use bbs_files::digest::to_hex;

use crate::harness::database::{Kind, TestDatabase, on_each_database, texts};
use crate::harness::etcd::Etcd;
use crate::harness::fixture::{self, VERSION};
use crate::harness::modules;
use crate::harness::stored::Stored;
use crate::import::stores::{self, StoreLayout};
use crate::import::{import, importing};

/// Rows of one transaction, if they are small.
const PIECE: usize = 500;
/// Rows before the last one, which cannot be removed: two whole transactions, and a third that
/// fails.
const EARLIER: usize = 2 * PIECE + 100;
/// A version of the fixture's migrations before its last.
const EARLIER_VERSION: u64 = 1_529_530_809;

/// A table with the rows of a test.
struct Filled {
    table: &'static str,
    key: &'static str,
    columns: &'static str,
    /// The values of the other columns, [`UNIT_KEY`] among them.
    values: String,
}

/// Stands for the key of a unit whose name is the key of the row.
const UNIT_KEY: &str = "UNIT_KEY";
const RESIDUE: &str =
    "unit_digest, table_name, row_digest, direction, unit, row_key, digest, sealed, version";
const QUARANTINE: &str = "unit_digest, table_name, from_version, unit, unit_key, to_version, version, direction, module, \
                          digest, reason, row_counts, at_ns, sealed, pending";

fn residue(direction: &str) -> Filled {
    Filled {
        table: "bbs_residue",
        key: "unit_digest",
        columns: RESIDUE,
        values: format!("'tasks', '0', '{direction}', 'u', '', '', 's', {VERSION}"),
    }
}

fn quarantine(pending: &str) -> Filled {
    let values = format!("'tasks', 0, 'u', '', 1, 1, 'up', '', '', '', '{{}}', 1, 's', {pending}");
    Filled {
        table: "bbs_quarantine",
        key: "unit_digest",
        columns: QUARANTINE,
        values,
    }
}

/// Entries of units that a migration left out, and not of the unit at which one stopped.
fn left_out() -> Filled {
    let counts = r#"{"tasks": 1}"#;
    let values = format!("'tasks', 0, 'u', '', 1, 1, 'up', '', '', '', '{counts}', 1, 's', TRUE");
    Filled {
        values,
        ..quarantine("TRUE")
    }
}

fn quarantine_part() -> Filled {
    Filled {
        table: "bbs_quarantine_part",
        key: "unit_digest",
        columns: "unit_digest, table_name, from_version, part, sealed",
        values: "'tasks', 0, 1, 's'".into(),
    }
}

fn changed_unit() -> Filled {
    Filled {
        table: "bbs_changed_unit",
        key: "unit_digest",
        columns: "unit_digest, group_number, unit_key, change_id",
        values: "0, '00', 'another'".into(),
    }
}

/// Halves of records that an import from etcd has read.
fn import_run() -> Filled {
    Filled {
        table: "bbs_import_run",
        key: "process_guid",
        columns: "process_guid, leaf",
        values: "'s'".into(),
    }
}

/// Domains, which no migration of the tests copies.
fn domains() -> Filled {
    Filled {
        table: "domains",
        key: "domain",
        columns: "domain, expire_time",
        values: "1".into(),
    }
}

/// Entries that say that domains are in quarantine.
fn quarantined_domains() -> Filled {
    let counts = r#"{"domains": 1}"#;
    let values = format!(
        "'domains', 0, 'u', '{UNIT_KEY}', 1, 1, 'up', '', '', '', '{counts}', 1, 's', TRUE"
    );
    Filled {
        values,
        ..quarantine("TRUE")
    }
}

/// The key of a row; the last one sorts after all others in every collation.
fn key(number: usize) -> String {
    format!("{number:06}")
}

impl Filled {
    async fn fill(&self, stored: &Stored, rows: usize) {
        let Self {
            table,
            columns,
            values,
            ..
        } = self;
        let rows: Vec<_> = (0..rows)
            .map(|number| {
                let key = key(number);
                let bytes = to_hex(key.as_bytes());
                let unit_key = format!("03{:02x}00000000000000{bytes}", key.len());
                format!("('{key}', {})", values.replace(UNIT_KEY, &unit_key))
            })
            .collect();
        stored
            .execute(&format!(
                "INSERT INTO {table} ({columns}) VALUES {}",
                rows.join(", ")
            ))
            .await;
    }

    async fn count(&self, stored: &Stored) -> usize {
        let counted = texts(
            &stored.context.database,
            &format!("SELECT COUNT(*) FROM {}", self.table),
        )
        .await;
        counted[0].parse().unwrap()
    }

    /// Makes the removal of one row an error.
    async fn protect(&self, stored: &Stored, key: &str) {
        self.protect_from("DELETE", stored, key).await;
    }

    /// Makes a change of one row an error.
    async fn protect_from(&self, change: &str, stored: &Stored, key: &str) {
        let table = self.table;
        let column = self.key;
        let statements = match stored.context.database.dialect() {
            Dialect::Sqlite => vec![format!(
                "CREATE TRIGGER protected BEFORE {change} ON {table} WHEN OLD.{column} = '{key}' \
                 BEGIN SELECT RAISE(ABORT, 'protected'); END"
            )],
            Dialect::Postgres => vec![
                "CREATE FUNCTION protect() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'protected'; END $$ \
                 LANGUAGE plpgsql"
                    .to_owned(),
                format!(
                    "CREATE TRIGGER protected BEFORE {change} ON {table} FOR EACH ROW WHEN (OLD.{column} = '{key}') \
                     EXECUTE FUNCTION protect()"
                ),
            ],
            Dialect::Mysql => vec![format!(
                "CREATE TRIGGER protected BEFORE {change} ON {table} FOR EACH ROW BEGIN IF OLD.{column} = '{key}' \
                 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'protected'; END IF; END"
            )],
        };
        for statement in statements {
            stored.execute(&statement).await;
        }
    }

    async fn release(&self, stored: &Stored) {
        match stored.context.database.dialect() {
            Dialect::Postgres => stored.execute("DROP FUNCTION protect() CASCADE").await,
            Dialect::Sqlite | Dialect::Mysql => stored.execute("DROP TRIGGER protected").await,
        }
    }

    /// Asserts that a removal stopped at the last row, after whole transactions before it.
    #[track_caller]
    fn assert_interrupted<T: std::fmt::Debug>(
        &self,
        outcome: Result<T, MigrateError>,
        remaining: usize,
    ) {
        let reason = modules::chain(&outcome.expect_err("a row cannot be removed"));
        assert!(reason.contains("protected"), "{}: {reason}", self.table);
        assert_eq!(
            remaining,
            EARLIER + 1 - 2 * PIECE,
            "{}: rows of the transaction that failed",
            self.table
        );
    }
}

on_each_database!(rows_of_an_abandoned_migration_are_removed_in_pieces);
/// Goal: what an abandoned migration has kept is removed before another begins, in several
/// transactions. Method: a trigger protects the last row, so that the transaction which would
/// remove it fails; once it is released, the migration runs.
async fn rows_of_an_abandoned_migration_are_removed_in_pieces(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    stored.down(EARLIER_VERSION).await.unwrap();
    stored.execute("DELETE FROM bbs_residue").await;
    // In the order of their removal.
    let all = [quarantine_part(), left_out(), changed_unit(), residue("up")];
    for filled in &all {
        filled.fill(&stored, EARLIER + 1).await;
    }
    for filled in &all {
        filled.protect(&stored, &key(EARLIER)).await;
        let outcome = stored.up(VERSION).await;
        filled.assert_interrupted(outcome, filled.count(&stored).await);
        filled.release(&stored).await;
        let entries = left_out().count(&stored).await;
        assert!(
            entries > 0 || filled.table != "bbs_quarantine_part",
            "entries are removed after their parts"
        );
    }
    stored.up(VERSION).await.unwrap();
    for filled in &all {
        assert_eq!(filled.count(&stored).await, 0, "{}", filled.table);
    }
    assert_eq!(stored.version().await, VERSION);
    stored.context.database.close().await;
}

on_each_database!(clean_up_removes_rows_in_pieces);
/// Goal and method as above, for a migration whose version is durable.
async fn clean_up_removes_rows_in_pieces(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    stored.down(EARLIER_VERSION).await.unwrap();
    stored.execute("DELETE FROM bbs_residue").await;
    residue("down").fill(&stored, EARLIER + 1).await;
    residue("down").protect(&stored, &key(EARLIER)).await;
    let outcome = stored.up(VERSION).await;
    residue("down").assert_interrupted(outcome, residue("down").count(&stored).await);
    residue("down").release(&stored).await;
    assert_eq!(
        stored.version().await,
        VERSION,
        "the version was durable before"
    );

    quarantine("TRUE").fill(&stored, EARLIER + 1).await;
    quarantine_part().fill(&stored, EARLIER + 1).await;
    changed_unit().fill(&stored, EARLIER + 1).await;
    for filled in [quarantine_part(), quarantine("TRUE"), changed_unit()] {
        filled.protect(&stored, &key(EARLIER)).await;
        let fence = Fence::raise(&stored.context.database).await.unwrap();
        let outcome = migrate::clean_up(&stored.context, &fence).await;
        filled.assert_interrupted(outcome, filled.count(&stored).await);
        filled.release(&stored).await;
    }
    stored.up(VERSION).await.unwrap();
    for filled in [
        quarantine_part(),
        quarantine("TRUE"),
        changed_unit(),
        residue("down"),
    ] {
        assert_eq!(filled.count(&stored).await, 0, "{}", filled.table);
    }
    let underway = texts(&stored.context.database, "SELECT phase FROM bbs_migration").await;
    assert_eq!(underway, Vec::<String>::new());
    stored.context.database.close().await;
}

on_each_database!(database_that_is_begun_anew_loses_its_earlier_rows_in_pieces);
/// Goal and method as above, for a database without a version, whose own tables have rows of
/// records that are gone.
async fn database_that_is_begun_anew_loses_its_earlier_rows_in_pieces(kind: Kind) {
    let stored = Stored::open(&TestDatabase::new(kind), fixture::migrations()).await;
    stored.up(VERSION).await.unwrap();
    stored
        .execute("DELETE FROM configurations WHERE id = 'version'")
        .await;
    for filled in [residue("down"), quarantine_part(), quarantine("FALSE")] {
        filled.fill(&stored, EARLIER + 1).await;
    }
    for filled in [residue("down"), quarantine_part(), quarantine("FALSE")] {
        filled.protect(&stored, &key(EARLIER)).await;
        let outcome = stored.up(VERSION).await;
        filled.assert_interrupted(outcome, filled.count(&stored).await);
        filled.release(&stored).await;
    }
    let known = texts(&stored.context.database, "SELECT COUNT(*) FROM bbs_history").await;
    assert_ne!(known, ["0"], "the history is removed at the end");
    stored.up(VERSION).await.unwrap();
    for filled in [residue("down"), quarantine_part(), quarantine("FALSE")] {
        assert_eq!(filled.count(&stored).await, 0, "{}", filled.table);
    }
    stored.assert_layout(VERSION).await;
    stored.context.database.close().await;
}

on_each_database!(large_rows_are_removed_in_smaller_pieces);
/// Goal: the bytes of a transaction are bounded, not only its rows. Method: each row has most of
/// the bytes of one.
async fn large_rows_are_removed_in_smaller_pieces(kind: Kind) {
    let stored = Stored::open(&TestDatabase::new(kind), fixture::migrations()).await;
    stored.up(VERSION).await.unwrap();
    stored
        .execute("DELETE FROM configurations WHERE id = 'version'")
        .await;
    let parts = quarantine_part();
    let large = "x".repeat(3 << 20);
    for number in 0..3 {
        let mut tx = stored.context.database.write().await.unwrap();
        let insert = "INSERT INTO bbs_quarantine_part (unit_digest, table_name, from_version, part, sealed) \
                      VALUES (?, 'tasks', 0, 1, ?)";
        tx.execute(sql(insert).bind(key(number)).bind(large.as_str()))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    parts.protect(&stored, &key(2)).await;
    let reason = modules::chain(
        &stored
            .up(VERSION)
            .await
            .expect_err("a row cannot be removed"),
    );
    assert!(reason.contains("protected"), "{reason}");
    assert_eq!(parts.count(&stored).await, 1);
    parts.release(&stored).await;
    stored.up(VERSION).await.unwrap();
    assert_eq!(parts.count(&stored).await, 0);
    stored.context.database.close().await;
}

on_each_database!(units_in_quarantine_leave_their_tables_in_pieces);
/// Goal: the transaction that makes a version durable does not grow with the units in quarantine.
/// These leave the tables that were not copied after it, in several transactions, and before
/// clients are served. Method: entries are added to those of a migration that has begun, and a
/// trigger protects the last one; once it is released, the next start completes the cut-over.
async fn units_in_quarantine_leave_their_tables_in_pieces(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    stored.down(EARLIER_VERSION).await.unwrap();
    let domains = domains();
    let entries = quarantined_domains();
    let unharmed = domains.count(&stored).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let started = online::start(&stored.context, &fence, Intent::Up { wanted: VERSION })
        .await
        .unwrap();
    let Start::Follow(online) = started else {
        panic!("there is nothing to migrate")
    };
    online.copy(&stored.context, &fence).await.unwrap();
    domains.fill(&stored, EARLIER + 1).await;
    entries.fill(&stored, EARLIER + 1).await;
    entries.protect_from("UPDATE", &stored, &key(EARLIER)).await;

    let outcome = online.cut_over(&stored.context, &fence, || {}).await;
    entries.assert_interrupted(outcome, domains.count(&stored).await - unharmed);
    let pending = "SELECT COUNT(*) FROM bbs_quarantine WHERE pending = TRUE";
    let remaining = texts(&stored.context.database, pending).await;
    assert_eq!(
        remaining,
        [(EARLIER + 1 - 2 * PIECE).to_string()],
        "a unit and its entry change together"
    );
    assert_eq!(
        stored.version().await,
        VERSION,
        "the version was durable before"
    );
    assert!(online.has_arrived(&stored.context, &fence).await.unwrap());
    // A host of an earlier release would take the entries for those of an abandoned migration.
    let phase = texts(&stored.context.database, "SELECT phase FROM bbs_migration").await;
    assert_eq!(phase, ["settling"]);
    let interrupted = modules::chain(
        &stored
            .up(VERSION)
            .await
            .expect_err("a unit cannot be removed"),
    );
    assert!(
        interrupted.contains("protected"),
        "a start does not serve before: {interrupted}"
    );

    entries.release(&stored).await;
    stored.up(VERSION).await.unwrap();
    assert_eq!(domains.count(&stored).await, unharmed);
    assert_eq!(texts(&stored.context.database, pending).await, ["0"]);
    assert_eq!(
        entries.count(&stored).await,
        EARLIER + 1,
        "no entry is lost"
    );
    assert_eq!(
        texts(&stored.context.database, "SELECT phase FROM bbs_migration").await,
        [""; 0]
    );
    stored.assert_layout(VERSION).await;
    stored.context.database.close().await;
}

on_each_database!(halves_of_an_interrupted_import_are_removed_in_pieces);
/// Goal and method as above, for what an import from etcd has read before it ended.
async fn halves_of_an_interrupted_import_are_removed_in_pieces(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(kind, &etcd);
    let killed = installation
        .command(&["import", "etcd"])
        .env("BBS_FAULT", AFTER_IMPORT_BEGIN)
        .output()
        .unwrap();
    assert!(!killed.status.success());
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let halves = import_run();
    halves.fill(&stored, EARLIER + 1).await;
    halves.protect(&stored, &key(EARLIER)).await;
    let refusal = installation.fail(&["import", "etcd"]);
    assert!(refusal.contains("protected"), "{refusal}");
    assert_eq!(
        halves.count(&stored).await,
        EARLIER + 1 - 2 * PIECE,
        "halves of the transaction that failed"
    );
    halves.release(&stored).await;
    import(&installation);
    assert_eq!(halves.count(&stored).await, 0);
    stored.context.database.close().await;
}
