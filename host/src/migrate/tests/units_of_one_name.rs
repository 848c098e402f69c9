//! Units of different tables that have the same name, as an app and its instances have.

use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::manifest::Direction;
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;

use super::migrations::{RowFunction, all, native};
use super::world::TestEngine;
use crate::lock::fence::Fence;
use crate::migrate::*;

/// Migration 3, which refuses units that residue is given back to.
fn refuse_residue(
    direction: Direction,
    run: &RunArguments,
    batch: &Batch,
) -> Result<Outcome, String> {
    if direction == Direction::Up && batch.residue.iter().any(Option::is_some) {
        return Err("residue".to_owned());
    }
    as_it_is(2, direction, run, batch)
}

/// Migration 4, which refuses one app.
fn refuse_app(direction: Direction, run: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let mut rows = 0..*table.unit_offsets.last().unwrap() as usize;
    let refused = Value::Text(b"run 3 tags=t3");
    if rows.any(|row| table.columns[0].get(Encoding::Text, row) == refused) {
        return Err("an app".to_owned());
    }
    as_it_is(3, direction, run, batch)
}

fn as_it_is(
    place: usize,
    direction: Direction,
    run: &RunArguments,
    batch: &Batch,
) -> Result<Outcome, String> {
    let applied = all()[place].apply(direction, run, batch);
    applied.map_err(|fault| fault.reason)
}

/// Goal: an app that is put back leaves the residue of its instances, which wait in quarantine under
/// the same name, and the reverse. Method: migrations refuse both on the way up, and both have
/// values that only residue has.
#[tokio::test]
async fn units_of_one_name_are_put_back_each_with_its_residue() {
    let mut world = TestEngine::with_rows(5).await.tuned(Tuning {
        on_unreadable: OnUnreadable::Quarantine,
        ..Tuning::default()
    });
    world.up(5).await.unwrap();
    world
        .execute("UPDATE desired_lrps SET strategy = 3 WHERE guid = 'app-00003'")
        .await;
    world
        .execute("UPDATE actual_lrps SET presence = 2 WHERE guid = 'app-00003' AND place = 0")
        .await;
    let before = world.everything().await;
    world.down(1).await.unwrap();
    let refusing: [(usize, RowFunction); 2] = [(2, refuse_residue), (3, refuse_app)];
    for (place, function) in refusing {
        let manifest = all()[place].manifest().clone();
        world.context.migrations[place] = native(manifest, function);
    }
    world.up(5).await.unwrap();
    let waiting = quarantined(&world.context).await.unwrap();
    let units: Vec<_> = waiting.iter().map(|entry| entry.unit.as_str()).collect();
    assert_eq!(units, ["app-00003"; 2]);
    world.context.migrations = all();
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let retried = retry(&world.context, &fence, &[], None, WriteMode::Real).await;
    for (entry, fate) in retried.unwrap() {
        assert_eq!(fate, Fate::Returned, "{}", entry.table);
    }
    assert_eq!(world.everything().await, before);
    assert_eq!(world.count("bbs_residue").await, 0);
}
