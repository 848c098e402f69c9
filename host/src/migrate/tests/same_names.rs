//! Tables, indexes and columns that have the names of those that a migration makes: a table that it
//! drops or renames, an index that keeps its name and gets other columns, and what the owner of the
//! database made.

use std::collections::BTreeSet;
use std::sync::Arc;

use bbs_database::schema::{PhysicalTable, expected};
use bbs_database::{Dialect, ServerKind};
use bbs_lens::Lens;
use bbs_lens::layout::history::Way;
use bbs_lens::layout::manifest::{DataVersion, Manifest};
use bbs_lens::layout::schema::Column;
use bbs_lens::transform::Transform;

use super::migrations::{all, manifest, native, none};
use super::restored::words_table;
use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::plan::{self, Strategy};
use crate::migrate::{GivenUp, MigrateError, begin, layout_history, layout_sql, statements};

const NAME: &str = "apps_domain_idx";

/// Version 5 replaces an index of `desired_lrps`.
fn replacing() -> Vec<Arc<dyn Transform>> {
    let mut migrations = all();
    migrations.truncate(4);
    let replaced = manifest(5, "index")
        .drop_index("desired_lrps", NAME)
        .create_index("desired_lrps", NAME, ["domain", "guid"]);
    migrations.push(native(replaced, none));
    migrations
}

#[test]
fn index_is_replaced_unless_it_has_its_new_columns() {
    let migrations = replacing();
    let layouts = layout_history(&migrations).unwrap();
    let way = Way::within(&layouts, 4, 5);
    let lens = Lens::new(way, &migrations, BTreeSet::new()).unwrap();
    let server = ServerKind::of(Dialect::Mysql);
    let mut plans = plan::tables(&lens, way, &migrations, server).into_iter();
    let plan = plans
        .find(|plan| plan.table.name == "desired_lrps")
        .unwrap();
    assert_eq!(plan.strategy, Strategy::InPlace);
    let statements = |found: &PhysicalTable| statements::in_place(server, &lens, &plan, found);

    let drop = "DROP INDEX `apps_domain_idx` ON `desired_lrps`";
    let create = "ALTER TABLE `desired_lrps` ADD INDEX `apps_domain_idx` (`domain`, `guid`)";
    let mut found = expected(server.dialect, &lens.source.tables["desired_lrps"]);
    assert_eq!(statements(&found), [drop, create]);
    found.indexes.clear();
    assert_eq!(statements(&found), [create], "after the first statement");
    let found = expected(server.dialect, &plan.table);
    assert_eq!(statements(&found), [""; 0], "after both");
}

#[tokio::test]
async fn index_that_keeps_its_name_gets_the_columns_of_each_version() {
    let mut world = TestEngine::with_rows(3).await;
    world.context.migrations = replacing();
    world.up(4).await.unwrap();
    world.up(5).await.unwrap();
    world.assert_layout(5).await;
    world.down(4).await.unwrap();
    world.assert_layout(4).await;
}

/// Method: the table that gets the index is the first by name on the way up, and the last on the
/// way down.
#[tokio::test]
async fn index_name_moves_between_tables_that_are_changed_in_place() {
    let mut migrations = all();
    migrations.truncate(4);
    let moved = manifest(5, "index")
        .drop_index("desired_lrps", NAME)
        .create_index("actual_lrps", NAME, ["state"]);
    migrations.push(native(moved, none));
    let mut world = TestEngine::with_rows(3).await;
    world.context.migrations = migrations;
    world.up(4).await.unwrap();
    let planned = crate::migrate::plan(&world.context, 5).await.unwrap();
    assert_eq!(planned.refused, None);
    let changes = layout_sql(&world.context, 5, None).await.unwrap();
    let tables: Vec<_> = changes
        .iter()
        .map(|change| change.table.as_deref().unwrap())
        .collect();
    assert_eq!(tables, ["desired_lrps", "actual_lrps"], "{changes:?}");
    world.up(5).await.unwrap();
    world.assert_layout(5).await;
    world.down(4).await.unwrap();
    world.assert_layout(4).await;
}

/// Method: the index as a start on MySQL leaves it that ends between its statements, or behind
/// them.
#[tokio::test]
async fn index_that_is_already_replaced_is_no_reason_against_a_migration() {
    for ran in [
        &["DROP INDEX apps_domain_idx"][..],
        &[
            "DROP INDEX apps_domain_idx",
            "CREATE INDEX apps_domain_idx ON desired_lrps (domain, guid)",
        ],
    ] {
        let mut world = TestEngine::with_rows(1).await;
        world.context.migrations = replacing();
        world.up(4).await.unwrap();
        for statement in ran {
            world.execute(statement).await;
        }
        let planned = crate::migrate::plan(&world.context, 5).await.unwrap();
        assert_eq!(planned.refused, None, "{ran:?}");
        world.up(5).await.unwrap();
        world.assert_layout(5).await;
    }
}

/// Asserts that what the owner has made is refused before a write, and that the migration succeeds
/// without it. Returns the refusal.
async fn refused(made: &str, dropped: &str) -> MigrateError {
    let world = TestEngine::with_rows(1).await;
    world.up(4).await.unwrap();
    world.execute(made).await;
    let planned = crate::migrate::plan(&world.context, 5).await.unwrap();
    let error = world.up(5).await.unwrap_err();
    assert_eq!(planned.refused, Some(error.to_string()));
    assert_eq!(world.version().await, (4, 4), "nothing was recorded");
    world.execute(dropped).await;
    world.up(5).await.unwrap();
    world.assert_layout(5).await;
    error
}

async fn assert_differs(made: &str, difference: &str, dropped: &str) {
    let error = refused(made, dropped).await;
    let MigrateError::SchemaDiffers { table, differences } = &error else {
        panic!("{error}")
    };
    assert_eq!(table, "actual_lrps");
    assert_eq!(differences[..], [difference]);
}

/// Version 5 creates the index on another column, not unique.
#[tokio::test]
async fn other_index_under_the_name_of_a_new_one_is_refused_before_a_write() {
    for made in [
        "CREATE INDEX instances_zone_idx ON actual_lrps (state)",
        "CREATE UNIQUE INDEX instances_zone_idx ON actual_lrps (guid, place, presence)",
    ] {
        let difference = "index instances_zone_idx on (zone) is missing or different";
        assert_differs(made, difference, "DROP INDEX instances_zone_idx").await;
    }
}

/// Version 5 adds the column in place, as a text. On MariaDB and MySQL a migration that is given up
/// would drop the other one.
#[tokio::test]
async fn other_column_under_the_name_of_a_new_one_is_refused_before_a_write() {
    assert_differs(
        "ALTER TABLE actual_lrps ADD COLUMN zone BIGINT",
        "column zone is BIGINT NULL, not TEXT NULL",
        "ALTER TABLE actual_lrps DROP COLUMN zone",
    )
    .await;
}

/// Names of columns that differ in case are the same on SQLite, and so are those of all indexes
/// and tables.
#[tokio::test]
async fn what_has_the_name_of_something_new_for_the_server_is_refused_before_a_write() {
    for (made, dropped, name, object) in [
        (
            "ALTER TABLE actual_lrps ADD COLUMN Zone TEXT",
            "ALTER TABLE actual_lrps DROP COLUMN Zone",
            "zone",
            "column Zone of table actual_lrps",
        ),
        (
            "CREATE INDEX Instances_Zone_Idx ON actual_lrps (state)",
            "DROP INDEX instances_zone_idx",
            "instances_zone_idx",
            "index Instances_Zone_Idx of table actual_lrps",
        ),
        (
            "CREATE INDEX Instances_Zone_Idx ON desired_lrps (annotation)",
            "DROP INDEX instances_zone_idx",
            "instances_zone_idx",
            "an index of table desired_lrps",
        ),
        (
            "CREATE UNIQUE INDEX instances_zone_idx ON desired_lrps (guid)",
            "DROP INDEX instances_zone_idx",
            "instances_zone_idx",
            "an index of table desired_lrps",
        ),
        (
            "CREATE TABLE instances_zone_idx (a BIGINT)",
            "DROP TABLE instances_zone_idx",
            "instances_zone_idx",
            "another object",
        ),
    ] {
        let error = refused(made, dropped).await;
        let expected = MigrateError::NameInTheWay {
            name: name.to_owned(),
            object: object.to_owned(),
        };
        assert_eq!(error.to_string(), expected.to_string(), "{made}");
    }
}

/// Diego's BBS, or a start that was interrupted, has added it.
#[tokio::test]
async fn new_column_that_is_already_there_is_no_reason_against_a_migration() {
    let world = TestEngine::with_rows(1).await;
    world.up(4).await.unwrap();
    let made = "ALTER TABLE actual_lrps ADD COLUMN zone TEXT";
    world.execute(made).await;
    world.up(5).await.unwrap();
    world.assert_layout(5).await;
}

/// Migrations above version 2 in which a new table gets the name of another one: that of a table
/// which an earlier migration drops, or the same one, or which is renamed.
fn reusing_words() -> [Vec<Manifest>; 3] {
    let new = || words_table("words").column(Column::integer("size").default(0));
    let dropped = || manifest(3, "drops-words").drop_table("words");
    [
        vec![dropped(), manifest(4, "creates-words").create_table(new())],
        vec![dropped().create_table(new())],
        vec![
            manifest(3, "renames-words")
                .rename_table("words", "old_words")
                .create_table(new()),
        ],
    ]
}

/// A database at version 2, with or without rows in the table of words, and the version that these
/// migrations lead to.
async fn with_words(manifests: &[Manifest], has_rows: bool) -> (TestEngine, DataVersion) {
    let mut world = TestEngine::with_rows(3).await;
    let created = manifest(2, "words").create_table(words_table("words"));
    world.context.migrations = vec![Arc::clone(&all()[0]), native(created, none)];
    let later = manifests.iter().cloned();
    let later = later.map(|manifest| native(manifest, none));
    world.context.migrations.extend(later);
    world.up(2).await.unwrap();
    if has_rows {
        world
            .execute("INSERT INTO words (guid, word) SELECT guid, domain FROM desired_lrps")
            .await;
    }
    let to = manifests[manifests.len() - 1].version;
    (world, to)
}

#[tokio::test]
async fn new_table_gets_the_name_of_a_table_that_goes_in_the_same_run() {
    for manifests in reusing_words() {
        for has_rows in [false, true] {
            let (world, to) = with_words(&manifests, has_rows).await;
            let name = &manifests[0].name;
            let below = world.everything().await;
            let planned = crate::migrate::plan(&world.context, to).await.unwrap();
            assert_eq!(planned.refused, None, "{name}");
            world.up(to).await.unwrap();
            world.assert_layout(to).await;
            assert_eq!(world.count("words").await, 0, "{name}");
            world
                .execute("INSERT INTO words (guid, size) VALUES ('app-00001', 7), ('alone', 8)")
                .await;
            let above = world.everything().await;
            world.down(2).await.unwrap();
            world.assert_layout(2).await;
            assert_eq!(world.everything().await, below, "{name}");
            world.up(to).await.unwrap();
            world.assert_layout(to).await;
            assert_eq!(world.everything().await, above, "{name}");
            assert!(world.leftovers().await.is_empty(), "{name}");
        }
    }
}

/// Method: hosts that end once the copies are made. One migration is given up, the other resumed.
#[tokio::test]
async fn table_whose_name_is_reused_is_replaced_at_the_cut_over() {
    for manifests in reusing_words() {
        for has_rows in [false, true] {
            let (world, to) = with_words(&manifests, has_rows).await;
            let name = &manifests[0].name;
            let before = world.everything().await;
            for is_aborted in [true, false] {
                let fence = Fence::raise(&world.context.database).await.unwrap();
                begin(&world.context, &fence, (2, to)).await.unwrap();
                assert_eq!(world.everything().await, before, "{name}");
                if is_aborted {
                    let given_up = GivenUp { from: 2, to };
                    assert_eq!(world.abort().await.unwrap(), Some(given_up), "{name}");
                    assert_eq!(world.everything().await, before, "{name}");
                }
            }
            world.up(to).await.unwrap();
            world.assert_layout(to).await;
            assert_eq!(world.count("words").await, 0, "{name}");
        }
    }
}
