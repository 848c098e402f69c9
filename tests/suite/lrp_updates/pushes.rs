//! Internal routes and metric tags that a client changes during an update, as cells get them.

use bbs::testing::domain::convergence;
use serde_json::{Value, json};

use super::*;
use crate::api::routes;
use crate::harness::database::on_each_database;

/// Waits for the next requests to cells; each with its body.
async fn pushed(neighbours: &Neighbours) -> Vec<(String, Value)> {
    let requests = neighbours.rep.wait_for_requests(1).await.into_iter();
    requests
        .map(|request| (format!("{} {}", request.method, request.path), request.body))
        .collect()
}

on_each_database!(new_internal_routes_are_sent_to_a_container_whose_network_is_unreadable);
async fn new_internal_routes_are_sent_to_a_container_whose_network_is_unreadable(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = replacing(kind, &neighbours).await;
    server
        .sql("UPDATE actual_lrps SET net_info = '02damaged' WHERE presence = 1")
        .await;
    let changed = proto::DesiredLrpUpdate {
        routes: Some(routes(&[(
            "internal-router",
            r#"[{"hostname":"b.internal"}]"#,
        )])),
        ..Default::default()
    };
    assert_eq!(update(&server, changed).await, None);
    let pushed = pushed(&neighbours).await.into_iter();
    let paths: Vec<_> = pushed.map(|(path, _)| path).collect();
    assert_eq!(paths, ["PUT /v2/lrps/guid/instances/old-0"]);
}

on_each_database!(new_internal_routes_are_sent_to_a_container_that_is_being_replaced);
/// It receives traffic until its successor does. The tags are those of the new definition.
async fn new_internal_routes_are_sent_to_a_container_that_is_being_replaced(kind: Kind) {
    let neighbours = Neighbours::start();
    let server = replacing(kind, &neighbours).await;
    let changed = proto::DesiredLrpUpdate {
        routes: Some(routes(&[(
            "internal-router",
            r#"[{"hostname":"b.internal"}]"#,
        )])),
        metric_tags: vec![tag("source_id", "other")],
        ..Default::default()
    };
    assert_eq!(update(&server, changed).await, None);
    let body = json!({
        "instance_guid": "old-0", "process_guid": "guid", "index": 0, "domain": "domain",
        "internal_routes": [{ "hostname": "b.internal" }], "metric_tags": null,
    });
    let expected = [("PUT /v2/lrps/guid/instances/old-0".to_owned(), body)];
    assert_eq!(pushed(&neighbours).await, expected);
    // Its cell has not reported the new ones.
    convergence::run(&server.service).await.unwrap();
    assert_eq!(pushed(&neighbours).await, expected);
    let reported = proto::StartActualLrpRequest {
        actual_lrp_internal_routes: vec![proto::ActualLrpInternalRoute {
            hostname: b"b.internal".to_vec(),
        }],
        ..start(0, "old-0")
    };
    assert_eq!(call_error(&server, START, &reported).await, None);
    convergence::run(&server.service).await.unwrap();
    assert_eq!(neighbours.rep.take_requests(), []);
}
