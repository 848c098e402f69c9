//! Rows of a table that a step drops and the other direction creates again: saved rows, rows that a
//! row function makes instead, and units that have rows nowhere else; and values that come back
//! changed.

use std::collections::BTreeMap;

use bbs_lens::layout::columns::{Batch, ColumnData, NEW_ROW, Outcome, Shape, TableData, Written};
use bbs_lens::layout::manifest::{Access, DataVersion, Direction, Manifest};
use bbs_lens::layout::schema::{Column, Table};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::RunArguments;

use super::changed::{followed, replace_originals};
use super::migrations::{self, all};
use super::world::{TestEngine, at_unit};
use crate::migrate::*;

pub(super) fn words_table(name: &str) -> Table {
    Table::new(name)
        .column(Column::varchar("guid", 255))
        .column(Column::long_text("word").nullable())
        .column(Column::long_text("note").nullable())
        .primary_key(["guid"])
        .partition_key("guid")
}

pub(super) fn creating_words(version: DataVersion, name: &str) -> Manifest {
    migrations::manifest(version, name).create_table(words_table("words"))
}

/// The accesses of [`shout`].
fn accesses() -> [Access; 2] {
    [
        Access::to("desired_lrps").reads(["guid", "domain"]),
        Access::to("words").writes(["guid", "word"]).reshapes(),
    ]
}

/// One word for each app: its domain in capitals.
fn shout(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let apps: &TableData = &batch.tables[0];
    let (mut guids, mut words) = (
        ColumnBuilder::new(Encoding::Text),
        ColumnBuilder::new(Encoding::Text),
    );
    for row in 0..*apps.unit_offsets.last().unwrap() as usize {
        let text = |column: usize| match apps.columns[column].get(Encoding::Text, row) {
            Value::Text(text) => text,
            _ => b"",
        };
        guids.push(Value::Text(text(0)));
        words.push(Value::Text(&text(1).to_ascii_uppercase()));
    }
    let rows = *apps.unit_offsets.last().unwrap() as usize;
    let shape = Shape {
        unit_offsets: apps.unit_offsets.clone(),
        origins: vec![NEW_ROW; rows],
    };
    let made = Written {
        shape: Some(shape),
        columns: vec![guids.finish(), words.finish()],
    };
    Ok(Outcome {
        tables: vec![
            Written {
                shape: None,
                columns: Vec::new(),
            },
            made,
        ],
        ..Outcome::default()
    })
}

pub(super) async fn words(world: &TestEngine) -> BTreeMap<String, (String, String)> {
    let rows = world.rows("words").await;
    rows.into_iter()
        .map(|row| {
            (
                row["guid"].clone(),
                (row["word"].clone(), row["note"].clone()),
            )
        })
        .collect()
}

/// A unit whose rows were edited, one edited after its rows were dropped, a new one, and a removed
/// one.
async fn edit_words(world: &TestEngine) {
    world
        .execute("UPDATE words SET word = 'edited', note = 'kept' WHERE guid = 'app-00000'")
        .await;
    world
        .execute("UPDATE words SET word = 'stale', note = 'kept' WHERE guid = 'app-00001'")
        .await;
    world
        .execute("DELETE FROM words WHERE guid = 'app-00002'")
        .await;
}

async fn edit_apps(world: &TestEngine) {
    world
        .execute("UPDATE desired_lrps SET domain = 'other' WHERE guid = 'app-00001'")
        .await;
    world
        .execute(
            "INSERT INTO desired_lrps (guid, domain, routes, run_info) \
             SELECT 'app-00009', 'new', routes, run_info FROM desired_lrps WHERE guid = 'app-00003'",
        )
        .await;
}

#[track_caller]
fn assert_words(found: &BTreeMap<String, (String, String)>) {
    let expected = [
        ("app-00000", "edited", "kept"),
        ("app-00001", "OTHER", "NULL"),
        ("app-00003", "D", "NULL"),
        ("app-00009", "NEW", "NULL"),
    ];
    let expected =
        expected.map(|(guid, word, note)| (guid.to_owned(), (word.to_owned(), note.to_owned())));
    assert_eq!(*found, BTreeMap::from(expected));
}

/// Goes up again after edits below and above a migration whose `up` fills the table of words.
async fn assert_up_makes_words(created: Manifest) {
    let mut world = TestEngine::with_rows(4).await;
    let [apps, rows] = accesses();
    let manifest = created.up(apps).up(rows);
    world.context.migrations = vec![Arc::clone(&all()[0]), migrations::native(manifest, shout)];
    world.up(2).await.unwrap();
    edit_words(&world).await;
    world.down(1).await.unwrap();
    edit_apps(&world).await;
    world.up(2).await.unwrap();
    assert_words(&words(&world).await);
    assert_eq!(world.count("bbs_residue").await, 0);
}

#[tokio::test]
async fn rows_made_by_up_replace_the_kept_rows_of_units_edited_since() {
    assert_up_makes_words(creating_words(2, "makes-words")).await;
}

#[tokio::test]
async fn rows_made_by_down_replace_the_kept_rows_of_units_edited_since() {
    let mut world = TestEngine::with_rows(4).await;
    let [apps, rows] = accesses();
    let dropped = migrations::manifest(3, "drops-words").drop_table("words");
    let dropped = dropped.down(apps.clone()).down(rows.clone());
    let created = creating_words(2, "makes-words").up(apps).up(rows);
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(created, shout),
        migrations::native(dropped, shout),
    ];
    world.up(2).await.unwrap();
    edit_words(&world).await;
    world.up(3).await.unwrap();
    edit_apps(&world).await;
    world.down(2).await.unwrap();
    assert_words(&words(&world).await);
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// Creates the table of words under another name.
fn created_and_renamed(name: &str) -> Manifest {
    migrations::manifest(2, name)
        .create_table(words_table("staging"))
        .rename_table("staging", "words")
}

#[tokio::test]
async fn rows_of_a_table_that_was_renamed_as_it_was_created_come_back() {
    let mut world = TestEngine::with_rows(4).await;
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(created_and_renamed("words"), migrations::none),
    ];
    world.up(2).await.unwrap();
    world
        .execute("INSERT INTO words (guid, word) SELECT guid, domain FROM desired_lrps")
        .await;
    world
        .execute("INSERT INTO words (guid, word) VALUES ('of-no-app', 'alone')")
        .await;
    let before = words(&world).await;
    world.down(1).await.unwrap();
    world.up(2).await.unwrap();
    assert_eq!(words(&world).await, before);
    assert_eq!(world.count("bbs_residue").await, 0);
}

#[tokio::test]
async fn rows_made_for_a_table_that_was_renamed_as_it_was_created_replace_kept_rows_of_edited_units()
 {
    assert_up_makes_words(created_and_renamed("makes-words")).await;
}

#[tokio::test]
async fn rows_of_a_table_that_was_renamed_as_it_was_dropped_come_back() {
    let mut world = TestEngine::with_rows(4).await;
    let dropped = migrations::manifest(3, "drops-words")
        .rename_table("words", "old_words")
        .drop_table("old_words");
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(creating_words(2, "words"), migrations::none),
        migrations::native(dropped, migrations::none),
    ];
    world.up(2).await.unwrap();
    world
        .execute("INSERT INTO words (guid, word) SELECT guid, domain FROM desired_lrps")
        .await;
    let before = words(&world).await;
    world.up(3).await.unwrap();
    world.down(2).await.unwrap();
    assert_eq!(words(&world).await, before);
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// Leaves both tables as they are.
fn pass(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let word = Written {
        shape: None,
        columns: batch.tables[1].columns.clone(),
    };
    Ok(Outcome {
        tables: vec![
            Written {
                shape: None,
                columns: Vec::new(),
            },
            word,
        ],
        ..Outcome::default()
    })
}

/// `words` is created empty, and a later step transforms it together with `desired_lrps`.
async fn with_words_beside_apps(apps: usize) -> TestEngine {
    let mut world = TestEngine::with_rows(apps).await;
    let joined = migrations::manifest(3, "reads-both")
        .up(Access::to("desired_lrps").reads(["guid"]))
        .up(Access::to("words").reads(["word"]).writes(["word"]));
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(creating_words(2, "creates-words"), migrations::none),
        migrations::native(joined, pass),
    ];
    world.up(3).await.unwrap();
    for unit in ["app-00001", "before-all", "zzz-after-all"] {
        world
            .execute(&format!(
                "INSERT INTO words (guid, word) VALUES ('{unit}', 'word of {unit}')"
            ))
            .await;
    }
    world
}

#[tokio::test]
async fn rows_of_a_dropped_table_are_given_back_to_the_record_that_they_belonged_to() {
    let mut world = TestEngine::with_rows(4).await;
    let epoch = Column::varchar("modification_tag_epoch", 255).nullable();
    let tagged = migrations::manifest(2, "tags").add_column("desired_lrps", epoch);
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(tagged, migrations::none),
        migrations::native(creating_words(3, "makes-words"), migrations::none),
    ];
    world.up(3).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET modification_tag_epoch = 'of ' || guid")
        .await;
    world
        .execute("INSERT INTO words (guid, word) SELECT guid, domain FROM desired_lrps")
        .await;
    world
        .execute("INSERT INTO words (guid, word) VALUES ('of no record', 'x')")
        .await;
    world.down(2).await.unwrap();
    // Another record under the same key, one that is gone, and one that has changed.
    world
        .execute(
            "UPDATE desired_lrps SET modification_tag_epoch = 'made anew' WHERE guid = 'app-00001'",
        )
        .await;
    world
        .execute("DELETE FROM desired_lrps WHERE guid = 'app-00002'")
        .await;
    world
        .execute("UPDATE desired_lrps SET domain = 'other' WHERE guid = 'app-00003'")
        .await;
    world.up(3).await.unwrap();
    assert_eq!(
        words(&world).await.keys().collect::<Vec<_>>(),
        ["app-00000", "app-00003", "of no record"]
    );
    assert_eq!(world.count("bbs_residue").await, 0);
}

#[tokio::test]
async fn units_only_in_a_dropped_table_are_restored() {
    let world = with_words_beside_apps(3).await;
    let before = world.everything().await;
    world.down(1).await.unwrap();
    assert_eq!(world.count("bbs_residue").await, 3);
    world.up(3).await.unwrap();
    assert_eq!(world.everything().await["words"], before["words"]);
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// Leaves both tables as they are, but for one unit.
fn refuse_one(
    direction: Direction,
    arguments: &RunArguments,
    batch: &Batch,
) -> Result<Outcome, String> {
    let words = &batch.tables[1];
    let refused = Value::Text(b"word of zzz-after-all");
    for row in 0..*words.unit_offsets.last().unwrap() as usize {
        if words.columns[0].get(Encoding::Text, row) == refused {
            return Err("no word may end like that".to_owned());
        }
    }
    pass(direction, arguments, batch)
}

#[tokio::test]
async fn unit_only_in_a_dropped_table_is_checked() {
    let mut world = with_words_beside_apps(3).await;
    world.down(1).await.unwrap();
    let joined = world.context.migrations.pop().unwrap().manifest().clone();
    let joined = migrations::native(joined, refuse_one);
    world.context.migrations.push(joined);
    let checked = check(&world.context, 3).await.unwrap();
    let of_joined = checked.migrations.last().unwrap();
    let counts = (of_joined.units, of_joined.lost, checked.lost());
    assert_eq!(counts, (5, 1, 1));
    assert_eq!(of_joined.troubles[0].examples[0].unit, "zzz-after-all");
    let error = at_unit(world.up(3).await.unwrap_err());
    assert!(
        matches!(&error, MigrateError::Unit { unit, .. } if unit == "zzz-after-all"),
        "{error}"
    );
}

/// Goal: residue names units of a table whose partition key is a number. Method: one unit has rows
/// in both tables of a step, the others in one of them.
#[tokio::test]
async fn units_of_a_number_only_in_a_dropped_table_are_restored() {
    let created = |version, name: &str| {
        let table = Table::new(name)
            .column(Column::big_integer("id"))
            .column(Column::long_text("word").nullable())
            .primary_key(["id"])
            .partition_key("id");
        let manifest = migrations::manifest(version, name).create_table(table);
        migrations::native(manifest, migrations::none)
    };
    let joined = migrations::manifest(4, "reads-both")
        .up(Access::to("counters").reads(["id"]))
        .up(Access::to("notes").reads(["word"]).writes(["word"]));
    let mut world = TestEngine::with_rows(1).await;
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        created(2, "counters"),
        created(3, "notes"),
        migrations::native(joined, pass),
    ];
    world.up(4).await.unwrap();
    for rows in [
        "counters (id, word) VALUES (1, 'a'), (2, 'b')",
        "notes (id, word) VALUES (-5, 'c'), (2, 'd'), (10, 'e')",
    ] {
        world.execute(&format!("INSERT INTO {rows}")).await;
    }
    let before = world.everything().await;
    world.down(2).await.unwrap();
    assert_eq!(world.count("bbs_residue").await, 3);
    world.up(4).await.unwrap();
    assert_eq!(world.everything().await, before);
    assert_eq!(world.count("bbs_residue").await, 0);
}

#[tokio::test]
async fn units_only_in_a_dropped_table_are_restored_by_partial_runs() {
    let world = with_words_beside_apps(3).await;
    let before = words(&world).await;
    world.down(1).await.unwrap();
    let mut parts = 0;
    loop {
        let fence = Fence::raise(&world.context.database).await.unwrap();
        match run_partially(&world.context, &fence, Intent::Up { wanted: 3 }, Some(1))
            .await
            .unwrap()
        {
            RunOutcome::Partial(_) => parts += 1,
            RunOutcome::Done(_) => break,
        }
    }
    assert_eq!(words(&world).await, before);
    assert_eq!(
        parts, 4,
        "three apps and two words alone, the last of which leaves nothing to do"
    );
}

#[tokio::test]
async fn units_only_in_a_dropped_table_are_restored_while_clients_write() {
    let world = with_words_beside_apps(3).await;
    world.down(1).await.unwrap();
    let (fence, online) = followed(&world, 3).await;
    // A client writes the unit's other row before anything is copied, and the saved row comes back
    // with it.
    let recorder = online.change_recorder();
    let unit = b"before-all".to_vec();
    let mut tx = fence.begin().await.unwrap();
    let insert = "INSERT INTO desired_lrps (guid, domain, routes, run_info) \
                  SELECT 'before-all', domain, routes, run_info FROM desired_lrps WHERE guid = 'app-00000'";
    tx.execute(bbs_database::sql(insert)).await.unwrap();
    recorder
        .record(&mut tx, &[("desired_lrps".to_owned(), unit)])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    online.copy(&world.context, &fence).await.unwrap();
    replace_originals(&world, &fence, &online).await;
    clean_up(&world.context, &fence).await.unwrap();
    let found = words(&world).await;
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        ["app-00001", "before-all", "zzz-after-all"]
    );
    assert_eq!(world.count("desired_lrps").await, 4);
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// Goal: what clients write to a table that the migration drops is in its residue, and what is
/// saved of another table for a unit of the same name stays there.
#[tokio::test]
async fn change_of_a_dropped_table_beside_its_migration_is_given_back() {
    let mut world = with_words_beside_apps(3).await;
    let dropped = migrations::manifest(4, "drops-words")
        .drop_table("words")
        .drop_column("desired_lrps", "annotation");
    world
        .context
        .migrations
        .push(migrations::native(dropped, migrations::none));
    world
        .execute("UPDATE desired_lrps SET annotation = 'kept'")
        .await;
    let (fence, online) = followed(&world, 4).await;
    online.copy(&world.context, &fence).await.unwrap();
    let recorder = online.change_recorder();
    let mut tx = fence.begin().await.unwrap();
    let update = "UPDATE words SET word = 'later' WHERE guid = 'app-00001'";
    tx.execute(bbs_database::sql(update)).await.unwrap();
    recorder
        .record(&mut tx, &[("words".to_owned(), b"app-00001".to_vec())])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    replace_originals(&world, &fence, &online).await;
    clean_up(&world.context, &fence).await.unwrap();
    world.down(3).await.unwrap();
    assert_eq!(
        world
            .text("SELECT word FROM words WHERE guid = 'app-00001'")
            .await,
        "later"
    );
    assert_eq!(
        world
            .text("SELECT annotation FROM desired_lrps WHERE guid = 'app-00001'")
            .await,
        "kept"
    );
}

/// Goal: values are given back to columns that have other names while a step adds or drops them.
/// Method: each migration goes up, down and up again, over rows of its newer version.
#[tokio::test]
async fn values_of_columns_that_are_renamed_as_they_are_added_or_dropped_come_back() {
    let apps = "desired_lrps";
    let added = migrations::manifest(2, "adds")
        .add_column(apps, Column::long_text("note").nullable())
        .rename_column(apps, "note", "text")
        .rename_column(apps, "text", "remark");
    let dropped = migrations::manifest(2, "drops")
        .rename_column(apps, "annotation", "note")
        .drop_column(apps, "note")
        .add_column(apps, Column::integer("passing").default(1))
        .drop_column(apps, "passing");
    let created = creating_words(2, "creates")
        .add_column("words", Column::integer("size").default(0))
        .rename_column("words", "word", "term");
    for (manifest, edit) in [
        (added, "UPDATE desired_lrps SET remark = 'of ' || guid"),
        (dropped, "UPDATE desired_lrps SET domain = 'other'"),
        (
            created,
            "INSERT INTO words (guid, term, note, size) SELECT guid, domain, 'n', 7 FROM desired_lrps",
        ),
    ] {
        let mut world = TestEngine::with_rows(4).await;
        let name = manifest.name.clone();
        world.context.migrations = vec![
            Arc::clone(&all()[0]),
            migrations::native(manifest, migrations::none),
        ];
        let below = world.everything().await;
        world.up(2).await.unwrap();
        world.down(1).await.unwrap();
        assert_eq!(world.everything().await, below, "{name}");
        world.up(2).await.unwrap();
        world.execute(edit).await;
        let above = world.everything().await;
        world.down(1).await.unwrap();
        world.up(2).await.unwrap();
        assert_eq!(world.everything().await, above, "{name}");
    }
}

#[tokio::test]
async fn rows_of_a_table_whose_columns_change_as_it_is_dropped_come_back() {
    let mut world = TestEngine::with_rows(4).await;
    let dropped = migrations::manifest(3, "drops-words")
        .drop_column("words", "note")
        .rename_column("words", "word", "term")
        .drop_table("words");
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(creating_words(2, "words"), migrations::none),
        migrations::native(dropped, migrations::none),
    ];
    world.up(2).await.unwrap();
    world
        .execute("INSERT INTO words (guid, word, note) SELECT guid, domain, 'n' FROM desired_lrps")
        .await;
    let before = words(&world).await;
    world.up(3).await.unwrap();
    world.down(2).await.unwrap();
    assert_eq!(words(&world).await, before);
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// Goal: residue is of one kind of unit, and of one record. Method: apps and tasks have the same
/// guids; on the older version a task is removed, and another one made under its guid.
#[tokio::test]
async fn residue_of_an_app_and_a_task_with_the_same_guid_is_given_back_to_each() {
    let tasks = Table::new("tasks")
        .column(Column::varchar("task_guid", 255))
        .column(Column::big_integer("created_at"))
        .primary_key(["task_guid"])
        .partition_key("task_guid");
    let colour = || Column::varchar("colour", 16).default("none");
    let coloured = migrations::manifest(3, "colours")
        .add_column("desired_lrps", colour())
        .add_column("tasks", colour());
    let mut world = TestEngine::with_rows(2).await;
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(
            migrations::manifest(2, "tasks").create_table(tasks),
            migrations::none,
        ),
        migrations::native(coloured, migrations::none),
    ];
    world.up(3).await.unwrap();
    for statement in [
        "INSERT INTO tasks (task_guid, created_at, colour) SELECT guid, 1, 'of a task' FROM desired_lrps",
        "UPDATE desired_lrps SET colour = 'of an app'",
    ] {
        world.execute(statement).await;
    }
    world.down(2).await.unwrap();
    for statement in [
        "DELETE FROM tasks WHERE task_guid = 'app-00000'",
        "INSERT INTO tasks (task_guid, created_at) VALUES ('app-00000', 2)",
    ] {
        world.execute(statement).await;
    }
    world.up(3).await.unwrap();
    let colours = async |table: &str| {
        let rows = world.rows(table).await;
        rows.into_iter()
            .map(|row| row["colour"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(colours("desired_lrps").await, ["of an app", "of an app"]);
    assert_eq!(colours("tasks").await, ["none", "of a task"]);
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// A table that a migration renames as well: what is saved has one name below the migration and
/// another above it.
#[tokio::test]
async fn values_of_a_column_are_given_back_to_a_table_that_is_renamed_with_it() {
    let mut world = TestEngine::with_rows(3).await;
    let renames = migrations::manifest(2, "renames")
        .rename_table("desired_lrps", "apps")
        .add_column("apps", Column::long_text("note").nullable());
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(renames, migrations::none),
    ];
    world.up(2).await.unwrap();
    world
        .execute("UPDATE apps SET note = 'kept' WHERE guid = 'app-00001'")
        .await;
    let before = world.everything().await;
    world.down(1).await.unwrap();
    world.up(2).await.unwrap();
    assert_eq!(world.everything().await, before);
}

#[tokio::test]
async fn check_reports_a_loss_without_its_values() {
    fn forgetful(direction: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
        let text = if direction == Direction::Up {
            &b"new"[..]
        } else {
            b"old"
        };
        let rows = *batch.tables[0].unit_offsets.last().unwrap() as usize;
        let column = ColumnData::repeat(Encoding::Text, Value::Text(text), rows);
        Ok(Outcome {
            tables: vec![Written {
                shape: None,
                columns: vec![column],
            }],
            ..Outcome::default()
        })
    }
    let mut world = TestEngine::with_rows(5).await;
    world.up(5).await.unwrap();
    let notes = ["annotation"];
    let notes = Access::to("desired_lrps").reads(notes).writes(notes);
    let manifest = migrations::manifest(8, "forgets")
        .up(notes.clone())
        .down(notes);
    world.context.migrations.truncate(5);
    world
        .context
        .migrations
        .push(migrations::native(manifest, forgetful));
    let before = world.everything().await;
    let checked = check(&world.context, 8).await.unwrap();
    assert_eq!(world.everything().await, before);
    let forgets = checked.migrations.last().unwrap();
    assert_eq!((forgets.units, forgets.lost, checked.lost()), (5, 5, 5));
    let [trouble] = forgets.troubles.as_slice() else {
        panic!("{:?}", forgets.troubles)
    };
    assert!(
        trouble.reason.ends_with("comes back changed"),
        "{}",
        trouble.reason
    );
    assert_eq!((trouble.units, trouble.examples.len()), (5, 3));
    assert_eq!(trouble.examples[0].unit, "app-00000");
}
