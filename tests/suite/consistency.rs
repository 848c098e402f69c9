//! Random calls in random order and at random times. The stored records are consistent after each
//! call, and convergence with an auctioneer that places every instance leads to a settled state
//! with exactly the desired instances.
//!
//! `BBS_CONSISTENCY_RUNS` sets the number of runs on each database, `BBS_CONSISTENCY_SEED` the
//! first seed; `tests/run --all` has more runs on SQLite. A failure prints its seed and its calls.
//! The clock is the test's. What a call names is chosen among the records, and the host replaces
//! containers in the background, so the seed repeats a run only as far as the records are the same
//! when a call is chosen.

mod calls;
mod checks;
mod settle;

use std::collections::BTreeSet;

use bbs::testing::domain::convergence;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;
use fastrand::Rng;

use crate::harness::database::Kind;
use crate::harness::layouts::on_each_layout;
use crate::harness::neighbours::Neighbours;
use crate::harness::seed::{number, seed};
use crate::harness::server::{NOW_NS, Server};
use crate::harness::tests_all;

use calls::Call;
use checks::RecordHistory;

const SECOND_NS: i64 = 1_000_000_000;
const GUIDS: [&str; 3] = ["a", "b", "c"];
const DOMAINS: [&str; 2] = ["one", "two"];
const CELLS: [&str; 3] = ["cell-a", "cell-b", "cell-c"];
/// More than are ever desired, so that undesired instances occur.
const INDICES: i32 = 5;

on_each_layout!(random_calls_keep_the_store_consistent_and_convergence_settles_it);
async fn random_calls_keep_the_store_consistent_and_convergence_settles_it(kind: Kind) {
    let (runs, calls) = match kind {
        Kind::Sqlite if tests_all() => (6, 150),
        Kind::Sqlite => (2, 150),
        Kind::Postgres | Kind::Mariadb | Kind::Mysql => (2, 80),
    };
    let first = seed("BBS_CONSISTENCY_SEED");
    for seed in first..first + number("BBS_CONSISTENCY_RUNS").unwrap_or(runs) {
        println!(
            "BBS_CONSISTENCY_SEED={seed} BBS_CONSISTENCY_RUNS=1 on {kind:?}; repeats the calls, as far as the records are the \
             same when each is chosen: the host replaces containers in the background"
        );
        let mut test = ConsistencyTest::new(kind, seed).await;
        for _ in 0..calls {
            // One draw for each call: what it draws depends on the records.
            let call = Call::any(&mut test.random.fork(), &test.rows);
            test.make(&call).await;
        }
        println!("occurred: {:?}", test.history.kinds());
        settle::until_converged(&mut test).await;
    }
}

/// A server with its neighbours, and the records and histories read so far.
struct ConsistencyTest {
    server: Server,
    neighbours: Neighbours,
    random: Rng,
    now_ns: i64,
    /// The cells with a presence in Locket.
    present_cells: BTreeSet<&'static str>,
    rows: Snapshot,
    history: RecordHistory,
}

/// All records, as the API lists them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Snapshot {
    desired: Vec<proto::DesiredLrp>,
    actual: Vec<proto::ActualLrp>,
    tasks: Vec<proto::Task>,
}

impl Snapshot {
    fn desired(&self, guid: &[u8]) -> Option<i32> {
        self.desired
            .iter()
            .find(|lrp| lrp.process_guid == guid)
            .map(|lrp| lrp.instances)
    }
}

impl ConsistencyTest {
    async fn new(kind: Kind, seed: u64) -> Self {
        let (server, neighbours) = Server::with_neighbours(kind).await;
        let random = Rng::with_seed(seed);
        let rows = Snapshot::default();
        let history = RecordHistory::default();
        let mut test = Self {
            server,
            neighbours,
            random,
            now_ns: NOW_NS,
            present_cells: BTreeSet::new(),
            rows,
            history,
        };
        for cell in CELLS {
            test.set_present(cell, true);
        }
        test
    }

    fn set_present(&mut self, cell: &'static str, present: bool) {
        if present {
            self.present_cells.insert(cell);
            self.neighbours.add_cell(cell);
        } else {
            self.present_cells.remove(cell);
            self.neighbours.locket.remove_presence(cell);
        }
    }

    fn advance_clock(&mut self, seconds: i64) {
        self.now_ns += seconds * SECOND_NS;
        self.server.clock.set(self.now_ns);
    }

    /// Makes a call, waits for the requests that follow from it, and checks all records.
    async fn make(&mut self, call: &Call) {
        self.neighbours.rep.take_requests();
        self.neighbours.auctioneer.take_requests();
        let error = call.make(self).await;
        println!("{call:?}: {error:?}");
        let scaled_down = call.scales_down(&self.rows).filter(|_| error.is_none());
        if let Some((guid, left)) = scaled_down {
            self.expect_stops(guid, left).await;
        }
        self.read_and_check().await;
        if let Some((guid, left)) = scaled_down {
            checks::assert_no_surplus_unclaimed(guid, left, &self.rows);
        }
    }

    /// Waits until the surplus containers on present cells were stopped. Containers that are being
    /// replaced, because nothing records what they run, may be stopped meanwhile.
    async fn expect_stops(&mut self, guid: &str, left: i32) {
        let surplus = self
            .rows
            .actual
            .iter()
            .filter(|row| checks::is_surplus_container(row, guid, left));
        let stopped = surplus.filter(|row| self.present_cells.contains(checks::cell_of(row)));
        let mut missing: BTreeSet<_> = stopped.map(checks::stop_path).collect();
        while !missing.is_empty() {
            for request in self.neighbours.rep.wait_for_requests(1).await {
                missing.remove(&request.path);
            }
        }
    }

    /// Reads all records and checks them against each other and against their history.
    async fn read_and_check(&mut self) {
        let desired: proto::DesiredLrPsResponse = self.list("desired_lrps/list.r3").await;
        let actual: proto::ActualLrPsResponse = self.list("actual_lrps/list").await;
        let tasks: proto::TasksResponse = self.list("tasks/list.r3").await;
        assert_eq!(
            (&desired.error, &actual.error, &tasks.error),
            (&None, &None, &None)
        );
        let mut rows = Snapshot {
            desired: desired.desired_lrps,
            actual: actual.actual_lrps,
            tasks: tasks.tasks,
        };
        rows.actual.sort_by_key(|row| {
            (
                row.actual_lrp_key
                    .clone()
                    .map(|key| (key.process_guid, key.index)),
                row.presence,
            )
        });
        self.history.check(&rows);
        self.rows = rows;
    }

    async fn list<M: Message + Default>(&self, path: &str) -> M {
        self.server.post(&format!("/v1/{path}"), []).await.message()
    }

    /// Makes a call and returns its error, which must be one of `allowed`.
    async fn call_error(
        &self,
        path: &str,
        request: &impl Message,
        allowed: &[Type],
    ) -> Option<Type> {
        let reply = self.server.call(&format!("/v1/{path}"), request).await;
        let error = reply
            .message::<proto::DesiredLrpLifecycleResponse>()
            .error?;
        let text = String::from_utf8_lossy(&error.message).into_owned();
        assert!(
            allowed.contains(&error.r#type()),
            "{path}: {:?} {text}",
            error.r#type()
        );
        Some(error.r#type())
    }

    async fn converge(&self) -> convergence::Counts {
        convergence::run(&self.server.service)
            .await
            .expect("the neighbours that convergence needs are available")
    }
}
