//! Halted updates: an instance crashes, does not become routable, or finds no cell.

use std::time::Duration;

use bbs::testing::domain::convergence;
use bbs_model::lrp_update::MaxInFlight;

use super::*;
use crate::api::actual_lrps::{FAIL, fail};
use crate::harness::database::on_each_database;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::NOW_NS;

const SECOND: i64 = 1_000_000_000;

on_each_layout!(crashing_instance_halts_the_update_until_it_runs);
async fn crashing_instance_halts_the_update_until_it_runs(kind: Kind) {
    let server = updating(kind, 2).await;
    for _ in 0..3 {
        until_rows(&server, &FIRST_OF_TWO).await;
        claim_new(&server, 0, "new-0").await;
        assert_eq!(call_error(&server, CRASH, &crash(0, "new-0")).await, None);
    }
    until_rows(
        &server,
        &[
            "0/0 CRASHED  version-2",
            "0/1 RUNNING old-0 version-1",
            "1/0 RUNNING old-1 version-1",
        ],
    )
    .await;
    let halted = status(&server).await;
    assert_eq!(
        (halted.failing, halted.running_previous, halted.waiting),
        (1, 2, 0)
    );
    assert_eq!(
        (&halted.halt_reason[..], halted.halted_at, halted.started_at),
        (&b"it crashed"[..], NOW_NS, NOW_NS)
    );
    server.clock.set(NOW_NS + 31 * SECOND);
    convergence::run(&server.service).await.unwrap();
    until_rows(&server, &FIRST_OF_TWO).await;
    start_new(&server, 0, "new-0").await;
    settle(&server).await;
    // It may crash again at once, so the old container stays, and the other instance is not
    // replaced.
    assert_eq!(
        rows(&server).await[1..],
        ["0/1 RUNNING old-0 version-1", "1/0 RUNNING old-1 version-1"]
    );
    server.clock.set(NOW_NS + 340 * SECOND);
    convergence::run(&server.service).await.unwrap();
    until_rows(&server, &SECOND_OF_TWO).await;
    start_new(&server, 1, "new-1").await;
    until_done(&server).await;
}

on_each_database!(crashes_of_the_previous_definition_do_not_halt_the_update_that_corrects_them);
async fn crashes_of_the_previous_definition_do_not_halt_the_update_that_corrects_them(kind: Kind) {
    let server = running(kind, 1).await;
    crash_three_times(&server, 0, "old-0").await;
    server.clock.set(NOW_NS + 31 * SECOND);
    convergence::run(&server.service).await.unwrap();
    claim_new(&server, 0, "either").await;
    update_to(&server, "version-2").await;
    settle(&server).await;
    let status_now = status(&server).await;
    assert_eq!(
        (status_now.failing, status_now.waiting),
        (0, 1),
        "{status_now:?}"
    );
    assert_eq!(call_error(&server, START, &start(0, "either")).await, None);
    let replaced = ["0/0 UNCLAIMED  version-2", "0/1 RUNNING either version-1"];
    until_rows(&server, &replaced).await;
    start_new(&server, 0, "new-0").await;
    until_done(&server).await;
}

/// The number of halted updates that convergence publishes as a metric.
async fn halted_updates(server: &Server) -> u64 {
    let counts = convergence::run(&server.service).await.unwrap();
    counts.lrps.halted_updates
}

on_each_layout!(removed_lrp_without_containers_is_not_counted_as_halted);
async fn removed_lrp_without_containers_is_not_counted_as_halted(kind: Kind) {
    let server = running(kind, 1).await;
    crash_three_times(&server, 0, "old-0").await;
    update_to(&server, "version-2").await;
    for name in ["new-0", "new-1", "new-2"] {
        crash_new(&server, 0, name).await;
    }
    settle(&server).await;
    assert_eq!(rows(&server).await, ["0/0 CRASHED  version-2"]);
    assert_eq!(halted_updates(&server).await, 1);
    assert_eq!(remove_lrp(&server).await, None);
    settle(&server).await;
    assert_eq!(halted_updates(&server).await, 0);
}

on_each_layout!(instance_that_does_not_become_routable_halts_the_update_until_it_does);
async fn instance_that_does_not_become_routable_halts_the_update_until_it_does(kind: Kind) {
    let pace = Pace {
        routable_timeout: Duration::from_secs(60),
        ..Pace::default()
    };
    let server = running_at(kind, pace, 2).await;
    update_to(&server, "version-2").await;
    until_rows(&server, &FIRST_OF_TWO).await;
    start_new_unroutable(&server, 0, "new-0").await;
    server.clock.set(NOW_NS + 59 * SECOND);
    let waiting = status(&server).await;
    assert_eq!((waiting.failing, &waiting.halt_reason[..]), (0, &b""[..]));
    server.clock.set(NOW_NS + 60 * SECOND);
    let halted = status(&server).await;
    let reason = &b"the instance runs and is not routable"[..];
    assert_eq!((halted.failing, &halted.halt_reason[..]), (1, reason));
    assert_eq!(call_error(&server, START, &start(0, "new-0")).await, None);
    until_rows(&server, &SECOND_OF_TWO).await;
    assert_eq!(status(&server).await.failing, 0);
}

on_each_layout!(instance_without_a_cell_halts_the_update_until_one_takes_it);
async fn instance_without_a_cell_halts_the_update_until_one_takes_it(kind: Kind) {
    let pace = Pace {
        max_in_flight: MaxInFlight::Instances(2),
        ..Pace::default()
    };
    let server = running_at(kind, pace, 3).await;
    update_to(&server, "version-2").await;
    settle(&server).await;
    assert_eq!(call_error(&server, FAIL, &fail(0)).await, None);
    start_new(&server, 1, "new-1").await;
    settle(&server).await;
    let status_now = status(&server).await;
    assert_eq!(
        (status_now.failing, &status_now.halt_reason[..]),
        (1, &b"no room"[..])
    );
    let halted = [
        "0/0 UNCLAIMED  version-2",
        "0/1 RUNNING old-0 version-1",
        "1/0 RUNNING new-1 version-2",
        "2/0 RUNNING old-2 version-1",
    ];
    until_rows(&server, &halted).await;
    start_new(&server, 0, "new-0").await;
    until_rows(
        &server,
        &[
            "0/0 RUNNING new-0 version-2",
            "1/0 RUNNING new-1 version-2",
            "2/0 UNCLAIMED  version-2",
            "2/1 RUNNING old-2 version-1",
        ],
    )
    .await;
    assert_eq!(status(&server).await.halt_reason, b"");
}
