//! Two hosts and one lease, in one process and one database file. `tests/suite/lock.rs` has real
//! hosts and servers.

use super::*;
use crate::clock::StoppedClock;
use crate::lock::LockLost;

/// Passes on the table's clock alone. A renewal is given up after a third of it in real time, so it
/// is long.
const TTL: Duration = Duration::from_secs(600);

struct LeaseTable {
    _folder: tempfile::TempDir,
    database: Database,
    /// The clock of all hosts.
    clock: Arc<StoppedClock>,
}

impl LeaseTable {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
            .await
            .unwrap();
        Self {
            _folder: folder,
            database,
            clock: Arc::new(StoppedClock::at(0)),
        }
    }

    async fn host(&self, name: &str) -> Lease {
        let config = config::Lock {
            ttl: TTL,
            retry_interval: TTL / 20,
            uuid: Some(name.to_owned()),
            ..config::Lock::default()
        };
        Lease::on(
            self.database.clone(),
            &config,
            Arc::clone(&self.clock) as Arc<dyn Clock>,
        )
    }

    async fn execute(&self, statement: &str) {
        let mut tx = self.database.write().await.unwrap();
        tx.execute(sql(statement.to_owned())).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn claim(&self) -> Option<Claim> {
        read(&mut self.database.read().await.unwrap())
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn lease_has_one_holder_and_is_taken_after_its_release() {
    let table = LeaseTable::new().await;
    let one = table.host("one").await;
    let other = table.host("other").await;
    let held = one.try_take().await.unwrap().expect("it is free");
    let taken = table.clock.run(2, other.try_take()).await.unwrap();
    assert!(taken.is_none(), "its holder renews it");
    assert_eq!(table.claim().await.unwrap().beat, 1);
    let waiting = tokio::spawn(async move { other.take().await.unwrap() });
    table.clock.sleepers(2).await;
    held.release().await;
    let taken = table.clock.run(1, waiting).await.unwrap();
    assert!(table.claim().await.unwrap().owner.ends_with(" other"));
    taken.release().await;
    assert_eq!(table.claim().await.unwrap().owner, "");
}

#[tokio::test]
async fn lease_of_a_silent_holder_is_taken() {
    let table = LeaseTable::new().await;
    let one = table.host("one").await;
    let other = table.host("other").await;
    drop(one.take().await.unwrap());
    table.clock.sleepers(0).await;
    let before = table.claim().await.unwrap();
    assert!(before.owner.ends_with(" one"));
    let begin = table.clock.instant();
    let _held = table
        .clock
        .run(1, other.try_take())
        .await
        .unwrap()
        .expect("it is not renewed");
    assert_eq!(table.clock.instant() - begin, TTL);
    let after = table.claim().await.unwrap();
    assert!(after.owner.ends_with(" other"));
    assert_eq!(after.token, before.token + 1);
}

#[tokio::test]
async fn renewal_during_a_slow_read_counts_from_the_end_of_the_read() {
    let table = LeaseTable::new().await;
    let one = table.host("one").await;
    let other = table.host("other").await;
    drop(one.take().await.unwrap());
    table.clock.sleepers(0).await;
    let mut sighting = None;
    let mut renewal = table.database.write().await.unwrap();
    let mut slow = Box::pin(other.look(&mut sighting));
    assert!(
        futures_util::poll!(&mut slow).is_pending(),
        "the read waits for the renewal"
    );
    table.clock.advance(TTL);
    let renewed = sql("UPDATE bbs_lease SET beat = beat + 1");
    renewal.execute(renewed).await.unwrap();
    // Together: SQLite commits both transactions at once.
    let (committed, found) = tokio::join!(renewal.commit(), slow);
    committed.unwrap();
    assert!(found.unwrap().is_none());
    table.clock.advance(TTL - Duration::from_nanos(1));
    let taken = other.look(&mut sighting).await.unwrap();
    assert!(taken.is_none(), "the renewal may be younger than the TTL");
    table.clock.advance(Duration::from_nanos(1));
    let taken = other.look(&mut sighting).await.unwrap();
    assert!(taken.is_some(), "its holder is silent");
}

#[tokio::test]
async fn dead_holder_on_the_same_machine_is_not_waited_for() {
    let table = LeaseTable::new().await;
    let host = table.host("one").await;
    let mut child = std::process::Command::new("true").spawn().unwrap();
    // The name of a restarted host, with the process id of a process that has ended.
    let dead = host.owner.replace(
        &format!(" {} ", std::process::id()),
        &format!(" {} ", child.id()),
    );
    child.wait().unwrap();
    host.create_table().await.unwrap();
    let hours = 3_600_000;
    table
        .execute(&format!(
            "INSERT INTO bbs_lease VALUES (1, '{dead}', 7, 9, {hours})"
        ))
        .await;
    let _held = host.try_take().await.unwrap().expect("its holder is dead");
    assert_eq!(table.claim().await.unwrap().token, 8);
}

#[tokio::test]
async fn is_free_reads_only() {
    let table = LeaseTable::new().await;
    let one = table.host("one").await;
    let other = table.host("other").await;
    assert!(one.is_free().await.unwrap());
    assert!(
        !schema::exists(&mut table.database.read().await.unwrap(), LEASE_TABLE)
            .await
            .unwrap()
    );
    let held = one.take().await.unwrap();
    assert!(!other.is_free().await.unwrap());
    let expected = format!("one (pid {} on this machine)", std::process::id());
    assert_eq!(other.holder().await, Some(expected));
    held.release().await;
    let released = table.claim().await;
    assert!(other.is_free().await.unwrap());
    assert_eq!(
        (other.holder().await, table.claim().await),
        (None, released)
    );
}

#[tokio::test]
async fn deleted_row_ends_its_holder() {
    let table = LeaseTable::new().await;
    let held = table.host("one").await.take().await.unwrap();
    table.execute("DELETE FROM bbs_lease").await;
    assert!(
        matches!(table.clock.run(1, held.lost()).await, LockLost::Taken { by, .. } if by == "its row is gone")
    );
}

#[tokio::test]
async fn waiting_host_takes_the_lease_of_a_database_that_has_lost_its_table() {
    let table = LeaseTable::new().await;
    // Not released.
    drop(table.host("one").await.take().await.unwrap());
    let other = table.host("other").await;
    let mut taking = std::pin::pin!(other.take());
    tokio::select! {
        _ = &mut taking => panic!("another host holds the lease"),
        () = table.clock.sleepers(1) => {}
    }
    table.execute("DROP TABLE bbs_lease").await;
    let taken = table.clock.run(1, taking).await.unwrap();
    taken.release().await;
}

#[tokio::test]
async fn malformed_row_ends_its_holder_and_can_be_taken() {
    let table = LeaseTable::new().await;
    let one = table.host("one").await;
    let other = table.host("other").await;
    let held = one.take().await.unwrap();
    for nonsense in [
        "'?', 1, 1, 9223372036854775807",
        "'?', 1, 1, -5",
        "'?', -9223372036854775808, 0, 0",
    ] {
        table.execute("DELETE FROM bbs_lease").await;
        table
            .execute(&format!("INSERT INTO bbs_lease VALUES (1, {nonsense})"))
            .await;
        assert!(
            matches!(table.clock.run(1, held.lost()).await, LockLost::Taken { by, .. } if by == "?")
        );
        let taken = table.clock.run(1, other.try_take()).await.unwrap();
        let taken = taken.unwrap_or_else(|| panic!("{nonsense} holds nothing"));
        taken.release().await;
    }
}

#[tokio::test]
async fn taken_over_host_reports_the_new_owner() {
    let table = LeaseTable::new().await;
    let held = table.host("one").await.take().await.unwrap();
    let mut claim = table.claim().await.unwrap();
    claim.owner.push_str(" and another");
    table
        .execute(&format!(
            "UPDATE bbs_lease SET owner = '{}', token = token + 1",
            claim.owner
        ))
        .await;
    assert!(
        matches!(table.clock.run(1, held.lost()).await, LockLost::Taken { by, .. } if by == claim.owner)
    );
    held.release().await;
    assert_eq!(
        table.claim().await.unwrap().owner,
        claim.owner,
        "a lease of another host is not released"
    );
}

#[tokio::test]
async fn table_of_another_shape_is_named_in_the_error() {
    let table = LeaseTable::new().await;
    table
        .execute("CREATE TABLE bbs_lease (something TEXT)")
        .await;
    let error = table.host("one").await.try_take().await.unwrap_err();
    assert!(error.to_string().contains(LEASE_TABLE), "{error}");
}
