//! Retries of units in quarantine whose module takes long.

use std::sync::Barrier;

use bbs_lens::layout::columns::{Batch, Outcome};
use bbs_lens::layout::manifest::Direction;
use bbs_lens::transform::RunArguments;
use tokio::task::spawn_blocking;

use super::left_out::lenient;
use super::migrations::{self, all};
use super::world::TestEngine;
use crate::migrate::*;

/// Passed when the call begins, and when it may end.
static CALLED: Barrier = Barrier::new(2);
static ENDS: Barrier = Barrier::new(2);

fn correct_slowly(
    direction: Direction,
    arguments: &RunArguments,
    batch: &Batch,
) -> Result<Outcome, String> {
    CALLED.wait();
    ENDS.wait();
    lenient(direction, arguments, batch)
}

/// Goal: no writer waits for the module of a retry. Method: a client writes during the call.
#[tokio::test]
async fn clients_write_while_the_module_of_a_retry_is_slow() {
    let world = TestEngine::with_rows(4).await.tuned(Tuning {
        on_unreadable: OnUnreadable::Quarantine,
        ..Tuning::default()
    });
    world.set_run_info("app-00003", "no such thing").await;
    world.up(5).await.unwrap();
    let fence = Fence::raise(&world.context.database).await.unwrap();
    let corrected = migrations::native(all()[3].manifest().clone(), correct_slowly);
    let client = async {
        spawn_blocking(|| CALLED.wait()).await.unwrap();
        world
            .execute("UPDATE desired_lrps SET domain = 'newer' WHERE guid = 'app-00001'")
            .await;
        spawn_blocking(|| ENDS.wait()).await.unwrap();
    };
    let (retried, ()) = tokio::join!(
        retry(
            &world.context,
            &fence,
            &[],
            Some(corrected),
            WriteMode::Real
        ),
        client
    );
    let fates: Vec<_> = retried.unwrap().into_iter().map(|(_, fate)| fate).collect();
    assert_eq!(fates, [Fate::Returned]);
    assert_eq!(world.rows("desired_lrps").await[3]["tags"], "none");
}
