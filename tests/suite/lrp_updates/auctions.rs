//! The resources that are requested from the auctioneer during an update.

use serde_json::{Value, json};

use super::*;
use crate::harness::database::on_each_database;

/// Waits for the next auctions; each with its indices and memory.
async fn auctions(neighbours: &Neighbours) -> Vec<(Value, Value)> {
    let requests = neighbours.auctioneer.wait_for_requests(1).await;
    let starts = requests
        .iter()
        .flat_map(|request| request.body.as_array().expect("a list of LRPs"));
    starts
        .map(|start| (start["indices"].clone(), start["MemoryMB"].clone()))
        .collect()
}

on_each_database!(auctions_have_the_resources_of_the_definition_that_an_instance_is_to_run);
async fn auctions_have_the_resources_of_the_definition_that_an_instance_is_to_run(kind: Kind) {
    let neighbours = Neighbours::start();
    let options = Options {
        clients: neighbours.clients(),
        ..Options::on(kind)
    };
    let server = running_with(options, 2).await;
    assert_eq!(auctions(&neighbours).await, [(json!([0, 1]), json!(64))]);
    update_to(&server, "version-2").await;
    assert_eq!(auctions(&neighbours).await, [(json!([0]), json!(128))]);
    start_new(&server, 0, "new-0").await;
    assert_eq!(auctions(&neighbours).await, [(json!([1]), json!(128))]);
    assert_eq!(cancel(&server).await, None);
    assert_eq!(auctions(&neighbours).await, [(json!([0]), json!(64))]);
}

on_each_database!(update_with_fewer_instances_auctions_none_that_it_deletes);
async fn update_with_fewer_instances_auctions_none_that_it_deletes(kind: Kind) {
    let neighbours = Neighbours::start();
    let options = Options {
        clients: neighbours.clients(),
        ..Options::on(kind)
    };
    let server = running_with(options, 0).await;
    let scaled = proto::DesiredLrpUpdate {
        instances: Some(3),
        ..Default::default()
    };
    assert_eq!(update(&server, scaled).await, None);
    assert_eq!(auctions(&neighbours).await, [(json!([0, 1, 2]), json!(64))]);
    let fewer = proto::DesiredLrpUpdate {
        instances: Some(1),
        ..to(definition("version-2"))
    };
    assert_eq!(update(&server, fewer).await, None);
    assert_eq!(auctions(&neighbours).await, [(json!([0]), json!(128))]);
    assert_eq!(rows(&server).await, ["0/0 UNCLAIMED  version-2"]);
}
