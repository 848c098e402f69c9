//! Objects that the owner of the database adds to a table: while it is copied, and to what
//! migrations drop or make anew.

use bbs_lens::layout::schema::Column;

use super::changed::followed;
use super::migrations::{self, all};
use super::restored::creating_words;
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

/// Migration `version` creates the table `words` and a column of `desired_lrps`.
fn creating_words_and_zones(version: DataVersion) -> Arc<dyn Transform> {
    let zone = Column::varchar("zone", 16).nullable();
    let created = creating_words(version, "creates-words").add_column("desired_lrps", zone);
    migrations::native(created, migrations::none)
}

/// Adds a column to `words` and to `desired_lrps`, and an index of the column of the migration.
async fn add_to_words_and_zones(world: &TestEngine) {
    for statement in [
        "INSERT INTO words (guid, word) VALUES ('of-no-app', 'alone')",
        "ALTER TABLE words ADD COLUMN theirs TEXT",
        "UPDATE words SET theirs = 'kept'",
        "ALTER TABLE desired_lrps ADD COLUMN noted TEXT",
        "UPDATE desired_lrps SET noted = 'kept'",
        "CREATE INDEX op_idx ON desired_lrps (zone)",
    ] {
        world.execute(statement).await;
    }
}

/// Method: the newest migration of the catalog, which does not run, drops the table and the column.
#[tokio::test]
async fn additions_are_carried_over_below_a_migration_that_drops_their_table() {
    let mut world = TestEngine::with_rows(3).await;
    let word = Column::long_text("word").nullable().sealed();
    let sealed = migrations::manifest(3, "seals-words").alter_column("words", word);
    let dropped = migrations::manifest(4, "drops-words")
        .drop_table("words")
        .drop_column("desired_lrps", "zone");
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        creating_words_and_zones(2),
        migrations::native(sealed, migrations::none),
        migrations::native(dropped, migrations::none),
    ];
    world.up(2).await.unwrap();
    add_to_words_and_zones(&world).await;
    for to in [3, 2] {
        if to == 3 {
            world.up(to).await.unwrap();
        } else {
            world.down(to).await.unwrap();
        }
        assert_eq!(world.text("SELECT theirs FROM words").await, "kept");
        assert!(world.schema().await["desired_lrps"].has_index("op_idx"));
    }
}

#[tokio::test]
async fn additions_to_what_an_insertion_makes_anew_are_refused_by_name() {
    let mut world = TestEngine::with_rows(3).await;
    let created = creating_words_and_zones(5);
    world.context.migrations = vec![Arc::clone(&all()[0]), Arc::clone(&created)];
    world.up(5).await.unwrap();
    add_to_words_and_zones(&world).await;
    let limit = Column::integer("gpu_limit").default(0);
    let inserted = migrations::manifest(3, "gpus").add_column("desired_lrps", limit);
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(inserted, migrations::none),
        created,
        migrations::native(migrations::manifest(8, "marker"), migrations::none),
    ];
    let planned = plan(&world.context, 8).await.unwrap();
    let error = world.up(8).await.unwrap_err().to_string();
    assert_eq!(planned.refused.as_deref(), Some(error.as_str()));
    for lost in ["column theirs (ALTER TABLE", "index op_idx (DROP INDEX"] {
        assert!(error.contains(lost), "{error}");
    }
    assert!(!error.contains("noted"), "{error}");
    assert_eq!(world.version().await, (5, 5));
    world.execute("ALTER TABLE words DROP COLUMN theirs").await;
    world.execute("DROP INDEX op_idx").await;
    world.up(8).await.unwrap();
    assert_eq!(world.text("SELECT noted FROM desired_lrps").await, "kept");
    assert_eq!(world.text("SELECT word FROM words").await, "alone");
}
