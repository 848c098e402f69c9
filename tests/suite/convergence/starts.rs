//! Containers that start without a claim, as after the loss of their records, are changed by
//! convergence, cells and evacuations as those that claimed their instance.

use bbs::testing::events::Subscription;
use bbs_proto::prost::Message;

use super::layouts::{cell, converge, fresh, removed, scaled};
use crate::api::actual_lrps::{self as lrps, call_error, published, subscribe};
use crate::api::evacuation::{self, KEPT, evacuate};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::server::Server;

/// How the container of the first instance starts.
#[derive(Clone, Copy, Debug)]
enum Start {
    AfterClaim,
    WithoutClaim,
}

/// The instance at index 0, whose container on cell `a` has started, and the changes published
/// since.
struct Started {
    server: Server,
    subscription: Subscription,
    changes: Vec<String>,
}

impl Started {
    async fn new(kind: Kind, start: Start) -> Self {
        let server = lrps::with_two_unclaimed(kind).await;
        scaled(&server, 1).await;
        if let Start::AfterClaim = start {
            let claim = lrps::claim(0, "a");
            assert_eq!(call_error(&server, lrps::CLAIM, &claim).await, None);
        }
        let call = lrps::start(0, "a");
        assert_eq!(call_error(&server, lrps::START, &call).await, None);
        Self {
            subscription: subscribe(&server),
            server,
            changes: Vec::new(),
        }
    }

    /// Runs convergence with these cells.
    async fn converge(&mut self, cells: &[&str]) {
        let cells: Vec<_> = cells.iter().map(|name| cell(name)).collect();
        let cells: Vec<_> = cells.iter().map(String::as_str).collect();
        let (counts, changes) = converge(&self.server, &cells, &mut self.subscription).await;
        assert_eq!(counts.failed, 0);
        self.changes.extend(changes);
    }

    async fn call(&mut self, path: &str, request: &impl Message) {
        assert_eq!(
            call_error(&self.server, path, request).await,
            None,
            "{path}"
        );
        self.record().await;
    }

    /// Records what was published since the last call.
    async fn record(&mut self) {
        let changes = published(&self.server, &mut self.subscription).await;
        self.changes.extend(changes);
    }

    async fn claim_and_start(&mut self, name: &str) {
        self.call(lrps::CLAIM, &lrps::claim(0, name)).await;
        self.call(lrps::START, &lrps::start(0, name)).await;
    }

    async fn evacuate(&mut self) {
        let request = evacuation::running(0, "a");
        let answer = evacuate(&self.server, evacuation::RUNNING, &request).await;
        assert_eq!(answer, KEPT);
        self.record().await;
    }
}

/// Asserts the changes of a container that has started, in each of the two ways.
async fn assert_changes(kind: Kind, expected: &[&str], steps: impl AsyncFn(&mut Started)) {
    for start in [Start::AfterClaim, Start::WithoutClaim] {
        let mut started = Started::new(kind, start).await;
        steps(&mut started).await;
        assert_eq!(started.changes, expected, "{start:?}");
    }
}

const BECOMES_SUSPECT: &str = "0:RUNNING:a -> 0:UNCLAIMED:+2:RUNNING:a";
const EVACUATES: &str = "0:RUNNING:a -> 0:UNCLAIMED:+1:RUNNING:a";

on_each_database!(cell_of_a_suspect_container_returns_while_another_is_claimed);
async fn cell_of_a_suspect_container_returns_while_another_is_claimed(kind: Kind) {
    let expected = [
        BECOMES_SUSPECT,
        "0:UNCLAIMED:+2:RUNNING:a -> 0:CLAIMED:b+2:RUNNING:a",
        "0:CLAIMED:b+2:RUNNING:a -> 0:RUNNING:a",
    ];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["c"]).await;
        started.call(lrps::CLAIM, &lrps::claim(0, "b")).await;
        started.converge(&["a", "b"]).await;
        started.converge(&["a", "b"]).await;
    })
    .await;
}

on_each_database!(cells_of_a_suspect_container_and_of_its_replacement_are_absent);
async fn cells_of_a_suspect_container_and_of_its_replacement_are_absent(kind: Kind) {
    let expected = [
        BECOMES_SUSPECT,
        "0:UNCLAIMED:+2:RUNNING:a -> 0:CLAIMED:b+2:RUNNING:a",
        "0:CLAIMED:b+2:RUNNING:a -> 0:UNCLAIMED:+2:RUNNING:a",
    ];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["c"]).await;
        started.call(lrps::CLAIM, &lrps::claim(0, "b")).await;
        started.converge(&["c"]).await;
        started.converge(&["c"]).await;
    })
    .await;
}

on_each_database!(replacement_of_a_suspect_container_starts);
async fn replacement_of_a_suspect_container_starts(kind: Kind) {
    let expected = [
        BECOMES_SUSPECT,
        "0:UNCLAIMED:+2:RUNNING:a -> 0:CLAIMED:b+2:RUNNING:a",
        "0:CLAIMED:b+2:RUNNING:a -> 0:RUNNING:b",
    ];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["b"]).await;
        started.claim_and_start("b").await;
        started.converge(&["b"]).await;
    })
    .await;
}

on_each_database!(suspect_container_and_its_replacement_both_run);
/// Method: the replacement is started by SQL; the call of its cell would remove the suspect.
async fn suspect_container_and_its_replacement_both_run(kind: Kind) {
    let expected = [BECOMES_SUSPECT, "0:RUNNING:b+2:RUNNING:a -> 0:RUNNING:b"];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["b"]).await;
        start_replacement(started).await;
        started.converge(&["b"]).await;
    })
    .await;
}

/// Starts the waiting instance, as `b`, beside the suspect one.
async fn start_replacement(started: &Started) {
    let starts = "UPDATE actual_lrps SET state = 'RUNNING', instance_guid = 'b', \
         cell_id = 'cell-b', net_info = (SELECT net_info FROM (SELECT net_info FROM \
         actual_lrps WHERE presence = 2) suspect) WHERE presence = 0";
    started.server.sql(starts).await;
}

on_each_database!(suspect_container_stays_until_an_uncertain_replacement_is_routable);
/// Method: as before, with an LRP that is removed, so that no update replaces the uncertain one.
async fn suspect_container_stays_until_an_uncertain_replacement_is_routable(kind: Kind) {
    let expected = [BECOMES_SUSPECT, "0:RUNNING:b+2:RUNNING:a -> 0:RUNNING:b"];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["b"]).await;
        start_replacement(started).await;
        removed(&started.server).await;
        let uncertain = "UPDATE actual_lrps SET definition_uncertain = TRUE WHERE presence = 0";
        started.server.sql(uncertain).await;
        started.converge(&["b"]).await;
        assert_eq!(started.changes.len(), 1, "it receives no traffic");
        let routable = "UPDATE actual_lrps SET routable = TRUE WHERE presence = 0";
        started.server.sql(routable).await;
        started.converge(&["b"]).await;
    })
    .await;
}

on_each_database!(suspect_container_crashes);
async fn suspect_container_crashes(kind: Kind) {
    let expected = [
        BECOMES_SUSPECT,
        "0:UNCLAIMED:+2:RUNNING:a -> 0:UNCLAIMED: crash",
    ];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["c"]).await;
        started.call(lrps::CRASH, &lrps::crash(0, "a")).await;
    })
    .await;
}

on_each_database!(suspect_container_is_evacuated);
async fn suspect_container_is_evacuated(kind: Kind) {
    let expected = [
        BECOMES_SUSPECT,
        "0:UNCLAIMED:+2:RUNNING:a -> 0:UNCLAIMED:+1:RUNNING:a",
    ];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["c"]).await;
        started.evacuate().await;
    })
    .await;
}

on_each_database!(cell_of_an_evacuating_container_leaves);
async fn cell_of_an_evacuating_container_leaves(kind: Kind) {
    let expected = [EVACUATES, "0:UNCLAIMED:+1:RUNNING:a -> 0:UNCLAIMED:"];
    assert_changes(kind, &expected, async |started| {
        started.evacuate().await;
        started.converge(&["a"]).await;
        started.converge(&["c"]).await;
    })
    .await;
}

on_each_database!(replacement_of_an_evacuating_container_starts);
async fn replacement_of_an_evacuating_container_starts(kind: Kind) {
    let expected = [
        EVACUATES,
        "0:UNCLAIMED:+1:RUNNING:a -> 0:CLAIMED:b+1:RUNNING:a",
        "0:CLAIMED:b+1:RUNNING:a -> 0:RUNNING:b",
    ];
    assert_changes(kind, &expected, async |started| {
        started.evacuate().await;
        started.claim_and_start("b").await;
    })
    .await;
}

on_each_database!(suspect_orphan_is_removed_in_a_fresh_domain_alone);
async fn suspect_orphan_is_removed_in_a_fresh_domain_alone(kind: Kind) {
    let expected = [
        BECOMES_SUSPECT,
        "0:UNCLAIMED:+2:RUNNING:a -> 2:RUNNING:a",
        "2:RUNNING:a -> ",
    ];
    assert_changes(kind, &expected, async |started| {
        started.converge(&["c"]).await;
        removed(&started.server).await;
        started.converge(&["c"]).await;
        fresh(&started.server, "domain", 100).await;
        started.converge(&["c"]).await;
    })
    .await;
}

on_each_database!(container_that_crashes_is_restarted_at_once);
async fn container_that_crashes_is_restarted_at_once(kind: Kind) {
    let expected = [
        "0:RUNNING:a -> 0:UNCLAIMED: crash",
        "0:UNCLAIMED: -> 0:CLAIMED:b",
        "0:CLAIMED:b -> 0:RUNNING:b",
    ];
    assert_changes(kind, &expected, async |started| {
        started.call(lrps::CRASH, &lrps::crash(0, "a")).await;
        started.claim_and_start("b").await;
        started.converge(&["a", "b"]).await;
    })
    .await;
}

on_each_database!(container_becomes_suspect_while_no_cell_is_present);
async fn container_becomes_suspect_while_no_cell_is_present(kind: Kind) {
    assert_changes(kind, &[BECOMES_SUSPECT], async |started| {
        started.converge(&[]).await;
        started.converge(&[]).await;
    })
    .await;
}
