//! Record versions at the end of a migration: none is above the version of the database, or a host
//! would refuse to serve it.

use std::sync::Arc;

use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, Shape, Written};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::schema::Column;
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::{RunArguments, Transform};

use super::migrations::{all, manifest, native, none};
use super::restored::words_table;
use super::world::TestEngine;
use crate::migrate::Decision;

/// Leaves the rows of one table as they are, and writes none of their columns.
fn keep_rows(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let unit_offsets = batch.tables[0].unit_offsets.clone();
    let rows = *unit_offsets.last().unwrap();
    let shape = Shape {
        unit_offsets,
        origins: (0..rows).collect(),
    };
    Ok(Outcome {
        tables: vec![Written {
            shape: Some(shape),
            columns: Vec::new(),
        }],
        ..Outcome::default()
    })
}

/// Writes a text into one column of each row.
fn write_text(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let rows = *batch.tables[0].unit_offsets.last().unwrap() as usize;
    let text = ColumnData::repeat(Encoding::Text, Value::Text(b"new"), rows);
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![text],
        }],
        ..Outcome::default()
    })
}

/// The different record versions of a table.
async fn versions(world: &TestEngine, table: &str) -> String {
    world
        .text(&format!(
            "SELECT group_concat(DISTINCT record_version) FROM {table}"
        ))
        .await
}

/// Migrates up to version 5 and back to 4.
async fn assert_rows_go_back(fifth: Arc<dyn Transform>, table_above: &str) {
    let mut world = TestEngine::with_rows(3).await;
    world.context.migrations.truncate(4);
    world.context.migrations.push(fifth);
    world.up(4).await.unwrap();
    world.up(5).await.unwrap();
    assert_eq!(versions(&world, table_above).await, "5");
    world.down(4).await.unwrap();
    assert_eq!(versions(&world, "desired_lrps").await, "0");
    assert_eq!(world.up(4).await.unwrap(), Decision::Serve);
    world.up(5).await.unwrap();
    assert_eq!(versions(&world, table_above).await, "5");
}

#[tokio::test]
async fn rows_go_back_to_their_version_if_a_migration_only_reshapes_them_on_the_way_up() {
    let reshaped = manifest(5, "reshapes")
        .up(Access::to("desired_lrps").reshapes())
        .removes_rows();
    assert_rows_go_back(native(reshaped, keep_rows), "desired_lrps").await;
}

#[tokio::test]
async fn rows_go_back_to_their_version_if_a_migration_renames_and_writes_their_table() {
    let renamed = manifest(5, "renames")
        .rename_table("desired_lrps", "apps")
        .add_column("apps", Column::long_text("note").nullable())
        .up(Access::to("apps").reads(["guid"]).writes(["note"]));
    assert_rows_go_back(native(renamed, write_text), "apps").await;
}

/// Method: the rows are saved at version 3, whose row function has written them, and given back at
/// version 2.
#[tokio::test]
async fn rows_of_a_dropped_table_come_back_with_a_version_that_the_database_has() {
    let words = words_table("words").column(Column::big_integer("record_version").default(0));
    let written = manifest(3, "writes-words");
    let written = written.up(Access::to("words").reads(["guid"]).writes(["word"]));
    let mut world = TestEngine::with_rows(3).await;
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        native(manifest(2, "words").create_table(words), none),
        native(written, write_text),
    ];
    world.up(2).await.unwrap();
    world
        .execute("INSERT INTO words (guid, note) SELECT guid, domain FROM desired_lrps")
        .await;
    world.up(3).await.unwrap();
    assert_eq!(versions(&world, "words").await, "3");
    world.down(1).await.unwrap();
    world.up(2).await.unwrap();
    assert_eq!(world.count("words").await, 3);
    assert_eq!(versions(&world, "words").await, "0");
    assert_eq!(world.up(2).await.unwrap(), Decision::Serve);
}
