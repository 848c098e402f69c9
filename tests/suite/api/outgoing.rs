//! Requests and events that follow from calls about desired LRPs: auctions for new instances, stops
//! for surplus ones, and changed routes and tags for running ones.

use bbs::testing::database::Dialect;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use serde_json::{Value, json};

use super::actual_lrps::{call_error, claim, rows, start};
use super::{desire, lrp, routes, tag};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::event_stream::{EventStream, INSTANCES};
use crate::harness::neighbours::{Neighbours, ReceivedRequest, StubReply};
use crate::harness::server::Server;

const DESIRE: &str = "/v1/desired_lrp/desire.r2";
const UPDATE: &str = "/v1/desired_lrp/update";
const REMOVE: &str = "/v1/desired_lrp/remove";
const TRACE: &str = "7f461654-74d1-1ee5-8367-77d85df2cdab";

/// Makes a call with a trace id.
async fn traced(server: &Server, path: &str, request: &impl Message) {
    let reply = server
        .send(
            "POST",
            path,
            &[("X-Vcap-Request-Id", TRACE)],
            request.encode_to_vec(),
        )
        .await;
    assert_eq!(
        reply.message::<proto::DesiredLrpLifecycleResponse>().error,
        None,
        "{path}"
    );
}

fn updating(update: proto::DesiredLrpUpdate) -> proto::UpdateDesiredLrpRequest {
    proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(update),
    }
}

fn scaling(instances: i32) -> proto::UpdateDesiredLrpRequest {
    updating(proto::DesiredLrpUpdate {
        instances: Some(instances),
        ..Default::default()
    })
}

fn removing() -> proto::RemoveDesiredLrpRequest {
    proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    }
}

async fn run(server: &Server, index: i32, name: &str) {
    assert_eq!(
        call_error(server, super::actual_lrps::START, &start(index, name)).await,
        None
    );
}

/// All published events: name, and index of the instance or number of desired instances. Asserts
/// the trace id of each.
async fn published_events(server: &Server, listener: EventStream) -> Vec<String> {
    server.gate.end_streams();
    let events = listener.rest().await;
    let (names, traces): (Vec<_>, Vec<_>) = events.iter().map(named).unzip();
    for (name, trace) in names.iter().zip(traces) {
        assert_eq!(trace, TRACE.as_bytes(), "{name}");
    }
    names
}

fn named(event: &crate::harness::event_stream::ReceivedEvent) -> (String, Vec<u8>) {
    let instances = |lrp: Option<proto::DesiredLrp>| lrp.unwrap().instances;
    let index = |lrp: Option<proto::ActualLrp>| lrp.unwrap().actual_lrp_key.unwrap().index;
    let (about, trace) = match event.name.as_str() {
        "desired_lrp_created" => {
            let event: proto::DesiredLrpCreatedEvent = event.message();
            (instances(event.desired_lrp).to_string(), event.trace_id)
        }
        "desired_lrp_changed" => {
            let event: proto::DesiredLrpChangedEvent = event.message();
            (
                format!("{} to {}", instances(event.before), instances(event.after)),
                event.trace_id,
            )
        }
        "desired_lrp_removed" => {
            let event: proto::DesiredLrpRemovedEvent = event.message();
            (instances(event.desired_lrp).to_string(), event.trace_id)
        }
        "actual_lrp_instance_created" => {
            let event: proto::ActualLrpInstanceCreatedEvent = event.message();
            (index(event.actual_lrp).to_string(), event.trace_id)
        }
        "actual_lrp_instance_removed" => {
            let event: proto::ActualLrpInstanceRemovedEvent = event.message();
            (index(event.actual_lrp).to_string(), event.trace_id)
        }
        other => panic!("unexpected event {other}"),
    };
    (format!("{} {about}", event.name), trace)
}

on_each_database!(new_instances_are_requested_from_the_auctioneer);
async fn new_instances_are_requested_from_the_auctioneer(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    let listener = EventStream::open(server.url(INSTANCES), "").await;
    let volume = |driver: &str| proto::VolumeMount {
        driver: driver.into(),
        container_dir: b"/data".to_vec(),
        mode: b"r".to_vec(),
        shared: Some(proto::SharedDevice {
            volume_id: b"id".to_vec(),
            ..Default::default()
        }),
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
        let method = "POST".to_owned();
        let path = "/v1/lrps".to_owned();
        [ReceivedRequest {
            method,
            path,
            trace_id: Some(TRACE.to_owned()),
            body,
        }]
    };
    assert_eq!(neighbours.auctioneer.take_requests(), asked(&[0, 1]));
    // The row of the next index exists already.
    server
        .sql(
            "INSERT INTO actual_lrps (process_guid, instance_index, domain, state, net_info, modification_tag_epoch) \
             SELECT process_guid, 2, domain, state, net_info, 'epoch' FROM actual_lrps WHERE instance_index = 0",
        )
        .await;
    traced(&server, UPDATE, &scaling(4)).await;
    assert_eq!(neighbours.auctioneer.take_requests(), asked(&[3]));
    traced(&server, UPDATE, &scaling(4)).await;
    assert_eq!(
        neighbours.auctioneer.take_requests(),
        [],
        "no instance is new"
    );
    let expected = [
        "desired_lrp_created 2",
        "actual_lrp_instance_created 0",
        "actual_lrp_instance_created 1",
        "desired_lrp_changed 2 to 4",
        "actual_lrp_instance_created 3",
        "desired_lrp_changed 4 to 4",
    ];
    assert_eq!(published_events(&server, listener).await, expected);
}

on_each_database!(no_auction_is_requested_for_zero_instances);
async fn no_auction_is_requested_for_zero_instances(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 0,
            ..lrp("guid")
        },
    )
    .await;
    assert_eq!(neighbours.auctioneer.take_requests(), []);
}

on_each_database!(failed_auction_does_not_fail_the_call_and_is_retried_by_convergence);
async fn failed_auction_does_not_fail_the_call_and_is_retried_by_convergence(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    let faults = [
        (StubReply::Status(500), 3),
        (StubReply::HangUp, 3),
        (StubReply::Truncated, 3),
        (StubReply::Status(200), 1),
    ];
    for (number, (fault, attempts)) in faults.into_iter().enumerate() {
        neighbours.auctioneer.reply_always(fault);
        desire(
            &server,
            proto::DesiredLrp {
                instances: 1,
                ..lrp(&format!("desired-{number}"))
            },
        )
        .await;
        assert_eq!(neighbours.auctions().len(), attempts, "{fault:?}");
    }
    neighbours.auctioneer.reply_always(StubReply::Status(202));
    desire(&server, lrp("guid")).await;
    neighbours.auctioneer.take_requests();
    neighbours.auctioneer.reply_next(&[StubReply::HangUp; 3]);
    traced(&server, UPDATE, &scaling(3)).await;
    assert_eq!(
        neighbours.auctions(),
        vec![("guid".to_owned(), json!([2])); 3]
    );
    server
        .clock
        .set(crate::harness::server::NOW_NS + 31_000_000_000);
    let counts = bbs::testing::domain::convergence::run(&server.service)
        .await
        .unwrap()
        .lrps;
    assert_eq!((counts.started, counts.failed), (7, 0));
    let mut asked = neighbours.auctions();
    asked.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(asked.last(), Some(&("guid".to_owned(), json!([0, 1, 2]))));
    assert_eq!(asked.len(), 5, "auctions for all unclaimed instances");
}

/// Instances 0 and 4 are running, 1 is claimed, 2 crashed, 3 unclaimed; 4 also has an evacuating
/// and a suspect container.
async fn with_one_of_each(server: &Server, neighbours: &Neighbours) {
    desire(
        server,
        proto::DesiredLrp {
            instances: 5,
            ..lrp("guid")
        },
    )
    .await;
    run(server, 0, "a").await;
    assert_eq!(
        call_error(server, super::actual_lrps::CLAIM, &claim(1, "a")).await,
        None
    );
    run(server, 4, "a").await;
    server
        .sql("UPDATE actual_lrps SET state = 'CRASHED' WHERE instance_index = 2")
        .await;
    for (name, presence) in [("evacuated", 1), ("suspect", 2)] {
        let copy = format!(
            "INSERT INTO actual_lrps (process_guid, instance_index, domain, state, net_info, modification_tag_epoch, \
             modification_tag_index, instance_guid, cell_id, presence, desired_lrp_definition_id) \
             SELECT process_guid, instance_index, domain, state, net_info, '{name}', 0, '{name}', cell_id, {presence}, \
             desired_lrp_definition_id FROM actual_lrps WHERE instance_index = 4 AND presence = 0"
        );
        server.sql(&copy).await;
    }
    neighbours.rep.take_requests();
}

/// Waits for `count` requests to the rep to stop a container. Returns the containers; asserts the
/// trace id of each.
async fn stopped(neighbours: &Neighbours, count: usize) -> Vec<String> {
    let mut stopped = Vec::new();
    for request in neighbours.rep.wait_for_requests(count).await {
        assert_eq!(
            (request.method.as_str(), request.trace_id.as_deref()),
            ("POST", Some(TRACE))
        );
        let container = request
            .path
            .strip_prefix("/v1/lrps/guid/instances/")
            .expect("a path of the instance");
        stopped.push(container.strip_suffix("/stop").expect("a stop").to_owned());
    }
    stopped.sort();
    stopped
}

on_each_database!(scaling_down_removes_waiting_instances_and_stops_running_ones);
async fn scaling_down_removes_waiting_instances_and_stops_running_ones(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    with_one_of_each(&server, &neighbours).await;
    let listener = EventStream::open(server.url(INSTANCES), "").await;
    traced(&server, UPDATE, &scaling(1)).await;
    assert_eq!(stopped(&neighbours, 3).await, ["a", "a", "suspect"]);
    let left = [
        "0/0/RUNNING/a/1",
        "1/0/CLAIMED/a/1",
        "4/0/RUNNING/a/1",
        "4/1/RUNNING/evacuated/0",
    ];
    assert_eq!(
        rows(&server).await,
        [&left[..], &["4/2/RUNNING/suspect/0"]].concat()
    );
    let expected = [
        "desired_lrp_changed 5 to 1",
        "actual_lrp_instance_removed 2",
        "actual_lrp_instance_removed 3",
    ];
    assert_eq!(published_events(&server, listener).await, expected);
}

on_each_database!(removal_stops_containers_on_known_cells_and_does_not_wait_for_failing_ones);
async fn removal_stops_containers_on_known_cells_and_does_not_wait_for_failing_ones(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    with_one_of_each(&server, &neighbours).await;
    let listener = EventStream::open(server.url(INSTANCES), "").await;
    server
        .sql("UPDATE actual_lrps SET cell_id = 'cell-b' WHERE instance_index = 0")
        .await;
    neighbours
        .rep
        .reply_next(&[StubReply::Status(500), StubReply::HangUp]);
    traced(&server, REMOVE, &removing()).await;
    assert_eq!(
        stopped(&neighbours, 3).await,
        ["a", "a", "suspect"],
        "the cell of the other is unknown"
    );
    let left = [
        "0/0/RUNNING/a/1",
        "1/0/CLAIMED/a/1",
        "4/0/RUNNING/a/1",
        "4/1/RUNNING/evacuated/0",
    ];
    assert_eq!(
        rows(&server).await,
        [&left[..], &["4/2/RUNNING/suspect/0"]].concat()
    );
    let expected = [
        "desired_lrp_removed 5",
        "actual_lrp_instance_removed 2",
        "actual_lrp_instance_removed 3",
    ];
    assert_eq!(published_events(&server, listener).await, expected);
    let reply = server.call(REMOVE, &removing()).await;
    assert_eq!(reply.error().0, proto::error::Type::ResourceNotFound);
}

on_each_database!(removal_without_locket_succeeds_and_stops_nothing);
async fn removal_without_locket_succeeds_and_stops_nothing(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    with_one_of_each(&server, &neighbours).await;
    neighbours.locket.set_unavailable(true);
    let before = neighbours.locket.callers().len();
    traced(&server, REMOVE, &removing()).await;
    crate::harness::until(|| neighbours.locket.callers().len() > before).await;
    assert_eq!(neighbours.rep.take_requests(), []);
}

/// While the cell answers the first request, the others are queued. A queued request holds neither
/// a look-up of the cell nor a connection of its own.
#[tokio::test(flavor = "multi_thread")]
async fn cell_is_looked_up_once_for_all_containers_that_wait_for_it() {
    const INSTANCES: i32 = 20;
    let (server, neighbours) = Server::with_neighbours(Kind::Sqlite).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: INSTANCES,
            ..lrp("guid")
        },
    )
    .await;
    for index in 0..INSTANCES {
        run(&server, index, "a").await;
    }
    neighbours.rep.take_requests();
    neighbours.rep.reply_next(&[StubReply::OnceReleased]);
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
    let (server, neighbours) = Server::with_neighbours(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 1,
            ..lrp("guid")
        },
    )
    .await;
    run(&server, 0, "a").await;
    neighbours.rep.take_requests();
    let before = server.database.statistics().queries;
    traced(&server, REMOVE, &removing()).await;
    // `BEGIN`, the fence, `DELETE … RETURNING`, the instances, the definition that they name, the
    // definitions, `COMMIT`. MySQL has no `RETURNING`.
    let expected = if kind.dialect() == Dialect::Mysql {
        8
    } else {
        7
    };
    assert_eq!(server.database.statistics().queries - before, expected);
    assert_eq!(stopped(&neighbours, 1).await, ["a"]);
}

/// An update of internal routes and tags, and the routes and tags sent to the container.
struct UpdateCase {
    routes: Option<&'static [(&'static str, &'static str)]>,
    updated: Option<&'static [(&'static str, &'static str)]>,
    tags: Vec<proto::MetricTagEntry>,
    expected: Option<(Value, Value)>,
}

fn dynamic(key: &str, value: i32) -> proto::MetricTagEntry {
    let value = proto::MetricTagValue {
        dynamic: value,
        ..Default::default()
    };
    proto::MetricTagEntry {
        key: key.into(),
        value: Some(value),
    }
}

const ROUTER: &str = "internal-router";
const OTHERS: &[(&str, &str)] = &[("cf-router", "[1]")];
const NO_ROUTES: &[(&str, &str)] = &[(ROUTER, "[]")];
const A: &[(&str, &str)] = &[(ROUTER, r#"[{"hostname":"a.internal"}]"#)];
const A_SPACED: &[(&str, &str)] = &[(ROUTER, r#"[ {"hostname": "a.internal"} ]"#)];
const B: &[(&str, &str)] = &[
    (ROUTER, r#"[{"hostname":"b.internal"}]"#),
    ("cf-router", "[1]"),
];
const NO_HOSTS: &[(&str, &str)] = &[(ROUTER, r#"{"hostname":"a.internal"}"#)];

fn cases() -> Vec<UpdateCase> {
    let hosts =
        |names: &[&str]| Value::from_iter(names.iter().map(|name| json!({ "hostname": name })));
    let of_routes = |routes, updated, sent: Option<&[&str]>| {
        let expected = sent.map(|names| (hosts(names), Value::Null));
        UpdateCase {
            routes,
            updated,
            tags: Vec::new(),
            expected,
        }
    };
    let of_tags = |tags, sent: Option<Value>| {
        let expected = sent.map(|tags| (Value::Null, tags));
        UpdateCase {
            routes: Some(A),
            updated: None,
            tags,
            expected,
        }
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
        // Diego sends a request without content; this host sends none.
        of_routes(Some(A), Some(OTHERS), None),
        of_routes(Some(OTHERS), Some(OTHERS), None),
        of_routes(None, Some(&[]), None),
        of_routes(Some(A), Some(NO_HOSTS), None),
        of_tags(vec![source()], None),
        of_tags(
            vec![tag("source_id", "other")],
            Some(json!({ "source_id": "other" })),
        ),
        of_tags(
            vec![source(), tag("a", "b")],
            Some(json!({ "source_id": "source", "a": "b" })),
        ),
        of_tags(
            vec![dynamic("index", 1), dynamic("guid", 2)],
            Some(json!({ "index": "0", "guid": "a" })),
        ),
        UpdateCase {
            routes: Some(A),
            updated: Some(B),
            tags: vec![tag("a", "b")],
            expected: Some((hosts(&["b.internal"]), json!({ "a": "b" }))),
        },
        UpdateCase {
            routes: Some(A),
            updated: Some(A),
            tags: vec![source()],
            expected: None,
        },
    ]
}

on_each_database!(update_sends_containers_only_changed_routes_and_tags);
async fn update_sends_containers_only_changed_routes_and_tags(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    for (number, case) in cases().into_iter().enumerate() {
        desire(
            &server,
            proto::DesiredLrp {
                instances: 1,
                routes: case.routes.map(routes),
                ..lrp("guid")
            },
        )
        .await;
        run(&server, 0, "a").await;
        let update = proto::DesiredLrpUpdate {
            routes: case.updated.map(routes),
            metric_tags: case.tags,
            ..Default::default()
        };
        traced(&server, UPDATE, &updating(update)).await;
        let expected_request = |(routes, tags): (Value, Value)| ReceivedRequest {
            method: "PUT".to_owned(),
            path: "/v2/lrps/guid/instances/a".to_owned(),
            trace_id: Some(TRACE.to_owned()),
            body: json!({
                "instance_guid": "a", "process_guid": "guid", "index": 0, "domain": "domain",
                "internal_routes": routes, "metric_tags": tags,
            }),
        };
        if let Some(expected) = case.expected {
            assert_eq!(
                neighbours.rep.wait_for_requests(1).await,
                [expected_request(expected)],
                "case {number}"
            );
        }
        // Marks the end: an unexpected request would come before it.
        let last = proto::DesiredLrpUpdate {
            metric_tags: vec![tag("last", "word")],
            ..Default::default()
        };
        traced(&server, UPDATE, &updating(last)).await;
        let last = expected_request((Value::Null, json!({ "last": "word" })));
        assert_eq!(
            neighbours.rep.wait_for_requests(1).await,
            [last],
            "case {number}"
        );
        server.sql("DELETE FROM actual_lrps").await;
        traced(&server, REMOVE, &removing()).await;
    }
}

on_each_database!(failed_container_update_does_not_affect_the_others);
async fn failed_container_update_does_not_affect_the_others(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    with_one_of_each(&server, &neighbours).await;
    run(&server, 3, "b").await;
    neighbours
        .rep
        .reply_next(&[StubReply::Status(500), StubReply::HangUp]);
    let update = || proto::DesiredLrpUpdate {
        routes: Some(routes(B)),
        ..Default::default()
    };
    traced(&server, UPDATE, &updating(update())).await;
    let paths = |requests: Vec<ReceivedRequest>| {
        let mut paths: Vec<_> = requests
            .into_iter()
            .map(|sent| (sent.path, sent.body["index"].clone()))
            .collect();
        paths.sort_by_key(|(path, index)| (path.clone(), index.as_i64()));
        paths
    };
    let path = |version: &str, name: &str| format!("/{version}/lrps/guid/instances/{name}");
    let all = |version: &str| {
        [("a", 0), ("a", 1), ("a", 4), ("suspect", 4)]
            .map(|(name, index)| (path(version, name), json!(index)))
    };
    let found = paths(neighbours.rep.wait_for_requests(4).await);
    assert_eq!(
        found,
        all("v2"),
        "all but unclaimed, crashed and evacuating instances"
    );

    // Older reps that accept only routes.
    neighbours.rep.reply_always(StubReply::Status(404));
    let other = proto::DesiredLrpUpdate {
        routes: Some(routes(A)),
        metric_tags: vec![tag("a", "b")],
        ..update()
    };
    traced(&server, UPDATE, &updating(other)).await;
    let requests = neighbours.rep.wait_for_requests(8).await;
    let older: Vec<_> = requests
        .iter()
        .filter(|request| request.path.starts_with("/v1/"))
        .cloned()
        .collect();
    assert!(
        older
            .iter()
            .all(|request| request.body["metric_tags"].is_null()),
        "{older:?}"
    );
    assert_eq!(paths(older), all("v1"));

    // Every cell is looked up, though Locket answers none.
    neighbours.locket.set_unavailable(true);
    let before = neighbours.locket.callers().len();
    traced(&server, UPDATE, &updating(update())).await;
    crate::harness::until(|| neighbours.locket.callers().len() == before + 5).await;
    neighbours.locket.set_unavailable(false);
    assert_eq!(neighbours.rep.take_requests(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn desire_and_update_succeed_when_later_instances_cannot_be_created() {
    let (server, neighbours) = Server::with_neighbours(Kind::Sqlite).await;
    server
        .sql(
            "CREATE TRIGGER too_many BEFORE INSERT ON actual_lrps WHEN NEW.instance_index IN (500, 1001) \
             BEGIN SELECT RAISE(ABORT, 'no more'); END",
        )
        .await;
    desire(
        &server,
        proto::DesiredLrp {
            instances: 501,
            ..lrp("guid")
        },
    )
    .await;
    let asked = |from: usize, to: usize| Value::from_iter(from..to);
    assert_eq!(
        neighbours.auctioneer.take_requests()[0].body[0]["indices"],
        asked(0, 500)
    );
    traced(&server, UPDATE, &scaling(1002)).await;
    assert_eq!(
        neighbours.auctioneer.take_requests()[0].body[0]["indices"],
        asked(501, 1001)
    );
    server.sql("DROP TRIGGER too_many").await;
    traced(&server, UPDATE, &scaling(500)).await;
    traced(&server, UPDATE, &scaling(601)).await;
    assert_eq!(
        neighbours.auctioneer.take_requests()[0].body[0]["indices"],
        asked(500, 601)
    );
}
