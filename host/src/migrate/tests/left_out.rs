//! Quarantine of units, putting them back, and bounded runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bbs_files::digest::digest_of;
use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, Refusal, Written};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;

use super::migrations::{self, all};
use super::world::TestEngine;
use crate::migrate::*;

/// Two units that migration 4 refuses, and one with a record that does not open.
const BAD: [&str; 3] = ["app-00003", "app-00011", "app-00017"];

async fn with_bad_units() -> TestEngine {
    let world = TestEngine::with_rows(20).await.tuned(quarantining());
    world.set_run_info(BAD[0], "no such thing").await;
    world.set_run_info(BAD[1], "trap tags=").await;
    world
        .execute(&format!(
            "UPDATE desired_lrps SET run_info = '02AAAA' WHERE guid = '{}'",
            BAD[2]
        ))
        .await;
    world
}

fn quarantining() -> Tuning {
    Tuning {
        on_unreadable: OnUnreadable::Quarantine,
        ..Tuning::default()
    }
}

async fn entries(world: &TestEngine) -> BTreeMap<String, QuarantineEntry> {
    let entries = quarantined(&world.context).await.unwrap();
    entries
        .into_iter()
        .map(|entry| (entry.unit.clone(), entry))
        .collect()
}

async fn retried(
    world: &TestEngine,
    instead: Option<Arc<dyn Transform>>,
) -> BTreeMap<String, Fate> {
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let fates = retry(&world.context, &fence, &[], instead, WriteMode::Real)
        .await
        .unwrap();
    fates
        .into_iter()
        .map(|(entry, fate)| (entry.unit, fate))
        .collect()
}

/// Migration 4 as corrected by its author: a record that it cannot read has no tags.
fn corrected() -> Arc<dyn Transform> {
    migrations::native(all()[3].manifest().clone(), lenient)
}

pub(super) fn lenient(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let rows = *batch.tables[0].unit_offsets.last().unwrap() as usize;
    let tags = ColumnData::repeat(Encoding::Text, Value::Text(b"none"), rows);
    let written = Written {
        shape: None,
        columns: vec![tags],
    };
    Ok(Outcome {
        tables: vec![written],
        ..Outcome::default()
    })
}

#[tokio::test]
async fn units_refused_on_the_way_up_are_quarantined_whole_and_come_back_on_the_way_down() {
    let world = with_bad_units().await;
    let first = world.everything().await;
    world.up(5).await.unwrap();
    assert_eq!(world.version().await, (5, 5));
    let left: Vec<_> = world
        .rows("desired_lrps")
        .await
        .iter()
        .map(|row| row["guid"].clone())
        .collect();
    assert_eq!(left.len(), 17);
    assert!(BAD.iter().all(|unit| !left.contains(&(*unit).to_owned())));
    assert_eq!(
        world.rows("actual_lrps").await.len(),
        40,
        "instances are units of their own"
    );

    let kept = entries(&world).await;
    assert_eq!(kept.keys().collect::<Vec<_>>(), BAD);
    let reasons = BAD.map(|unit| {
        (
            kept[unit].version,
            kept[unit].module.as_str(),
            kept[unit].reason.as_str(),
        )
    });
    assert_eq!(reasons[0], (4, "split-tags", "run_info has no tags"));
    assert_eq!(reasons[1], (4, "split-tags", "it trapped"));
    assert_eq!((reasons[2].0, reasons[2].1), (2, ""));
    assert!(
        reasons[2]
            .2
            .starts_with("`run_info` of `desired_lrps` does not open: "),
        "{}",
        reasons[2].2
    );
    assert!(
        kept.values()
            .all(|entry| !entry.pending && (entry.from, entry.to) == (1, 5))
    );
    assert_eq!(
        status(&world.context, Intent::Up { wanted: 7 })
            .await
            .unwrap()
            .quarantined,
        3
    );
    assert_eq!(world.context.progress.snapshot().quarantined, 3);
    let sealed = world
        .text("SELECT sealed FROM bbs_quarantine WHERE unit = 'app-00003'")
        .await;
    assert!(!sealed.contains("no such thing"));

    world.down(1).await.unwrap();
    assert_eq!(
        world.everything().await,
        first,
        "byte for byte, also what does not open"
    );
    assert_eq!(world.count("bbs_quarantine").await, 0);
}

#[tokio::test]
async fn retry_with_a_corrected_module_puts_units_back_through_the_lens() {
    let world = with_bad_units().await;
    let first = world.everything().await;
    world.up(5).await.unwrap();
    let again = retried(&world, None).await;
    assert_eq!(
        again[BAD[0]],
        Fate::Refused {
            reason: "run_info has no tags".into()
        }
    );
    assert_eq!(
        again[BAD[2]],
        Fate::Refused {
            reason: "`run_info` of `desired_lrps` does not open".into()
        }
    );
    let fates = retried(&world, Some(corrected())).await;
    assert_eq!(
        (&fates[BAD[0]], &fates[BAD[1]]),
        (&Fate::Returned, &Fate::Returned)
    );
    assert_eq!(entries(&world).await.keys().collect::<Vec<_>>(), [BAD[2]]);
    let rows = world.rows("desired_lrps").await;
    let back = rows.iter().find(|row| row["guid"] == BAD[0]).unwrap();
    let expected = ["routes of 3", "no such thing", "none", "4", "0"];
    assert_eq!(
        ["routes", "run_info", "tags", "record_version", "strategy"]
            .map(|name| back[name].as_str()),
        expected
    );
    world.down(1).await.unwrap();
    assert_eq!(world.everything().await, first);
}

#[tokio::test]
async fn units_are_put_back_although_a_replaced_table_remains() {
    let world = with_bad_units().await;
    world.up(5).await.unwrap();
    world
        .execute(
            "INSERT INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
             VALUES (1, 1, 5, FALSE, '', 1, 'cleaning-up')",
        )
        .await;
    let fates = retried(&world, Some(corrected())).await;
    assert_eq!(fates[BAD[0]], Fate::Returned);
}

#[tokio::test]
async fn newer_unit_of_the_same_key_is_not_overwritten() {
    let world = with_bad_units().await;
    world.up(5).await.unwrap();
    world
        .execute(
            "INSERT INTO desired_lrps (guid, domain, routes, run_info, tags, strategy) \
             SELECT 'app-00003', 'newer', routes, run_info, tags, strategy FROM desired_lrps WHERE guid = 'app-00001'",
        )
        .await;
    let fates = retried(&world, Some(corrected())).await;
    assert_eq!(
        fates[BAD[0]],
        Fate::InTheWay {
            table: "desired_lrps".into()
        }
    );
    world.down(1).await.unwrap();
    let rows = world.rows("desired_lrps").await;
    assert_eq!(
        rows.iter().find(|row| row["guid"] == BAD[0]).unwrap()["domain"],
        "newer"
    );
    assert_eq!(
        entries(&world).await.keys().collect::<Vec<_>>(),
        [BAD[0]],
        "what was there before is not lost"
    );

    world.set_run_info(BAD[0], "no such thing").await;
    let before = entries(&world).await;
    let stopped = world.up(5).await.unwrap_err().to_string();
    assert!(
        stopped.contains("an earlier unit of its key is in quarantine"),
        "{stopped}"
    );
    assert_eq!(entries(&world).await, before, "nor by a newer one");
}

/// Goal: a unit that remains in quarantine after a `down` does not hinder the end of a later
/// migration that is abandoned. Method: partial runs, each of which is given up or begun by a host
/// at the older version.
#[tokio::test]
async fn abandoned_migration_ends_while_an_earlier_one_has_a_unit_in_quarantine() {
    let world = with_bad_units().await;
    world.up(5).await.unwrap();
    world
        .execute(
            "INSERT INTO desired_lrps (guid, domain, routes, run_info, tags, strategy) \
             SELECT 'app-00003', 'newer', routes, run_info, tags, strategy FROM desired_lrps WHERE guid = 'app-00001'",
        )
        .await;
    world.down(1).await.unwrap();
    let before = world.everything().await;
    let kept = entries(&world).await;
    assert_eq!(kept.keys().collect::<Vec<_>>(), [BAD[0]]);
    for is_aborted in [true, false] {
        let fence = Fence::raise(&world.context.database).await.unwrap();
        let part = run_partially(&world.context, &fence, Intent::Up { wanted: 5 }, Some(1)).await;
        assert!(matches!(part, Ok(RunOutcome::Partial(_))), "{part:?}");
        if is_aborted {
            let given_up = GivenUp { from: 1, to: 5 };
            assert_eq!(world.abort().await.unwrap(), Some(given_up));
        } else {
            assert_eq!(world.up(1).await.unwrap(), Decision::Serve);
        }
        assert_eq!(world.count("bbs_migration").await, 0);
        assert!(world.leftovers().await.is_empty());
        assert_eq!(world.everything().await, before);
        assert_eq!(entries(&world).await, kept);
    }
    let fates = retried(&world, Some(corrected())).await;
    let table = "desired_lrps".to_owned();
    assert_eq!(fates[BAD[0]], Fate::InTheWay { table });
}

#[tokio::test]
async fn columns_that_the_owner_adds_and_removes_do_not_keep_a_unit_in_quarantine() {
    let world = with_bad_units().await;
    for column in ["removed", "kept"] {
        world
            .execute(&format!("ALTER TABLE desired_lrps ADD {column} TEXT"))
            .await;
        world
            .execute(&format!("UPDATE desired_lrps SET {column} = guid"))
            .await;
    }
    world.up(5).await.unwrap();
    world
        .execute("ALTER TABLE desired_lrps DROP COLUMN removed")
        .await;
    world
        .execute("ALTER TABLE desired_lrps ADD added INTEGER DEFAULT 7")
        .await;
    let fates = retried(&world, Some(corrected())).await;
    assert_eq!(fates[BAD[0]], Fate::Returned);
    let back = format!(
        "SELECT kept || added FROM desired_lrps WHERE guid = '{}'",
        BAD[0]
    );
    assert_eq!(world.text(&back).await, "app-000037");
}

/// A database at version 5 in whose quarantine is a unit of which an earlier way down has saved a
/// value.
async fn with_residue_of_a_quarantined_unit() -> TestEngine {
    let world = TestEngine::with_rows(6).await.tuned(quarantining());
    world.up(5).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET strategy = 7 WHERE guid = 'app-00003'")
        .await;
    world.down(3).await.unwrap();
    world.set_run_info("app-00003", "no such thing").await;
    world.up(5).await.unwrap();
    world
}

#[tokio::test]
async fn residue_of_an_earlier_down_stays_with_a_quarantined_unit() {
    let world = with_residue_of_a_quarantined_unit().await;
    assert_eq!(entries(&world).await.len(), 1);
    retried(&world, Some(corrected())).await;
    let rows = world.rows("desired_lrps").await;
    assert_eq!(rows[3]["strategy"], "7");
    assert_eq!(world.count("bbs_residue").await, 0);
}

/// Method: the other entry has the name of a further row that a serving host could not read.
#[tokio::test]
async fn residue_stays_until_the_last_entry_of_its_unit_is_deleted() {
    let world = with_residue_of_a_quarantined_unit().await;
    // Its instances are of the same unit.
    world
        .execute("DELETE FROM actual_lrps WHERE guid = 'app-00003'")
        .await;
    let residue = world.count("bbs_residue").await;
    assert!(residue > 0);
    let names = ["app-00003", "app-00003 (2)"];
    let digest = digest_of(names[1].as_bytes());
    let columns = "table_name, from_version, unit_key, to_version, version, direction, module, \
         digest, reason, row_counts, at_ns, pending, sealed";
    world
        .execute(&format!(
            "INSERT INTO bbs_quarantine (unit_digest, unit, {columns}) \
             SELECT '{digest}', '{}', {columns} FROM bbs_quarantine",
            names[1]
        ))
        .await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    for (name, left) in names.into_iter().zip([residue, 0]) {
        let names = [name.to_owned()];
        delete_quarantined(&world.context, &fence, &names, WriteMode::Real)
            .await
            .unwrap();
        assert_eq!(world.count("bbs_residue").await, left, "{name}");
    }
}

#[tokio::test]
async fn unit_refused_on_the_way_down_comes_back_on_the_way_up() {
    let world = TestEngine::with_rows(8).await.tuned(quarantining());
    world.up(5).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET routes = 'damaged' WHERE guid = 'app-00005'")
        .await;
    let fifth = world.everything().await;
    world.down(1).await.unwrap();
    assert_eq!(world.rows("desired_lrps").await.len(), 7);
    assert_eq!(
        entries(&world).await["app-00005"].direction,
        Direction::Down
    );
    world.up(5).await.unwrap();
    assert_eq!(world.everything().await, fifth);
    assert_eq!(world.count("bbs_quarantine").await, 0);
}

#[tokio::test]
async fn copy_begun_anew_removes_pending_quarantine_entries() {
    let world = with_bad_units().await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let part = run_partially(&world.context, &fence, Intent::Up { wanted: 5 }, Some(30))
        .await
        .unwrap();
    assert!(matches!(part, RunOutcome::Partial(_)), "{part:?}");
    let pending = entries(&world).await;
    assert!(!pending.is_empty() && pending.values().all(|entry| entry.pending));
    let refused = retry(&world.context, &fence, &[], None, WriteMode::Real)
        .await
        .unwrap_err();
    assert!(matches!(
        refused,
        MigrateError::QuarantineUnderway {
            direction: Direction::Up,
            to: 5,
            phase: "copying",
            has_arrived: false
        }
    ));
    // Another host had the lock meanwhile and repaired one unit.
    Fence::raise(&world.context.database).await.unwrap();
    world.set_run_info(BAD[0], "run 3 tags=t3").await;
    world.up(5).await.unwrap();
    assert_eq!(
        entries(&world).await.keys().collect::<Vec<_>>(),
        BAD[1..].iter().collect::<Vec<_>>()
    );
    assert_eq!(world.rows("desired_lrps").await[3]["tags"], "t3");
}

#[tokio::test]
async fn migration_that_stops_at_units_resumes_no_copy_that_leaves_one_out() {
    let mut world = TestEngine::with_rows(20).await.tuned(quarantining());
    world.set_run_info(BAD[0], "no such thing").await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let part = run_partially(&world.context, &fence, Intent::Up { wanted: 5 }, Some(30)).await;
    assert!(matches!(part, Ok(RunOutcome::Partial(_))), "{part:?}");
    assert_eq!(entries(&world).await.keys().collect::<Vec<_>>(), [BAD[0]]);
    world.context.tuning.on_unreadable = OnUnreadable::Stop;
    let stopped = run(&world.context, &fence, Intent::Up { wanted: 5 }).await;
    let stopped = stopped.unwrap_err().to_string();
    assert!(stopped.contains(BAD[0]), "{stopped}");
    assert!(entries(&world).await[BAD[0]].stopped);
}

#[tokio::test]
async fn partial_runs_add_up_to_a_whole_migration() {
    let whole = TestEngine::with_rows(20).await;
    whole.up(6).await.unwrap();
    let parts = TestEngine::with_rows(20).await;
    let mut migrated = Vec::new();
    let done = loop {
        let fence = Fence::raise(&parts.context.database).await.unwrap();
        match run_partially(&parts.context, &fence, Intent::Up { wanted: 6 }, Some(7))
            .await
            .unwrap()
        {
            RunOutcome::Partial(part) => {
                assert_eq!((part.from, part.to, part.total), (1, 6, 40));
                assert_eq!(parts.version().await, (1, 6));
                migrated.push(part.migrated);
            }
            RunOutcome::Done(decision) => break decision,
        }
    };
    assert_eq!(done, Decision::Continue { from: 1, to: 6 });
    assert_eq!(migrated, [7, 14, 21, 28, 35]);
    assert_eq!(parts.everything().await, whole.everything().await);
    // The rest fits into the bound: the run completes the migration.
    let exact = TestEngine::with_rows(20).await;
    let fence = Fence::raise(&exact.context.database).await.unwrap();
    let done = run_partially(&exact.context, &fence, Intent::Up { wanted: 6 }, Some(40))
        .await
        .unwrap();
    assert_eq!(done, RunOutcome::Done(Decision::Begin { from: 1, to: 6 }));
}

#[tokio::test]
async fn host_without_a_bound_completes_a_partial_run() {
    let world = TestEngine::with_rows(20).await;
    let fence = Fence::raise(&world.context.database).await.unwrap();
    run_partially(&world.context, &fence, Intent::Up { wanted: 5 }, Some(3))
        .await
        .unwrap();
    assert_eq!(
        world.up(5).await.unwrap(),
        Decision::Continue { from: 1, to: 5 }
    );
    assert_eq!(world.rows("desired_lrps").await.len(), 20);
}

#[tokio::test]
async fn name_that_is_not_in_quarantine_is_an_error() {
    let world = with_bad_units().await;
    world.up(5).await.unwrap();
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let error = retry(
        &world.context,
        &fence,
        &["app-00001".to_owned()],
        None,
        WriteMode::Real,
    )
    .await
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("there is no unit \"app-00001\" in quarantine"),
        "{error}"
    );
}

#[tokio::test]
async fn damaged_entry_stays_and_does_not_stop_a_migration() {
    let world = with_bad_units().await;
    world.up(5).await.unwrap();
    world
        .execute("UPDATE bbs_quarantine SET unit_key = 'zz' WHERE unit = 'app-00003'")
        .await;
    world
        .execute("UPDATE bbs_quarantine SET sealed = 'no record' WHERE unit = 'app-00011'")
        .await;
    world.down(1).await.unwrap();
    assert_eq!(
        entries(&world).await.keys().collect::<Vec<_>>(),
        BAD[..2].iter().collect::<Vec<_>>()
    );
    assert_eq!(world.rows("desired_lrps").await.len(), 18);
    let fates = retried(&world, None).await;
    let Fate::Refused { reason } = &fates[BAD[0]] else {
        panic!("{fates:?}")
    };
    assert!(
        reason.contains("bbs_quarantine has a damaged entry for unit \"app-00003\""),
        "{reason}"
    );
}

#[tokio::test]
async fn replay_runs_the_module_that_failed_or_a_corrected_one_and_writes_nothing() {
    let world = with_bad_units().await;
    world.up(5).await.unwrap();
    let before = world.everything().await;
    let again = replay(&world.context, BAD[0], None).await.unwrap();
    assert_eq!(again.reason.as_deref(), Some("run_info has no tags"));
    assert!(again.is_same_module && !again.entry.stopped);
    let input = again.input.expect("the module was called");
    let columns = input.tables.iter().flat_map(|table| &table.columns);
    let bytes = columns.map(|(name, data)| (name.as_str(), &data.values[..]));
    assert!(
        bytes
            .clone()
            .any(|column| column == ("run_info", b"no such thing")),
        "{:?}",
        bytes.collect::<Vec<_>>()
    );
    let corrected = replay(&world.context, BAD[1], Some(corrected())).await;
    assert_eq!(corrected.unwrap().reason, None);
    for (unit, expected) in [
        (BAD[2], "no module failed on unit \"app-00017\""),
        ("app-00001", "there is no unit \"app-00001\" in quarantine"),
    ] {
        let error = replay(&world.context, unit, None).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let other = Some(Arc::clone(&all()[1]));
    let error = replay(&world.context, BAD[0], other).await.unwrap_err();
    assert!(matches!(
        error,
        MigrateError::OtherMigration {
            given: 2,
            version: 4,
            ..
        }
    ));
    assert_eq!(world.everything().await, before);
}

/// Goal: a unit that is in quarantine and nowhere else stays there if a migration stops at a newer
/// one of its key.
#[tokio::test]
async fn unit_at_which_a_migration_stops_replaces_no_earlier_one_in_quarantine() {
    let world = TestEngine::with_rows(20).await;
    world.set_run_info(BAD[0], "no such thing").await;
    let stopped = world.up(5).await.unwrap_err().to_string();
    assert!(
        stopped.contains("`bbs migrate quarantine show \"app-00003\"`"),
        "{stopped}"
    );
    assert!(entries(&world).await[BAD[0]].stopped);
    let earlier = "UPDATE bbs_quarantine SET pending = FALSE, row_counts = '{\"desired_lrps\":1}', reason = 'earlier'";
    world.execute(earlier).await;
    let stopped = world.up(5).await.unwrap_err().to_string();
    assert!(!stopped.contains("quarantine show"), "{stopped}");
    let kept = entries(&world).await;
    assert_eq!((kept.len(), kept[BAD[0]].reason.as_str()), (1, "earlier"));
    assert!(!kept[BAD[0]].stopped);
}

#[tokio::test]
async fn unit_at_which_a_migration_stopped_is_not_put_back_by_another_migration() {
    let world = TestEngine::with_rows(20).await;
    world.up(3).await.unwrap();
    world.set_run_info(BAD[0], "no such thing").await;
    world.up(5).await.unwrap_err();
    assert!(entries(&world).await[BAD[0]].stopped);
    let before = world.rows("desired_lrps").await.len();
    world.down(1).await.unwrap();
    assert!(entries(&world).await.is_empty());
    assert_eq!(world.rows("desired_lrps").await.len(), before);
}

/// Goal: units that a module refuses by name in one call are not searched for by bisection.
/// Method: a function that refuses every other unit and counts its calls.
#[tokio::test]
async fn units_refused_in_one_call_are_quarantined_without_bisecting() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    fn refuses_half(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
        CALLS.fetch_add(1, Ordering::Relaxed);
        let guids = &batch.tables[0].columns[0];
        let rows = *batch.tables[0].unit_offsets.last().unwrap();
        let is_odd = |row: &u32| match guids.get(Encoding::Text, *row as usize) {
            Value::Text(guid) => guid.last().is_some_and(|digit| digit % 2 == 1),
            _ => false,
        };
        let refused = (0..rows).filter(is_odd).map(|unit| Refusal {
            unit,
            reason: format!("row {unit} is odd"),
        });
        let written = Written {
            shape: None,
            columns: vec![guids.clone()],
        };
        Ok(Outcome {
            tables: vec![written],
            refused: refused.collect(),
            ..Outcome::default()
        })
    }
    let mut world = TestEngine::with_rows(20).await.tuned(quarantining());
    let access = Access::to("desired_lrps").reads(["guid"]);
    let manifest = migrations::manifest(2, "refuses-half").up(access.writes(["annotation"]));
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(manifest, refuses_half),
    ];
    world.up(2).await.unwrap();
    assert_eq!(world.rows("desired_lrps").await.len(), 10);
    let kept = entries(&world).await;
    assert_eq!(kept.len(), 10);
    assert_eq!(kept["app-00013"].reason, "row 13 is odd");
    assert_eq!(
        CALLS.load(Ordering::Relaxed),
        2,
        "once with them and once without"
    );
}

/// Goal: a unit above the limit blocks neither the check nor a migration with quarantine, whatever
/// its size. Method: one unit is larger than a module may get, and than one text of the quarantine.
#[tokio::test]
async fn unit_above_the_limit_is_listed_quarantined_whole_and_comes_back() {
    let world = TestEngine::with_rows(20).await.tuned(Tuning {
        unit_bytes: 5_000,
        ..quarantining()
    });
    world
        .execute(
            "UPDATE desired_lrps SET annotation = printf('%3000000s', '') WHERE guid = 'app-00003'",
        )
        .await;
    let first = world.everything().await;

    let checked = check(&world.context, 5).await.unwrap();
    assert_eq!(checked.lost(), 1);
    let [trouble] = checked.unreadable.as_slice() else {
        panic!("{:?}", checked.unreadable)
    };
    assert_eq!(
        (trouble.reason.as_str(), trouble.units),
        ("above the limit of 5000 bytes for one unit", 1)
    );
    assert_eq!(trouble.examples[0].unit, "app-00003");

    world.up(5).await.unwrap();
    let kept = entries(&world).await;
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["app-00003"]);
    assert!(
        kept["app-00003"].reason.contains("above the limit of 5000"),
        "{}",
        kept["app-00003"].reason
    );
    assert!(world.count("bbs_quarantine_part").await > 1);
    assert_eq!(world.rows("desired_lrps").await.len(), 19);

    world.down(1).await.unwrap();
    assert_eq!(world.everything().await, first);
    assert_eq!(
        (
            world.count("bbs_quarantine").await,
            world.count("bbs_quarantine_part").await
        ),
        (0, 0)
    );
}
