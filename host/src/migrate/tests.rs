//! The engine over a small line of migrations on a real database.

mod line;
mod recovery;
mod world;

use sqlx::Row;

use super::*;
use line::all;
use world::World;

#[tokio::test]
async fn a_fresh_database_has_the_final_layout_at_once() {
    let world = World::empty().await;
    let decision = world.up(5).await.unwrap();
    assert_eq!(decision, Decision::Begin { from: 0, to: 5 });
    assert_eq!(world.version().await, (5, 5));
    assert_eq!(world.up(5).await.unwrap(), Decision::Serve);
    world.assert_layout(5).await;
}

#[tokio::test]
async fn a_fresh_database_equals_one_migrated_from_the_first_version_step_by_step() {
    let fresh = World::empty().await;
    fresh.up(6).await.unwrap();
    let stepped = World::empty().await;
    for version in 1..=6 {
        stepped.up(version).await.unwrap();
    }
    assert_eq!(fresh.schema().await, stepped.schema().await);
    let at_once = World::empty().await;
    at_once.up(1).await.unwrap();
    at_once.up(6).await.unwrap();
    assert_eq!(fresh.schema().await, at_once.schema().await);
}

#[tokio::test]
async fn rows_go_up_through_every_migration_at_once() {
    let world = World::with_rows(40).await;
    world.up(5).await.unwrap();
    world.assert_layout(5).await;
    assert!(world.leftovers().await.is_empty());
    let apps = world.rows("desired_lrps").await;
    assert_eq!(apps.len(), 40);
    for (number, app) in apps.iter().enumerate() {
        assert_eq!(app["routes"], format!("routes of {number}"));
        assert_eq!(app["tags"], format!("t{number}"));
        assert_eq!(app["run_info"], format!("run {number} tags=t{number}"));
        assert_eq!(app["record_version"], "4");
        assert_eq!(app["strategy"], "0");
    }
    let instances = world.rows("actual_lrps").await;
    assert_eq!(instances.len(), 80);
    assert!(instances.iter().all(|row| row["presence"] == if row["evacuating"] == "1" { "1" } else { "0" }));
    assert_eq!(world.rows("domains").await.len(), 3);
}

#[tokio::test]
async fn a_batch_of_one_unit_and_one_of_all_give_the_same() {
    let small = World::with_rows(25).await.tuned(Tuning { batch_bytes: 1, ..Tuning::default() });
    let large = World::with_rows(25).await;
    small.up(6).await.unwrap();
    large.up(6).await.unwrap();
    assert_eq!(small.everything().await, large.everything().await);
}

#[tokio::test]
async fn down_gives_back_what_was_there_and_up_again_what_it_had_become() {
    let world = World::with_rows(30).await;
    let first = world.everything().await;
    world.up(6).await.unwrap();
    let sixth = world.everything().await;
    world.down(1).await.unwrap();
    assert_eq!(world.version().await, (1, 1));
    world.assert_layout(1).await;
    assert_eq!(world.everything().await, first);
    world.up(6).await.unwrap();
    assert_eq!(world.everything().await, sixth);
    assert_eq!(world.count("bbs_residue").await, 0);
}

#[tokio::test]
async fn tables_are_split_and_merged_without_opening_anything() {
    let world = World::with_rows(12).await;
    world.up(5).await.unwrap();
    let fifth = world.everything().await;
    world.execute("UPDATE desired_lrps SET run_info = 'unreadable' WHERE guid = 'app-00004'").await;
    world.up(6).await.unwrap();
    assert_eq!(world.count("fixed_lrps").await, 12);
    world.execute("UPDATE mutable_lrps SET note = 'edited' WHERE guid = 'app-00005'").await;
    world.down(5).await.unwrap();
    world.set_run_info("app-00004", "run 4 tags=t4").await;
    let again = world.everything().await;
    assert_eq!(again["actual_lrps"], fifth["actual_lrps"]);
    for (number, (now, then)) in again["desired_lrps"].iter().zip(&fifth["desired_lrps"]).enumerate() {
        let mut expected = then.clone();
        if number == 5 {
            expected.insert("annotation".into(), "edited".into());
        }
        assert_eq!(*now, expected);
    }
}

#[tokio::test]
async fn a_key_may_grow_by_a_column_that_is_the_same_in_every_row() {
    let world = World::with_rows(2).await;
    world.up(6).await.unwrap();
    let sixth = world.everything().await;
    world.up(7).await.unwrap();
    world.assert_layout(7).await;
    let kinds: Vec<_> = world.rows("fixed_lrps").await.iter().map(|row| row["kind"].clone()).collect();
    assert_eq!(kinds, ["it's", "it's"]);
    world.execute("UPDATE fixed_lrps SET kind = 'other' WHERE guid = 'app-00001'").await;
    let seventh = world.everything().await;
    world.down(6).await.unwrap();
    assert_eq!(world.everything().await, sixth);
    world.up(7).await.unwrap();
    assert_eq!(world.everything().await, seventh);
}

#[tokio::test]
async fn columns_and_tables_that_a_way_down_drops_come_back_with_their_values() {
    let world = World::with_rows(10).await;
    world.up(5).await.unwrap();
    world.execute("UPDATE desired_lrps SET strategy = 1 WHERE guid LIKE '%3'").await;
    world.execute("UPDATE actual_lrps SET zone = 'z-' || guid WHERE place = 1").await;
    world.execute("INSERT INTO bbs_health_check (id, time) VALUES (1, 77), (2, 78)").await;
    let fifth = world.everything().await;
    for to in [4, 3, 1] {
        world.down(to).await.unwrap();
        world.assert_layout(to).await;
        assert!(world.count("bbs_residue").await > 0);
        world.up(5).await.unwrap();
        let now = world.everything().await;
        for (table, rows) in &fifth {
            assert_eq!(now[table].iter().map(strip).collect::<Vec<_>>(), rows.iter().map(strip).collect::<Vec<_>>());
        }
        assert_eq!(world.count("bbs_residue").await, 0);
    }
}

/// Without the stamp of the copies.
fn strip(row: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    row.iter()
        .filter(|(name, _)| *name != "record_version")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[tokio::test]
async fn what_was_kept_for_a_record_that_changed_since_is_stale() {
    let world = World::with_rows(4).await;
    world.up(5).await.unwrap();
    world.execute("UPDATE desired_lrps SET strategy = 1").await;
    world.down(4).await.unwrap();
    world.execute("UPDATE desired_lrps SET domain = 'other' WHERE guid = 'app-00001'").await;
    world.up(5).await.unwrap();
    let strategies: Vec<_> = world.rows("desired_lrps").await.iter().map(|row| row["strategy"].clone()).collect();
    assert_eq!(strategies, ["1", "0", "1", "1"]);
}

#[tokio::test]
async fn rows_that_the_older_layout_cannot_hold_wait_as_residue() {
    let world = World::with_rows(3).await;
    world.up(3).await.unwrap();
    world
        .execute(
            "INSERT INTO actual_lrps (guid, place, evacuating, state, net_info, presence) \
             SELECT guid, place, evacuating, 'SUSPECT', net_info, 2 FROM actual_lrps WHERE guid = 'app-00001'",
        )
        .await;
    let third = world.everything().await;
    world.down(2).await.unwrap();
    assert_eq!(world.count("actual_lrps").await, 6);
    world.up(3).await.unwrap();
    assert_eq!(world.everything().await, third);
}

#[tokio::test]
async fn a_unit_that_a_module_cannot_take_stops_it_by_name_and_changes_nothing() {
    for (run_info, reason) in [("no such thing", "run_info has no tags"), ("trap tags=", "it trapped")] {
        let world = World::with_rows(20).await;
        world.set_run_info("app-00013", run_info).await;
        let before = world.everything().await;
        let error = world.up(5).await.unwrap_err();
        let MigrateError::Unit { unit, replay, source } = &error else { panic!("{error}") };
        assert_eq!(unit, "app-00013");
        assert!(source.to_string().contains(reason), "{source}");
        assert!(source.to_string().contains("digest-of-4"), "{source}");
        assert!(source.to_string().contains("up of migration 4 (split-tags"), "{source}");
        let sealed = std::fs::read(replay.as_ref().expect("a replay file")).unwrap();
        let replay = world.context.keyring.open(crate::layout::schema::Sealing::Sealed, &sealed).unwrap();
        assert!(String::from_utf8(replay).unwrap().contains("app-00013"));
        assert!(!String::from_utf8_lossy(&sealed).contains("app-00013"), "the file is sealed");
        assert_eq!(world.version().await, (1, 5));
        assert_eq!(world.everything().await, before);
        world.set_run_info("app-00013", "run 13 tags=t13").await;
        assert_eq!(world.up(5).await.unwrap(), Decision::Continue { from: 1, to: 5 });
        assert_eq!(world.rows("desired_lrps").await[13]["tags"], "t13");
    }
}

#[tokio::test]
async fn a_record_that_does_not_open_stops_it_by_name_and_changes_nothing() {
    let world = World::with_rows(20).await;
    world.execute("UPDATE desired_lrps SET run_info = '02AAAA' WHERE guid = 'app-00007'").await;
    let error = world.up(5).await.unwrap_err();
    assert!(
        matches!(&error, MigrateError::Record { unit, table, column, .. }
            if (unit.as_str(), table.as_str(), column.as_str()) == ("app-00007", "desired_lrps", "run_info")),
        "{error}"
    );
    assert_eq!(world.version().await, (1, 5));
    assert_eq!(world.count("desired_lrps").await, 20);
    world.set_run_info("app-00007", "run 7 tags=t7").await;
    world.up(5).await.unwrap();
    assert_eq!(world.rows("desired_lrps").await[7]["tags"], "t7");
}

#[tokio::test]
async fn a_column_that_nobody_declares_is_not_opened() {
    let world = World::with_rows(5).await;
    world.up(4).await.unwrap();
    world.execute("UPDATE desired_lrps SET run_info = 'not a record' WHERE guid = 'app-00002'").await;
    world.execute("UPDATE desired_lrps SET routes = 'nor is this'").await;
    world.up(6).await.unwrap();
    assert_eq!(world.text("SELECT run_info FROM fixed_lrps WHERE guid = 'app-00002'").await, "not a record");
    assert_eq!(world.text("SELECT DISTINCT routes FROM mutable_lrps").await, "nor is this");
}

#[tokio::test]
async fn a_unit_above_the_limit_is_refused_by_name() {
    let world = World::with_rows(5).await.tuned(Tuning { unit_bytes: 5_000, ..Tuning::default() });
    world.execute("UPDATE desired_lrps SET annotation = printf('%6000s', '') WHERE guid = 'app-00003'").await;
    let error = world.up(5).await.unwrap_err();
    assert!(matches!(&error, MigrateError::UnitTooLarge { unit, limit: 5_000, .. } if unit == "app-00003"), "{error}");
}

#[tokio::test]
async fn another_module_for_a_version_that_ran_is_an_error() {
    let mut world = World::with_rows(2).await;
    world.up(4).await.unwrap();
    let manifest = all()[3].manifest().clone();
    world.context.migrations[3] =
        std::sync::Arc::new(line::Native { manifest, digest: "other".into(), function: line::none });
    for version in [4, 5] {
        let error = world.up(version).await.unwrap_err();
        assert!(matches!(&error, MigrateError::DigestChanged { version: 4, .. }), "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_undone_is_refused_before_anything_is_written() {
    let mut world = World::with_rows(2).await;
    world.up(2).await.unwrap();
    let mut manifest = all()[1].manifest().clone();
    manifest.reversible = false;
    world.context.migrations[1] =
        std::sync::Arc::new(line::Native { manifest, digest: "digest-of-2".into(), function: line::none });
    let error = world.down(1).await.unwrap_err();
    assert!(matches!(error, MigrateError::NotReversible { version: 2, .. }), "{error}");
    assert_eq!(world.version().await, (2, 2));
}

#[tokio::test]
async fn versions_that_the_catalog_does_not_have_are_errors() {
    let world = World::with_rows(2).await;
    world.up(3).await.unwrap();
    assert!(matches!(world.down(0).await.unwrap_err(), MigrateError::NotReversible { version: 1, .. }));
    world.execute("UPDATE configurations SET value = '{\"CurrentVersion\":2000}' WHERE id = 'version'").await;
    let error = world.down(2).await.unwrap_err();
    assert!(matches!(error, MigrateError::UnknownVersion { version: 2000 }), "{error}");
    world.execute("UPDATE configurations SET value = 'nonsense' WHERE id = 'version'").await;
    assert!(matches!(world.up(3).await.unwrap_err(), MigrateError::UnreadableVersion { .. }));
}

#[tokio::test]
async fn a_version_row_without_target_means_that_it_equals_current() {
    let world = World::with_rows(2).await;
    world.execute("UPDATE configurations SET value = '{\"CurrentVersion\":1,\"Other\":2}' WHERE id = 'version'").await;
    assert_eq!(world.up(2).await.unwrap(), Decision::Begin { from: 1, to: 2 });
}

#[tokio::test]
async fn no_version_with_empty_or_foreign_tables_is_a_fresh_start_and_with_rows_is_not() {
    let world = World::empty().await;
    world.execute("CREATE TABLE locks (path TEXT)").await;
    world.execute("INSERT INTO locks VALUES ('bbs')").await;
    world.execute("CREATE TABLE tasks (anything TEXT)").await;
    world.execute("CREATE TABLE desired_lrps (anything TEXT)").await;
    world.execute("INSERT INTO desired_lrps VALUES ('a row')").await;
    let before = world.master().await;
    let decision = world.up(5).await.unwrap();
    assert_eq!(decision, Decision::ShutDown(Reason::Unversioned { tables: vec!["desired_lrps".into()] }));
    assert_eq!(world.master().await, before, "nothing was written");
    world.execute("DELETE FROM desired_lrps").await;
    assert_eq!(world.up(5).await.unwrap(), Decision::Begin { from: 0, to: 5 });
    assert_eq!(world.count("locks").await, 1);
    world.assert_layout(5).await;
}

/// Diego writes version 0 before its first migration.
#[tokio::test]
async fn version_zero_is_no_version() {
    let world = World::empty().await;
    world.execute("CREATE TABLE configurations (id TEXT PRIMARY KEY, value TEXT)").await;
    world.execute("INSERT INTO configurations VALUES ('version', '{\"CurrentVersion\":0}')").await;
    world.execute("CREATE TABLE tasks (anything TEXT)").await;
    world.execute("INSERT INTO tasks VALUES ('a row')").await;
    let unversioned = Reason::Unversioned { tables: vec!["tasks".into()] };
    assert_eq!(world.up(5).await.unwrap(), Decision::ShutDown(unversioned));
    world.execute("DELETE FROM tasks").await;
    assert_eq!(world.up(5).await.unwrap(), Decision::Begin { from: 0, to: 5 });
}

#[tokio::test]
async fn a_table_in_the_way_that_holds_rows_is_not_dropped() {
    let world = World::with_rows(1).await;
    world.execute("CREATE TABLE bbs_health_check (mine TEXT)").await;
    world.execute("INSERT INTO bbs_health_check VALUES ('a row')").await;
    let error = world.up(5).await.unwrap_err();
    assert!(matches!(&error, MigrateError::TableInTheWay { table } if table == "bbs_health_check"), "{error}");
    assert_eq!(world.count("bbs_health_check").await, 1);
}

#[tokio::test]
async fn a_table_that_is_not_what_its_version_says_stops_it() {
    let world = World::with_rows(1).await;
    world.execute("ALTER TABLE desired_lrps ADD COLUMN surprise TEXT").await;
    world.execute("DROP INDEX apps_domain_idx").await;
    let error = world.up(5).await.unwrap_err();
    let MigrateError::SchemaDiffers { table, differences } = &error else { panic!("{error}") };
    assert_eq!(table, "desired_lrps");
    assert!(differences.iter().any(|difference| difference.contains("surprise")), "{differences:?}");
    assert!(differences.iter().any(|difference| difference.contains("apps_domain_idx")), "{differences:?}");
}

#[tokio::test]
async fn run_arguments_are_drawn_once() {
    let world = World::with_rows(1).await;
    world.up(4).await.unwrap();
    let query = "SELECT group_concat(version || namespace || started_at_ns) FROM bbs_run_arguments WHERE version <= 4";
    let first = world.text(query).await;
    world.down(2).await.unwrap();
    world.up(5).await.unwrap();
    assert_eq!(world.text(query).await, first);
}

#[tokio::test]
async fn history_names_every_step_with_its_module() {
    let world = World::with_rows(1).await;
    world.up(3).await.unwrap();
    world.down(2).await.unwrap();
    let mut reader = world.context.database.read().await.unwrap();
    let rows = sqlx::query("SELECT version, direction, digest, name FROM bbs_history ORDER BY seq")
        .fetch_all(&mut *reader)
        .await
        .unwrap();
    let lines: Vec<_> = rows
        .iter()
        .map(|row| {
            format!(
                "{} {} {} {}",
                row.get::<i64, _>(0),
                row.get::<String, _>(1),
                row.get::<String, _>(2),
                row.get::<String, _>(3)
            )
        })
        .collect();
    assert_eq!(
        lines[lines.len() - 3..],
        ["2 up digest-of-2 seal-routes", "3 up digest-of-3 presence", "3 down digest-of-3 presence"]
    );
}

#[tokio::test]
async fn status_and_plan_say_what_is_and_what_would_be() {
    let world = World::with_rows(7).await;
    let status = status(&world.context).await.unwrap();
    assert_eq!(status.decision, Decision::Begin { from: 1, to: 7 });
    assert_eq!(status.pending.iter().map(|m| m.version).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    let plan = plan(&world.context, 5).await.unwrap();
    let of = |name: &str| plan.tables.iter().find(|table| table.table == name).unwrap();
    assert_eq!(of("desired_lrps").strategy, Some(Strategy::Copy));
    assert_eq!(of("desired_lrps").computed, ["routes", "tags"]);
    assert_eq!(of("desired_lrps").rows, 7);
    assert_eq!(of("domains").strategy, Some(Strategy::Untouched));
    assert_eq!(of("bbs_health_check").strategy, Some(Strategy::Create));
    world.up(4).await.unwrap();
    let plan = super::plan(&world.context, 5).await.unwrap();
    let in_place = plan.tables.iter().filter(|table| table.strategy == Some(Strategy::InPlace));
    assert_eq!(in_place.map(|table| table.table.as_str()).collect::<Vec<_>>(), ["actual_lrps", "desired_lrps"]);
    assert_eq!(plan.bytes_to_copy, 0);
    assert!(super::plan(&world.context, 9).await.is_err());
}

#[tokio::test]
async fn an_additive_change_leaves_the_table_where_it_is() {
    let world = World::with_rows(3).await;
    world.up(4).await.unwrap();
    let root = "SELECT CAST(rootpage AS TEXT) FROM sqlite_master WHERE name = 'desired_lrps'";
    let before = world.text(root).await;
    world.up(5).await.unwrap();
    assert_eq!(world.text(root).await, before);
}
