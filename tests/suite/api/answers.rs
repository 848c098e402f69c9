//! Reads of the fixture's database, compared byte for byte with the answers that Diego's own client
//! received. Elements and entries of maps have no defined order, so both sides are sorted.

use std::net::SocketAddr;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::harness::database::Kind;
use crate::harness::fixture;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::modules::translators;
use crate::harness::server::{Options, Server};

pub(crate) fn in_order(mut lrp: proto::DesiredLrp) -> proto::DesiredLrp {
    lrp.ports.sort_unstable();
    lrp.metric_tags.sort_by(|a, b| a.key.cmp(&b.key));
    if let Some(routes) = &mut lrp.routes {
        routes.routes.sort_by(|a, b| a.key.cmp(&b.key));
    }
    if let Some(network) = &mut lrp.network {
        network.properties.sort_by(|a, b| a.key.cmp(&b.key));
    }
    lrp
}

fn info_in_order(mut info: proto::DesiredLrpSchedulingInfo) -> proto::DesiredLrpSchedulingInfo {
    if let Some(routes) = &mut info.routes {
        routes.routes.sort_by(|a, b| a.key.cmp(&b.key));
    }
    info
}

fn actual_in_order(mut lrp: proto::ActualLrp) -> proto::ActualLrp {
    lrp.metric_tags.sort_by(|a, b| a.key.cmp(&b.key));
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

/// The recorded lists of Diego's current API, with their paths.
const CURRENT: [(&str, &str); 8] = [
    ("desired_lrps_list.r3", "/v1/desired_lrps/list.r3"),
    ("desired_lrps_list.r3.domain", "/v1/desired_lrps/list.r3"),
    (
        "desired_lrp_routing_infos_list",
        "/v1/desired_lrp_routing_infos/list",
    ),
    (
        "desired_lrp_scheduling_infos_list",
        "/v1/desired_lrp_scheduling_infos/list",
    ),
    ("actual_lrps_list", "/v1/actual_lrps/list"),
    ("actual_lrps_list.cell", "/v1/actual_lrps/list"),
    ("tasks_list.r3", "/v1/tasks/list.r3"),
    ("domains_list", "/v1/domains/list"),
];
/// The recorded lists of its deprecated revisions.
const DEPRECATED: [(&str, &str); 3] = [
    ("desired_lrps_list.r2", "/v1/desired_lrps/list.r2"),
    ("tasks_list.r2", "/v1/tasks/list.r2"),
    ("actual_lrp_groups_list", "/v1/actual_lrp_groups/list"),
];

/// The elements of a recorded list, each as its bytes, in a defined order. The whole answer has to
/// be the same bytes as its message: no unknown field, and none in another order.
fn elements(call: &str, answer: &[u8]) -> Vec<Vec<u8>> {
    fn decoded<M: Message + Default>(call: &str, answer: &[u8]) -> M {
        let message = M::decode(answer).unwrap_or_else(|error| panic!("{call}: {error}"));
        assert!(
            message.encode_to_vec() == answer,
            "{call} has other fields than Diego's message"
        );
        message
    }
    fn encoded<T: Message>(list: Vec<T>, ordered: impl Fn(T) -> T) -> Vec<Vec<u8>> {
        list.into_iter()
            .map(|element| ordered(element).encode_to_vec())
            .collect()
    }
    let mut elements = match call.split_once("_list").expect("a list").0 {
        "desired_lrps" | "desired_lrp_routing_infos" => encoded(
            decoded::<proto::DesiredLrPsResponse>(call, answer).desired_lrps,
            in_order,
        ),
        "desired_lrp_scheduling_infos" => {
            let list: proto::DesiredLrpSchedulingInfosResponse = decoded(call, answer);
            encoded(list.desired_lrp_scheduling_infos, info_in_order)
        }
        "actual_lrps" => encoded(
            decoded::<proto::ActualLrPsResponse>(call, answer).actual_lrps,
            actual_in_order,
        ),
        "actual_lrp_groups" => {
            let list: proto::ActualLrpGroupsResponse = decoded(call, answer);
            encoded(list.actual_lrp_groups, |group| proto::ActualLrpGroup {
                instance: group.instance.map(actual_in_order),
                evacuating: group.evacuating.map(actual_in_order),
            })
        }
        "tasks" => encoded(
            decoded::<proto::TasksResponse>(call, answer).tasks,
            task_in_order,
        ),
        "domains" => decoded::<proto::DomainsResponse>(call, answer).domains,
        other => panic!("{other} is not recorded"),
    };
    elements.sort();
    elements
}

/// Makes the recorded calls of Diego's client, and compares the answers with the recorded ones.
async fn assert_as_recorded(lists: &[(&str, &str)], post: impl AsyncFn(&str, Vec<u8>) -> Vec<u8>) {
    for (call, path) in lists {
        let (request, expected) = fixture::expected(call);
        let found = elements(call, &post(path, request).await);
        let expected = elements(call, &expected);
        assert!(!expected.is_empty(), "{call}");
        assert_eq!(found.len(), expected.len(), "{call}");
        for (found, expected) in found.iter().zip(&expected) {
            let [found, expected] =
                [found, expected].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert_eq!(found, expected, "{call}");
        }
    }
}

/// Asserts that a host answers with every recorded list.
pub(crate) async fn answers_as_diego_did(address: SocketAddr) {
    let client = crate::harness::http_client();
    assert_as_recorded(
        &[&CURRENT[..], &DEPRECATED].concat(),
        async |path, request| {
            let response = client
                .post(format!("http://{address}{path}"))
                .body(request)
                .send()
                .await
                .unwrap();
            assert_eq!(response.status(), 200, "{path}");
            response.bytes().await.unwrap().to_vec()
        },
    )
    .await;
}

async fn post(server: &Server, path: &str, request: Vec<u8>) -> Vec<u8> {
    let reply = server.post(path, request).await;
    assert_eq!(reply.status, 200, "{path}");
    reply.body
}

on_layouts_of_sqlite!(lists_are_those_of_diego_byte_for_byte);
async fn lists_are_those_of_diego_byte_for_byte(kind: Kind) {
    let options = Options {
        with_fixture: true,
        translators: translators(),
        ..Options::on(kind)
    };
    let server = Server::start(options).await;
    assert_as_recorded(&CURRENT, async |path, request| {
        post(&server, path, request).await
    })
    .await;
    assert_as_recorded(&DEPRECATED, async |path, request| {
        post(&server, path, request).await
    })
    .await;
    assert_eq!(server.store.left_out(), 0);
}

on_layouts_of_sqlite!(list_read_in_many_pages_equals_the_list_read_in_one);
async fn list_read_in_many_pages_equals_the_list_read_in_one(kind: Kind) {
    let server = Server::start(Options {
        with_fixture: true,
        page_units: Some(7),
        ..Options::on(kind)
    })
    .await;
    assert_as_recorded(&CURRENT, async |path, request| {
        post(&server, path, request).await
    })
    .await;
}

on_layouts_of_sqlite!(records_read_by_guid_equal_the_listed_ones);
async fn records_read_by_guid_equal_the_listed_ones(kind: Kind) {
    let server = Server::with_fixture(kind).await;
    let (_, expected) = fixture::expected("desired_lrps_list.r3");
    let expected = proto::DesiredLrPsResponse::decode(&expected[..])
        .unwrap()
        .desired_lrps;
    for lrp in expected.into_iter().step_by(10) {
        let guid = String::from_utf8(lrp.process_guid.clone()).unwrap();
        assert_eq!(in_order(super::get(&server, &guid).await), in_order(lrp));
    }
    let (_, expected) = fixture::expected("desired_lrp_scheduling_infos_list");
    let expected = proto::DesiredLrpSchedulingInfosResponse::decode(&expected[..]).unwrap();
    for info in expected
        .desired_lrp_scheduling_infos
        .into_iter()
        .step_by(10)
    {
        let process_guid = info.desired_lrp_key.clone().unwrap().process_guid;
        let request = proto::DesiredLrpByProcessGuidRequest { process_guid };
        let reply = server
            .call(
                "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
                &request,
            )
            .await;
        let found = reply.message::<proto::DesiredLrpSchedulingInfoByProcessGuidResponse>();
        assert_eq!(
            found.desired_lrp_scheduling_info.map(info_in_order),
            Some(info_in_order(info))
        );
    }
}
