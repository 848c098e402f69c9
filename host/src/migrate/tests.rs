//! The engine on a real database, with a short list of migrations.

mod added;
mod any_insertion;
mod behind;
mod changed;
mod cluster;
mod hostile;
mod inserted;
mod left_out;
mod migrations;
mod other_catalogs;
mod pacing;
mod record_versions;
mod refusals;
mod residue_only;
mod restored;
mod restored_onward;
mod same_names;
mod single_rows;
mod slow_retry;
mod too_many;
mod units_of_one_name;
mod world;

use std::collections::BTreeMap;

use bbs_database::Row;

use super::copy::UnitBudget;
use super::*;
use migrations::all;
use world::TestEngine;

#[tokio::test]
async fn fresh_database_gets_the_final_layout_directly() {
    let world = TestEngine::empty().await;
    let decision = world.up(5).await.unwrap();
    assert_eq!(decision, Decision::Begin { from: 0, to: 5 });
    assert_eq!(world.version().await, (5, 5));
    assert_eq!(world.up(5).await.unwrap(), Decision::Serve);
    world.assert_layout(5).await;
}

#[tokio::test]
async fn fresh_database_equals_one_migrated_step_by_step() {
    let fresh = TestEngine::empty().await;
    fresh.up(6).await.unwrap();
    let stepped = TestEngine::empty().await;
    for version in 1..=6 {
        stepped.up(version).await.unwrap();
    }
    assert_eq!(fresh.schema().await, stepped.schema().await);
    let at_once = TestEngine::empty().await;
    at_once.up(1).await.unwrap();
    at_once.up(6).await.unwrap();
    assert_eq!(fresh.schema().await, at_once.schema().await);
}

#[tokio::test]
async fn rows_migrate_up_through_every_migration_in_one_copy() {
    let world = TestEngine::with_rows(40).await;
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
    assert!(
        instances
            .iter()
            .all(|row| row["presence"] == if row["evacuating"] == "1" { "1" } else { "0" })
    );
    assert_eq!(world.rows("domains").await.len(), 3);
}

#[tokio::test]
async fn batches_of_one_unit_and_of_all_units_have_the_same_result() {
    let small = TestEngine::with_rows(25).await.tuned(Tuning {
        batch_bytes: 1,
        ..Tuning::default()
    });
    let large = TestEngine::with_rows(25).await;
    small.up(6).await.unwrap();
    large.up(6).await.unwrap();
    assert_eq!(small.everything().await, large.everything().await);
}

#[tokio::test]
async fn down_restores_the_rows_and_up_again_restores_the_migrated_ones() {
    let world = TestEngine::with_rows(30).await;
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
async fn tables_are_split_and_merged_without_opening_a_record() {
    let world = TestEngine::with_rows(12).await;
    world.up(5).await.unwrap();
    let fifth = world.everything().await;
    world
        .execute("UPDATE desired_lrps SET run_info = 'unreadable' WHERE guid = 'app-00004'")
        .await;
    world.up(6).await.unwrap();
    assert_eq!(world.count("fixed_lrps").await, 12);
    world
        .execute("UPDATE mutable_lrps SET note = 'edited' WHERE guid = 'app-00005'")
        .await;
    world.down(5).await.unwrap();
    world.set_run_info("app-00004", "run 4 tags=t4").await;
    let again = world.everything().await;
    assert_eq!(again["actual_lrps"], fifth["actual_lrps"]);
    for (number, (now, then)) in again["desired_lrps"]
        .iter()
        .zip(&fifth["desired_lrps"])
        .enumerate()
    {
        let mut expected = then.clone();
        if number == 5 {
            expected.insert("annotation".into(), "edited".into());
        }
        assert_eq!(*now, expected);
    }
}

#[tokio::test]
async fn primary_key_can_be_extended_by_a_constant_column() {
    let world = TestEngine::with_rows(2).await;
    world.up(6).await.unwrap();
    let sixth = world.everything().await;
    world.up(7).await.unwrap();
    world.assert_layout(7).await;
    let kinds: Vec<_> = world
        .rows("fixed_lrps")
        .await
        .iter()
        .map(|row| row["kind"].clone())
        .collect();
    assert_eq!(kinds, ["it's", "it's"]);
    world
        .execute("UPDATE fixed_lrps SET kind = 'other' WHERE guid = 'app-00001'")
        .await;
    let seventh = world.everything().await;
    world.down(6).await.unwrap();
    assert_eq!(world.everything().await, sixth);
    world.up(7).await.unwrap();
    assert_eq!(world.everything().await, seventh);
}

#[tokio::test]
async fn columns_and_tables_dropped_by_down_come_back_with_their_values() {
    let world = TestEngine::with_rows(10).await;
    world.up(5).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET strategy = 1 WHERE guid LIKE '%3'")
        .await;
    world
        .execute("UPDATE actual_lrps SET zone = 'z-' || guid WHERE place = 1")
        .await;
    world
        .execute("INSERT INTO bbs_health_check (id, time) VALUES (1, 77), (2, 78)")
        .await;
    let fifth = world.everything().await;
    for to in [4, 3, 1] {
        world.down(to).await.unwrap();
        world.assert_layout(to).await;
        assert!(world.count("bbs_residue").await > 0);
        world.up(5).await.unwrap();
        let now = world.everything().await;
        for (table, rows) in &fifth {
            assert_eq!(
                now[table].iter().map(strip).collect::<Vec<_>>(),
                rows.iter().map(strip).collect::<Vec<_>>()
            );
        }
        assert_eq!(world.count("bbs_residue").await, 0);
    }
}

/// Without the record version of the copies.
fn strip(row: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    row.iter()
        .filter(|(name, _)| *name != "record_version")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[tokio::test]
async fn residue_of_a_record_edited_since_is_stale() {
    let world = TestEngine::with_rows(4).await;
    world.up(5).await.unwrap();
    world.execute("UPDATE desired_lrps SET strategy = 1").await;
    world.down(4).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET domain = 'other' WHERE guid = 'app-00001'")
        .await;
    world.up(5).await.unwrap();
    let strategies: Vec<_> = world
        .rows("desired_lrps")
        .await
        .iter()
        .map(|row| row["strategy"].clone())
        .collect();
    assert_eq!(strategies, ["1", "0", "1", "1"]);
}

#[tokio::test]
async fn rows_that_the_older_layout_cannot_hold_are_kept_as_residue() {
    let world = TestEngine::with_rows(3).await;
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
async fn unfinished_down_is_resumed_only_by_the_same_intent() {
    let world = TestEngine::with_rows(3).await;
    world.up(5).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET routes = 'damaged'")
        .await;
    assert!(matches!(
        world::at_unit(world.down(1).await.unwrap_err()),
        MigrateError::Record { .. }
    ));
    assert_eq!(
        world.up(5).await.unwrap(),
        Decision::ShutDown(Reason::GoingDown { to: 1 })
    );
    assert_eq!(
        world.down(2).await.unwrap(),
        Decision::ShutDown(Reason::GoingDown { to: 1 })
    );
    let going_down = Some(Reason::GoingDown { to: 1 }.to_string());
    for (to, refused) in [(5, &going_down), (2, &going_down), (1, &None)] {
        let planned = plan(&world.context, to).await.unwrap();
        assert_eq!(planned.refused, *refused, "{to}");
        assert_eq!(planned.is_refused_by_version, refused.is_some(), "{to}");
    }
    world.seal_routes().await;
    assert_eq!(
        world.down(1).await.unwrap(),
        Decision::Continue { from: 5, to: 1 }
    );
    assert_eq!(
        world.up(5).await.unwrap(),
        Decision::Begin { from: 1, to: 5 }
    );
}

/// Goal: an unfinished migration in either direction can be given up while the tables are as they
/// were, and any version can be gone to from there. Method: partial runs leave the state of a
/// migration that stopped.
#[tokio::test]
async fn unfinished_migration_is_given_up_in_both_directions() {
    let world = TestEngine::with_rows(30).await;
    world.up(5).await.unwrap();
    let before = world.everything().await;
    for intent in [Intent::Down { to: 1 }, Intent::Up { wanted: 6 }] {
        let to = if intent == (Intent::Up { wanted: 6 }) {
            6
        } else {
            1
        };
        let fence = Fence::raise(&world.context.database).await.unwrap();
        let part = run_partially(&world.context, &fence, intent, Some(10))
            .await
            .unwrap();
        assert!(
            matches!(part, RunOutcome::Partial(PartialRun { migrated: 10, .. })),
            "{part:?}"
        );
        assert_eq!(world.abort().await.unwrap(), Some(GivenUp { from: 5, to }));
        assert_eq!(
            (world.version().await, world.abort().await.unwrap()),
            ((5, 5), None)
        );
        assert!(world.leftovers().await.is_empty());
        assert_eq!(world.everything().await, before);
        assert_eq!(world.up(5).await.unwrap(), Decision::Serve);
    }
    assert_eq!(
        world.down(2).await.unwrap(),
        Decision::Begin { from: 5, to: 2 }
    );
    let states: Vec<_> = runs(&world.context.database)
        .await
        .unwrap()
        .into_iter()
        .map(|run| (run.from, run.to, run.state))
        .collect();
    let (completed, given_up) = (RunState::Completed, RunState::GivenUp);
    assert_eq!(
        states,
        [
            (0, 1, completed),
            (1, 5, completed),
            (5, 1, given_up),
            (5, 6, given_up),
            (5, 2, completed)
        ]
    );
}

#[tokio::test]
async fn migration_to_another_version_replaces_an_unfinished_one_in_the_history() {
    let world = TestEngine::with_rows(30).await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    run_partially(&world.context, &fence, Intent::Up { wanted: 5 }, Some(10))
        .await
        .unwrap();
    world.up(6).await.unwrap();
    let states: Vec<_> = runs(&world.context.database)
        .await
        .unwrap()
        .into_iter()
        .map(|run| (run.to, run.state))
        .collect();
    assert_eq!(
        states,
        [
            (1, RunState::Completed),
            (5, RunState::Replaced),
            (6, RunState::Completed)
        ]
    );
    // A host of a release without the history has begun this one.
    let fence = Fence::raise(&world.context.database).await.unwrap();
    run_partially(&world.context, &fence, Intent::Down { to: 1 }, Some(10))
        .await
        .unwrap();
    world.execute("DELETE FROM bbs_migration_run").await;
    world.down(1).await.unwrap();
    let found = runs(&world.context.database).await.unwrap();
    assert_eq!(
        (found.len(), found[0].state, found[0].host.as_str()),
        (1, RunState::Completed, "z1")
    );
}

/// Goal: interrupted work is resumed only where that is safe. Method: rows that were already copied
/// are damaged. Resumed work then fails `verify`; a copy that begins anew is not affected.
#[tokio::test]
async fn copy_is_resumed_only_by_the_next_holder_with_the_same_modules_and_versions() {
    for (case, resumed) in [
        ("the next", true),
        ("one in between", false),
        ("other module", false),
        ("other end", false),
        ("another column", false),
    ] {
        let small = Tuning {
            batch_units: 1,
            batch_bytes: 1,
            ..Tuning::default()
        };
        let mut world = TestEngine::with_rows(30).await.tuned(small);
        world.set_run_info("app-00020", "no such thing").await;
        world.up(4).await.unwrap_err();
        assert!(world.count("desired_lrps__4").await > 0);
        world
            .execute("UPDATE desired_lrps__4 SET tags = run_info")
            .await;
        world.set_run_info("app-00020", "run 20 tags=t20").await;
        let mut wanted = 4;
        match case {
            "one in between" => drop(Fence::raise(&world.context.database).await.unwrap()),
            "other module" => {
                let manifest = all()[1].manifest().clone();
                let other = migrations::NativeMigration {
                    manifest,
                    digest: "other".into(),
                    function: migrations::none,
                };
                world.context.migrations[1] = Arc::new(other);
            }
            "other end" => wanted = 5,
            "another column" => {
                let added = "ALTER TABLE desired_lrps ADD COLUMN of_owner TEXT";
                world.execute(added).await;
            }
            _ => {}
        }
        let outcome = world.up(wanted).await;
        assert_eq!(
            matches!(outcome, Err(MigrateError::Verify { .. })),
            resumed,
            "{case}: {outcome:?}"
        );
        world.up(wanted).await.unwrap();
        assert_eq!(world.rows("desired_lrps").await[29]["tags"], "t29");
    }
}

/// Goal: a migration that is continued after Diego's BBS has served loses nothing that it wrote.
/// Method: an instance changes that is in its copy already, with which no original is compared.
#[tokio::test]
async fn resumed_copy_fails_its_verification_after_another_program_has_written() {
    const APPS: usize = 30;
    let world = TestEngine::with_rows(APPS).await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let all_but_one = Some(2 * APPS as u64 - 1);
    let part = run_partially(
        &world.context,
        &fence,
        Intent::Up { wanted: 3 },
        all_but_one,
    );
    assert!(matches!(part.await.unwrap(), RunOutcome::Partial(_)));
    world
        .execute("UPDATE actual_lrps SET state = 'CRASHED' WHERE guid = 'app-00000'")
        .await;
    let error = world.up(3).await.unwrap_err();
    assert!(
        matches!(&error, MigrateError::Verify { table, .. } if table == "actual_lrps"),
        "{error}"
    );
    world.up(3).await.unwrap();
    assert_eq!(world.rows("actual_lrps").await[0]["state"], "CRASHED");
}

#[tokio::test]
async fn copy_begun_anew_removes_the_residue_of_the_first_one() {
    let small = Tuning {
        batch_units: 1,
        batch_bytes: 1,
        ..Tuning::default()
    };
    let world = TestEngine::with_rows(30).await.tuned(small);
    world.up(4).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET tags = 'no record' WHERE guid = 'app-00020'")
        .await;
    world.down(1).await.unwrap_err();
    let kept = "(SELECT * FROM bbs_residue WHERE unit = 'app-00000')";
    assert!(world.count(kept).await > 0);
    // Another host serves meanwhile, and the first unit is removed.
    drop(Fence::raise(&world.context.database).await.unwrap());
    world
        .execute("DELETE FROM desired_lrps WHERE guid = 'app-00000'")
        .await;
    world
        .execute("DELETE FROM actual_lrps WHERE guid = 'app-00000'")
        .await;
    world
        .execute("UPDATE desired_lrps SET tags = NULL WHERE guid = 'app-00020'")
        .await;
    world.down(1).await.unwrap();
    assert_eq!(world.count(kept).await, 0);
}

#[tokio::test]
async fn copy_that_differs_from_the_lens_output_is_discarded() {
    for damage in [
        "UPDATE desired_lrps__5 SET domain = 'x' WHERE guid = 'app-00002'",
        "DELETE FROM desired_lrps__5 WHERE guid = 'app-00002'",
        "UPDATE desired_lrps__5 SET tags = run_info WHERE guid = 'app-00002'",
        "UPDATE desired_lrps__5 SET guid = 'app-00002b' WHERE guid = 'app-00002'",
        "INSERT INTO actual_lrps__5 (guid, place, evacuating, state, net_info, presence) \
         SELECT guid, place, evacuating, state, net_info, 7 FROM actual_lrps__5 LIMIT 1",
        "UPDATE actual_lrps__5 SET state = 'x' WHERE guid = 'app-00002' AND place = 0",
    ] {
        let world = TestEngine::with_rows(5).await;
        let before = world.everything().await;
        let error = world.damaged_before_verify(5, damage).await;
        assert!(
            matches!(error, MigrateError::Verify { .. }),
            "{damage}: {error}"
        );
        assert_eq!(world.everything().await, before);
        assert_eq!(world.version().await, (1, 5));
        assert!(world.leftovers().await.is_empty());
        world.up(5).await.unwrap();
        world.assert_layout(5).await;
    }
}

/// Where nothing is computed there is no checksum, so `verify` compares the rows.
#[tokio::test]
async fn copy_without_computed_columns_is_verified_too() {
    for damage in [
        "DELETE FROM mutable_lrps__6 WHERE guid = 'app-00002'",
        "UPDATE mutable_lrps__6 SET note = 'x' WHERE guid = 'app-00002'",
        "UPDATE mutable_lrps__6 SET note = NULL WHERE guid = 'app-00002'",
        "UPDATE fixed_lrps__6 SET run_info = 'x' WHERE guid = 'app-00002'",
        "UPDATE fixed_lrps__6 SET guid = 'x' WHERE guid = 'app-00002'",
        "INSERT INTO fixed_lrps__6 (guid, run_info, strategy) SELECT 'x', run_info, strategy FROM fixed_lrps__6 LIMIT 1",
    ] {
        let world = TestEngine::with_rows(5).await;
        world.up(5).await.unwrap();
        let error = world.damaged_before_verify(6, damage).await;
        assert!(
            matches!(error, MigrateError::Verify { .. }),
            "{damage}: {error}"
        );
        assert_eq!(world.version().await, (5, 6));
    }
}

#[tokio::test]
async fn host_that_lost_the_lock_writes_nothing() {
    let world = TestEngine::with_rows(5).await;
    let old = Fence::raise(&world.context.database).await.unwrap();
    let new = Fence::raise(&world.context.database).await.unwrap();
    let intent = Intent::Up { wanted: 5 };
    assert!(matches!(
        run(&world.context, &old, intent).await.unwrap_err(),
        MigrateError::Fence(_)
    ));
    assert_eq!(world.version().await.0, 1);
    run(&world.context, &new, intent).await.unwrap();
    assert_eq!(world.version().await, (5, 5));
}

#[tokio::test]
async fn serving_at_an_older_version_discards_an_unfinished_copy() {
    let world = TestEngine::with_rows(5).await;
    world.set_run_info("app-00003", "no such thing").await;
    world.up(5).await.unwrap_err();
    assert!(!world.leftovers().await.is_empty());
    assert_eq!(world.up(1).await.unwrap(), Decision::Serve);
    assert!(world.leftovers().await.is_empty());
}

#[tokio::test]
async fn run_arguments_are_drawn_once() {
    let world = TestEngine::with_rows(1).await;
    world.up(4).await.unwrap();
    let query = "SELECT group_concat(version || namespace || started_at_ns) FROM bbs_run_arguments WHERE version <= 4";
    let first = world.text(query).await;
    world.down(2).await.unwrap();
    world.up(5).await.unwrap();
    assert_eq!(world.text(query).await, first);
}

#[tokio::test]
async fn history_records_every_step_with_its_module() {
    let world = TestEngine::with_rows(1).await;
    world.up(3).await.unwrap();
    world.down(2).await.unwrap();
    let rows = world
        .fetch("SELECT version, direction, digest, name FROM bbs_history ORDER BY seq")
        .await;
    let text = |row: &Row, at: usize| row.text(at).unwrap().unwrap().to_owned();
    let line = |row: &Row| {
        let version = row.integer(0).unwrap().unwrap();
        format!(
            "{version} {} {} {}",
            text(row, 1),
            text(row, 2),
            text(row, 3)
        )
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    assert_eq!(
        lines[lines.len() - 3..],
        [
            "2 up digest-of-2 seal-routes",
            "3 up digest-of-3 presence",
            "3 down digest-of-3 presence"
        ]
    );
}

#[tokio::test]
async fn status_and_plan_show_the_present_and_the_planned_state() {
    let world = TestEngine::with_rows(7).await;
    let status = status(&world.context, Intent::Up { wanted: 7 })
        .await
        .unwrap();
    assert_eq!(status.decision, Decision::Begin { from: 1, to: 7 });
    assert_eq!(
        status.pending.iter().map(|m| m.version).collect::<Vec<_>>(),
        [2, 3, 4, 5, 6, 7]
    );
    let plan = plan(&world.context, 5).await.unwrap();
    let of = |name: &str| {
        plan.tables
            .iter()
            .find(|table| table.table == name)
            .unwrap()
    };
    assert_eq!(of("desired_lrps").strategy, Some(Strategy::Copy));
    assert_eq!(of("desired_lrps").computed, ["routes", "tags"]);
    assert_eq!(of("desired_lrps").rows, 7);
    assert_eq!(of("domains").strategy, Some(Strategy::Untouched));
    assert_eq!(of("bbs_health_check").strategy, Some(Strategy::Create));
    world.up(4).await.unwrap();
    let plan = super::plan(&world.context, 5).await.unwrap();
    let in_place = plan
        .tables
        .iter()
        .filter(|table| table.strategy == Some(Strategy::InPlace));
    assert_eq!(
        in_place
            .map(|table| table.table.as_str())
            .collect::<Vec<_>>(),
        ["actual_lrps", "desired_lrps"]
    );
    assert_eq!(plan.bytes_to_copy, 0);
    let awaited = plan.tables.iter().flat_map(|table| &table.awaited_indexes);
    assert_eq!(awaited.collect::<Vec<_>>(), ["instances_zone_idx"]);
    assert!(super::plan(&world.context, 9).await.is_err());
}

/// Goal: a command that reads has one transaction at a time. Servers end one that is idle, for as
/// long as another reads each record. Method: others hold all connections for reading but one.
#[tokio::test]
async fn commands_that_read_have_one_transaction_at_a_time() {
    let world = TestEngine::with_rows(7).await;
    let context = &world.context;
    let fence = Fence::raise(&context.database).await.unwrap();
    let job = begin(context, &fence, (1, 5)).await.unwrap();
    let budget = Arc::new(UnitBudget::of(Some(3)));
    assert!(!steps::copy(context, &fence, &job, &budget).await.unwrap());
    let mut held = Vec::new();
    for _ in 1..context.database.readers() {
        held.push(context.database.read().await.unwrap());
    }

    let up = Intent::Up { wanted: 5 };
    let copied = status(context, up).await.unwrap().copied.unwrap();
    assert_eq!((copied.migrated, copied.total), (3, 14));
    look(context, up).await.unwrap();
    let planned = plan(context, 5).await.unwrap();
    assert_eq!(planned.refused, None);
    assert!(!layout_sql(context, 5, None).await.unwrap().is_empty());
    assert_eq!(check(context, 5).await.unwrap().lost(), 0);
}

#[tokio::test]
async fn additive_change_does_not_copy_the_table() {
    let world = TestEngine::with_rows(3).await;
    world.up(4).await.unwrap();
    let root = "SELECT CAST(rootpage AS TEXT) FROM sqlite_master WHERE name = 'desired_lrps'";
    let before = world.text(root).await;
    world.up(5).await.unwrap();
    assert_eq!(world.text(root).await, before);
}

#[tokio::test]
async fn down_that_only_awaits_clean_up_is_completed_by_any_host() {
    let world = TestEngine::with_rows(2).await;
    world.up(3).await.unwrap();
    world.down(2).await.unwrap();
    world
        .execute("CREATE TABLE desired_lrps__3 (guid TEXT)")
        .await;
    world
        .execute(
            "INSERT INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
             VALUES (1, 3, 2, FALSE, '', 1, 'cleaning-up')",
        )
        .await;
    world
        .execute("INSERT INTO bbs_side_table (table_name) VALUES ('desired_lrps__3')")
        .await;
    assert_eq!(world.up(2).await.unwrap(), Decision::Serve);
    assert!(world.leftovers().await.is_empty());
    assert_eq!(world.count("bbs_migration").await, 0);
}
