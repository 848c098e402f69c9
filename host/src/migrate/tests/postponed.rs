//! Modules that take longer for a unit than the client that writes it may wait.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::manifest::Direction;
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::requested::{annotated, annotations, call, followed, noted};
use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::*;
use crate::store::DualWrite;

/// Longer than a client's write waits for modules.
const LONG: Duration = Duration::from_millis(1001);

/// Held by a test that uses what follows.
static SLOWNESS: Mutex<()> = Mutex::const_new(());
/// Passed when a slow call begins, and when it may end.
static CALLED: Barrier = Barrier::new(2);
static ENDS: Barrier = Barrier::new(2);
/// The calls for a single unit that has the word `slow`.
static SLOW_CALLS: AtomicUsize = AtomicUsize::new(0);
/// The number of those calls that are slow, before the others.
static SLOW: AtomicUsize = AtomicUsize::new(0);

/// Notes each annotation; calls for a single unit that has the word may be slow.
fn note_slowly(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let is_single = table.unit_offsets.len() == 2 && table.unit_offsets[1] == 1;
    if is_single
        && let Value::Text(text) = table.columns[0].get(Encoding::Text, 0)
        && text.starts_with(b"slow")
    {
        SLOW_CALLS.fetch_add(1, Ordering::SeqCst);
        let less = |slow: usize| slow.checked_sub(1);
        if SLOW
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            .is_ok()
        {
            CALLED.wait();
            ENDS.wait();
        }
    }
    noted(batch)
}

/// Four apps, and what happens to those that cannot be migrated.
async fn world(refused_units: RefusedUnits) -> TestEngine {
    let world = TestEngine::with_rows(4).await.tuned(Tuning {
        refused_units,
        ..Tuning::default()
    });
    annotated(world, note_slowly).await
}

/// A client's write to an app.
async fn annotate(fence: &Fence, dual_write: &dyn DualWrite, guid: &str, annotation: &str) {
    let change = format!("UPDATE desired_lrps SET annotation = '{annotation}' WHERE guid = ?");
    call(fence, dual_write, guid, &change, true).await;
}

/// A write during which a module is slow. The module's call ends after it, and after another write.
async fn annotate_slowly(fence: &Fence, online: &online::Online, guid: &str) {
    let calls = SLOW_CALLS.load(Ordering::SeqCst);
    SLOW.store(1, Ordering::SeqCst);
    let dual_write = online.dual_write();
    let time_passes = async {
        spawn_blocking(|| CALLED.wait()).await.unwrap();
        tokio::time::pause();
        tokio::time::advance(LONG).await;
        tokio::time::resume();
    };
    tokio::join!(annotate(fence, &*dual_write, guid, "slow"), time_passes);
    annotate(fence, &*dual_write, guid, "slow again").await;
    assert_eq!(
        SLOW_CALLS.load(Ordering::SeqCst),
        calls + 1,
        "a unit that is postponed is not given to modules in a client's write"
    );
    spawn_blocking(|| ENDS.wait()).await.unwrap();
}

/// Goal: a client's write ends in bounded time however long modules take for its unit, and the unit
/// is migrated. Method: a module is slow for one unit before it is copied, and for another one
/// after; then the host crashes.
#[tokio::test]
async fn units_whose_modules_keep_a_client_waiting_are_copied_later() {
    let _slowness = SLOWNESS.lock().await;
    let world = world(RefusedUnits::Stop).await;
    let (fence, online) = followed(&world).await;
    annotate_slowly(&fence, &online, "app-00001").await;
    assert_eq!(world.count("bbs_quarantine").await, 1);
    online.copy(&world.context, &fence).await.unwrap();
    assert_eq!(world.count("bbs_quarantine").await, 0);

    annotate_slowly(&fence, &online, "app-00002").await;
    assert_eq!(world.count("desired_lrps__2").await, 3);
    let refused = online.cut_over(&world.context, &fence).await.unwrap_err();
    assert!(
        matches!(&refused, MigrateError::NotFollowed { source } if matches!(**source, MigrateError::Postponed { .. })),
        "{refused:?}"
    );
    let (fence, online) = followed(&world).await;
    online.copy(&world.context, &fence).await.unwrap();
    online.cut_over(&world.context, &fence).await.unwrap();
    clean_up(&world.context, &fence).await.unwrap();
    assert_eq!(
        annotations(&world).await,
        "app-00000 noted first, app-00001 noted slow again, app-00002 noted slow again, app-00003 noted first"
    );
    assert_eq!(world.count("bbs_quarantine").await, 0);
}

/// Goal: a unit whose modules are too slow to the last moment does not stop a migration with
/// quarantine, and clients do not wait for it. Method: a module is slow after all units are copied.
#[tokio::test]
async fn unit_that_is_postponed_to_the_last_moment_is_in_quarantine_if_the_operator_chose_it() {
    let _slowness = SLOWNESS.lock().await;
    let world = world(RefusedUnits::Quarantine).await;
    let (fence, online) = followed(&world).await;
    annotate_slowly(&fence, &online, "app-00001").await;
    online.copy(&world.context, &fence).await.unwrap();
    assert_eq!(world.count("bbs_quarantine").await, 0);

    annotate_slowly(&fence, &online, "app-00002").await;
    online.cut_over(&world.context, &fence).await.unwrap();
    clean_up(&world.context, &fence).await.unwrap();
    assert_eq!(
        annotations(&world).await,
        "app-00000 noted first, app-00001 noted slow again, app-00003 noted first"
    );
    let entries = quarantine::list(&world.context).await.unwrap();
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| (&*entry.unit, &*entry.reason))
        .collect();
    assert_eq!(
        entries,
        [(
            "app-00002",
            "modules took more than 1 s for unit \"app-00002\" while the write of a client waited for them"
        )]
    );
}
