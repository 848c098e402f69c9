//! Units that clients change while a migration copies them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use bbs_database::sql;
use bbs_lens::layout::columns::{Batch, Outcome, Written};
use bbs_lens::layout::manifest::{Access, DataVersion, Direction};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::RunArguments;
use bbs_units::{RowsError, UnitKey};
use tokio::task::spawn_blocking;

use super::migrations::{self, all};
use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::copy::catch_up;
use crate::migrate::copy::copied_units::CopiedUnits;
use crate::migrate::state::changed_units;
use crate::migrate::*;
use crate::store::ChangeRecorder;

/// Passed when the batch is read, and when clients have written.
static READ: Barrier = Barrier::new(2);
static WRITTEN: Barrier = Barrier::new(2);
/// Whether the first batch was transformed.
static IS_LATER: AtomicBool = AtomicBool::new(false);

/// As the above, for each call until clients rest.
static CALLED: Barrier = Barrier::new(2);
static CHANGED: Barrier = Barrier::new(2);
static CLIENTS_REST: AtomicBool = AtomicBool::new(true);

/// Notes each annotation; the first call waits for the clients.
fn note_after_clients(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    if !IS_LATER.swap(true, Ordering::SeqCst) {
        READ.wait();
        WRITTEN.wait();
    }
    noted(batch)
}

/// Notes each annotation; each call waits for the clients, unless they rest.
fn note_beside_clients(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    if !CLIENTS_REST.load(Ordering::SeqCst) {
        CALLED.wait();
        CHANGED.wait();
    }
    noted(batch)
}

fn note(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    noted(batch)
}

/// Puts a word before each annotation.
pub(super) fn noted(batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let units = table.unit_offsets.len() - 1;
    let mut noted = ColumnBuilder::new(Encoding::Text);
    for row in 0..table.unit_offsets[units] as usize {
        let text = match table.columns[0].get(Encoding::Text, row) {
            Value::Text(text) => text,
            _ => b"nothing",
        };
        noted.push(Value::Text(&[b"noted ", text].concat()));
    }
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![noted.finish()],
        }],
        ..Outcome::default()
    })
}

/// A world in which clients follow a migration of this row function, which writes annotations.
pub(super) async fn annotated(
    mut world: TestEngine,
    row_function: migrations::RowFunction,
) -> TestEngine {
    let access = Access::to("desired_lrps");
    let manifest = migrations::manifest(2, "notes")
        .up(access.reads(["annotation"]).writes(["annotation"]))
        .leaves_residue();
    let notes = migrations::native(manifest, row_function);
    world.context.migrations = vec![Arc::clone(&all()[0]), notes];
    world
        .execute("UPDATE desired_lrps SET annotation = 'first'")
        .await;
    world
}

pub(super) async fn followed(world: &TestEngine, wanted: DataVersion) -> (Fence, online::Online) {
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let online = followed_again(world, &fence, wanted).await;
    (fence, online)
}

/// Replaces the originals with their copies, for clients that make no calls meanwhile.
pub(super) async fn replace_originals(world: &TestEngine, fence: &Fence, online: &online::Online) {
    online.cut_over(&world.context, fence, || {}).await.unwrap();
}

/// The migration as the process with this fence begins it, also once more.
async fn followed_again(world: &TestEngine, fence: &Fence, wanted: DataVersion) -> online::Online {
    let intent = Intent::Up { wanted };
    match online::start(&world.context, fence, intent).await.unwrap() {
        online::Start::Follow(online) => online,
        online::Start::Done(decision) => panic!("{decision:?}"),
    }
}

/// All apps with their annotations.
pub(super) async fn annotations(world: &TestEngine) -> String {
    world
        .text("SELECT group_concat(guid || ' ' || annotation, ', ') FROM (SELECT * FROM desired_lrps ORDER BY guid)")
        .await
}

/// A client's call on an app: its statement, and whether it is committed.
pub(super) async fn call(
    fence: &Fence,
    recorder: &dyn ChangeRecorder,
    guid: &str,
    statement: &str,
    commits: bool,
) {
    let mut tx = fence.begin().await.unwrap();
    tx.execute(sql(statement.to_owned()).bind(guid))
        .await
        .unwrap();
    recorder
        .record(&mut tx, &[("desired_lrps".to_owned(), guid.into())])
        .await
        .unwrap();
    if commits {
        tx.commit().await.unwrap();
    }
}

/// Goal: what clients write while a module is called for a batch with their units is in the copy.
/// Method: the module's call for the batch ends after the clients' calls.
#[tokio::test(flavor = "multi_thread")]
async fn unit_that_a_client_changes_while_its_batch_is_transformed_is_copied_as_it_is_then() {
    let world = annotated(TestEngine::with_rows(8).await, note_after_clients).await;
    let (fence, online) = followed(&world, 2).await;
    let recorder = online.change_recorder();

    let clients = async {
        spawn_blocking(|| READ.wait()).await.unwrap();
        let change = "UPDATE desired_lrps SET annotation = 'changed' WHERE guid = ?";
        let delete = "DELETE FROM desired_lrps WHERE guid = ?";
        let create = "INSERT INTO desired_lrps (guid, domain, routes, run_info, annotation) \
                      SELECT ?, domain, routes, run_info, 'new' FROM desired_lrps WHERE guid = 'app-00000'";
        call(&fence, &*recorder, "app-00001", change, true).await;
        call(&fence, &*recorder, "app-00002", delete, true).await;
        call(&fence, &*recorder, "app-00002-new", create, true).await;
        call(&fence, &*recorder, "app-00003", change, false).await;
        call(&fence, &*recorder, "app-00004", delete, false).await;
        call(&fence, &*recorder, "app-00005", delete, true).await;
        call(&fence, &*recorder, "app-00005", create, true).await;
        spawn_blocking(|| WRITTEN.wait()).await.unwrap();
    };
    let (copied, ()) = tokio::join!(online.copy(&world.context, &fence), clients);
    copied.unwrap();
    assert_eq!(world.count("bbs_changed_unit").await, 0);
    let change = "UPDATE desired_lrps SET annotation = 'changed' WHERE guid = ?";
    call(&fence, &*recorder, "app-00006", change, true).await;
    call(&fence, &*recorder, "app-00007", change, false).await;
    assert_eq!(world.count("bbs_changed_unit").await, 1);
    replace_originals(&world, &fence, &online).await;
    clean_up(&world.context, &fence).await.unwrap();

    assert_eq!(
        annotations(&world).await,
        "app-00000 noted first, app-00001 noted changed, app-00002-new noted new, app-00003 noted first, \
         app-00004 noted first, app-00005 noted new, app-00006 noted changed, app-00007 noted first"
    );
    assert_eq!(world.count("actual_lrps").await, 16);
}

/// Goal: a migration that is resumed after all units were copied copies none of them as a new one.
/// Method: a client creates a unit after the last one, which is copied; then the host crashes.
#[tokio::test]
async fn unit_that_a_client_creates_after_the_copy_is_copied_once_by_a_resumed_migration() {
    let world = annotated(TestEngine::with_rows(2).await, note).await;
    let (fence, online) = followed(&world, 2).await;
    online.copy(&world.context, &fence).await.unwrap();
    let create = "INSERT INTO desired_lrps (guid, domain, routes, run_info, annotation) \
                  SELECT ?, domain, routes, run_info, 'new' FROM desired_lrps WHERE guid = 'app-00000'";
    call(&fence, &*online.change_recorder(), "zzz-last", create, true).await;
    online.catch_up(&world.context, &fence).await.unwrap();
    assert_eq!(world.count("desired_lrps__2").await, 3);

    let (fence, online) = followed(&world, 2).await;
    assert_eq!(world.count("desired_lrps__2").await, 3, "the copy stays");
    online.copy(&world.context, &fence).await.unwrap();
    replace_originals(&world, &fence, &online).await;
    clean_up(&world.context, &fence).await.unwrap();
    assert_eq!(
        annotations(&world).await,
        "app-00000 noted first, app-00001 noted first, zzz-last noted new"
    );
}

/// Goal: what Diego's BBS writes between two starts of this host is in the copies. Method: an
/// instance changes that is in its copy already, with which no original is compared.
#[tokio::test]
async fn copy_is_begun_anew_after_another_program_has_written() {
    let world = TestEngine::with_rows(2).await;
    let (fence, online) = followed(&world, 3).await;
    online.copy(&world.context, &fence).await.unwrap();
    drop(followed_again(&world, &fence, 3).await);
    assert_eq!(
        world.count("actual_lrps__3").await,
        4,
        "of the same process"
    );
    world
        .execute("UPDATE actual_lrps SET state = 'CRASHED' WHERE guid = 'app-00000'")
        .await;
    let (fence, online) = followed(&world, 3).await;
    online.copy(&world.context, &fence).await.unwrap();
    replace_originals(&world, &fence, &online).await;
    assert_eq!(world.rows("actual_lrps").await[0]["state"], "CRASHED");
}

/// Goal: units that are changed are copied again in batches as large as the copy's, and the largest
/// of them alone. Method: as many units as several batches have, of which some are together above
/// the limit of a batch.
#[tokio::test]
async fn many_changed_units_are_copied_again() {
    let world = annotated(TestEngine::with_rows(250).await, note).await;
    let tuning = Tuning {
        batch_bytes: 20_000,
        ..Tuning::default()
    };
    let world = world.tuned(tuning);
    let (fence, online) = followed(&world, 2).await;
    online.copy(&world.context, &fence).await.unwrap();
    let recorder = online.change_recorder();
    for number in 0..250 {
        let length = if number % 10 == 0 { 15_000 } else { 10 };
        let change = format!(
            "UPDATE desired_lrps SET annotation = printf('%.*c', {length}, 'x') WHERE guid = ?"
        );
        call(
            &fence,
            &*recorder,
            &format!("app-{number:05}"),
            &change,
            true,
        )
        .await;
    }
    online.catch_up(&world.context, &fence).await.unwrap();
    assert_eq!(world.count("bbs_changed_unit").await, 0);
    replace_originals(&world, &fence, &online).await;
    let lengths = "SELECT group_concat(DISTINCT length(annotation)) FROM desired_lrps";
    assert_eq!(world.text(lengths).await, "16,15006");
    assert_eq!(world.count("desired_lrps").await, 250);
}

/// Goal: units that are deleted while they are copied take no more memory than others. Method: the
/// copies of two of them are together above the limit of a batch.
#[tokio::test]
async fn deleted_units_are_removed_from_the_copies_in_parts_that_fit_into_a_batch() {
    let world = annotated(TestEngine::with_rows(10).await, note).await;
    let world = world.tuned(Tuning {
        batch_bytes: 20_000,
        ..Tuning::default()
    });
    world
        .execute("UPDATE desired_lrps SET annotation = printf('%.*c', 15000, 'x')")
        .await;
    let context = &world.context;
    let fence = Fence::raise(&context.database).await.unwrap();
    let mut reader = context.database.read().await.unwrap();
    let histories = HistoryPair::here(context, &mut reader).await.unwrap();
    drop(reader);
    let work = Work::online(context, histories.way(1, 2)).unwrap();
    let job = steps::begin(context, &fence, work).await.unwrap();
    let budget = Arc::new(UnitBudget::of(None));
    assert!(steps::copy(context, &fence, &job, &budget).await.unwrap());
    let recorder = changed_units::UnitRecorder::new(Arc::clone(&job));
    for number in 0..10 {
        let delete = "DELETE FROM desired_lrps WHERE guid = ?";
        call(&fence, &recorder, &format!("app-{number:05}"), delete, true).await;
    }

    let keys = ["app-00001", "app-00002"].map(UnitKey::text);
    let group = job.group_of("desired_lrps").unwrap();
    let mut reader = context.database.read().await.unwrap();
    let read = CopiedUnits::read(&mut reader, &job, group, &keys).await;
    drop(reader);
    let gone = read.unwrap().unwrap().transformed(&job).await;
    let mut tx = fence.begin().await.unwrap();
    let refused = gone.unwrap().unwrap().replace(&mut tx, &job).await;
    drop(tx);
    let Err(MigrateError::Rows(RowsError::UnitsTooLarge { units: 2, .. })) = refused else {
        panic!("{refused:?}")
    };
    catch_up::catch_up(context, &fence, &job, catch_up::Meanwhile::Call)
        .await
        .unwrap();
    assert_eq!(world.count("desired_lrps__2").await, 0);
    assert_eq!(world.count("bbs_changed_unit").await, 0);
}

/// Goal: a catch-up ends although clients change as many units as are copied again, and what is
/// left then is copied at the cut-over. Method: clients change the same units during each call of a
/// module.
#[tokio::test(flavor = "multi_thread")]
async fn catch_up_ends_although_clients_change_as_many_units_meanwhile() {
    const CHANGED_UNITS: u64 = 40;
    let world = annotated(TestEngine::with_rows(60).await, note_beside_clients).await;
    let (fence, online) = followed(&world, 2).await;
    online.copy(&world.context, &fence).await.unwrap();
    let recorder = online.change_recorder();
    let change_all = async |text: &str| {
        for number in 0..CHANGED_UNITS {
            let change = format!("UPDATE desired_lrps SET annotation = '{text}' WHERE guid = ?");
            let guid = format!("app-{number:05}");
            call(&fence, &*recorder, &guid, &change, true).await;
        }
    };
    change_all("before").await;

    CLIENTS_REST.store(false, Ordering::SeqCst);
    let mut catch_up = std::pin::pin!(online.catch_up(&world.context, &fence));
    let mut calls = 0;
    loop {
        let called = spawn_blocking(|| CALLED.wait());
        tokio::select! {
            caught_up = &mut catch_up => {
                caught_up.unwrap();
                break;
            }
            called = called => {
                called.unwrap();
                calls += 1;
                // So that the test fails, and does not hang.
                CLIENTS_REST.store(calls == 10, Ordering::SeqCst);
                change_all(&format!("during call {calls}")).await;
                spawn_blocking(|| CHANGED.wait()).await.unwrap();
            }
        }
    }
    CLIENTS_REST.store(true, Ordering::SeqCst);
    // The thread that waits for a further call.
    CALLED.wait();
    assert!(calls < 10, "the catch-up ends once clients rest");

    assert_eq!(world.count("bbs_changed_unit").await, CHANGED_UNITS as i64);
    replace_originals(&world, &fence, &online).await;
    let changed =
        format!("SELECT count(*) FROM desired_lrps WHERE annotation = 'noted during call {calls}'");
    assert_eq!(world.text(&changed).await, CHANGED_UNITS.to_string());
}

/// Goal: the verification ends although clients change many units as fast as they are copied again.
/// Method: the database records each unit again whose record is removed.
#[tokio::test]
async fn copies_are_verified_although_clients_change_many_units_meanwhile() {
    const UNITS: usize = 1100;
    let world = annotated(TestEngine::with_rows(UNITS).await, note).await;
    let (fence, online) = followed(&world, 2).await;
    world
        .execute(
            "CREATE TRIGGER changed_again AFTER DELETE ON bbs_changed_unit BEGIN \
             INSERT INTO bbs_changed_unit (unit_digest, group_number, unit_key, change_id) \
             VALUES (OLD.unit_digest, OLD.group_number, OLD.unit_key, hex(randomblob(16))); END",
        )
        .await;
    let changed: Vec<_> = (0..UNITS)
        .map(|number| {
            let guid = format!("app-{number:05}").into_bytes();
            ("desired_lrps".to_owned(), guid)
        })
        .collect();
    let mut tx = fence.begin().await.unwrap();
    let recorder = online.change_recorder();
    recorder.record(&mut tx, &changed).await.unwrap();
    tx.commit().await.unwrap();
    online.copy(&world.context, &fence).await.unwrap();
    assert_eq!(world.count("bbs_changed_unit").await, UNITS as i64);

    world.execute("DROP TRIGGER changed_again").await;
    online.catch_up(&world.context, &fence).await.unwrap();
    replace_originals(&world, &fence, &online).await;
    let noted = "SELECT count(*) FROM desired_lrps WHERE annotation = 'noted first'";
    assert_eq!(world.text(noted).await, UNITS.to_string());
}
