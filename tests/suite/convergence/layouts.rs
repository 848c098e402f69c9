//! Convergence of LRPs on every layout: what it finds, what it does, what it tells, and that it comes to rest.

use bbs::domain::convergence::{LrpCounts, run_among};
use bbs::events::Subscription;
use bbs_proto::models as proto;

use crate::api::actual_lrps::{self as lrps, rows, subscribe, told};
use crate::api::{desire, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{NOW_NS, Server};

const SECOND_NS: i64 = 1_000_000_000;

/// One run with these cells, and what was told meanwhile.
async fn converge(server: &Server, cells: &[&str], heard: &mut Subscription) -> (LrpCounts, Vec<String>) {
    let cells = cells.iter().map(|id| proto::CellPresence { cell_id: (*id).into(), ..Default::default() });
    let counts = run_among(&server.service, Some(cells.collect())).await.unwrap().lrps;
    (counts, told(server, heard).await)
}

/// A run that finds nothing to do. Containers may be told of routes and tags, which is for their cells to remember.
#[track_caller]
fn assert_rest((counts, told): &(LrpCounts, Vec<String>)) {
    assert_eq!((counts.missing, counts.extra, counts.started, counts.failed), (0, 0, 0, 0));
    assert_eq!(*told, Vec::<String>::new());
}

async fn fresh(server: &Server, domain: &str, ttl_s: u32) {
    let request = proto::UpsertDomainRequest { domain: domain.into(), ttl: ttl_s };
    let reply = server.call("/v1/domains/upsert", &request).await;
    assert_eq!(reply.message::<proto::UpsertDomainResponse>().error, None);
}

async fn start(server: &Server, index: i32, name: &str) {
    assert_eq!(lrps::said(server, lrps::START, &lrps::start(index, name)).await, None);
}

async fn removed(server: &Server) {
    let request = proto::RemoveDesiredLrpRequest { process_guid: b"guid".to_vec() };
    let reply = server.call("/v1/desired_lrp/remove", &request).await;
    assert_eq!(reply.message::<proto::DesiredLrpLifecycleResponse>().error, None);
}

async fn scaled(server: &Server, instances: i32) {
    let update = proto::DesiredLrpUpdate { instances: Some(instances), ..Default::default() };
    let request = proto::UpdateDesiredLrpRequest { process_guid: b"guid".to_vec(), update: Some(update) };
    let reply = server.call("/v1/desired_lrp/update", &request).await;
    assert_eq!(reply.message::<proto::DesiredLrpLifecycleResponse>().error, None);
}

on_each_layout!(what_waits_for_too_long_is_offered_again_and_what_runs_is_left_alone);
async fn what_waits_for_too_long_is_offered_again_and_what_runs_is_left_alone(kind: Kind) {
    let server = lrps::with_two(kind).await;
    let mut heard = subscribe(&server);
    start(&server, 0, "a").await;
    told(&server, &mut heard).await;
    let cell = cell("a");
    let cells = [cell.as_str()];
    assert_rest(&converge(&server, &cells, &mut heard).await);

    server.clock.set(NOW_NS + 31 * SECOND_NS);
    let (counts, heard_of) = converge(&server, &cells, &mut heard).await;
    assert_eq!((counts.desired, counts.running, counts.unclaimed, counts.started), (2, 1, 1, 1));
    assert_eq!(heard_of, Vec::<String>::new(), "it waits as before");
}

on_each_layout!(a_container_whose_cell_is_gone_is_replaced_and_managed_again_with_its_cell);
async fn a_container_whose_cell_is_gone_is_replaced_and_managed_again_with_its_cell(kind: Kind) {
    let server = lrps::with_two(kind).await;
    start(&server, 0, "a").await;
    start(&server, 1, "b").await;
    let (a, b) = (cell("a"), cell("b"));
    let mut heard = subscribe(&server);
    assert_rest(&converge(&server, &[&a, &b], &mut heard).await);

    let (counts, heard_of) = converge(&server, &[&b], &mut heard).await;
    assert_eq!((counts.suspect_cells, counts.started, counts.failed), (1, 1, 0));
    assert_eq!(heard_of, ["0:RUNNING:a -> 0:UNCLAIMED:+2:RUNNING:a"]);
    assert_eq!(rows(&server).await[..2], ["0/0/UNCLAIMED//0", "0/2/RUNNING/a/1"]);
    let (_, heard_of) = converge(&server, &[&b], &mut heard).await;
    assert_eq!(heard_of, Vec::<String>::new(), "what replaces it does not wait for too long yet");

    let (counts, heard_of) = converge(&server, &[&a, &b], &mut heard).await;
    assert_eq!((counts.suspect_running, counts.started), (1, 0));
    assert_eq!(heard_of, ["0:UNCLAIMED:+2:RUNNING:a -> 0:RUNNING:a"]);
    assert_rest(&converge(&server, &[&a, &b], &mut heard).await);
}

on_each_layout!(a_replacement_whose_cell_is_gone_too_waits_beside_the_suspect);
async fn a_replacement_whose_cell_is_gone_too_waits_beside_the_suspect(kind: Kind) {
    let server = lrps::with_two(kind).await;
    scaled(&server, 1).await;
    start(&server, 0, "a").await;
    let mut heard = subscribe(&server);
    converge(&server, &[&cell("c")], &mut heard).await;
    let claim = lrps::said(&server, lrps::CLAIM, &lrps::claim(0, "b")).await;
    assert_eq!(claim, None);
    told(&server, &mut heard).await;
    let (counts, heard_of) = converge(&server, &[&cell("c")], &mut heard).await;
    assert_eq!((counts.suspect_running, counts.suspect_cells, counts.started), (1, 2, 0));
    assert_eq!(heard_of, ["0:CLAIMED:b+2:RUNNING:a -> 0:UNCLAIMED:+2:RUNNING:a"]);
}

on_each_layout!(what_nobody_desires_goes_where_its_domain_is_known);
async fn what_nobody_desires_goes_where_its_domain_is_known(kind: Kind) {
    let server = lrps::with_two(kind).await;
    start(&server, 0, "a").await;
    removed(&server).await;
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1"], "its cell has to stop it");
    let mut heard = subscribe(&server);
    assert_rest(&converge(&server, &[], &mut heard).await);

    fresh(&server, "domain", 100).await;
    let (counts, heard_of) = converge(&server, &[], &mut heard).await;
    assert_eq!((counts.extra, counts.failed), (1, 0));
    assert_eq!(heard_of, ["0:RUNNING:a -> "]);
    assert_eq!(rows(&server).await, Vec::<String>::new());
    assert_rest(&converge(&server, &[], &mut heard).await);
}

on_each_layout!(a_domain_that_expired_is_forgotten);
async fn a_domain_that_expired_is_forgotten(kind: Kind) {
    let server = lrps::with_two(kind).await;
    fresh(&server, "domain", 10).await;
    fresh(&server, "for ever", 0).await;
    let mut heard = subscribe(&server);
    server.clock.set(NOW_NS + 11 * SECOND_NS - 1);
    converge(&server, &[], &mut heard).await;
    assert_eq!(server.texts("SELECT domain FROM domains ORDER BY domain").await, ["domain", "for ever"]);
    server.clock.set(NOW_NS + 11 * SECOND_NS);
    converge(&server, &[], &mut heard).await;
    assert_eq!(server.texts("SELECT domain FROM domains ORDER BY domain").await, ["for ever"]);
}

on_each_layout!(what_is_missing_is_created);
async fn what_is_missing_is_created(kind: Kind) {
    let server = lrps::with_two(kind).await;
    assert_eq!(lrps::said(&server, lrps::REMOVE, &lrps::remove(1, None)).await, None);
    let mut heard = subscribe(&server);
    let (counts, heard_of) = converge(&server, &[], &mut heard).await;
    assert_eq!((counts.missing, counts.started), (1, 1));
    assert_eq!(heard_of, [" -> 0:UNCLAIMED:"]);
    assert_rest(&converge(&server, &[], &mut heard).await);
}

on_each_layout!(instances_of_a_damaged_record_are_left_alone);
async fn instances_of_a_damaged_record_are_left_alone(kind: Kind) {
    let server = lrps::with_two(kind).await;
    fresh(&server, "domain", 0).await;
    let mut other = lrp("other");
    other.instances = 1;
    desire(&server, other).await;
    start(&server, 0, "a").await;
    start(&server, 1, "b").await;
    let mut heard = subscribe(&server);
    server.sql("UPDATE actual_lrps SET net_info = '02damaged' WHERE instance_index = 1").await;
    assert_rest(&converge(&server, &[&cell("a"), &cell("b")], &mut heard).await);
    let (counts, heard_of) = converge(&server, &[&cell("a")], &mut heard).await;
    assert_eq!((counts.failed, counts.started), (1, 0), "it cannot be moved");
    assert_eq!(heard_of, Vec::<String>::new());
}

on_each_database!(instances_of_a_desired_lrp_that_cannot_be_read_go_on);
async fn instances_of_a_desired_lrp_that_cannot_be_read_go_on(kind: Kind) {
    let server = lrps::with_two(kind).await;
    fresh(&server, "domain", 0).await;
    start(&server, 0, "a").await;
    let mut heard = subscribe(&server);
    for column in ["routes", "metric_tags", "run_info"] {
        server.sql(&format!("UPDATE desired_lrps SET {column} = '02damaged'")).await;
        assert_rest(&converge(&server, &[&cell("a")], &mut heard).await);
    }
    assert_eq!(rows(&server).await, ["0/0/RUNNING/a/1", "1/0/UNCLAIMED//0"]);
}

on_each_layout!(an_update_and_a_removal_tell_of_every_instance);
async fn an_update_and_a_removal_tell_of_every_instance(kind: Kind) {
    let server = lrps::with_two(kind).await;
    let mut heard = subscribe(&server);
    scaled(&server, 4).await;
    assert_eq!(told(&server, &mut heard).await, [" -> 0:UNCLAIMED:", " -> 0:UNCLAIMED:"]);
    start(&server, 3, "d").await;
    told(&server, &mut heard).await;
    scaled(&server, 1).await;
    assert_eq!(told(&server, &mut heard).await, ["0:UNCLAIMED: -> ", "0:UNCLAIMED: -> "]);
    assert_eq!(rows(&server).await, ["0/0/UNCLAIMED//0", "3/0/RUNNING/d/1"]);
    removed(&server).await;
    assert_eq!(told(&server, &mut heard).await, ["0:UNCLAIMED: -> "]);
    let mut many = lrp("guid");
    many.instances = 1203;
    desire(&server, many).await;
    assert_eq!(told(&server, &mut heard).await.len(), 1202, "one is there already");
}

fn cell(name: &str) -> String {
    String::from_utf8(lrps::instance(name).unwrap().cell_id).unwrap()
}
