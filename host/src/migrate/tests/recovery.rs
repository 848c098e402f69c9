//! Work that was broken off, taken up by the right host, thrown away by any other, and never trusted unseen.

use super::line::{self, all};
use super::world::World;
use crate::migrate::*;

#[tokio::test]
async fn an_unfinished_down_is_nobody_elses() {
    let world = World::with_rows(3).await;
    world.up(5).await.unwrap();
    world.execute("UPDATE desired_lrps SET routes = 'damaged'").await;
    assert!(matches!(world.down(1).await.unwrap_err(), MigrateError::Record { .. }));
    assert_eq!(world.up(5).await.unwrap(), Decision::ShutDown(Reason::GoingDown { to: 1 }));
    assert_eq!(world.down(2).await.unwrap(), Decision::ShutDown(Reason::GoingDown { to: 1 }));
    world.seal_routes().await;
    assert_eq!(world.down(1).await.unwrap(), Decision::Continue { from: 5, to: 1 });
    assert_eq!(world.up(5).await.unwrap(), Decision::Begin { from: 1, to: 5 });
}

#[tokio::test]
async fn a_way_down_that_only_waits_to_be_cleaned_up_is_finished_by_anyone() {
    let world = World::with_rows(2).await;
    world.up(3).await.unwrap();
    world.down(2).await.unwrap();
    world.execute("CREATE TABLE desired_lrps__3 (guid TEXT)").await;
    world
        .execute(
            "INSERT INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
             VALUES (1, 3, 2, TRUE, '', 1, 'cleaning-up')",
        )
        .await;
    assert_eq!(world.up(2).await.unwrap(), Decision::Serve);
    assert!(world.leftovers().await.is_empty());
    assert_eq!(world.count("bbs_migration").await, 0);
}

/// Damage to what was copied so far shows which it was: resumed work does not pass `verify`, and work that began
/// anew never meets it.
#[tokio::test]
async fn work_under_way_is_resumed_only_by_the_next_holder_with_the_same_modules_and_ends() {
    for (case, resumed) in
        [("the next", true), ("one in between", false), ("other module", false), ("other end", false)]
    {
        let small = Tuning { batch_units: 1, batch_bytes: 1, ..Tuning::default() };
        let mut world = World::with_rows(30).await.tuned(small);
        world.set_run_info("app-00020", "no such thing").await;
        world.up(4).await.unwrap_err();
        assert!(world.count("desired_lrps__4").await > 0);
        world.execute("UPDATE desired_lrps__4 SET tags = run_info").await;
        world.set_run_info("app-00020", "run 20 tags=t20").await;
        let mut wanted = 4;
        match case {
            "one in between" => drop(Fence::raise(&world.context.database).await.unwrap()),
            "other module" => {
                let manifest = all()[1].manifest().clone();
                let other = line::Native { manifest, digest: "other".into(), function: line::none };
                world.context.migrations[1] = Arc::new(other);
            }
            "other end" => wanted = 5,
            _ => {}
        }
        let outcome = world.up(wanted).await;
        assert_eq!(matches!(outcome, Err(MigrateError::Verify { .. })), resumed, "{case}: {outcome:?}");
        world.up(wanted).await.unwrap();
        assert_eq!(world.rows("desired_lrps").await[29]["tags"], "t29");
    }
}

#[tokio::test]
async fn a_copy_that_is_not_what_the_lens_gave_is_thrown_away() {
    for damage in [
        "UPDATE desired_lrps__5 SET domain = 'x' WHERE guid = 'app-00002'",
        "DELETE FROM desired_lrps__5 WHERE guid = 'app-00002'",
        "UPDATE desired_lrps__5 SET tags = run_info WHERE guid = 'app-00002'",
        "UPDATE desired_lrps__5 SET guid = 'app-00002b' WHERE guid = 'app-00002'",
        "INSERT INTO actual_lrps__5 (guid, place, evacuating, state, net_info, presence) \
         SELECT guid, place, evacuating, state, net_info, 7 FROM actual_lrps__5 LIMIT 1",
        "UPDATE actual_lrps__5 SET state = 'x' WHERE guid = 'app-00002' AND place = 0",
    ] {
        let world = World::with_rows(5).await;
        let before = world.everything().await;
        let error = world.damaged_before_verify(5, damage).await;
        assert!(matches!(error, MigrateError::Verify { .. }), "{damage}: {error}");
        assert_eq!(world.everything().await, before);
        assert_eq!(world.version().await, (1, 5));
        assert!(world.leftovers().await.is_empty());
        world.up(5).await.unwrap();
        world.assert_layout(5).await;
    }
}

/// Where nothing is computed there is no digest, so the rows themselves have to tell.
#[tokio::test]
async fn a_copy_in_which_nothing_is_computed_is_compared_all_the_same() {
    for damage in [
        "DELETE FROM mutable_lrps__6 WHERE guid = 'app-00002'",
        "UPDATE mutable_lrps__6 SET note = 'x' WHERE guid = 'app-00002'",
        "UPDATE mutable_lrps__6 SET note = NULL WHERE guid = 'app-00002'",
        "UPDATE fixed_lrps__6 SET run_info = 'x' WHERE guid = 'app-00002'",
        "UPDATE fixed_lrps__6 SET guid = 'x' WHERE guid = 'app-00002'",
        "INSERT INTO fixed_lrps__6 (guid, run_info, strategy) SELECT 'x', run_info, strategy FROM fixed_lrps__6 LIMIT 1",
    ] {
        let world = World::with_rows(5).await;
        world.up(5).await.unwrap();
        let error = world.damaged_before_verify(6, damage).await;
        assert!(matches!(error, MigrateError::Verify { .. }), "{damage}: {error}");
        assert_eq!(world.version().await, (5, 6));
    }
}

#[tokio::test]
async fn a_host_that_lost_the_lock_writes_nothing_more() {
    let world = World::with_rows(5).await;
    let old = Fence::raise(&world.context.database).await.unwrap();
    let new = Fence::raise(&world.context.database).await.unwrap();
    let intent = Intent::Up { wanted: 5 };
    assert!(matches!(run(&world.context, &old, intent).await.unwrap_err(), MigrateError::Fence(_)));
    assert_eq!(world.version().await.0, 1);
    run(&world.context, &new, intent).await.unwrap();
    assert_eq!(world.version().await, (5, 5));
}

#[tokio::test]
async fn serving_at_an_older_version_throws_an_unfinished_copy_away() {
    let world = World::with_rows(5).await;
    world.set_run_info("app-00003", "no such thing").await;
    world.up(5).await.unwrap_err();
    assert!(!world.leftovers().await.is_empty());
    assert_eq!(world.up(1).await.unwrap(), Decision::Serve);
    assert!(world.leftovers().await.is_empty());
}

#[tokio::test]
async fn a_key_that_nobody_has_is_refused_before_anything_else() {
    let world = World::empty().await;
    reencrypt::check_label(&world.context.database, &world.context.keyring).await.unwrap();
    world.up(1).await.unwrap();
    world.execute("INSERT INTO configurations (id, value) VALUES ('encryption_key_label', 'gone')").await;
    let error = reencrypt::check_label(&world.context.database, &world.context.keyring).await.unwrap_err();
    assert!(error.to_string().contains("(gone)"), "{error}");
    world.execute("UPDATE configurations SET value = 'key' WHERE id = 'encryption_key_label'").await;
    reencrypt::check_label(&world.context.database, &world.context.keyring).await.unwrap();
}
