//! Rows that a serving host could not read, which are put back at another version than theirs.

use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::{Fate, ServingQuarantine, WriteMode, retry};
use crate::store::{Quarantine, QuarantinedRow};

/// A database at version 3 with three apps.
async fn at_3() -> TestEngine {
    let world = TestEngine::with_rows(3).await;
    world.up(3).await.unwrap();
    world
}

/// Moves a row of a database that has had two runs into quarantine, as a host does that serves
/// version 3.
async fn move_row(
    world: &TestEngine,
    table: &'static str,
    unit: &str,
    place: &[(&'static str, i64)],
) {
    let quarantine = ServingQuarantine::new(world.context.clone(), 3);
    let row = QuarantinedRow {
        table,
        unit: unit.as_bytes(),
        place,
        reason: "it cannot be decrypted".to_owned(),
        at_ns: world.context.now_ns + 2,
    };
    let mut tx = world.context.database.write().await.unwrap();
    quarantine.keep(&mut tx, row).await.unwrap();
    tx.commit().await.unwrap();
    let is_there = place
        .iter()
        .map(|(column, value)| format!(" AND {column} = {value}"));
    let is_there = is_there.collect::<String>();
    world
        .execute(&format!(
            "DELETE FROM {table} WHERE guid = '{unit}'{is_there}"
        ))
        .await;
}

/// Retries the only entry.
async fn retried(world: &TestEngine) -> Fate {
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let retried = retry(&world.context, &fence, &[], None, WriteMode::Real).await;
    retried.unwrap().remove(0).1
}

/// Goal: what a migration has saved of a unit is not replaced by what it would save of one of its
/// rows. Method: a suspect of the same slot, which version 2 cannot express.
#[tokio::test]
async fn part_of_a_unit_returns_at_its_own_version_only() {
    let world = at_3().await;
    world
        .execute(
            "INSERT INTO actual_lrps (guid, place, evacuating, state, net_info, presence) \
             SELECT guid, place, evacuating, state, net_info, 2 FROM actual_lrps \
             WHERE guid = 'app-00001' AND place = 0",
        )
        .await;
    let before = world.everything().await;
    let place = [("place", 0), ("presence", 0)];
    move_row(&world, "actual_lrps", "app-00001", &place).await;
    world.down(2).await.unwrap();
    let saved = "SELECT group_concat(unit || sealed) FROM bbs_residue";
    let residue = world.text(saved).await;
    let Fate::Refused { reason } = retried(&world).await else {
        panic!("the row is put back")
    };
    assert!(reason.contains("take the database back to 3"), "{reason}");
    assert_eq!(world.text(saved).await, residue);
    world.up(3).await.unwrap();
    assert_eq!(retried(&world).await, Fate::Returned);
    assert_eq!(world.everything().await, before);
}

#[tokio::test]
async fn row_of_a_group_that_no_migration_reads_returns_at_another_version() {
    let world = at_3().await;
    let before = world.rows("actual_lrps").await;
    let place = [("place", 0), ("presence", 0)];
    move_row(&world, "actual_lrps", "app-00001", &place).await;
    world.up(4).await.unwrap();
    assert_eq!(retried(&world).await, Fate::Returned);
    assert_eq!(world.rows("actual_lrps").await, before);
}

#[tokio::test]
async fn row_that_is_a_whole_unit_returns_at_another_version() {
    let world = at_3().await;
    move_row(&world, "desired_lrps", "app-00002", &[]).await;
    world.up(4).await.unwrap();
    assert_eq!(retried(&world).await, Fate::Returned);
    assert_eq!(world.rows("desired_lrps").await[2]["tags"], "t2");
}
