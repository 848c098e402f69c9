//! Migrations that refuse too many units to be damaged, and modules that take too long to find
//! them: both stop.

use std::sync::atomic::{AtomicU32, Ordering};

use bbs_lens::budget::MOST_SLOW_CALLS;
use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, Written};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;

use super::migrations::{self, SLOW, all};
use super::world::TestEngine;
use crate::migrate::*;

/// As many as a first batch has.
const UNITS: usize = 100;

/// A database whose units a migration takes to version 2 with this row function.
async fn world(function: migrations::RowFunction, quarantine_limit: u64) -> TestEngine {
    let tuning = Tuning {
        on_unreadable: OnUnreadable::Quarantine,
        quarantine_limit,
        ..Tuning::default()
    };
    let mut world = TestEngine::with_rows(UNITS).await.tuned(tuning);
    let access = Access::to("desired_lrps").reads(["guid"]);
    let manifest = migrations::manifest(2, "faulty").up(access.writes(["annotation"]));
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(manifest, function),
    ];
    world
}

/// The places of the units whose guid has this end, in a batch with units of one row.
fn ending(batch: &Batch, end: &[u8]) -> usize {
    let units = batch.tables[0].unit_offsets.len() - 1;
    let guid = |unit| batch.tables[0].columns[0].get(Encoding::Text, unit);
    (0..units)
        .filter(|&unit| matches!(guid(unit), Value::Text(guid) if guid.ends_with(end)))
        .count()
}

fn written(batch: &Batch) -> Outcome {
    let units = batch.tables[0].unit_offsets.len() - 1;
    let columns = vec![ColumnData::repeat(
        Encoding::Text,
        Value::Text(b"new"),
        units,
    )];
    Outcome {
        tables: vec![Written {
            shape: None,
            columns,
        }],
        ..Outcome::default()
    }
}

fn fails_for_all(_: Direction, _: &RunArguments, _: &Batch) -> Result<Outcome, String> {
    Err("it trapped".to_owned())
}

/// Fails for ten of a hundred.
fn fails_for_some(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    if ending(batch, b"7") > 0 {
        Err("it trapped".to_owned())
    } else {
        Ok(written(batch))
    }
}

/// Does not end for one of a hundred.
fn slow_for_one(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    if ending(batch, b"77") > 0 {
        Err(SLOW.to_owned())
    } else {
        Ok(written(batch))
    }
}

fn slow_for_all(_: Direction, _: &RunArguments, _: &Batch) -> Result<Outcome, String> {
    SLOW_CALLS.fetch_add(1, Ordering::SeqCst);
    Err(SLOW.to_owned())
}

static SLOW_CALLS: AtomicU32 = AtomicU32::new(0);

async fn is_untouched(world: &TestEngine) -> bool {
    let in_quarantine = quarantined(&world.context).await.unwrap();
    world.version().await.0 == 1
        && world.rows("desired_lrps").await.len() == UNITS
        && in_quarantine.is_empty()
}

/// Goal: a module that fails for every unit does not empty the deployment, whatever the limit, and
/// however often it is started.
#[tokio::test]
async fn migration_that_refuses_more_than_half_of_the_units_stops() {
    let world = world(fails_for_all, 10_000).await;
    for _ in 0..2 {
        let error = world.up(2).await.unwrap_err();
        let MigrateError::TooManyRefused {
            table,
            refused,
            all,
            reason,
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(
            (table.as_str(), *refused, *all, reason.as_str()),
            ("desired_lrps", 100, 100, "it trapped")
        );
        assert!(error.to_string().contains("`quarantine_limit`"), "{error}");
        assert!(is_untouched(&world).await);
    }
}

#[tokio::test]
async fn migration_that_refuses_more_units_than_the_limit_stops() {
    let limited = world(fails_for_some, 9).await;
    let error = limited.up(2).await.unwrap_err();
    assert!(
        matches!(
            error,
            MigrateError::TooManyRefused {
                refused: 10,
                all: 100,
                limit: 9,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(is_untouched(&limited).await);
    let world = world(fails_for_some, 10).await;
    world.up(2).await.unwrap();
    assert_eq!(
        (
            world.count("desired_lrps").await,
            world.count("bbs_quarantine").await
        ),
        (90, 10)
    );
}

/// Goal: units that went into quarantine before a host was ended count, so that starts do not add
/// up. Method: runs of twenty units each, with two units at fault in each.
#[tokio::test]
async fn units_of_earlier_runs_count_towards_the_limit() {
    let world = world(fails_for_some, 5).await;
    let mut runs = 0;
    let error = loop {
        let fence = Fence::raise(&world.context.database).await.unwrap();
        match run_partially(&world.context, &fence, Intent::Up { wanted: 2 }, Some(20)).await {
            Ok(RunOutcome::Partial(_)) => runs += 1,
            Ok(RunOutcome::Done(decision)) => panic!("{decision:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(runs, 2);
    assert!(
        matches!(
            error,
            MigrateError::TooManyRefused {
                refused: 6,
                all: 100,
                limit: 5,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn single_unit_for_which_a_module_is_slow_is_quarantined_alone() {
    let world = world(slow_for_one, 100).await;
    world.up(2).await.unwrap();
    let entries = quarantined(&world.context).await.unwrap();
    let [entry] = &entries[..] else {
        panic!("{entries:?}")
    };
    assert_eq!(
        (entry.unit.as_str(), entry.reason.as_str()),
        ("app-00077", SLOW)
    );
}

/// Goal: a module whose calls take all their time does not do so for every unit, neither in a
/// migration nor in a check.
#[tokio::test]
async fn module_that_is_slow_for_every_unit_is_called_a_bounded_number_of_times() {
    let world = world(slow_for_all, 10_000).await;
    let error = world.up(2).await.unwrap_err();
    let MigrateError::SlowModule(source) = &error else {
        panic!("{error:?}")
    };
    assert!(
        source
            .to_string()
            .contains("up of migration 2 (faulty, sha256 digest-of-2)"),
        "{source}"
    );
    assert_eq!(SLOW_CALLS.swap(0, Ordering::SeqCst), MOST_SLOW_CALLS);
    assert!(is_untouched(&world).await);
    let error = check(&world.context, 2).await.unwrap_err();
    assert!(matches!(error, MigrateError::SlowModule(_)), "{error:?}");
    assert_eq!(SLOW_CALLS.load(Ordering::SeqCst), MOST_SLOW_CALLS);
}
