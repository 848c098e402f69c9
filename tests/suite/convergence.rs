//! Convergence end to end: instances whose cells come and go, domains that are fresh or not, an auctioneer and a rep
//! that hear what is asked of them. The clock stands still until a test moves it.

mod layouts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use bbs::clients::Clients;
use bbs::config::{self, ClientTls};
use bbs::domain::convergence::{self, LrpCounts};
use bbs_proto::models as proto;
use serde_json::{Value, json};

use crate::api::{desire, lrp, routes};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::diego::trust::{Listening, Trust};
use crate::harness::locket::{Locket, certificate};
use crate::harness::server::{NOW_NS, Options, Server};

const SECOND_NS: i64 = 1_000_000_000;
/// Every row: slot, state, presence, cell.
const ROWS: &str = "SELECT concat(process_guid, '/', instance_index, ' ', state, ' ', presence, ' ', cell_id) \
     FROM actual_lrps ORDER BY process_guid, instance_index, presence";

type Heard = Arc<Mutex<Vec<(String, Value)>>>;

/// A host with an auctioneer, a rep that answers for every cell, and Locket.
struct World {
    server: Server,
    locket: Locket,
    heard: Heard,
    others: Listening,
    _trust: Trust,
}

async fn hear(State(heard): State<Heard>, uri: Uri, body: Bytes) -> StatusCode {
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    heard.lock().unwrap().push((uri.path().to_owned(), body));
    StatusCode::ACCEPTED
}

impl World {
    async fn new(kind: Kind) -> Self {
        let (trust, locket, heard) = (Trust::new(), Locket::start(), Heard::default());
        let others = trust.listen(Router::new().fallback(hear).with_state(Arc::clone(&heard)));
        let [ca_file, cert_file, key_file] = trust.files();
        let tls = ClientTls { cert_file, key_file, ca_file };
        let presences = config::Locket {
            address: locket.configuration()["locket_address"].as_str().unwrap().to_owned(),
            ca_cert_file: certificate("ca.crt"),
            client_cert_file: certificate("client.crt"),
            client_key_file: certificate("client.key"),
            keepalive_time: None,
            keepalive_timeout: None,
            lookup_timeout: Duration::from_secs(10),
        };
        let auctioneer = config::Auctioneer { address: others.url(), tls: Some(tls.clone()), require_tls: true };
        let config = config::Clients {
            communication_timeout: Duration::from_secs(10),
            auctioneer: Some(auctioneer),
            rep: config::Rep { tls: Some(tls.clone()), session_cache_size: None },
            ..config::Clients::default()
        };
        let clients = Clients::new(&config, Some(&presences), Some(&tls)).unwrap();
        let server = Server::start(Options { kind, clients, ..Options::default() }).await;
        let world = Self { server, locket, heard, others, _trust: trust };
        world.show("cell-a");
        world
    }

    fn show(&self, cell: &str) {
        let presence = json!({ "cell_id": cell, "rep_url": self.others.url() });
        self.locket.show(cell, &presence.to_string());
    }

    /// One run so many seconds after the beginning. What it found, and what others heard of it.
    async fn converge(&self, after_s: i64) -> (LrpCounts, Vec<(String, Value)>) {
        self.server.clock.set(NOW_NS + after_s * SECOND_NS);
        self.heard.lock().unwrap().clear();
        let counts = convergence::run(&self.server.service).await.unwrap().lrps;
        let mut heard = self.heard.lock().unwrap().clone();
        heard.sort_by_key(|(path, _)| path.clone());
        (counts, heard)
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
    assert_eq!(auctioned(&world.heard.lock().unwrap()), [0, 1], "once it is desired");
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
    world.show("cell-b");
    world.start(1, "cell-a").await;
    world.locket.hide("cell-a");
    let (counts, heard) = world.converge(1).await;
    assert_eq!((counts.suspect_cells, auctioned(&heard)), (1, vec![0, 1]));
    let waiting = ["p/0 UNCLAIMED 0 ", "p/0 RUNNING 2 cell-a", "p/1 UNCLAIMED 0 ", "p/1 RUNNING 2 cell-a"];
    assert_eq!(world.rows().await, waiting);

    // One is replaced by another cell, which ends the suspicion; the other comes back with its cell.
    world.start(0, "cell-b").await;
    world.show("cell-a");
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
    world.locket.be_silent(true);
    assert!(convergence::run(&world.server.service).await.is_err());
    assert_eq!(world.rows().await, ["p/0 RUNNING 0 cell-a"]);
    world.locket.be_silent(false);
    world.converge(1).await;
    assert_eq!(world.rows().await.len(), 2);
}

on_each_database!(what_is_removed_or_lowered_is_stopped_at_its_cell);
async fn what_is_removed_or_lowered_is_stopped_at_its_cell(kind: Kind) {
    let world = World::with_two_running(kind).await;
    world.heard.lock().unwrap().clear();
    let update = proto::DesiredLrpUpdate { instances: Some(1), ..Default::default() };
    let request = proto::UpdateDesiredLrpRequest { process_guid: b"p".to_vec(), update: Some(update) };
    world.server.call("/v1/desired_lrp/update", &request).await.message::<proto::DesiredLrpLifecycleResponse>();
    let stops = |count: usize| {
        let heard = Arc::clone(&world.heard);
        async move {
            while heard.lock().unwrap().iter().filter(|(path, _)| path.ends_with("/stop")).count() < count {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), stops(1)).await.expect("the surplus instance is stopped");
    let request = proto::RemoveDesiredLrpRequest { process_guid: b"p".to_vec() };
    world.server.call("/v1/desired_lrp/remove", &request).await.message::<proto::DesiredLrpLifecycleResponse>();
    // Both: what was asked to stop before has not said yet that it did.
    tokio::time::timeout(Duration::from_secs(60), stops(3)).await.expect("all that is left is stopped");
}
