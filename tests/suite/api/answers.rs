//! Reads of the fixture's database, compared with the answers that Diego's own client received. Elements and entries
//! have no defined order, so both sides are sorted.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::Kind;
use crate::harness::fixture;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::server::{Options, Server};

pub(crate) fn in_order(mut lrp: proto::DesiredLrp) -> proto::DesiredLrp {
    lrp.ports.sort_unstable();
    // Clients of Diego skip it.
    lrp.definition_id.clear();
    lrp.metric_tags.sort_by(|a, b| a.key.cmp(&b.key));
    if let Some(routes) = &mut lrp.routes {
        routes.routes.sort_by(|a, b| a.key.cmp(&b.key));
    }
    if let Some(network) = &mut lrp.network {
        network.properties.sort_by(|a, b| a.key.cmp(&b.key));
    }
    lrp
}

pub(crate) fn task_in_order(mut task: proto::Task) -> proto::Task {
    if let Some(definition) = &mut task.task_definition {
        definition.metric_tags.sort_by(|a, b| a.key.cmp(&b.key));
        if let Some(network) = &mut definition.network {
            network.properties.sort_by(|a, b| a.key.cmp(&b.key));
        }
    }
    task
}

/// Sends the recorded request of Diego's client. Returns the host's answer and the recorded one.
pub(crate) async fn both<M: Message + Default>(server: &Server, call: &str, path: &str) -> (M, M) {
    let (request, expected) = fixture::expected(call);
    let answer = server.post(path, request).await.message();
    (answer, M::decode(&expected[..]).unwrap())
}

/// Compares element by element, so that a failure shows only the elements that differ.
#[track_caller]
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(found: Vec<T>, expected: Vec<T>, key: impl Fn(&T) -> Vec<u8>) {
    let sorted = |mut list: Vec<T>| {
        list.sort_by_key(&key);
        list
    };
    let (found, expected) = (sorted(found), sorted(expected));
    assert!(!expected.is_empty());
    assert_eq!(found.iter().map(&key).collect::<Vec<_>>(), expected.iter().map(&key).collect::<Vec<_>>());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}

async fn desired_lists_agree(server: &Server, call: &str, path: &str) {
    let (found, expected): (proto::DesiredLrPsResponse, proto::DesiredLrPsResponse) = both(server, call, path).await;
    assert_eq!(found.error, expected.error);
    let ordered = |lrps: Vec<proto::DesiredLrp>| lrps.into_iter().map(in_order).collect();
    same(ordered(found.desired_lrps), ordered(expected.desired_lrps), |lrp| lrp.process_guid.clone());
}

on_layouts_of_sqlite!(desired_lrps_are_listed_as_diego_lists_them);
async fn desired_lrps_are_listed_as_diego_lists_them(kind: Kind) {
    let server = Server::with_fixture(kind).await;
    desired_lists_agree(&server, "desired_lrps_list.r3", "/v1/desired_lrps/list.r3").await;
    desired_lists_agree(&server, "desired_lrps_list.r3.domain", "/v1/desired_lrps/list.r3").await;
    desired_lists_agree(&server, "desired_lrp_routing_infos_list", "/v1/desired_lrp_routing_infos/list").await;
    assert_eq!(server.store.left_out(), 0);
}

on_layouts_of_sqlite!(list_read_in_many_pages_equals_the_list_read_in_one);
async fn list_read_in_many_pages_equals_the_list_read_in_one(kind: Kind) {
    let server = Server::start(Options { kind, with_fixture: true, page_units: Some(7), ..Options::default() }).await;
    desired_lists_agree(&server, "desired_lrps_list.r3", "/v1/desired_lrps/list.r3").await;
    desired_lists_agree(&server, "desired_lrps_list.r3.domain", "/v1/desired_lrps/list.r3").await;
}

on_layouts_of_sqlite!(desired_lrps_read_by_guid_equal_the_listed_ones);
async fn desired_lrps_read_by_guid_equal_the_listed_ones(kind: Kind) {
    let server = Server::with_fixture(kind).await;
    let (_, expected) = fixture::expected("desired_lrps_list.r3");
    let expected = proto::DesiredLrPsResponse::decode(&expected[..]).unwrap().desired_lrps;
    for lrp in expected.into_iter().step_by(10) {
        let guid = String::from_utf8(lrp.process_guid.clone()).unwrap();
        assert_eq!(in_order(super::get(&server, &guid).await), in_order(lrp));
    }
}

on_layouts_of_sqlite!(scheduling_infos_are_listed_and_read_by_guid_as_diego_does);
async fn scheduling_infos_are_listed_and_read_by_guid_as_diego_does(kind: Kind) {
    type Response = proto::DesiredLrpSchedulingInfosResponse;
    let server = Server::with_fixture(kind).await;
    let path = "/v1/desired_lrp_scheduling_infos/list.r1";
    let (found, expected): (Response, Response) = both(&server, "desired_lrp_scheduling_infos_list", path).await;
    let ordered = |mut info: proto::DesiredLrpSchedulingInfo| {
        info.routes.as_mut().unwrap().routes.sort_by(|a, b| a.key.cmp(&b.key));
        info.definition_id.clear();
        info
    };
    let key = |info: &proto::DesiredLrpSchedulingInfo| info.desired_lrp_key.clone().unwrap().process_guid;
    let expected: Vec<_> = expected.desired_lrp_scheduling_infos.into_iter().map(ordered).collect();
    let one = expected[0].clone();
    same(found.desired_lrp_scheduling_infos.into_iter().map(ordered).collect(), expected, key);

    let request = proto::DesiredLrpByProcessGuidRequest { process_guid: key(&one) };
    let reply = server.call("/v1/desired_lrp_scheduling_infos/get_by_process_guid.r1", &request).await;
    let got = reply.message::<Response>().desired_lrp_scheduling_infos;
    assert_eq!(got.into_iter().map(ordered).collect::<Vec<_>>(), [one]);
}

on_layouts_of_sqlite!(actual_lrps_are_listed_as_diego_lists_them);
async fn actual_lrps_are_listed_as_diego_lists_them(kind: Kind) {
    type Response = proto::ActualLrPsResponse;
    let server = Server::with_fixture(kind).await;
    let key = |lrp: &proto::ActualLrp| {
        let key = lrp.actual_lrp_key.clone().unwrap();
        [&key.process_guid[..], &key.index.to_be_bytes(), &lrp.presence.to_be_bytes()].concat()
    };
    let ordered = |mut lrp: proto::ActualLrp| {
        lrp.metric_tags.sort_by(|a, b| a.key.cmp(&b.key));
        lrp.desired_lrp_definition_id.clear();
        lrp
    };
    for call in ["actual_lrps_list", "actual_lrps_list.cell"] {
        let (found, expected): (Response, Response) = both(&server, call, "/v1/actual_lrps/list").await;
        let sorted = |lrps: Vec<proto::ActualLrp>| lrps.into_iter().map(ordered).collect::<Vec<_>>();
        same(sorted(found.actual_lrps), sorted(expected.actual_lrps), key);
    }
}

on_layouts_of_sqlite!(tasks_and_domains_are_listed_as_diego_lists_them);
async fn tasks_and_domains_are_listed_as_diego_lists_them(kind: Kind) {
    let server = Server::with_fixture(kind).await;
    type Tasks = proto::TasksResponse;
    let (found, expected): (Tasks, Tasks) = both(&server, "tasks_list.r3", "/v1/tasks/list.r3").await;
    let ordered = |tasks: Vec<proto::Task>| tasks.into_iter().map(task_in_order).collect::<Vec<_>>();
    same(ordered(found.tasks), ordered(expected.tasks), |task| task.task_guid.clone());

    type Domains = proto::DomainsResponse;
    let (found, expected): (Domains, Domains) = both(&server, "domains_list", "/v1/domains/list").await;
    same(found.domains, expected.domains, Clone::clone);
}
