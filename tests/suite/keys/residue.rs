//! What a migration kept beside the records comes under the new key with them, and still restores them.

use super::*;
use crate::harness::fixture::{self, VERSION};
use crate::harness::stored::Stored;

/// On the way down to here, steps have something to keep.
const OLDEST: u64 = 1_471_030_898;
const PASSPHRASE: &str = "correct horse battery staple";

on_each_database!(residue_comes_under_the_new_key_and_is_restored_with_it_alone);
async fn residue_comes_under_the_new_key_and_is_restored_with_it_alone(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let mut stored = Stored::open(&database, fixture::migrations()).await;
    let original = stored.rows(VERSION).await;
    stored.down(OLDEST).await.unwrap();
    let kept = texts(&stored.context.database, "SELECT sealed FROM bbs_residue").await;
    assert!(!kept.is_empty(), "the way down keeps something");

    let both = Keyring::new([("key-2024", PASSPHRASE), ("new", "another")], "new").unwrap();
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let context = Context {
        database: stored.context.database.clone(),
        keyring: Arc::new(both),
        scope: Scope::find(&stored.context.database, OLDEST, &stored.layout(OLDEST), &bbs::migrate::own_tables(), None)
            .await
            .unwrap(),
        progress: Progress::default(),
        pace: Pace::default(),
        clock: Arc::new(StoppedClock::at(1)),
    };
    let rotated = keys::rotate(&context, &fence).await.unwrap();
    assert_eq!(rotated.unreadable, 0);
    assert!(rotated.rewritten > kept.len() as u64);

    stored.context.keyring = Arc::new(Keyring::new([("new", "another")], "new").unwrap());
    stored.up(VERSION).await.unwrap();
    assert_eq!(stored.rows(VERSION).await, original);
}
