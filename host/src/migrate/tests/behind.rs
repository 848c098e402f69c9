//! Modules that take long for what clients have changed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::manifest::Direction;
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::changed::{annotated, annotations, call, followed, noted, replace_originals};
use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::*;
use crate::store::ChangeRecorder;

/// Longer than clients wait for modules at a cut-over.
const LONG: Duration = Duration::from_millis(1001);

/// Held by a test that uses what follows.
static SLOWNESS: Mutex<()> = Mutex::const_new(());
/// Passed when a slow call begins, and when it may end.
static CALLED: Barrier = Barrier::new(2);
static ENDS: Barrier = Barrier::new(2);
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

/// A client's write to an app.
async fn annotate(fence: &Fence, recorder: &dyn ChangeRecorder, guid: &str, annotation: &str) {
    let change = format!("UPDATE desired_lrps SET annotation = '{annotation}' WHERE guid = ?");
    call(fence, recorder, guid, &change, true).await;
}

/// A migration that has copied four apps, of which a client has changed one since. The module is
/// slow for it once.
async fn slow_for_a_changed_app() -> (TestEngine, Fence, online::Online) {
    let world = annotated(TestEngine::with_rows(4).await, note_slowly).await;
    let (fence, online) = followed(&world, 2).await;
    let recorder = online.change_recorder();
    online.copy(&world.context, &fence).await.unwrap();
    annotate(&fence, &*recorder, "app-00001", "slow").await;
    SLOW.store(1, Ordering::SeqCst);
    (world, fence, online)
}

/// Goal: no client waits for a module. Method: clients write while a module is called for what they
/// have changed, among others the same unit.
#[tokio::test]
async fn clients_write_while_modules_are_slow_for_what_they_have_changed() {
    let _slowness = SLOWNESS.lock().await;
    let (world, fence, online) = slow_for_a_changed_app().await;
    let recorder = online.change_recorder();
    let clients = async {
        spawn_blocking(|| CALLED.wait()).await.unwrap();
        annotate(&fence, &*recorder, "app-00001", "slow no more").await;
        annotate(&fence, &*recorder, "app-00002", "changed").await;
        spawn_blocking(|| ENDS.wait()).await.unwrap();
    };
    let (caught_up, ()) = tokio::join!(online.catch_up(&world.context, &fence), clients);
    caught_up.unwrap();
    assert_eq!(world.count("bbs_changed_unit").await, 2, "few are left");
    replace_originals(&world, &fence, &online).await;
    clean_up(&world.context, &fence).await.unwrap();
    assert_eq!(
        annotations(&world).await,
        "app-00000 noted first, app-00001 noted slow no more, app-00002 noted changed, app-00003 noted first"
    );
}

/// Goal: clients wait at the cut-over for a bounded time, however long modules take for what they
/// have changed last, and nothing is lost. Method: a module is slow at the first attempt.
#[tokio::test]
async fn cut_over_is_given_up_while_modules_are_slow_for_what_clients_have_changed() {
    let _slowness = SLOWNESS.lock().await;
    let (world, fence, online) = slow_for_a_changed_app().await;
    let time_passes = async {
        spawn_blocking(|| CALLED.wait()).await.unwrap();
        tokio::time::pause();
        tokio::time::advance(LONG).await;
        tokio::time::resume();
    };
    let (refused, ()) = tokio::join!(online.cut_over(&world.context, &fence, || {}), time_passes);
    spawn_blocking(|| ENDS.wait()).await.unwrap();
    let Err(MigrateError::Behind { unit }) = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(unit, "app-00001");
    assert_eq!(world.count("bbs_changed_unit").await, 1);
    replace_originals(&world, &fence, &online).await;
    clean_up(&world.context, &fence).await.unwrap();
    assert_eq!(
        annotations(&world).await,
        "app-00000 noted first, app-00001 noted slow, app-00002 noted first, app-00003 noted first"
    );
}
