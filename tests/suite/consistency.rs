//! Whatever is called, in whichever order, by whom and whenever: what is stored is consistent after each call, and
//! convergence with an auctioneer that places what it is asked to brings it to rest, with exactly what is desired.
//!
//! `BBS_CONSISTENCY_RUNS` sets the number of runs on each database, `BBS_CONSISTENCY_SEED` the first seed. A failure
//! tells its seed and its calls.

mod calls;
mod checks;
mod rest;

use std::collections::BTreeSet;

use bbs::domain::convergence;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;
use fastrand::Rng;

use crate::harness::database::Kind;
use crate::harness::layouts::on_each_layout;
use crate::harness::neighbours::Neighbours;
use crate::harness::server::{NOW_NS, Options, Server};

use calls::Call;
use checks::Seen;

const SECOND_NS: i64 = 1_000_000_000;
const GUIDS: [&str; 3] = ["a", "b", "c"];
const DOMAINS: [&str; 2] = ["one", "two"];
const CELLS: [&str; 3] = ["cell-a", "cell-b", "cell-c"];
/// More than is ever desired, so that something may run that is not.
const INDICES: i32 = 5;

on_each_layout!(whatever_is_called_the_store_is_consistent_and_comes_to_rest);
async fn whatever_is_called_the_store_is_consistent_and_comes_to_rest(kind: Kind) {
    let (runs, calls) = match kind {
        Kind::Sqlite => (6, 150),
        Kind::Postgres | Kind::Mysql => (2, 80),
    };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("BBS_CONSISTENCY_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    for seed in first..first + number("BBS_CONSISTENCY_RUNS").unwrap_or(runs) {
        println!("BBS_CONSISTENCY_SEED={seed} BBS_CONSISTENCY_RUNS=1 on {kind:?}");
        let mut world = World::new(kind, seed).await;
        for _ in 0..calls {
            let call = Call::any(&mut world.random);
            world.make(&call).await;
        }
        rest::comes(&mut world).await;
    }
}

/// A host with everybody around it, and what is known of its records.
struct World {
    server: Server,
    neighbours: Neighbours,
    random: Rng,
    now_ns: i64,
    /// The cells that are there.
    there: BTreeSet<&'static str>,
    rows: Rows,
    seen: Seen,
}

/// Everything, as clients see it.
#[derive(Debug, Clone, Default, PartialEq)]
struct Rows {
    desired: Vec<proto::DesiredLrp>,
    actual: Vec<proto::ActualLrp>,
    tasks: Vec<proto::Task>,
}

impl Rows {
    fn desired(&self, guid: &[u8]) -> Option<i32> {
        self.desired.iter().find(|lrp| lrp.process_guid == guid).map(|lrp| lrp.instances)
    }
}

impl World {
    async fn new(kind: Kind, seed: u64) -> Self {
        let neighbours = Neighbours::start();
        let server = Server::start(Options { kind, clients: neighbours.clients(), ..Options::default() }).await;
        let random = Rng::with_seed(seed);
        let (rows, seen) = (Rows::default(), Seen::default());
        let mut world = Self { server, neighbours, random, now_ns: NOW_NS, there: BTreeSet::new(), rows, seen };
        for cell in CELLS {
            world.show(cell, true);
        }
        world
    }

    fn show(&mut self, cell: &'static str, is_there: bool) {
        if is_there {
            self.there.insert(cell);
            self.neighbours.show(cell);
        } else {
            self.there.remove(cell);
            self.neighbours.locket.hide(cell);
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.now_ns += seconds * SECOND_NS;
        self.server.clock.set(self.now_ns);
    }

    /// Makes a call, waits for what it does beside, and looks at everything.
    async fn make(&mut self, call: &Call) {
        self.neighbours.rep.heard();
        self.neighbours.auctioneer.heard();
        let said = call.make(self).await;
        println!("{call:?}: {said:?}");
        let lowered = call.lowers(&self.rows).filter(|_| said.is_none());
        if let Some((guid, left)) = lowered {
            self.expect_stops(guid, left).await;
        }
        self.look().await;
        if let Some((guid, left)) = lowered {
            checks::nothing_waits_in_vain(guid, left, &self.rows);
        }
    }

    /// Of what is not desired any more, the containers whose cells are there are stopped.
    async fn expect_stops(&mut self, guid: &str, left: i32) {
        let surplus = self.rows.actual.iter().filter(|row| checks::is_surplus_container(row, guid, left));
        let stopped = surplus.filter(|row| self.there.contains(checks::cell_of(row)));
        let mut expected: Vec<_> = stopped.map(|row| checks::stop_path(row, guid)).collect();
        expected.sort();
        let heard = self.neighbours.rep.hears(expected.len()).await;
        let mut heard: Vec<_> = heard.into_iter().map(|heard| heard.path).collect();
        heard.sort();
        assert_eq!(heard, expected, "of {guid}, {left} are left");
    }

    /// Reads everything again, which has to be consistent with itself and with what it was before.
    async fn look(&mut self) {
        let desired: proto::DesiredLrPsResponse = self.listed("desired_lrps/list.r3").await;
        let actual: proto::ActualLrPsResponse = self.listed("actual_lrps/list").await;
        let tasks: proto::TasksResponse = self.listed("tasks/list.r3").await;
        assert_eq!((&desired.error, &actual.error, &tasks.error), (&None, &None, &None));
        let mut rows = Rows { desired: desired.desired_lrps, actual: actual.actual_lrps, tasks: tasks.tasks };
        rows.actual
            .sort_by_key(|row| (row.actual_lrp_key.clone().map(|key| (key.process_guid, key.index)), row.presence));
        self.seen.check(&rows);
        self.rows = rows;
    }

    async fn listed<M: Message + Default>(&self, path: &str) -> M {
        self.server.post(&format!("/v1/{path}"), []).await.message()
    }

    /// The error of a call, if it has one, which has to be one that such a call may give here.
    async fn said(&self, path: &str, request: &impl Message, allowed: &[Type]) -> Option<Type> {
        let reply = self.server.call(&format!("/v1/{path}"), request).await;
        let error = reply.message::<proto::DesiredLrpLifecycleResponse>().error?;
        let text = String::from_utf8_lossy(&error.message).into_owned();
        assert!(allowed.contains(&error.r#type()), "{path}: {:?} {text}", error.r#type());
        Some(error.r#type())
    }

    async fn converge(&self) -> convergence::Counts {
        convergence::run(&self.server.service).await.expect("everybody that has to be there is")
    }
}
