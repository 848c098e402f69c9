//! Two hosts and one lease, in one process and one database file. `tests/suite/lock.rs` has real hosts and servers.

use super::*;
use crate::lock::LockLost;

const TTL: Duration = Duration::from_millis(400);

struct World {
    _folder: tempfile::TempDir,
    database: Database,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db"))).await.unwrap();
        Self { _folder: folder, database }
    }

    async fn host(&self, name: &str) -> Lease {
        let config = config::Lock {
            ttl: TTL,
            retry_interval: Duration::from_millis(20),
            uuid: Some(name.to_owned()),
            ..config::Lock::default()
        };
        Lease::on(self.database.clone(), &config)
    }

    async fn execute(&self, statement: &str) {
        let mut tx = self.database.write().await.unwrap();
        tx.execute(sql(statement.to_owned())).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn claim(&self) -> Option<Claim> {
        read(&mut self.database.read().await.unwrap()).await.unwrap()
    }
}

#[tokio::test]
async fn one_host_has_it_and_the_next_waits_for_its_release() {
    let world = World::new().await;
    let (one, other) = (world.host("one").await, world.host("other").await);
    let held = one.try_take().await.unwrap().expect("nobody has it");
    assert!(other.try_take().await.unwrap().is_none(), "its holder renews it");
    let waiting = tokio::spawn(async move { other.take().await.unwrap() });
    held.release().await;
    let taken = waiting.await.unwrap();
    assert!(world.claim().await.unwrap().owner.ends_with(" other"));
    taken.release().await;
    assert_eq!(world.claim().await.unwrap().owner, "");
}

#[tokio::test]
async fn a_holder_that_falls_silent_is_passed_by() {
    let world = World::new().await;
    let (one, other) = (world.host("one").await, world.host("other").await);
    drop(one.take().await.unwrap());
    let before = world.claim().await.unwrap();
    assert!(before.owner.ends_with(" one"));
    let _held = other.try_take().await.unwrap().expect("nobody renews it");
    let after = world.claim().await.unwrap();
    assert!(after.owner.ends_with(" other"));
    assert_eq!(after.token, before.token + 1);
}

#[tokio::test]
async fn a_holder_of_this_machine_that_died_is_not_waited_for() {
    let world = World::new().await;
    let host = world.host("one").await;
    let mut child = std::process::Command::new("true").spawn().unwrap();
    // The same name as a host that was started again has, of a process that is no more.
    let dead = host.owner.replace(&format!(" {} ", std::process::id()), &format!(" {} ", child.id()));
    child.wait().unwrap();
    host.create_table().await.unwrap();
    let hours = 3_600_000;
    world.execute(&format!("INSERT INTO bbs_lease VALUES (1, '{dead}', 7, 9, {hours})")).await;
    let _held = host.try_take().await.unwrap().expect("its holder is dead");
    assert_eq!(world.claim().await.unwrap().token, 8);
}

#[tokio::test]
async fn whether_it_is_free_is_seen_without_a_trace() {
    let world = World::new().await;
    let (one, other) = (world.host("one").await, world.host("other").await);
    assert!(one.is_free().await.unwrap());
    assert!(!schema::exists(&mut world.database.read().await.unwrap(), LEASE_TABLE).await.unwrap());
    let held = one.take().await.unwrap();
    assert!(!other.is_free().await.unwrap());
    let wanted = format!("one (pid {} on this machine)", std::process::id());
    assert_eq!(other.holder().await, Some(wanted));
    held.release().await;
    let released = world.claim().await;
    assert!(other.is_free().await.unwrap());
    assert_eq!((other.holder().await, world.claim().await), (None, released));
}

#[tokio::test]
async fn a_removed_row_ends_its_holder() {
    let world = World::new().await;
    let held = world.host("one").await.take().await.unwrap();
    world.execute("DELETE FROM bbs_lease").await;
    assert!(matches!(held.lost().await, LockLost::Taken { by, .. } if by == "its row is gone"));
}

#[tokio::test]
async fn a_row_that_somebody_wrote_over_ends_its_holder_and_stops_nobody_else() {
    let world = World::new().await;
    let (one, other) = (world.host("one").await, world.host("other").await);
    let held = one.take().await.unwrap();
    for nonsense in ["'?', 1, 1, 9223372036854775807", "'?', 1, 1, -5", "'?', -9223372036854775808, 0, 0"] {
        world.execute("DELETE FROM bbs_lease").await;
        world.execute(&format!("INSERT INTO bbs_lease VALUES (1, {nonsense})")).await;
        assert!(matches!(held.lost().await, LockLost::Taken { by, .. } if by == "?"));
        let taken = other.try_take().await.unwrap().unwrap_or_else(|| panic!("{nonsense} holds nothing"));
        taken.release().await;
    }
}

#[tokio::test]
async fn a_host_whose_lease_was_taken_over_learns_by_whom() {
    let world = World::new().await;
    let held = world.host("one").await.take().await.unwrap();
    let mut claim = world.claim().await.unwrap();
    claim.owner.push_str(" and another");
    world.execute(&format!("UPDATE bbs_lease SET owner = '{}', token = token + 1", claim.owner)).await;
    assert!(matches!(held.lost().await, LockLost::Taken { by, .. } if by == claim.owner));
    held.release().await;
    assert_eq!(world.claim().await.unwrap().owner, claim.owner, "what is not ours is not released");
}

#[tokio::test]
async fn a_table_that_is_none_of_ours_is_named() {
    let world = World::new().await;
    world.execute("CREATE TABLE bbs_lease (something TEXT)").await;
    let error = world.host("one").await.try_take().await.unwrap_err();
    assert!(error.to_string().contains(LEASE_TABLE), "{error}");
}
