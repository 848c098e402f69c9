//! The translator as a plain function, with a closure as the current API.
//! `tests/suite/revisions.rs` compares the component with Diego's BBS.

use std::cell::RefCell;

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::models::image_layer::{DigestAlgorithm, Type as LayerType};

use bbs_sdk::wire::Value;
use diego_revisions::OBJECTS;
use prost::Message;

use super::*;
use bbs_sdk::translator::Answer;
use bbs_sdk::{Operation, RecordChange};

/// Calls a method. Returns what it called of the current API, and its answer to a recorded one.
fn call(method: &str, request: &[u8], answer: &[u8]) -> (Vec<(String, Vec<u8>)>, Vec<u8>) {
    let called = RefCell::new(Vec::new());
    let next = |method: &str, request: &[u8]| {
        called
            .borrow_mut()
            .push((method.to_owned(), request.to_vec()));
        Ok(answer.to_vec())
    };
    let answer = DeprecatedRoutes::call(method, request, &next).unwrap();
    (called.into_inner(), answer)
}

fn layer(layer_type: LayerType, name: &str) -> proto::ImageLayer {
    proto::ImageLayer {
        layer_type: layer_type.into(),
        name: name.into(),
        url: b"url".to_vec(),
        ..Default::default()
    }
}

fn listed(lrps: Vec<proto::DesiredLrp>, tail: &[u8]) -> Vec<u8> {
    let answer = proto::DesiredLrPsResponse {
        error: None,
        desired_lrps: lrps,
    };
    [answer.encode_to_vec(), tail.to_vec()].concat()
}

#[test]
fn every_declared_method_is_answered() {
    let methods = DeprecatedRoutes::manifest().methods;
    let (streams, methods): (Vec<_>, Vec<_>) = methods
        .into_iter()
        .partition(|method| matches!(method.answer, Answer::Events(_)));
    for stream in streams {
        let operation = Operation {
            changes: Vec::new(),
            events: Vec::new(),
        };
        assert_eq!(
            DeprecatedRoutes::events(stream.name, operation),
            Ok(Vec::new()),
            "{}",
            stream.name
        );
    }
    for method in methods {
        let request = proto::ActualLrpGroupByProcessGuidAndIndexRequest {
            process_guid: b"g".to_vec(),
            index: 0,
        };
        let (called, _) = call(method.name, &request.encode_to_vec(), &[]);
        assert_eq!(called.len(), 1, "{}", method.name);
    }
    let next = |_: &str, _: &[u8]| Ok(Vec::new());
    assert!(DeprecatedRoutes::call("Tasks_r3", &[], &next).is_err());
}

#[test]
fn objects_without_layers_and_what_surrounds_them_stay_as_they_are() {
    let plain = proto::DesiredLrp {
        process_guid: b"plain".to_vec(),
        ..Default::default()
    };
    let error = proto::DesiredLrPsResponse {
        error: Some(proto::Error::default()),
        desired_lrps: Vec::new(),
    };
    let unknown = [0xfa, 0x3e, 1, 7];
    let tail = [error.encode_to_vec(), unknown.to_vec()].concat();
    let only_plain = listed(vec![plain.clone(), plain.clone()], &tail);
    assert_eq!(
        call("DesiredLRPs_r2", b"filter", &only_plain),
        (
            vec![("DesiredLRPs_r3".into(), b"filter".to_vec())],
            only_plain
        )
    );

    let layered = proto::DesiredLrp {
        image_layers: vec![layer(LayerType::Shared, "s")],
        ..plain.clone()
    };
    let (_, answer) = call(
        "DesiredLRPs_r2",
        b"",
        &listed(
            vec![plain.clone(), layered.clone(), plain.clone(), layered],
            &tail,
        ),
    );
    assert!(answer.ends_with(&tail));
    let lrps = proto::DesiredLrPsResponse::decode(&answer[..])
        .unwrap()
        .desired_lrps;
    assert_eq!([&lrps[0], &lrps[2]], [&plain, &plain]);
    for lrp in [&lrps[1], &lrps[3]] {
        assert_eq!(
            (lrp.cached_dependencies.len(), lrp.image_layers.len()),
            (1, 0)
        );
    }
}

#[test]
fn unknown_fields_of_an_object_with_layers_pass_through() {
    let lrp = proto::DesiredLrp {
        process_guid: b"guid".to_vec(),
        image_layers: vec![
            layer(LayerType::Exclusive, "e"),
            layer(LayerType::Shared, "s"),
        ],
        max_pids: 5,
        ..Default::default()
    };
    let unknown = [0xc2, 0x3e, 1, 7];
    let object = [lrp.encode_to_vec(), unknown.to_vec()].concat();
    let mut answer = Vec::new();
    wire::append(&mut answer, OBJECTS, Value::Bytes(&object));
    let (_, answer) = call("DesiredLRPByProcessGuid_r2", b"", &answer);
    let object = wire::get(&answer, OBJECTS)
        .unwrap()
        .unwrap()
        .bytes()
        .unwrap();
    assert!(object.ends_with(&unknown));
    let numbers: Vec<_> = wire::fields(object)
        .map(|field| field.unwrap().number)
        .collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn digest_algorithm_that_is_unknown_has_its_number_as_its_name() {
    let of = |layer_type, digest_algorithm: i32| {
        let layer = proto::ImageLayer {
            digest_algorithm,
            digest_value: b"v".to_vec(),
            ..layer(layer_type, "l")
        };
        let lrp = proto::DesiredLrp {
            image_layers: vec![layer],
            ..Default::default()
        };
        let (_, answer) = call("DesiredLRPs_r2", b"", &listed(vec![lrp], &[]));
        proto::DesiredLrPsResponse::decode(&answer[..])
            .unwrap()
            .desired_lrps
            .remove(0)
    };
    let key = |lrp: proto::DesiredLrp| {
        String::from_utf8(lrp.cached_dependencies[0].cache_key.clone()).unwrap()
    };
    assert_eq!(
        key(of(LayerType::Shared, DigestAlgorithm::Sha512.into())),
        "sha512:v"
    );
    assert_eq!(key(of(LayerType::Shared, 9)), "9:v");
    assert_eq!(key(of(LayerType::Shared, 0)), ":v");
    let downloads = of(LayerType::Exclusive, 0)
        .setup
        .unwrap()
        .parallel_action
        .unwrap()
        .actions;
    assert_eq!(
        downloads[0].download_action.as_ref().unwrap().cache_key,
        b"digestalgorithminvalid:v"
    );
    assert_eq!(
        of(LayerType::LayerTypeInvalid, 0),
        proto::DesiredLrp::default(),
        "without a trace"
    );
}

#[test]
fn task_without_a_definition_gets_an_empty_one() {
    let task = proto::Task {
        task_guid: b"t".to_vec(),
        ..Default::default()
    };
    let answer = |task| {
        proto::TasksResponse {
            error: None,
            tasks: vec![task],
        }
        .encode_to_vec()
    };
    let with_definition = proto::Task {
        task_definition: Some(Default::default()),
        ..task.clone()
    };
    assert_eq!(
        call("Tasks_r2", b"", &answer(task)).1,
        answer(with_definition.clone())
    );
    assert_eq!(
        call("Tasks_r2", b"", &answer(with_definition.clone())).1,
        answer(with_definition)
    );
}

#[test]
fn starts_and_evacuations_lose_routes_and_tags_alone() {
    let routes = vec![proto::ActualLrpInternalRoute {
        hostname: b"h".to_vec(),
    }];
    let tags = vec![proto::TextEntry {
        key: b"k".to_vec(),
        value: b"v".to_vec(),
    }];
    let start = proto::StartActualLrpRequest {
        actual_lrp_internal_routes: routes.clone(),
        metric_tags: tags.clone(),
        routable: Some(false),
        availability_zone: b"z1".to_vec(),
        ..Default::default()
    };
    let (called, answer) = call("StartActualLRP", &start.encode_to_vec(), b"answer");
    let older = proto::StartActualLrpRequest {
        actual_lrp_internal_routes: vec![],
        metric_tags: vec![],
        ..start
    };
    assert_eq!(
        (called, &answer[..]),
        (
            vec![("StartActualLRP_r1".into(), older.encode_to_vec())],
            &b"answer"[..]
        )
    );
    let evacuate = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_internal_routes: routes,
        metric_tags: tags,
        routable: Some(true),
        ..Default::default()
    };
    let (called, _) = call("EvacuateRunningActualLRP", &evacuate.encode_to_vec(), b"");
    let older = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_internal_routes: vec![],
        metric_tags: vec![],
        ..evacuate
    };
    assert_eq!(
        called,
        [("EvacuateRunningActualLRP_r1".into(), older.encode_to_vec())]
    );
    let (called, _) = call("StartActualLRP", b"\x22\xff", b"");
    assert_eq!(
        called[0].1, b"\x22\xff",
        "the current API rejects what is malformed"
    );
}

fn row(guid: &str, index: i32, state: &str, presence: i32) -> proto::ActualLrp {
    let key = proto::ActualLrpKey {
        process_guid: guid.into(),
        index,
        domain: b"d".to_vec(),
    };
    proto::ActualLrp {
        actual_lrp_key: Some(key),
        state: state.into(),
        presence,
        ..Default::default()
    }
}

fn answer_of(rows: &[proto::ActualLrp]) -> Vec<u8> {
    proto::ActualLrPsResponse {
        error: None,
        actual_lrps: rows.to_vec(),
    }
    .encode_to_vec()
}

#[test]
fn groups_come_in_the_order_of_their_first_rows() {
    let rows = [
        row("b", 1, "RUNNING", 0),
        row("a", 0, "CLAIMED", 0),
        row("b", 0, "CRASHED", 0),
        row("b", 1, "RUNNING", 1),
    ];
    let request = proto::ActualLrpGroupsRequest {
        domain: b"d".to_vec(),
        cell_id: b"c".to_vec(),
    };
    let (called, answer) = call(
        "ActualLRPGroups",
        &request.encode_to_vec(),
        &answer_of(&rows),
    );
    let filter = proto::ActualLrPsRequest {
        domain: b"d".to_vec(),
        cell_id: b"c".to_vec(),
        ..Default::default()
    };
    assert_eq!(called, [("ActualLRPs".into(), filter.encode_to_vec())]);
    let groups = proto::ActualLrpGroupsResponse::decode(&answer[..])
        .unwrap()
        .actual_lrp_groups;
    let [b1, a, b0, evacuating] = rows.map(Some);
    let group = |instance, evacuating| proto::ActualLrpGroup {
        instance,
        evacuating,
    };
    assert_eq!(
        groups,
        [group(b1, evacuating), group(a, None), group(b0, None)]
    );
}

#[test]
fn group_of_one_instance_is_found_by_guid_and_index() {
    let get = |process_guid: &str, index, rows: &[proto::ActualLrp]| {
        let request = proto::ActualLrpGroupByProcessGuidAndIndexRequest {
            process_guid: process_guid.into(),
            index,
        };
        let (called, answer) = call(
            "ActualLRPGroupsByProcessGuidAndIndex",
            &request.encode_to_vec(),
            &answer_of(rows),
        );
        let filters: Vec<_> = called
            .iter()
            .map(|(_, body)| proto::ActualLrPsRequest::decode(&body[..]).unwrap())
            .collect();
        (
            filters,
            proto::ActualLrpGroupResponse::decode(&answer[..]).unwrap(),
        )
    };
    let found = row("g", 0, "RUNNING", 0);
    let (filters, response) = get("g", 0, std::slice::from_ref(&found));
    assert_eq!(
        (filters[0].index, &filters[0].process_guid[..]),
        (Some(0), &b"g"[..])
    );
    assert_eq!(response.actual_lrp_group.unwrap().instance, Some(found));
    let error = get("g", 0, &[]).1.error.unwrap();
    assert_eq!(
        (error.r#type(), &error.message[..]),
        (
            Type::ResourceNotFound,
            &b"the requested resource could not be found"[..]
        )
    );
    let (filters, response) = get("", -1, &[]);
    assert_eq!(filters, [], "it is not asked for");
    assert_eq!(
        response.error.unwrap().message,
        b"Invalid field: process_guid, Invalid field: index"
    );
}

#[test]
fn groups_pass_on_the_error_of_the_rows_and_reject_what_is_malformed() {
    let error = proto::Error {
        r#type: Type::Unrecoverable.into(),
        message: b"m".to_vec(),
    };
    let rows = proto::ActualLrPsResponse {
        error: Some(error.clone()),
        actual_lrps: vec![row("g", 0, "RUNNING", 0)],
    };
    let request = proto::ActualLrpGroupByProcessGuidAndIndexRequest {
        process_guid: b"g".to_vec(),
        index: 0,
    };
    for method in [
        "ActualLRPGroups",
        "ActualLRPGroupsByProcessGuid",
        "ActualLRPGroupsByProcessGuidAndIndex",
    ] {
        let request = if method == "ActualLRPGroups" {
            Vec::new()
        } else {
            request.encode_to_vec()
        };
        let (_, answer) = call(method, &request, &rows.encode_to_vec());
        let answer = proto::ActualLrpGroupsResponse::decode(&answer[..]).unwrap();
        assert_eq!(
            (answer.error, answer.actual_lrp_groups.len()),
            (Some(error.clone()), 1),
            "{method}"
        );
        let (called, answer) = call(method, b"\x0a\xff", &[]);
        let error = proto::ActualLrpGroupsResponse::decode(&answer[..])
            .unwrap()
            .error
            .unwrap();
        assert_eq!(
            (called, &error.message[..]),
            (vec![], &b"the request received is invalid"[..])
        );
    }
    let (called, answer) = call("ActualLRPGroupsByProcessGuid", b"", &[]);
    let error = proto::ActualLrpGroupsResponse::decode(&answer[..])
        .unwrap()
        .error
        .unwrap();
    assert_eq!(
        (called, &error.message[..]),
        (vec![], &b"Invalid field: process_guid"[..])
    );
}

#[test]
fn group_events_of_a_container_that_is_put_back_end_with_a_change_if_it_has_traffic() {
    let [old, new] = [1, 0].map(|presence| row("g", 0, "RUNNING", presence));
    let info = |row: &proto::ActualLrp| proto::ActualLrpInfo {
        state: row.state.clone(),
        presence: row.presence,
        ..Default::default()
    };
    let change = |before: Option<&proto::ActualLrp>, after: Option<&proto::ActualLrp>| {
        let encoded = |row: Option<&proto::ActualLrp>| row.map(Message::encode_to_vec);
        RecordChange {
            message: "ActualLRP".into(),
            before: encoded(before),
            after: encoded(after),
        }
    };
    // The host's last event is a change from this row to the new one.
    let names = |last_before: &proto::ActualLrp| {
        let last = proto::ActualLrpInstanceChangedEvent {
            before: Some(info(last_before)),
            after: Some(info(&new)),
            ..Default::default()
        };
        let operation = Operation {
            changes: vec![change(Some(&old), None), change(None, Some(&new))],
            events: vec![Event {
                name: "actual_lrp_instance_changed".into(),
                payload: last.encode_to_vec(),
                cells: None,
            }],
        };
        let events = DeprecatedRoutes::events("EventStream_r1", operation).unwrap();
        let names = events.into_iter().map(|event| event.name);
        names.collect::<Vec<_>>()
    };
    let recreated = ["actual_lrp_created", "actual_lrp_removed"];
    assert_eq!(
        names(&new),
        [&recreated[..], &["actual_lrp_changed"]].concat()
    );
    assert_eq!(names(&old), recreated);
}
