//! Refusals of a migration: each by name, and with nothing changed.

use bbs_database::sql;
use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, Written};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;

use super::migrations::{self, all};
use super::world::{TestEngine, at_unit};
use crate::migrate::*;

#[tokio::test]
async fn unit_that_a_module_refuses_stops_the_migration_by_name() {
    for (run_info, reason) in [
        ("no such thing", "run_info has no tags"),
        ("trap tags=", "it trapped"),
    ] {
        let world = TestEngine::with_rows(20).await;
        world.set_run_info("app-00013", run_info).await;
        let before = world.everything().await;
        let error = at_unit(world.up(5).await.unwrap_err());
        let MigrateError::Unit { unit, source } = &error else {
            panic!("{error}")
        };
        assert_eq!(unit, "app-00013");
        assert!(source.to_string().contains(reason), "{source}");
        assert!(source.to_string().contains("digest-of-4"), "{source}");
        assert!(
            source.to_string().contains("up of migration 4 (split-tags"),
            "{source}"
        );
        let kept = quarantined(&world.context).await.unwrap();
        assert_eq!((kept.len(), kept[0].unit.as_str()), (1, "app-00013"));
        assert!(kept[0].stopped && kept[0].pending && kept[0].rows.is_empty());
        let shown = status(&world.context, Intent::Up { wanted: 5 }).await;
        assert_eq!(shown.unwrap().quarantined, 0, "the unit is not left out");
        assert_eq!(world.version().await, (1, 5));
        assert_eq!(world.everything().await, before);
        world.set_run_info("app-00013", "run 13 tags=t13").await;
        assert_eq!(
            world.up(5).await.unwrap(),
            Decision::Continue { from: 1, to: 5 }
        );
        assert_eq!(world.rows("desired_lrps").await[13]["tags"], "t13");
        assert!(quarantined(&world.context).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn record_that_does_not_open_stops_the_migration_by_name() {
    let world = TestEngine::with_rows(20).await;
    world
        .execute("UPDATE desired_lrps SET run_info = '02AAAA' WHERE guid = 'app-00007'")
        .await;
    let error = at_unit(world.up(5).await.unwrap_err());
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
async fn undeclared_column_is_not_opened() {
    let world = TestEngine::with_rows(5).await;
    world.up(4).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET run_info = 'not a record' WHERE guid = 'app-00002'")
        .await;
    world
        .execute("UPDATE desired_lrps SET routes = 'nor is this'")
        .await;
    world.up(6).await.unwrap();
    assert_eq!(
        world
            .text("SELECT run_info FROM fixed_lrps WHERE guid = 'app-00002'")
            .await,
        "not a record"
    );
    assert_eq!(
        world.text("SELECT DISTINCT routes FROM mutable_lrps").await,
        "nor is this"
    );
}

#[tokio::test]
async fn unit_above_the_limit_is_refused_by_name() {
    let world = TestEngine::with_rows(5).await.tuned(Tuning {
        unit_bytes: 5_000,
        ..Tuning::default()
    });
    // No migration reads this table.
    let unread = "INSERT INTO domains (domain) VALUES (printf('%6000s', ''))";
    world.execute(unread).await;
    assert_eq!(check(&world.context, 5).await.unwrap().lost(), 0);
    world
        .execute(
            "UPDATE desired_lrps SET annotation = printf('%6000s', '') WHERE guid = 'app-00003'",
        )
        .await;
    let error = at_unit(world.up(5).await.unwrap_err());
    assert!(
        matches!(&error, MigrateError::UnitTooLarge { unit, limit: 5_000, .. } if unit == "app-00003"),
        "{error}"
    );
}

#[tokio::test]
async fn another_module_for_a_version_that_ran_is_an_error() {
    let mut world = TestEngine::with_rows(2).await;
    world.up(4).await.unwrap();
    let manifest = all()[3].manifest().clone();
    world.context.migrations[3] = std::sync::Arc::new(migrations::NativeMigration {
        manifest,
        digest: "other".into(),
        function: migrations::none,
    });
    for version in [4, 5] {
        let error = world.up(version).await.unwrap_err();
        assert!(
            matches!(&error, MigrateError::DigestChanged { version: 4, .. }),
            "{error}"
        );
        let planned = plan(&world.context, version).await.unwrap();
        assert_eq!(planned.refused, Some(error.to_string()));
    }
}

#[tokio::test]
async fn catalog_without_a_module_that_ran_is_refused() {
    let mut world = TestEngine::with_rows(2).await;
    world.up(5).await.unwrap();
    let missing = world.context.migrations.remove(3);
    for version in [5, 6] {
        let error = world.up(version).await.unwrap_err();
        assert!(
            matches!(&error, MigrateError::RanAndIsMissing { version: 4, .. }),
            "{error}"
        );
    }
    world.context.migrations.insert(3, missing);
    world.down(3).await.unwrap();
    world.context.migrations.remove(3);
    assert_eq!(world.up(3).await.unwrap(), Decision::Serve);
}

#[tokio::test]
async fn module_inserted_below_those_that_ran_is_refused_without_a_newer_version() {
    let mut world = TestEngine::with_rows(2).await;
    let inserted = world.context.migrations.remove(3);
    world.up(5).await.unwrap();
    world.context.migrations.insert(3, inserted);
    let error = world.up(5).await.unwrap_err();
    assert!(
        matches!(
            &error,
            MigrateError::Inserted {
                version: 4,
                current: 5,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("add a migration above 5 (an empty one suffices)"),
        "{error}"
    );
    let planned = plan(&world.context, 5).await.unwrap();
    assert_eq!(planned.refused, Some(error.to_string()));
    world.down(3).await.unwrap();
    world.up(5).await.unwrap();
}

/// Diego's BBS runs its migrations and knows nothing of this host's records.
#[tokio::test]
async fn migrations_that_another_bbs_ran_since_are_not_taken_for_inserted() {
    let mut world = TestEngine::with_rows(2).await;
    world.up(5).await.unwrap();
    world.down(2).await.unwrap();
    let newer = world.context.migrations.split_off(2);
    assert_eq!(world.up(2).await.unwrap(), Decision::Serve);
    world.context.migrations.extend(newer);
    world.up(3).await.unwrap();
    world
        .execute("DELETE FROM bbs_applied_version WHERE version = 3")
        .await;
    assert_eq!(world.up(3).await.unwrap(), Decision::Serve);
    world.up(5).await.unwrap();
}

/// Another host has a catalog with that migration, which another BBS has run without a history.
#[tokio::test]
async fn record_of_a_migration_that_the_catalog_lacks_is_kept() {
    let mut world = TestEngine::with_rows(2).await;
    world.up(5).await.unwrap();
    world
        .execute("DELETE FROM bbs_history WHERE version = 2")
        .await;
    world.context.migrations.remove(1);
    let fence = Fence::raise(&world.context.database).await.unwrap();
    settle(&world.context, &fence).await.unwrap();
    world.down(4).await.unwrap();
    let recorded = "SELECT version FROM bbs_applied_version ORDER BY version";
    let mut reader = world.context.database.read().await.unwrap();
    let recorded = reader.fetch(sql(recorded)).await.unwrap();
    let recorded: Vec<_> = recorded
        .iter()
        .map(|row| row.integer_or_zero(0).unwrap())
        .collect();
    assert_eq!(recorded, [1, 2, 3, 4]);
}

#[tokio::test]
async fn reversed_version_may_be_applied_again_with_another_module() {
    let mut world = TestEngine::with_rows(2).await;
    world.up(2).await.unwrap();
    world.down(1).await.unwrap();
    let manifest = all()[1].manifest().clone();
    world.context.migrations[1] = std::sync::Arc::new(migrations::NativeMigration {
        manifest,
        digest: "other".into(),
        function: migrations::none,
    });
    world.up(2).await.unwrap();
    assert_eq!(world.version().await, (2, 2));
}

#[tokio::test]
async fn down_across_a_one_way_migration_is_refused_before_a_write() {
    let mut world = TestEngine::with_rows(2).await;
    world.up(2).await.unwrap();
    let mut manifest = all()[1].manifest().clone();
    manifest.reversible = false;
    world.context.migrations[1] = std::sync::Arc::new(migrations::NativeMigration {
        manifest,
        digest: "digest-of-2".into(),
        function: migrations::none,
    });
    let error = world.down(1).await.unwrap_err();
    assert!(
        matches!(error, MigrateError::NotReversible { version: 2, .. }),
        "{error}"
    );
    assert_eq!(world.version().await, (2, 2));
}

#[tokio::test]
async fn versions_that_the_catalog_does_not_have_are_errors() {
    let world = TestEngine::with_rows(2).await;
    world.up(3).await.unwrap();
    assert!(matches!(
        world.down(0).await.unwrap_err(),
        MigrateError::NotReversible { version: 1, .. }
    ));
    world
        .execute(
            "UPDATE configurations SET value = '{\"CurrentVersion\":2000}' WHERE id = 'version'",
        )
        .await;
    let error = world.down(2).await.unwrap_err();
    assert!(
        matches!(error, MigrateError::UnknownVersion { version: 2000 }),
        "{error}"
    );
    world
        .execute("UPDATE configurations SET value = 'nonsense' WHERE id = 'version'")
        .await;
    assert!(matches!(
        world.up(3).await.unwrap_err(),
        MigrateError::UnreadableVersion { .. }
    ));
}

/// Goal: a plan names no differences of tables whose cut-over the next start completes. Method: the
/// state of MySQL between the version and the new names.
#[tokio::test]
async fn unfinished_cut_over_is_no_reason_against_a_plan() {
    let world = TestEngine::with_rows(2).await;
    world
        .execute(
            "UPDATE configurations SET value = '{\"CurrentVersion\":5,\"TargetVersion\":5}' WHERE id = 'version'",
        )
        .await;
    world
        .execute(
            "INSERT INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
             VALUES (1, 1, 5, FALSE, '', 1, 'renaming')",
        )
        .await;
    let decision = look(&world.context, Intent::Up { wanted: 7 }).await;
    assert_eq!(decision.unwrap(), Decision::Begin { from: 5, to: 7 });
    assert_eq!(plan(&world.context, 7).await.unwrap().refused, None);
}

#[tokio::test]
async fn version_row_without_target_means_target_equals_current() {
    let world = TestEngine::with_rows(2).await;
    world.execute("UPDATE configurations SET value = '{\"CurrentVersion\":1,\"Other\":2}' WHERE id = 'version'").await;
    assert_eq!(
        world.up(2).await.unwrap(),
        Decision::Begin { from: 1, to: 2 }
    );
}

#[tokio::test]
async fn database_without_version_is_fresh_unless_known_tables_have_rows() {
    let world = TestEngine::empty().await;
    world.execute("CREATE TABLE locks (path TEXT)").await;
    world.execute("INSERT INTO locks VALUES ('bbs')").await;
    world.execute("CREATE TABLE tasks (anything TEXT)").await;
    world
        .execute("CREATE TABLE desired_lrps (anything TEXT)")
        .await;
    world
        .execute("INSERT INTO desired_lrps VALUES ('a row')")
        .await;
    let before = world.master().await;
    let decision = world.up(5).await.unwrap();
    assert_eq!(
        decision,
        Decision::ShutDown(Reason::Unversioned {
            tables: vec!["desired_lrps".into()]
        })
    );
    assert_eq!(world.master().await, before, "nothing was written");
    world.execute("DELETE FROM desired_lrps").await;
    assert_eq!(
        world.up(5).await.unwrap(),
        Decision::Begin { from: 0, to: 5 }
    );
    assert_eq!(world.count("locks").await, 1);
    world.assert_layout(5).await;
}

#[tokio::test]
async fn foreign_table_survives_whatever_its_name() {
    let world = TestEngine::with_rows(3).await;
    world.execute("CREATE TABLE locks__2024 (path TEXT)").await;
    world.execute("CREATE TABLE things__77 (mine TEXT)").await;
    // A table that the migrations leave as it is.
    world
        .execute("CREATE TABLE domains__1 AS SELECT * FROM domains")
        .await;
    let domains = world.count("domains__1").await;
    world.up(5).await.unwrap();
    assert_eq!(world.count("domains__1").await, domains);
    world.down(1).await.unwrap();
    assert_eq!(
        (
            world.count("locks__2024").await,
            world.count("things__77").await
        ),
        (0, 0),
        "both are there, empty"
    );
}

/// Goal: a table of the owner with the name under which an online migration would set an original
/// aside refuses it, and survives. Method: a table that gets columns is copied online alone.
#[tokio::test]
async fn foreign_table_with_the_name_of_an_original_set_aside_refuses_an_online_migration() {
    let world = TestEngine::with_rows(3).await;
    world.up(4).await.unwrap();
    world
        .execute("CREATE TABLE actual_lrps__4 AS SELECT * FROM actual_lrps")
        .await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let error = online::start(&world.context, &fence, Intent::Up { wanted: 5 })
        .await
        .unwrap_err();
    assert!(
        matches!(&error, MigrateError::NameInTheWay { name, .. } if name == "actual_lrps__4"),
        "{error}"
    );
    assert_eq!(world.version().await, (4, 4), "nothing was recorded");
    let online_context = Context {
        is_online: true,
        ..world.context.clone()
    };
    let planned = plan(&online_context, 5).await.unwrap();
    assert_eq!(planned.refused, Some(error.to_string()));
    assert_eq!(plan(&world.context, 5).await.unwrap().refused, None);
    world.up(5).await.unwrap();
    assert_eq!(world.count("actual_lrps__4").await, 6);
}

/// Goal: the record that a host left when it ended does not take a database back that Diego's BBS
/// has migrated since.
#[tokio::test]
async fn abort_leaves_the_version_that_another_bbs_has_written() {
    let world = TestEngine::with_rows(3).await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    begin(&world.context, &fence, (1, 5)).await.unwrap();
    let theirs = r#"{"CurrentVersion":2,"TargetVersion":2}"#;
    world
        .execute(&format!(
            "UPDATE configurations SET value = '{theirs}' WHERE id = 'version'"
        ))
        .await;
    assert_eq!(
        world.abort().await.unwrap(),
        Some(GivenUp { from: 2, to: 5 })
    );
    let version = "SELECT value FROM configurations WHERE id = 'version'";
    assert_eq!(world.text(version).await, theirs);
    assert_eq!(world.abort().await.unwrap(), None);
}

#[tokio::test]
async fn table_in_the_way_that_has_rows_is_not_dropped() {
    let world = TestEngine::with_rows(1).await;
    world
        .execute("CREATE TABLE bbs_health_check (mine TEXT)")
        .await;
    world
        .execute("INSERT INTO bbs_health_check VALUES ('a row')")
        .await;
    let error = world.up(5).await.unwrap_err();
    assert!(
        matches!(&error, MigrateError::TableInTheWay { table } if table == "bbs_health_check"),
        "{error}"
    );
    assert_eq!(world.count("bbs_health_check").await, 1);
}

/// Migration 6 gives `desired_lrps` the name `mutable_lrps`, and moves columns to `fixed_lrps`.
#[tokio::test]
async fn new_name_of_a_table_is_refused_before_rows_are_copied_to_it() {
    for name in ["mutable_lrps", "fixed_lrps"] {
        let world = TestEngine::with_rows(1).await;
        world
            .execute(&format!("CREATE TABLE {name} (mine TEXT)"))
            .await;
        world
            .execute(&format!("INSERT INTO {name} VALUES ('a row')"))
            .await;
        let error = world.up(6).await.unwrap_err();
        assert!(
            matches!(&error, MigrateError::TableInTheWay { table } if table == name),
            "{error}"
        );
        assert_eq!(world.version().await, (1, 1), "nothing was recorded");
        assert_eq!(world.count(name).await, 1);
        world.execute(&format!("DELETE FROM {name}")).await;
        world.up(6).await.unwrap();
        world.assert_layout(6).await;
    }
}

#[tokio::test]
async fn table_that_differs_from_its_version_stops_the_migration() {
    let world = TestEngine::with_rows(1).await;
    world.execute("DROP INDEX apps_domain_idx").await;
    let error = world.up(5).await.unwrap_err();
    let MigrateError::SchemaDiffers { table, differences } = &error else {
        panic!("{error}")
    };
    assert_eq!(table, "desired_lrps");
    assert!(
        differences
            .iter()
            .any(|difference| difference.contains("apps_domain_idx")),
        "{differences:?}"
    );
    assert_eq!(world.version().await, (1, 1), "nothing was recorded");
}

/// Diego writes version 0 before its first migration.
#[tokio::test]
async fn version_zero_is_no_version() {
    let world = TestEngine::empty().await;
    world
        .execute("CREATE TABLE configurations (id TEXT PRIMARY KEY, value TEXT)")
        .await;
    world
        .execute("INSERT INTO configurations VALUES ('version', '{\"CurrentVersion\":0}')")
        .await;
    world.execute("CREATE TABLE tasks (anything TEXT)").await;
    world.execute("INSERT INTO tasks VALUES ('a row')").await;
    let unversioned = Reason::Unversioned {
        tables: vec!["tasks".into()],
    };
    assert_eq!(world.up(5).await.unwrap(), Decision::ShutDown(unversioned));
    world.execute("DELETE FROM tasks").await;
    assert_eq!(
        world.up(5).await.unwrap(),
        Decision::Begin { from: 0, to: 5 }
    );
}

/// A new table, one whose rows were removed, and one with state of an earlier use, each by itself.
#[tokio::test]
async fn emptied_database_is_begun_anew_without_its_residue() {
    let world = TestEngine::with_rows(6).await;
    world.up(7).await.unwrap();
    world.down(2).await.unwrap();
    assert!(world.count("bbs_residue").await > 0);
    world
        .execute("UPDATE bbs_history SET digest = 'of another module'")
        .await;
    world
        .execute("UPDATE bbs_run_arguments SET namespace = 'no UUID'")
        .await;
    world
        .execute("CREATE TABLE desired_lrps__7 (guid TEXT)")
        .await;
    world.execute("CREATE TABLE things__7 (mine TEXT)").await;
    for table in ["desired_lrps", "actual_lrps", "domains"] {
        world.execute(&format!("DELETE FROM {table}")).await;
    }
    world
        .execute("DELETE FROM configurations WHERE id = 'version'")
        .await;
    assert_eq!(
        world.up(5).await.unwrap(),
        Decision::Begin { from: 0, to: 5 }
    );
    world.assert_layout(5).await;
    assert_eq!(world.up(5).await.unwrap(), Decision::Serve);
    assert_eq!(
        (
            world.count("bbs_residue").await,
            world.count("bbs_history").await
        ),
        (0, 5)
    );
    assert_eq!(
        world.leftovers().await,
        ["things__7"],
        "it is a foreign table"
    );
    world.up(7).await.unwrap();
    world.down(1).await.unwrap();
}

#[tokio::test]
async fn copy_in_the_way_that_has_rows_is_not_dropped() {
    let world = TestEngine::with_rows(1).await;
    world
        .execute("CREATE TABLE desired_lrps__5 (mine TEXT)")
        .await;
    world
        .execute("INSERT INTO desired_lrps__5 VALUES ('a row')")
        .await;
    let error = world.up(5).await.unwrap_err();
    assert!(
        matches!(&error, MigrateError::TableInTheWay { table } if table == "desired_lrps__5"),
        "{error}"
    );
    world.execute("DELETE FROM desired_lrps__5").await;
    world.up(5).await.unwrap();
}

#[tokio::test]
async fn record_of_an_unknown_version_is_refused_before_a_write() {
    let world = TestEngine::with_rows(3).await;
    world.up(4).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET record_version = 2000 WHERE guid = 'app-00001'")
        .await;
    for outcome in [world.up(5).await, world.down(1).await] {
        let error = outcome.unwrap_err();
        let MigrateError::UnknownRecordVersions { table, versions } = &error else {
            panic!("{error}")
        };
        assert_eq!(
            (table.as_str(), versions.as_slice()),
            ("desired_lrps", &[2000][..])
        );
        assert_eq!(world.version().await, (4, 4));
    }
    let error = world.up(4).await.unwrap_err();
    assert!(
        matches!(error, MigrateError::UnknownRecordVersions { .. }),
        "it is not served either: {error}"
    );
}

#[tokio::test]
async fn record_of_a_version_above_that_of_the_database_is_refused_before_a_write() {
    let world = TestEngine::with_rows(3).await;
    world.up(4).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET record_version = 5 WHERE guid = 'app-00001'")
        .await;
    for outcome in [world.up(5).await, world.up(4).await, world.down(1).await] {
        let error = outcome.unwrap_err();
        let MigrateError::RecordVersionsAbove {
            table,
            versions,
            at: 4,
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!(
            (table.as_str(), versions.as_slice()),
            ("desired_lrps", &[5][..])
        );
        assert_eq!(world.version().await, (4, 4));
    }
    world
        .execute("UPDATE desired_lrps SET record_version = 4")
        .await;
    assert_eq!(world.up(4).await.unwrap(), Decision::Serve);
}

fn annotate(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let units = batch.tables[0].unit_offsets.len() - 1;
    let columns = vec![ColumnData::repeat(
        Encoding::Text,
        Value::Text(b"new"),
        units,
    )];
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns,
        }],
        ..Outcome::default()
    })
}

#[tokio::test]
async fn records_go_back_to_their_version_where_a_rollback_changes_nothing_else() {
    let mut world = TestEngine::with_rows(3).await;
    let access = Access::to("desired_lrps").reads(["guid"]);
    let fifth = migrations::manifest(5, "annotate").up(access.writes(["annotation"]));
    world.context.migrations.truncate(4);
    world
        .context
        .migrations
        .push(migrations::native(fifth, annotate));
    let versions = async || {
        world
            .text("SELECT group_concat(DISTINCT record_version) FROM desired_lrps")
            .await
    };
    world.up(5).await.unwrap();
    assert_eq!(versions().await, "5");
    world.down(4).await.unwrap();
    assert_eq!(
        versions().await,
        "0",
        "the column's default: no row function above the column's own is left"
    );
    assert_eq!(world.up(4).await.unwrap(), Decision::Serve);
}

#[tokio::test]
async fn rollback_lasts_until_a_host_without_the_setting_migrates() {
    let world = TestEngine::with_rows(3).await;
    let run = async || {
        let fence = Fence::raise(&world.context.database).await.unwrap();
        run(
            &world.context,
            &fence,
            Intent::UpUntilDrained {
                wanted: 5,
                back_to: 2,
            },
        )
        .await
        .unwrap()
    };
    assert_eq!(run().await, Decision::Begin { from: 1, to: 5 });
    assert_eq!(run().await, Decision::Serve);
    world.down(2).await.unwrap();
    assert_eq!(
        [run().await, run().await],
        [Decision::Stay { at: 2 }, Decision::Stay { at: 2 }]
    );
    // Another BBS, which keeps no history, has migrated up since: the rollback is over.
    world.up(3).await.unwrap();
    world
        .execute("DELETE FROM bbs_history WHERE version = 3 AND direction = 'up' AND seq > 5")
        .await;
    assert_eq!(run().await, Decision::Begin { from: 3, to: 5 });
    world.down(2).await.unwrap();
    assert_eq!(
        world.up(5).await.unwrap(),
        Decision::Begin { from: 2, to: 5 }
    );
    assert_eq!(run().await, Decision::Serve);
}
