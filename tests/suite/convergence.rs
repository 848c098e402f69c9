//! Convergence end to end: instances whose cells come and go, domains that are fresh or not, an auctioneer and a rep
//! that hear what is asked of them. The clock stands still until a test moves it.

mod layouts;

use bbs::domain::convergence::{self, LrpCounts};
use bbs_proto::models as proto;
use serde_json::{Value, json};

use crate::api::{desire, lrp, routes};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::neighbours::Neighbours;
use crate::harness::server::{NOW_NS, Options, Server};

const SECOND_NS: i64 = 1_000_000_000;
/// Every row: slot, state, presence, cell.
const ROWS: &str = "SELECT concat(process_guid, '/', instance_index, ' ', state, ' ', presence, ' ', cell_id) \
     FROM actual_lrps ORDER BY process_guid, instance_index, presence";

/// A host with everybody around it.
struct World {
    server: Server,
    neighbours: Neighbours,
}

impl World {
    async fn new(kind: Kind) -> Self {
        let neighbours = Neighbours::start();
        let server = Server::start(Options { kind, clients: neighbours.clients(), ..Options::default() }).await;
        Self { server, neighbours }
    }

    /// What the auctioneer and the rep were asked since the last time.
    fn heard(&self) -> Vec<(String, Value)> {
        let heard = [self.neighbours.auctioneer.heard(), self.neighbours.rep.heard()].concat();
        let mut heard: Vec<_> = heard.into_iter().map(|heard| (heard.path, heard.body)).collect();
        heard.sort_by_key(|(path, _)| path.clone());
        heard
    }

    /// One run so many seconds after the beginning. What it found, and what others heard of it.
    async fn converge(&self, after_s: i64) -> (LrpCounts, Vec<(String, Value)>) {
        self.server.clock.set(NOW_NS + after_s * SECOND_NS);
        self.heard();
        let counts = convergence::run(&self.server.service).await.unwrap().lrps;
        (counts, self.heard())
    }

    async fn rows(&self) -> Vec<String> {
        self.server.texts(ROWS).await
    }

    async fn start(&self, index: i32, cell: &str) {
        let request = proto::StartActualLrpRequest {
            actual_lrp_key: Some(proto::ActualLrpKey { process_guid: b"p".into(), index, domain: b"domain".to_vec() }),
            actual_lrp_instance_key: Some(proto::ActualLrpInstanceKey {
                instance_guid: format!("on-{cell}-{index}").into(),
                cell_id: cell.into(),
            }),
            actual_lrp_net_info: Some(proto::ActualLrpNetInfo { address: b"10.0.0.1".to_vec(), ..Default::default() }),
            ..Default::default()
        };
        let reply = self.server.call("/v1/actual_lrps/start.r1", &request).await;
        assert_eq!(reply.message::<proto::ActualLrpLifecycleResponse>().error, None);
    }

    async fn keep_fresh(&self, ttl: u32) {
        let request = proto::UpsertDomainRequest { domain: b"domain".to_vec(), ttl };
        self.server.call("/v1/domains/upsert", &request).await.message::<proto::UpsertDomainResponse>();
    }

    /// Two instances that run, and everybody quiet.
    async fn with_two_running(kind: Kind) -> Self {
        let world = Self::new(kind).await;
        desire(&world.server, lrp("p")).await;
        world.start(0, "cell-a").await;
        world.start(1, "cell-a").await;
        world.keep_fresh(0).await;
        world
    }
}

/// The containers that the rep is asked to stop, once those are so many.
async fn stops(world: &World, count: usize) -> Vec<String> {
    let asked = world.neighbours.rep.hears(count).await.into_iter().map(|heard| heard.path);
    let name = |path: String| path.strip_prefix("/v1/lrps/p/instances/")?.strip_suffix("/stop").map(str::to_owned);
    let mut stopped: Vec<_> = asked.filter_map(name).collect();
    stopped.sort();
    stopped
}

/// The indices for which cells were asked, of the only request to the auctioneer.
fn auctioned(heard: &[(String, Value)]) -> Vec<i64> {
    let mut requests = heard.iter().filter(|(path, _)| path == "/v1/lrps");
    let indices = requests.next().map(|(_, body)| {
        let indices = body[0]["indices"].as_array().expect("indices").iter();
        indices.map(|index| index.as_i64().expect("a number")).collect()
    });
    assert!(requests.next().is_none(), "one request for all: {heard:?}");
    indices.unwrap_or_default()
}

on_each_database!(at_rest_a_run_does_nothing_at_all);
async fn at_rest_a_run_does_nothing_at_all(kind: Kind) {
    let world = World::with_two_running(kind).await;
    let before = world.server.texts("SELECT concat(modification_tag_index, since) FROM actual_lrps").await;
    let (counts, heard) = world.converge(3600).await;
    assert_eq!((counts.running, counts.desired, counts.missing, counts.extra), (2, 2, 0, 0));
    assert_eq!((counts.present_cells, counts.suspect_cells), (1, 0));
    assert_eq!(heard, []);
    assert_eq!(world.server.texts("SELECT concat(modification_tag_index, since) FROM actual_lrps").await, before);
}

on_each_database!(what_is_missing_is_created_and_what_waits_for_long_is_offered_again);
async fn what_is_missing_is_created_and_what_waits_for_long_is_offered_again(kind: Kind) {
    let world = World::new(kind).await;
    desire(&world.server, lrp("p")).await;
    assert_eq!(auctioned(&world.heard()), [0, 1], "once it is desired");
    world.server.sql("DELETE FROM actual_lrps WHERE instance_index = 0").await;
    let (counts, heard) = world.converge(30).await;
    assert_eq!((counts.missing, auctioned(&heard)), (1, vec![0]), "the other does not wait for long yet");
    let (_, heard) = world.converge(31).await;
    assert_eq!(auctioned(&heard), [1]);
    let (_, heard) = world.converge(61).await;
    assert_eq!(auctioned(&heard), [0, 1]);
    assert_eq!(world.rows().await, ["p/0 UNCLAIMED 0 ", "p/1 UNCLAIMED 0 "]);
}

on_each_database!(a_container_is_suspect_while_its_cell_is_gone);
async fn a_container_is_suspect_while_its_cell_is_gone(kind: Kind) {
    let world = World::with_two_running(kind).await;
    world.neighbours.show("cell-b");
    world.start(1, "cell-a").await;
    world.neighbours.locket.hide("cell-a");
    let (counts, heard) = world.converge(1).await;
    assert_eq!((counts.suspect_cells, auctioned(&heard)), (1, vec![0, 1]));
    let waiting = ["p/0 UNCLAIMED 0 ", "p/0 RUNNING 2 cell-a", "p/1 UNCLAIMED 0 ", "p/1 RUNNING 2 cell-a"];
    assert_eq!(world.rows().await, waiting);

    // One is replaced by another cell, which ends the suspicion; the other comes back with its cell.
    world.start(0, "cell-b").await;
    world.neighbours.show("cell-a");
    let (_, heard) = world.converge(2).await;
    assert_eq!(auctioned(&heard), Vec::<i64>::new());
    assert_eq!(world.rows().await, ["p/0 RUNNING 0 cell-b", "p/1 RUNNING 0 cell-a"]);
}

on_each_database!(what_is_not_desired_any_more_goes_once_its_domain_is_sure);
async fn what_is_not_desired_any_more_goes_once_its_domain_is_sure(kind: Kind) {
    let world = World::with_two_running(kind).await;
    world.server.sql("UPDATE desired_lrps SET instances = 1").await;
    world.keep_fresh(10).await;
    let (counts, heard) = world.converge(1).await;
    assert_eq!(counts.extra, 1);
    let stop = "/v1/lrps/p/instances/on-cell-a-1/stop".to_owned();
    assert_eq!(heard, [(stop, Value::Null)]);
    assert_eq!(world.rows().await.len(), 2, "the rep removes the row once the container is gone");

    let (counts, heard) = world.converge(11).await;
    assert_eq!((counts.extra, heard.len()), (0, 0), "nobody says any more that what is desired is complete");
    assert_eq!(world.server.texts("SELECT domain FROM domains").await, Vec::<String>::new());
}

on_each_database!(an_orphan_goes_if_anybody_spoke_for_its_domain);
async fn an_orphan_goes_if_anybody_spoke_for_its_domain(kind: Kind) {
    let world = World::with_two_running(kind).await;
    world.server.sql("DELETE FROM desired_lrps").await;
    world.server.sql("UPDATE actual_lrps SET domain = 'unknown' WHERE instance_index = 1").await;
    world.server.sql("UPDATE actual_lrps SET state = 'UNCLAIMED', cell_id = '' WHERE instance_index = 0").await;
    world.converge(1).await;
    assert_eq!(world.rows().await, ["p/1 RUNNING 0 cell-a"]);
}

on_each_database!(convergence_removes_orphans_of_a_cell_that_is_gone_and_no_desired_lrp);
/// So a cell that comes back, or a benchmark that plays one, finds no instance to remove; a desired LRP is there until
/// it is removed.
async fn convergence_removes_orphans_of_a_cell_that_is_gone_and_no_desired_lrp(kind: Kind) {
    let world = World::with_two_running(kind).await;
    desire(&world.server, proto::DesiredLrp { instances: 0, ..lrp("q") }).await;
    let remove = async |guid: &str| {
        let request = proto::RemoveDesiredLrpRequest { process_guid: guid.into() };
        let reply = world.server.call("/v1/desired_lrp/remove", &request).await;
        reply.message::<proto::DesiredLrpLifecycleResponse>().error
    };
    assert_eq!(remove("p").await, None);
    assert_eq!(stops(&world, 2).await.len(), 2);
    world.neighbours.locket.hide("cell-a");
    world.converge(1).await;
    assert_eq!(world.rows().await, Vec::<String>::new());
    let instance = proto::ActualLrpInstanceKey { instance_guid: b"on-cell-a-0".to_vec(), cell_id: b"cell-a".to_vec() };
    let request = proto::RemoveActualLrpRequest {
        process_guid: b"p".to_vec(),
        index: 0,
        actual_lrp_instance_key: Some(instance),
    };
    let reply = world.server.call("/v1/actual_lrps/remove", &request).await;
    assert_eq!(reply.error().0, proto::error::Type::ResourceNotFound);
    assert_eq!(remove("q").await, None);
}

on_each_database!(containers_hear_of_new_routes);
async fn containers_hear_of_new_routes(kind: Kind) {
    let world = World::with_two_running(kind).await;
    let internal = routes(&[("internal-router", r#"[{"hostname":"app.internal"}]"#)]);
    let update = proto::DesiredLrpUpdate { routes: Some(internal), ..Default::default() };
    let request = proto::UpdateDesiredLrpRequest { process_guid: b"p".to_vec(), update: Some(update) };
    world.server.call("/v1/desired_lrp/update", &request).await.message::<proto::DesiredLrpLifecycleResponse>();
    let (_, heard) = world.converge(1).await;
    let told: Vec<_> = heard.iter().filter(|(path, _)| path.starts_with("/v2/lrps/p/instances/on-cell-a-")).collect();
    assert!(told.len() >= 2, "{heard:?}");
    assert!(told.iter().all(|(_, body)| body["internal_routes"] == json!([{ "hostname": "app.internal" }])));
}

on_each_database!(without_knowing_the_cells_nothing_is_done);
async fn without_knowing_the_cells_nothing_is_done(kind: Kind) {
    let world = World::with_two_running(kind).await;
    world.server.sql("DELETE FROM actual_lrps WHERE instance_index = 1").await;
    world.neighbours.locket.be_silent(true);
    assert!(convergence::run(&world.server.service).await.is_err());
    assert_eq!(world.rows().await, ["p/0 RUNNING 0 cell-a"]);
    world.neighbours.locket.be_silent(false);
    world.converge(1).await;
    assert_eq!(world.rows().await.len(), 2);
}

on_each_database!(what_is_removed_or_lowered_is_stopped_at_its_cell);
async fn what_is_removed_or_lowered_is_stopped_at_its_cell(kind: Kind) {
    let world = World::with_two_running(kind).await;
    world.heard();
    let update = proto::DesiredLrpUpdate { instances: Some(1), ..Default::default() };
    let request = proto::UpdateDesiredLrpRequest { process_guid: b"p".to_vec(), update: Some(update) };
    world.server.call("/v1/desired_lrp/update", &request).await.message::<proto::DesiredLrpLifecycleResponse>();
    assert_eq!(stops(&world, 1).await, ["on-cell-a-1"]);
    let request = proto::RemoveDesiredLrpRequest { process_guid: b"p".to_vec() };
    world.server.call("/v1/desired_lrp/remove", &request).await.message::<proto::DesiredLrpLifecycleResponse>();
    // Both: what was asked to stop before has not said yet that it did.
    assert_eq!(stops(&world, 2).await, ["on-cell-a-0", "on-cell-a-1"]);
}
