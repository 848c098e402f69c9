//! What calls about desired LRPs ask of others and tell whoever listens: cells for what is new, an end for what is too
//! much, and for what runs the routes and tags that it has from now on.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use serde_json::{Value, json};

use super::actual_lrps::{claim, rows, said, start};
use super::{desire, lrp, routes, tag};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::listener::{INSTANCES, Listener};
use crate::harness::neighbours::{Heard, Neighbours, Say};
use crate::harness::server::{Options, Server};

const DESIRE: &str = "/v1/desired_lrp/desire.r2";
const UPDATE: &str = "/v1/desired_lrp/update";
const REMOVE: &str = "/v1/desired_lrp/remove";
const TRACE: &str = "7f461654-74d1-1ee5-8367-77d85df2cdab";

async fn around(kind: Kind) -> (Server, Neighbours) {
    let neighbours = Neighbours::start();
    let server = Server::start(Options { kind, clients: neighbours.clients(), ..Options::default() }).await;
    (server, neighbours)
}

/// With a trace id.
async fn traced(server: &Server, path: &str, request: &impl Message) {
    let reply = server.send("POST", path, &[("X-Vcap-Request-Id", TRACE)], request.encode_to_vec()).await;
    assert_eq!(reply.message::<proto::DesiredLrpLifecycleResponse>().error, None, "{path}");
}

fn updating(update: proto::DesiredLrpUpdate) -> proto::UpdateDesiredLrpRequest {
    proto::UpdateDesiredLrpRequest { process_guid: b"guid".to_vec(), update: Some(update) }
}

fn scaling(instances: i32) -> proto::UpdateDesiredLrpRequest {
    updating(proto::DesiredLrpUpdate { instances: Some(instances), ..Default::default() })
}

fn removing() -> proto::RemoveDesiredLrpRequest {
    proto::RemoveDesiredLrpRequest { process_guid: b"guid".to_vec() }
}

async fn run(server: &Server, index: i32, name: &str) {
    assert_eq!(said(server, super::actual_lrps::START, &start(index, name)).await, None);
}

/// Everything that was told, by name, with the index of an instance or the number that is desired; each of them traced.
async fn told(server: &Server, listener: Listener) -> Vec<String> {
    server.gate.end_streams();
    let told = listener.rest().await;
    let (names, traces): (Vec<_>, Vec<_>) = told.iter().map(named).unzip();
    for (name, trace) in names.iter().zip(traces) {
        assert_eq!(trace, TRACE.as_bytes(), "{name}");
    }
    names
}

fn named(event: &crate::harness::listener::Heard) -> (String, Vec<u8>) {
    let instances = |lrp: Option<proto::DesiredLrp>| lrp.unwrap().instances;
    let index = |lrp: Option<proto::ActualLrp>| lrp.unwrap().actual_lrp_key.unwrap().index;
    let (about, trace) = match event.name.as_str() {
        "desired_lrp_created" => {
            let told: proto::DesiredLrpCreatedEvent = event.message();
            (instances(told.desired_lrp).to_string(), told.trace_id)
        }
        "desired_lrp_changed" => {
            let told: proto::DesiredLrpChangedEvent = event.message();
            (format!("{} to {}", instances(told.before), instances(told.after)), told.trace_id)
        }
        "desired_lrp_removed" => {
            let told: proto::DesiredLrpRemovedEvent = event.message();
            (instances(told.desired_lrp).to_string(), told.trace_id)
        }
        "actual_lrp_instance_created" => {
            let told: proto::ActualLrpInstanceCreatedEvent = event.message();
            (index(told.actual_lrp).to_string(), told.trace_id)
        }
        "actual_lrp_instance_removed" => {
            let told: proto::ActualLrpInstanceRemovedEvent = event.message();
            (index(told.actual_lrp).to_string(), told.trace_id)
        }
        other => panic!("{other} is no event of these calls"),
    };
    (format!("{} {about}", event.name), trace)
}

on_each_database!(cells_are_asked_for_what_is_desired_and_for_what_an_update_adds);
async fn cells_are_asked_for_what_is_desired_and_for_what_an_update_adds(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    let listener = Listener::begin(server.url(INSTANCES), "").await;
    let volume = |driver: &str| proto::VolumeMount {
        driver: driver.into(),
        container_dir: b"/data".to_vec(),
        mode: b"r".to_vec(),
        shared: Some(proto::SharedDevice { volume_id: b"id".to_vec(), ..Default::default() }),
        ..Default::default()
    };
    let desired_lrp = Some(proto::DesiredLrp {
        memory_mb: 256,
        disk_mb: 1024,
        max_pids: 100,
        placement_tags: vec![b"gpu".to_vec()],
        volume_mounts: vec![volume("nfs"), volume("nfs")],
        ..lrp("guid")
    });
    traced(&server, DESIRE, &proto::DesireLrpRequest { desired_lrp }).await;
    let asked = |indices: &[i32]| {
        let body = json!([{
            "process_guid": "guid", "domain": "domain", "indices": indices, "PlacementTags": ["gpu"],
            "VolumeDrivers": ["nfs", "nfs"], "RootFs": "preloaded:cflinuxfs4", "MemoryMB": 256, "DiskMB": 1024,
            "MaxPids": 100,
        }]);
        let (method, path) = ("POST".to_owned(), "/v1/lrps".to_owned());
        [Heard { method, path, trace_id: Some(TRACE.to_owned()), body }]
    };
    assert_eq!(neighbours.auctioneer.heard(), asked(&[0, 1]));
    // Somebody has made the next one already.
    server
        .sql(
            "INSERT INTO actual_lrps (process_guid, instance_index, domain, state, net_info, modification_tag_epoch) \
             SELECT process_guid, 2, domain, state, net_info, 'epoch' FROM actual_lrps WHERE instance_index = 0",
        )
        .await;
    traced(&server, UPDATE, &scaling(4)).await;
    assert_eq!(neighbours.auctioneer.heard(), asked(&[3]));
    traced(&server, UPDATE, &scaling(4)).await;
    assert_eq!(neighbours.auctioneer.heard(), [], "nothing is new");
    let expected = [
        "desired_lrp_created 2",
        "actual_lrp_instance_created 0",
        "actual_lrp_instance_created 1",
        "desired_lrp_changed 2 to 4",
        "actual_lrp_instance_created 3",
        "desired_lrp_changed 4 to 4",
    ];
    assert_eq!(told(&server, listener).await, expected);
}

on_each_database!(nothing_is_asked_for_where_no_instance_is_desired);
async fn nothing_is_asked_for_where_no_instance_is_desired(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    desire(&server, proto::DesiredLrp { instances: 0, ..lrp("guid") }).await;
    assert_eq!(neighbours.auctioneer.heard(), []);
}

on_each_database!(an_auctioneer_that_fails_costs_the_caller_nothing_and_is_asked_again);
async fn an_auctioneer_that_fails_costs_the_caller_nothing_and_is_asked_again(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    for (number, fault) in [Say::Status(500), Say::HangUp, Say::Cut, Say::Status(200)].into_iter().enumerate() {
        neighbours.auctioneer.say(&[fault]);
        desire(&server, proto::DesiredLrp { instances: 1, ..lrp(&format!("desired-{number}")) }).await;
        assert_eq!(neighbours.auctions().len(), 1, "{fault:?}");
    }
    desire(&server, lrp("guid")).await;
    neighbours.auctioneer.heard();
    neighbours.auctioneer.say(&[Say::HangUp]);
    traced(&server, UPDATE, &scaling(3)).await;
    assert_eq!(neighbours.auctions(), [("guid".to_owned(), json!([2]))]);
    server.clock.set(crate::harness::server::NOW_NS + 31_000_000_000);
    let counts = bbs::domain::convergence::run(&server.service).await.unwrap().lrps;
    assert_eq!((counts.started, counts.failed), (7, 0));
    let mut asked = neighbours.auctions();
    asked.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(asked.last(), Some(&("guid".to_owned(), json!([0, 1, 2]))));
    assert_eq!(asked.len(), 5, "of all that wait");
}

/// Indices 0 and 4 run, 1 is claimed, 2 crashed, 3 waits; beside 4 there is an evacuating and a suspect container.
async fn with_one_of_each(server: &Server, neighbours: &Neighbours) {
    desire(server, proto::DesiredLrp { instances: 5, ..lrp("guid") }).await;
    run(server, 0, "a").await;
    assert_eq!(said(server, super::actual_lrps::CLAIM, &claim(1, "a")).await, None);
    run(server, 4, "a").await;
    server.sql("UPDATE actual_lrps SET state = 'CRASHED' WHERE instance_index = 2").await;
    for (name, presence) in [("evacuated", 1), ("suspect", 2)] {
        let copy = format!(
            "INSERT INTO actual_lrps (process_guid, instance_index, domain, state, net_info, modification_tag_epoch, \
             modification_tag_index, instance_guid, cell_id, presence) SELECT process_guid, instance_index, domain, \
             state, net_info, '{name}', 0, '{name}', cell_id, {presence} FROM actual_lrps WHERE instance_index = 4 AND presence = 0"
        );
        server.sql(&copy).await;
    }
    neighbours.rep.heard();
}

/// Which containers the rep was asked to stop, once those were so many; each traced.
async fn stopped(neighbours: &Neighbours, count: usize) -> Vec<String> {
    let mut stopped = Vec::new();
    for heard in neighbours.rep.hears(count).await {
        assert_eq!((heard.method.as_str(), heard.trace_id.as_deref()), ("POST", Some(TRACE)));
        let container = heard.path.strip_prefix("/v1/lrps/guid/instances/").expect("a path of the instance");
        stopped.push(container.strip_suffix("/stop").expect("a stop").to_owned());
    }
    stopped.sort();
    stopped
}

on_each_database!(an_update_to_fewer_removes_what_waits_and_stops_what_runs);
async fn an_update_to_fewer_removes_what_waits_and_stops_what_runs(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    with_one_of_each(&server, &neighbours).await;
    let listener = Listener::begin(server.url(INSTANCES), "").await;
    traced(&server, UPDATE, &scaling(1)).await;
    assert_eq!(stopped(&neighbours, 3).await, ["a", "a", "suspect"]);
    let left = ["0/0/RUNNING/a/1", "1/0/CLAIMED/a/1", "4/0/RUNNING/a/1", "4/1/RUNNING/evacuated/0"];
    assert_eq!(rows(&server).await, [&left[..], &["4/2/RUNNING/suspect/0"]].concat());
    let expected = ["desired_lrp_changed 5 to 1", "actual_lrp_instance_removed 2", "actual_lrp_instance_removed 3"];
    assert_eq!(told(&server, listener).await, expected);
}

on_each_database!(what_is_removed_is_stopped_by_cells_that_listen_and_others_hold_up_nobody);
async fn what_is_removed_is_stopped_by_cells_that_listen_and_others_hold_up_nobody(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    with_one_of_each(&server, &neighbours).await;
    let listener = Listener::begin(server.url(INSTANCES), "").await;
    server.sql("UPDATE actual_lrps SET cell_id = 'cell-b' WHERE instance_index = 0").await;
    neighbours.rep.say(&[Say::Status(500), Say::HangUp]);
    traced(&server, REMOVE, &removing()).await;
    assert_eq!(stopped(&neighbours, 3).await, ["a", "a", "suspect"], "nobody knows the cell of the other");
    let left = ["0/0/RUNNING/a/1", "1/0/CLAIMED/a/1", "4/0/RUNNING/a/1", "4/1/RUNNING/evacuated/0"];
    assert_eq!(rows(&server).await, [&left[..], &["4/2/RUNNING/suspect/0"]].concat());
    let expected = ["desired_lrp_removed 5", "actual_lrp_instance_removed 2", "actual_lrp_instance_removed 3"];
    assert_eq!(told(&server, listener).await, expected);
    let reply = server.call(REMOVE, &removing()).await;
    assert_eq!(reply.error().0, proto::error::Type::ResourceNotFound);
}

on_each_database!(without_locket_nothing_is_stopped_and_the_removal_succeeds);
async fn without_locket_nothing_is_stopped_and_the_removal_succeeds(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    with_one_of_each(&server, &neighbours).await;
    neighbours.locket.be_silent(true);
    let before = neighbours.locket.callers().len();
    traced(&server, REMOVE, &removing()).await;
    crate::harness::until(|| neighbours.locket.callers().len() > before).await;
    assert_eq!(neighbours.rep.heard(), []);
}

/// While the cell answers the first request, the other containers wait. What is held of each must not grow with what its
/// request needs: a look-up of the cell, a connection.
#[tokio::test(flavor = "multi_thread")]
async fn cell_is_looked_up_once_for_all_containers_that_wait_for_it() {
    const INSTANCES: i32 = 20;
    let (server, neighbours) = around(Kind::Sqlite).await;
    desire(&server, proto::DesiredLrp { instances: INSTANCES, ..lrp("guid") }).await;
    for index in 0..INSTANCES {
        run(&server, index, "a").await;
    }
    neighbours.rep.heard();
    neighbours.rep.say(&[Say::OnceReleased]);
    traced(&server, UPDATE, &scaling(INSTANCES - 1)).await;
    assert_eq!(stopped(&neighbours, 1).await.len(), 1);
    let before = neighbours.locket.callers().len();
    traced(&server, UPDATE, &scaling(0)).await;
    neighbours.rep.release();
    assert_eq!(stopped(&neighbours, 20).await.len(), 20);
    assert_eq!(neighbours.locket.callers().len(), before + 1);
}

on_each_database!(removal_of_what_runs_takes_few_statements);
async fn removal_of_what_runs_takes_few_statements(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    desire(&server, proto::DesiredLrp { instances: 1, ..lrp("guid") }).await;
    run(&server, 0, "a").await;
    neighbours.rep.heard();
    let before = server.database.statistics().queries;
    traced(&server, REMOVE, &removing()).await;
    // `BEGIN`, the fence, the record is deleted and returned, its instances, `COMMIT`. MySQL has no `RETURNING`.
    let expected = if kind == Kind::Mysql { 6 } else { 5 };
    assert_eq!(server.database.statistics().queries - before, expected);
    assert_eq!(stopped(&neighbours, 1).await, ["a"]);
}

/// What an update makes of internal routes and tags, and what a container is told: its routes and its tags.
struct Case {
    routes: Option<&'static [(&'static str, &'static str)]>,
    updated: Option<&'static [(&'static str, &'static str)]>,
    tags: Vec<proto::MetricTagEntry>,
    expected: Option<(Value, Value)>,
}

fn dynamic(key: &str, value: i32) -> proto::MetricTagEntry {
    let value = proto::MetricTagValue { dynamic: value, ..Default::default() };
    proto::MetricTagEntry { key: key.into(), value: Some(value) }
}

const ROUTER: &str = "internal-router";
const OTHERS: &[(&str, &str)] = &[("cf-router", "[1]")];
const NO_ROUTES: &[(&str, &str)] = &[(ROUTER, "[]")];
const A: &[(&str, &str)] = &[(ROUTER, r#"[{"hostname":"a.internal"}]"#)];
const A_SPACED: &[(&str, &str)] = &[(ROUTER, r#"[ {"hostname": "a.internal"} ]"#)];
const B: &[(&str, &str)] = &[(ROUTER, r#"[{"hostname":"b.internal"}]"#), ("cf-router", "[1]")];
const NO_HOSTS: &[(&str, &str)] = &[(ROUTER, r#"{"hostname":"a.internal"}"#)];

fn cases() -> Vec<Case> {
    let hosts = |names: &[&str]| Value::from_iter(names.iter().map(|name| json!({ "hostname": name })));
    let of_routes = |routes, updated, told: Option<&[&str]>| {
        let expected = told.map(|names| (hosts(names), Value::Null));
        Case { routes, updated, tags: Vec::new(), expected }
    };
    let of_tags = |tags, told: Option<Value>| {
        let expected = told.map(|tags| (Value::Null, tags));
        Case { routes: Some(A), updated: None, tags, expected }
    };
    let source = || tag("source_id", "source");
    vec![
        of_routes(Some(A), None, None),
        of_routes(Some(A), Some(A), None),
        of_routes(Some(A), Some(A_SPACED), Some(&["a.internal"])),
        of_routes(Some(A_SPACED), Some(A), None),
        of_routes(Some(A), Some(B), Some(&["b.internal"])),
        of_routes(Some(OTHERS), Some(B), Some(&["b.internal"])),
        of_routes(None, Some(A), Some(&["a.internal"])),
        of_routes(Some(A), Some(NO_ROUTES), Some(&[])),
        // Diego tells it nothing with a request; here there is none.
        of_routes(Some(A), Some(OTHERS), None),
        of_routes(Some(OTHERS), Some(OTHERS), None),
        of_routes(None, Some(&[]), None),
        of_routes(Some(A), Some(NO_HOSTS), None),
        of_tags(vec![source()], None),
        of_tags(vec![tag("source_id", "other")], Some(json!({ "source_id": "other" }))),
        of_tags(vec![source(), tag("a", "b")], Some(json!({ "source_id": "source", "a": "b" }))),
        of_tags(vec![dynamic("index", 1), dynamic("guid", 2)], Some(json!({ "index": "0", "guid": "a" }))),
        Case {
            routes: Some(A),
            updated: Some(B),
            tags: vec![tag("a", "b")],
            expected: Some((hosts(&["b.internal"]), json!({ "a": "b" }))),
        },
        Case { routes: Some(A), updated: Some(A), tags: vec![source()], expected: None },
    ]
}

on_each_database!(containers_are_told_what_an_update_changes_and_nothing_else);
async fn containers_are_told_what_an_update_changes_and_nothing_else(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    for (number, case) in cases().into_iter().enumerate() {
        desire(&server, proto::DesiredLrp { instances: 1, routes: case.routes.map(routes), ..lrp("guid") }).await;
        run(&server, 0, "a").await;
        let update =
            proto::DesiredLrpUpdate { routes: case.updated.map(routes), metric_tags: case.tags, ..Default::default() };
        traced(&server, UPDATE, &updating(update)).await;
        let told = |(routes, tags): (Value, Value)| Heard {
            method: "PUT".to_owned(),
            path: "/v2/lrps/guid/instances/a".to_owned(),
            trace_id: Some(TRACE.to_owned()),
            body: json!({
                "instance_guid": "a", "process_guid": "guid", "index": 0, "domain": "domain",
                "internal_routes": routes, "metric_tags": tags,
            }),
        };
        if let Some(expected) = case.expected {
            assert_eq!(neighbours.rep.hears(1).await, [told(expected)], "case {number}");
        }
        // Whatever was told against expectation is in front of this.
        let last = proto::DesiredLrpUpdate { metric_tags: vec![tag("last", "word")], ..Default::default() };
        traced(&server, UPDATE, &updating(last)).await;
        assert_eq!(neighbours.rep.hears(1).await, [told((Value::Null, json!({ "last": "word" })))], "case {number}");
        server.sql("DELETE FROM actual_lrps").await;
        traced(&server, REMOVE, &removing()).await;
    }
}

on_each_database!(every_container_is_told_whatever_becomes_of_the_others);
async fn every_container_is_told_whatever_becomes_of_the_others(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    with_one_of_each(&server, &neighbours).await;
    run(&server, 3, "b").await;
    neighbours.rep.say(&[Say::Status(500), Say::HangUp]);
    let update = || proto::DesiredLrpUpdate { routes: Some(routes(B)), ..Default::default() };
    traced(&server, UPDATE, &updating(update())).await;
    let told = |heard: Vec<Heard>| {
        let mut told: Vec<_> = heard.into_iter().map(|heard| (heard.path, heard.body["index"].clone())).collect();
        told.sort_by_key(|(path, index)| (path.clone(), index.as_i64()));
        told
    };
    let path = |version: &str, name: &str| format!("/{version}/lrps/guid/instances/{name}");
    let all = |version: &str| {
        [("a", 0), ("a", 1), ("a", 4), ("suspect", 4)].map(|(name, index)| (path(version, name), json!(index)))
    };
    assert_eq!(told(neighbours.rep.hears(4).await), all("v2"), "but for what waits, crashed, is evacuated, or lost");

    // Reps that only know of routes.
    neighbours.rep.say_always(Say::Status(404));
    let other = proto::DesiredLrpUpdate { routes: Some(routes(A)), metric_tags: vec![tag("a", "b")], ..update() };
    traced(&server, UPDATE, &updating(other)).await;
    let heard = neighbours.rep.hears(8).await;
    let older: Vec<_> = heard.iter().filter(|heard| heard.path.starts_with("/v1/")).cloned().collect();
    assert!(older.iter().all(|heard| heard.body["metric_tags"].is_null()), "{older:?}");
    assert_eq!(told(older), all("v1"));

    // Each cell is asked for, though none is found.
    neighbours.locket.be_silent(true);
    let before = neighbours.locket.callers().len();
    traced(&server, UPDATE, &updating(update())).await;
    crate::harness::until(|| neighbours.locket.callers().len() == before + 5).await;
    neighbours.locket.be_silent(false);
    assert_eq!(neighbours.rep.heard(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_desired_is_desired_though_not_all_of_its_instances_can_be_made() {
    let (server, neighbours) = around(Kind::Sqlite).await;
    server
        .sql(
            "CREATE TRIGGER too_many BEFORE INSERT ON actual_lrps WHEN NEW.instance_index >= 500 \
             BEGIN SELECT RAISE(ABORT, 'no more'); END",
        )
        .await;
    desire(&server, proto::DesiredLrp { instances: 501, ..lrp("guid") }).await;
    let asked = |from: usize, to: usize| Value::from_iter(from..to);
    assert_eq!(neighbours.auctioneer.heard()[0].body[0]["indices"], asked(0, 500));
    traced(&server, UPDATE, &scaling(600)).await;
    assert_eq!(neighbours.auctioneer.heard()[0].body[0]["indices"], asked(0, 0));
    server.sql("DROP TRIGGER too_many").await;
    traced(&server, UPDATE, &scaling(500)).await;
    traced(&server, UPDATE, &scaling(601)).await;
    assert_eq!(neighbours.auctioneer.heard()[0].body[0]["indices"], asked(500, 601));
}
