//! A catalog with migrations below others that ran: the database equals one that ran the new
//! catalog from the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use bbs_lens::layout::columns::{Batch, Outcome, Written};
use bbs_lens::layout::manifest::{Access, DataVersion, Direction, Manifest};
use bbs_lens::layout::schema::{Column, Table};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::{RunArguments, Transform};

use super::migrations::{self, all};
use super::restored::{creating_words, words};
use super::world::{TestEngine, TestRows};
use crate::lock::fence::Fence;
use crate::migrate::*;

/// All migrations but one, which the catalog inserts later.
fn without(version: DataVersion) -> Vec<Arc<dyn Transform>> {
    all()
        .into_iter()
        .filter(|migration| migration.manifest().version != version)
        .collect()
}

/// The catalog before migration 4 was inserted, and the one that is above all.
fn older_catalog() -> Vec<Arc<dyn Transform>> {
    let mut older = without(4);
    older.pop();
    older
}

/// A database on which all migrations up to a version ran but one, with the whole catalog from now
/// on.
async fn ran_without(version: DataVersion, up_to: DataVersion) -> TestEngine {
    let mut world = TestEngine::with_rows(12).await;
    world.context.migrations = without(version);
    world.up(up_to).await.unwrap();
    world.context.migrations = all();
    world
}

/// A database of which a part of the units is copied for the insertion of migration 4, and its rows
/// before.
async fn partly_inserted() -> (TestEngine, BTreeMap<String, TestRows>) {
    let mut world = ran_without(4, 6).await;
    world.context.migrations = older_catalog();
    let before = world.everything().await;
    world.context.migrations = all();
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let some = run_partially(&world.context, &fence, Intent::Up { wanted: 7 }, Some(3))
        .await
        .unwrap();
    assert!(matches!(some, RunOutcome::Partial(_)));
    (world, before)
}

async fn ran_from_the_start(to: DataVersion) -> TestEngine {
    let world = TestEngine::with_rows(12).await;
    world.up(to).await.unwrap();
    world
}

/// Writes of clients into columns that migrations above the inserted ones have added or renamed.
async fn edit(world: &TestEngine) {
    world
        .execute("UPDATE fixed_lrps SET strategy = 3 WHERE guid = 'app-00002'")
        .await;
    world
        .execute("UPDATE mutable_lrps SET note = 'edited' WHERE guid = 'app-00003'")
        .await;
    world
        .execute("UPDATE actual_lrps SET zone = 'z2' WHERE guid = 'app-00004'")
        .await;
    world
        .execute("INSERT INTO bbs_health_check (id, time) VALUES (1, 7)")
        .await;
}

#[tokio::test]
async fn database_equals_one_that_ran_the_new_line_from_the_start() {
    for inserted in [2, 3, 4] {
        let world = ran_without(inserted, 6).await;
        edit(&world).await;
        let status = status(&world.context, Intent::Up { wanted: 7 })
            .await
            .unwrap();
        assert_eq!(
            (status.inserted, status.pending.len(), status.refused),
            (vec![inserted], 2, None)
        );
        let checked = check(&world.context, 7).await.unwrap();
        let troubles: Vec<_> = checked
            .migrations
            .iter()
            .flat_map(|migration| &migration.troubles)
            .collect();
        assert!(
            troubles.is_empty() && checked.unreadable.is_empty(),
            "{troubles:?}"
        );
        assert_eq!(
            world.up(7).await.unwrap(),
            Decision::Begin { from: 6, to: 7 }
        );
        let expected = ran_from_the_start(7).await;
        edit(&expected).await;
        assert_eq!(
            world.everything().await,
            expected.everything().await,
            "{inserted}"
        );
        assert_eq!(world.schema().await, expected.schema().await, "{inserted}");
        assert_eq!(world.count("bbs_residue").await, 0, "{inserted}");
        assert!(world.leftovers().await.is_empty());
        assert_eq!(world.up(7).await.unwrap(), Decision::Serve);
        for to in [6, 4, 1, 7] {
            for world in [&world, &expected] {
                if to < 7 {
                    world.down(to).await.unwrap()
                } else {
                    world.up(to).await.unwrap()
                };
            }
            assert_eq!(
                world.everything().await,
                expected.everything().await,
                "{inserted} {to}"
            );
        }
    }
}

#[tokio::test]
async fn way_down_may_insert_what_only_adds() {
    let [gpus, marker] = additive();
    let [mut ran, mut catalog] = [without(4), without(4)];
    ran.truncate(5);
    catalog.insert(3, gpus);
    catalog.push(marker);
    let mut world = TestEngine::with_rows(12).await;
    world.context.migrations = ran;
    world.up(6).await.unwrap();
    edit(&world).await;
    world.context.migrations.clone_from(&catalog);
    let plan = plan(&world.context, 4).await.unwrap();
    assert_eq!((plan.direction, plan.inserted), (Direction::Down, vec![4]));
    world.down(4).await.unwrap();
    let mut expected = TestEngine::with_rows(12).await;
    expected.context.migrations = catalog;
    expected.up(8).await.unwrap();
    edit(&expected).await;
    expected.down(4).await.unwrap();
    assert_eq!(world.everything().await, expected.everything().await);
    // A host that goes down to this version when it ends stays there.
    let intent = Intent::UpUntilDrained {
        wanted: 8,
        back_to: 4,
    };
    assert_eq!(
        look(&world.context, intent).await.unwrap(),
        Decision::Stay { at: 4 }
    );
    for world in [&world, &expected] {
        world.up(8).await.unwrap();
    }
    assert_eq!(world.everything().await, expected.everything().await);
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// Values that are saved for rows could not be given back to rows that an insertion has changed
/// meanwhile.
#[tokio::test]
async fn way_down_does_not_insert_what_changes_rows() {
    let world = ran_without(4, 6).await;
    let error = world.down(4).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Compose(_)), "{error}");
    assert!(
        error.to_string().ends_with("and down from there"),
        "{error}"
    );
    assert_eq!(world.version().await, (6, 6));
}

/// At version 5, which creates `words`, with rows that belong to records, and with a catalog that
/// inserts migration 3.
async fn with_words_of_records(inserted: Manifest) -> TestEngine {
    let epoch = Column::varchar("modification_tag_epoch", 255).nullable();
    let tagged = migrations::manifest(2, "tags").add_column("desired_lrps", epoch);
    let mut catalog = vec![
        Arc::clone(&all()[0]),
        migrations::native(tagged, migrations::none),
        migrations::native(creating_words(5, "makes-words"), migrations::none),
    ];
    let mut world = TestEngine::with_rows(3).await;
    world.context.migrations.clone_from(&catalog);
    world.up(5).await.unwrap();
    for statement in [
        "UPDATE desired_lrps SET modification_tag_epoch = 'of ' || guid",
        "INSERT INTO words (guid, word) SELECT guid, domain FROM desired_lrps",
    ] {
        world.execute(statement).await;
    }
    catalog.insert(2, migrations::native(inserted, migrations::none));
    let [_, marker] = additive();
    catalog.push(marker);
    world.context.migrations = catalog;
    world
}

#[tokio::test]
async fn rows_of_records_come_back_after_an_insertion_of_a_column_that_identifies_records() {
    for to in [3, 2] {
        let created_at = Column::big_integer("created_at").default(0);
        let timed = migrations::manifest(3, "times").add_column("desired_lrps", created_at);
        let world = with_words_of_records(timed).await;
        let before = words(&world).await;
        world.down(to).await.unwrap();
        world.up(8).await.unwrap();
        assert_eq!(words(&world).await, before, "{to}");
        assert_eq!(world.count("bbs_residue").await, 0);
    }
}

#[tokio::test]
async fn way_down_does_not_insert_a_table_with_records() {
    let jobs = Table::new("jobs")
        .column(Column::varchar("guid", 255))
        .column(Column::big_integer("created_at"))
        .primary_key(["guid"])
        .partition_key("guid");
    let world = with_words_of_records(migrations::manifest(3, "jobs").create_table(jobs)).await;
    let error = world.down(3).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Compose(_)), "{error}");
    assert_eq!(world.version().await, (5, 5));
}

#[tokio::test]
async fn way_down_below_the_inserted_migration_is_straight() {
    let world = ran_without(4, 6).await;
    edit(&world).await;
    assert!(plan(&world.context, 3).await.unwrap().inserted.is_empty());
    world.down(3).await.unwrap();
    let expected = ran_from_the_start(7).await;
    edit(&expected).await;
    expected.down(3).await.unwrap();
    assert_eq!(world.everything().await, expected.everything().await);
}

#[tokio::test]
async fn version_that_stands_for_what_ran_is_refused_before_a_write() {
    let mut world = ran_without(4, 6).await;
    world.context.migrations = older_catalog();
    let (everything, master) = (world.everything().await, world.master().await);
    world.context.migrations = all();
    for outcome in [world.up(6).await, world.down(5).await] {
        let error = outcome.unwrap_err();
        assert!(
            matches!(
                &error,
                MigrateError::Inserted {
                    version: 4,
                    current: 6,
                    ..
                }
            ),
            "{error}"
        );
    }
    world.context.migrations = older_catalog();
    assert_eq!(
        (world.everything().await, world.master().await),
        (everything, master)
    );
}

/// A migration that only adds, and one above it.
fn additive() -> [Arc<dyn Transform>; 2] {
    let limit = Column::integer("gpu_limit").default(0);
    let gpus = migrations::manifest(4, "gpus").add_column("desired_lrps", limit);
    [
        migrations::native(gpus, migrations::none),
        migrations::native(migrations::manifest(8, "marker"), migrations::none),
    ]
}

#[tokio::test]
async fn insertion_that_only_adds_is_made_in_place() {
    let mut world = TestEngine::with_rows(5).await;
    let mut ran = without(4);
    ran.truncate(4);
    world.context.migrations.clone_from(&ran);
    world.up(5).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET strategy = 3 WHERE guid = 'app-00002'")
        .await;
    world
        .execute("INSERT INTO bbs_health_check (id, time) VALUES (1, 7)")
        .await;
    let before = world.everything().await;
    let [gpus, marker] = additive();
    ran.insert(3, gpus);
    ran.push(marker);
    world.context.migrations = ran;
    let plan = plan(&world.context, 8).await.unwrap();
    assert_eq!(plan.inserted, [4]);
    let strategies: BTreeMap<_, _> = plan
        .tables
        .iter()
        .map(|change| (change.table.as_str(), change.strategy.clone().unwrap()))
        .collect();
    let untouched =
        ["actual_lrps", "bbs_health_check", "domains"].map(|table| (table, Strategy::Untouched));
    assert_eq!(
        strategies,
        [("desired_lrps", Strategy::InPlace)]
            .into_iter()
            .chain(untouched)
            .collect()
    );
    world.up(8).await.unwrap();
    let mut after = world.everything().await;
    for app in after.get_mut("desired_lrps").unwrap() {
        assert_eq!(app.remove("gpu_limit").as_deref(), Some("0"));
    }
    assert_eq!(after, before);
}

/// The way goes down through a column that is narrower, and writes nothing there.
#[tokio::test]
async fn check_of_an_insertion_permits_texts_that_only_the_layouts_in_between_do_not_hold() {
    let mut world = TestEngine::with_rows(3).await;
    let domain = Column::varchar("domain", 700);
    let widen = migrations::manifest(5, "widen").alter_column("desired_lrps", domain);
    let mut catalog = without(4);
    catalog.truncate(3);
    catalog.push(migrations::native(widen, migrations::none));
    world.context.migrations.clone_from(&catalog);
    world.up(5).await.unwrap();
    let long = "d".repeat(500);
    world
        .execute(&format!("UPDATE desired_lrps SET domain = '{long}'"))
        .await;
    let [gpus, marker] = additive();
    catalog.insert(3, gpus);
    catalog.push(marker);
    world.context.migrations = catalog;
    let checked = check(&world.context, 8).await.unwrap();
    assert_eq!(checked.lost(), 0, "{:?}", checked.migrations);
    world.up(8).await.unwrap();
    let apps = world.rows("desired_lrps").await;
    assert!(apps.iter().all(|app| app["domain"] == long));
}

/// Another host whose catalog has not the insertion.
#[tokio::test]
async fn host_with_the_older_catalog_serves_until_the_cut_over_and_not_after() {
    let (mut world, before) = partly_inserted().await;
    world.context.migrations = older_catalog();
    assert_eq!(world.up(6).await.unwrap(), Decision::Serve);
    assert_eq!(world.everything().await, before);
    assert!(world.leftovers().await.is_empty());
    world.context.migrations = all();
    world.up(7).await.unwrap();
    world.context.migrations = older_catalog();
    let refused = world.up(6).await.unwrap();
    assert!(
        matches!(
            refused,
            Decision::ShutDown(Reason::Newer {
                current: 7,
                wanted: 6
            })
        ),
        "{refused:?}"
    );
    world.context.migrations = all();
    let expected = ran_from_the_start(7).await;
    assert_eq!(world.everything().await, expected.everything().await);
}

#[tokio::test]
async fn insertion_that_is_given_up_leaves_what_ran() {
    let (mut world, before) = partly_inserted().await;
    assert_eq!(
        world.abort().await.unwrap(),
        Some(GivenUp { from: 6, to: 7 })
    );
    world.context.migrations = older_catalog();
    assert_eq!(world.everything().await, before);
    assert_eq!(world.up(6).await.unwrap(), Decision::Serve);
}

/// A unit that the insertion refuses waits in the form that it had, whatever the versions stand for
/// since.
#[tokio::test]
async fn unit_in_quarantine_returns_by_the_line_that_it_was_taken_from() {
    let mut world = ran_without(4, 6).await;
    world.context.tuning.on_unreadable = OnUnreadable::Quarantine;
    world.spoil_run_info("fixed_lrps", "app-00003").await;
    world.up(7).await.unwrap();
    assert_eq!(world.count("mutable_lrps").await, 11);
    let waiting = quarantined(&world.context).await.unwrap();
    assert_eq!(
        waiting
            .iter()
            .map(|entry| entry.unit.as_str())
            .collect::<Vec<_>>(),
        ["app-00003"]
    );
    world.down(3).await.unwrap();
    assert_eq!(
        world.count("desired_lrps").await,
        12,
        "the migration that refused it is undone"
    );
    assert!(quarantined(&world.context).await.unwrap().is_empty());
}

/// The history has no entry of an insertion that has not run.
#[tokio::test]
async fn unit_that_stops_the_insertion_is_replayed_through_it() {
    let world = ran_without(4, 6).await;
    world.spoil_run_info("fixed_lrps", "app-00003").await;
    world.up(7).await.unwrap_err();
    let replayed = replay(&world.context, "app-00003", None).await.unwrap();
    let Replay { entry, reason, .. } = &replayed;
    assert_eq!((entry.version, entry.direction), (4, Direction::Up));
    assert_eq!(reason.as_deref(), Some("run_info has no tags"));
    assert!(replayed.input.is_some());
}

/// Migration 3, which refuses the instances of one app on its way down.
fn refuse_down(direction: Direction, run: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let mut rows = 0..*table.unit_offsets.last().unwrap() as usize;
    let refused = Value::Text(b"app-00003");
    if direction == Direction::Down
        && rows.any(|row| table.columns[0].get(Encoding::Text, row) == refused)
    {
        return Err("not down".to_owned());
    }
    let applied = all()[2].apply(direction, run, batch);
    applied.map_err(|fault| fault.reason)
}

#[tokio::test]
async fn unit_that_is_refused_on_the_way_down_of_an_insertion_is_replayed_downwards() {
    let mut world = ran_without(2, 3).await;
    let manifest = all()[2].manifest().clone();
    world.context.migrations[2] = migrations::native(manifest, refuse_down);
    world.up(5).await.unwrap_err();
    let replayed = replay(&world.context, "app-00003", None).await.unwrap();
    let Replay { entry, reason, .. } = &replayed;
    assert_eq!((entry.version, entry.direction), (3, Direction::Down));
    assert_eq!((entry.from, entry.to), (3, 5));
    assert_eq!(reason.as_deref(), Some("not down"));
    assert_eq!(replayed.input.unwrap().tables[0].name, "actual_lrps");
}

/// Turns the marks of evacuating instances around.
fn turn_around(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let mut marks = ColumnBuilder::new(Encoding::Boolean);
    for row in 0..*table.unit_offsets.last().unwrap() as usize {
        marks.push(Value::Boolean(
            table.columns[0].get(Encoding::Boolean, row) == Value::Boolean(false),
        ));
    }
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![marks.finish()],
        }],
        ..Outcome::default()
    })
}

/// The residue of migration 3 on its way down belongs to the rows that it returns.
#[tokio::test]
async fn unit_whose_saved_values_no_longer_fit_stops_the_insertion() {
    let mut world = ran_without(2, 3).await;
    world
        .execute("UPDATE actual_lrps SET presence = 2 WHERE guid = 'app-00003' AND place = 0")
        .await;
    world.context.migrations = without(2);
    let before = world.everything().await;
    let marks = ["evacuating"];
    let marks = Access::to("actual_lrps").reads(marks).writes(marks);
    let manifest = migrations::manifest(2, "turn-around")
        .up(marks.clone())
        .down(marks);
    world
        .context
        .migrations
        .insert(1, migrations::native(manifest, turn_around));
    let checked = check(&world.context, 5).await.unwrap();
    let of_lost = checked.migrations.iter().find(|of| of.lost > 0).unwrap();
    assert_eq!((of_lost.version, of_lost.direction), (3, Direction::Up));
    assert_eq!(of_lost.troubles[0].examples[0].unit, "app-00003");
    assert_eq!(checked.lost(), 1);
    let error = world.up(5).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Stopped { .. }), "{error}");
    let texts = bbs_work::causes::with_causes(&error).to_string();
    assert!(
        texts.contains("app-00003") && texts.contains("does not belong to the unit any more"),
        "{texts}"
    );
    world.context.migrations = without(2);
    assert_eq!(
        (world.version().await.0, world.everything().await),
        (3, before)
    );
}
