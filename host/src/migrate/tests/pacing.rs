//! The size of batches: it follows the time that they take and is measured in units, whatever the
//! number of rows of a unit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bbs_lens::layout::columns::{Batch, Outcome, Written};
use bbs_lens::layout::history::Way;
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::transform::RunArguments;

use super::migrations::{self, all};
use super::world::TestEngine;
use crate::migrate::*;

/// The initial and minimum size of a batch.
const FIRST_BATCH: usize = 100;

static LARGEST_CALL: AtomicUsize = AtomicUsize::new(0);

/// Leaves every state as it is, and records the number of units of each call.
fn note_units(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    LARGEST_CALL.fetch_max(table.unit_offsets.len() - 1, Ordering::Relaxed);
    let written = Written {
        shape: None,
        columns: table.columns.clone(),
    };
    Ok(Outcome {
        tables: vec![written],
        ..Outcome::default()
    })
}

/// Goal: a batch that takes longer than `batch_time` is followed by a smaller one, however many
/// rows its units have. Method: 2000 units of 6 rows, a time that every batch exceeds, and a row
/// function that records the number of units.
#[tokio::test]
async fn slow_batches_of_units_with_many_rows_do_not_grow() {
    let tuning = Tuning {
        batch_time: Duration::from_nanos(1),
        ..Tuning::default()
    };
    let mut world = TestEngine::with_rows(2000).await.tuned(tuning);
    world
        .execute(
            "INSERT INTO actual_lrps (guid, place, evacuating, state, net_info) \
             SELECT guid, place + 2 * n, evacuating, state, net_info FROM actual_lrps \
             JOIN (SELECT 1 AS n UNION SELECT 2)",
        )
        .await;
    assert_eq!(world.count("actual_lrps").await, 12_000);
    let access = Access::to("actual_lrps").reads(["state"]);
    let manifest = migrations::manifest(2, "notes-units").up(access.writes(["state"]));
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(manifest, note_units),
    ];
    world.up(2).await.unwrap();
    assert_eq!(world.count("actual_lrps").await, 12_000);
    assert_eq!(LARGEST_CALL.load(Ordering::Relaxed), FIRST_BATCH);
}

/// Goal: a range that is copied inside the database is bounded in bytes too. Method: a budget of
/// one row, tables that are split without a row function, and the size of the last batch.
#[tokio::test]
async fn ranges_copied_inside_the_database_are_bounded_in_bytes() {
    for (bytes, units) in [(1, 1), (u64::MAX, 20)] {
        let world = TestEngine::with_rows(20).await.tuned(Tuning {
            batch_bytes: bytes,
            ..Tuning::default()
        });
        world.up(5).await.unwrap();
        let fence = Fence::raise(&world.context.database).await.unwrap();
        let layouts = layout_history(&world.context.migrations).unwrap();
        let work = Work::new(
            &world.context,
            Way::within(&layouts, 5, 6),
            std::collections::BTreeSet::new(),
        )
        .unwrap();
        let job = steps::begin(&world.context, &fence, work).await.unwrap();
        assert!(
            !job.visits_units(job.lens.tables["fixed_lrps"].group),
            "nothing of it is computed"
        );
        copy::copy(
            &world.context,
            &fence,
            &job,
            &Arc::new(UnitBudget::of(None)),
        )
        .await
        .unwrap();
        assert_eq!(
            world.context.progress.snapshot().batch.unwrap().units,
            units,
            "{bytes} bytes"
        );
        assert_eq!(world.count("fixed_lrps__6").await, 20);
    }
}
