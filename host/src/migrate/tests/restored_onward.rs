//! Rows that residue restores to a table which later migrations of the same run rename or drop.

use super::migrations::{self, all};
use super::restored::creating_words;
use super::world::TestEngine;
use crate::migrate::*;

/// At version 3, with rows: 2 creates `words`, 3 renames it to `terms`, and 4 drops it.
async fn with_terms() -> TestEngine {
    let mut world = TestEngine::with_rows(3).await;
    let renamed = migrations::manifest(3, "renames-words").rename_table("words", "terms");
    let dropped = migrations::manifest(4, "drops-terms").drop_table("terms");
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(creating_words(2, "creates-words"), migrations::none),
        migrations::native(renamed, migrations::none),
        migrations::native(dropped, migrations::none),
    ];
    world.up(3).await.unwrap();
    world
        .execute("INSERT INTO terms (guid, word) SELECT guid, domain FROM desired_lrps")
        .await;
    world
        .execute("INSERT INTO terms (guid, word) VALUES ('of-no-app', 'alone')")
        .await;
    world
}

#[tokio::test]
async fn restored_rows_are_in_a_table_that_is_renamed_afterwards() {
    let world = with_terms().await;
    let terms = world.rows("terms").await;
    world.down(1).await.unwrap();
    world.up(3).await.unwrap();
    assert_eq!(world.rows("terms").await, terms);
    world.up(4).await.unwrap();
    world.down(2).await.unwrap();
    assert_eq!(world.rows("words").await, terms);
    assert_eq!(world.count("bbs_residue").await, 0);
}

#[tokio::test]
async fn restored_rows_of_a_table_that_is_dropped_afterwards_are_saved_again() {
    let world = with_terms().await;
    let terms = world.rows("terms").await;
    world.down(1).await.unwrap();
    world.up(4).await.unwrap();
    world.down(3).await.unwrap();
    assert_eq!(world.rows("terms").await, terms);
    world.up(4).await.unwrap();
    world.down(1).await.unwrap();
    world.up(3).await.unwrap();
    assert_eq!(world.rows("terms").await, terms);
    assert_eq!(world.count("bbs_residue").await, 0);
}
