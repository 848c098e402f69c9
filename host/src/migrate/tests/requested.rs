//! Units that clients request after their batch was read and before it is written.

use std::sync::Barrier;
use std::time::Duration;

use bbs_database::sql;
use bbs_lens::layout::columns::{Batch, Outcome, Written};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::RunArguments;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::line::{self, all};
use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::*;
use crate::store::DualWrite;

const PATIENCE: Duration = Duration::from_secs(60);

/// Passed when the batch is read, and when clients have written.
static READ: Barrier = Barrier::new(2);
static WRITTEN: Barrier = Barrier::new(2);

/// Notes each annotation; a call for several units waits for the clients.
fn note_after_clients(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    if batch.tables[0].unit_offsets.len() > 2 {
        READ.wait();
        WRITTEN.wait();
    }
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
    row_function: line::RowFunction,
) -> TestEngine {
    let access = Access::to("desired_lrps");
    let manifest = line::manifest(2, "notes")
        .up(access.reads(["annotation"]).writes(["annotation"]))
        .leaves_residue();
    let notes = line::native(manifest, row_function);
    world.context.migrations = vec![Arc::clone(&all()[0]), notes];
    world
        .execute("UPDATE desired_lrps SET annotation = 'first'")
        .await;
    world
}

pub(super) async fn followed(world: &TestEngine) -> (Fence, online::Online) {
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let intent = Intent::Up { wanted: 2 };
    match online::start(&world.context, &fence, intent).await.unwrap() {
        online::Start::Follow(online) => (fence, online),
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
    dual_write: &dyn DualWrite,
    guid: &str,
    statement: &str,
    commits: bool,
) {
    let unit = guid.as_bytes().to_vec();
    let held = dual_write.hold(vec!["desired_lrps"], &unit);
    let _held = timeout(PATIENCE, held)
        .await
        .expect("no client waits for a module");
    let mut tx = fence.begin().await.unwrap();
    tx.execute(sql(statement.to_owned()).bind(guid))
        .await
        .unwrap();
    dual_write
        .changed(&mut tx, &[("desired_lrps".to_owned(), unit)])
        .await
        .unwrap();
    if commits {
        tx.commit().await.unwrap();
    }
}

/// Goal: no client waits while a module is called for a batch with its unit, and its write is in the
/// copy. Method: the module's call for the batch ends after the clients' calls.
#[tokio::test(flavor = "multi_thread")]
async fn unit_that_a_client_requests_while_its_batch_is_transformed_is_copied_as_it_is_then() {
    let world = annotated(TestEngine::with_rows(8).await, note_after_clients).await;
    let (fence, online) = followed(&world).await;
    let dual_write = online.dual_write();

    let clients = async {
        spawn_blocking(|| READ.wait()).await.unwrap();
        let change = "UPDATE desired_lrps SET annotation = 'changed' WHERE guid = ?";
        let delete = "DELETE FROM desired_lrps WHERE guid = ?";
        let create = "INSERT INTO desired_lrps (guid, domain, routes, run_info, annotation) \
                      SELECT ?, domain, routes, run_info, 'new' FROM desired_lrps WHERE guid = 'app-00000'";
        call(&fence, &*dual_write, "app-00001", change, true).await;
        call(&fence, &*dual_write, "app-00002", delete, true).await;
        call(&fence, &*dual_write, "app-00002-new", create, true).await;
        call(&fence, &*dual_write, "app-00003", change, false).await;
        call(&fence, &*dual_write, "app-00004", delete, false).await;
        call(&fence, &*dual_write, "app-00005", delete, true).await;
        call(&fence, &*dual_write, "app-00005", create, true).await;
        // This one's unit is requested before the batch is written, and changed after that.
        let unit = b"app-00006".to_vec();
        let held = dual_write.hold(vec!["desired_lrps"], &unit).await;
        spawn_blocking(|| WRITTEN.wait()).await.unwrap();
        drop(held);
        call(&fence, &*dual_write, "app-00006", change, true).await;
    };
    let (copied, ()) = tokio::join!(online.copy(&world.context, &fence), clients);
    copied.unwrap();
    online.cut_over(&world.context, &fence).await.unwrap();
    clean_up(&world.context, &fence).await.unwrap();

    assert_eq!(
        annotations(&world).await,
        "app-00000 noted first, app-00001 noted changed, app-00002-new noted new, app-00003 noted first, \
         app-00004 noted first, app-00005 noted new, app-00006 noted changed, app-00007 noted first"
    );
    assert_eq!(world.count("actual_lrps").await, 16);
}
