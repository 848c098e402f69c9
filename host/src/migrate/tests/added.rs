//! Objects that the owner of the database adds to a table while it is copied.

use super::changed::followed;
use super::world::TestEngine;
use crate::migrate::*;

/// Method: a column is added before the last look ahead of the cut-over, removed, and added again
/// after that look.
#[tokio::test]
async fn table_altered_meanwhile_is_not_replaced() {
    let world = TestEngine::with_rows(3).await;
    let (fence, online) = followed(&world, 3).await;
    let add = "ALTER TABLE actual_lrps ADD COLUMN theirs TEXT";
    world.execute(add).await;
    let copied = online.copy(&world.context, &fence).await;
    world
        .execute("ALTER TABLE actual_lrps DROP COLUMN theirs")
        .await;
    online.copy(&world.context, &fence).await.unwrap();
    world.execute(add).await;
    let replaced = online.cut_over(&world.context, &fence, || {}).await;
    for error in [copied.unwrap_err(), replaced.unwrap_err()] {
        assert!(
            matches!(&error, MigrateError::Attached { table, .. } if table == "actual_lrps"),
            "{error}"
        );
    }
    assert_eq!(world.version().await.0, 1);
}
