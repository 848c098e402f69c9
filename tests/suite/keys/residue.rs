//! Rotation of residue: it is resealed with the records, and still restores them.

use super::*;
use crate::harness::fixture::{self, OLDEST, VERSION};
use crate::harness::stored::Stored;

const PASSPHRASE: &str = "correct horse battery staple";

on_each_database!(residue_is_resealed_and_restored_with_the_new_key_alone);
async fn residue_is_resealed_and_restored_with_the_new_key_alone(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let mut stored = Stored::open(&database, fixture::migrations()).await;
    let original = stored.rows(VERSION).await;
    stored.down(OLDEST).await.unwrap();
    let residue = texts(&stored.context.database, "SELECT sealed FROM bbs_residue").await;
    assert!(!residue.is_empty(), "migrating down stores residue");

    let both = Keyring::new([("key-2024", PASSPHRASE), ("new", "another")], "new").unwrap();
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let context = RotationContext {
        database: stored.context.database.clone(),
        keyring: Arc::new(both),
        scope: SealedScope::find(
            &stored.context.database,
            OLDEST,
            &stored.layout(OLDEST),
            &bbs::testing::migrate::own_tables(),
        )
        .await
        .unwrap(),
        progress: Progress::default(),
        lock_timeout: PATIENCE,
        throttle: Throttle::default(),
        clock: Arc::new(StoppedClock::at(1)),
    };
    let rotated = keys::rotate(&context, &fence).await.unwrap();
    assert_eq!(rotated.unreadable, 0);
    assert!(rotated.rewritten > residue.len() as u64);

    stored.context.keyring = Arc::new(Keyring::new([("new", "another")], "new").unwrap());
    stored.up(VERSION).await.unwrap();
    assert_eq!(stored.rows(VERSION).await, original);
}
