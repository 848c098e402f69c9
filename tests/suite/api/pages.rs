//! Lists: filters, pages, and their framing on the wire.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::{desire, guids, list, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{Options, Server};

async fn with_pages_of(kind: Kind, units: u32) -> Server {
    Server::start(Options {
        page_units: Some(units),
        ..Options::on(kind)
    })
    .await
}

fn filter(process_guids: &[&str], app_guids: &[&str]) -> proto::DesiredLrPsRequest {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    proto::DesiredLrPsRequest {
        domain: vec![],
        process_guids: texts(process_guids),
        app_guids: texts(app_guids),
    }
}

on_each_layout!(list_filters_combine_for_every_page_size);
async fn list_filters_combine_for_every_page_size(kind: Kind) {
    for units in [1, 2, 100] {
        let server = with_pages_of(kind, units).await;
        for guid in [
            "app1-v1", "app1-v2", "app2-v1", "App1-v3", "app_-v1", "a*b-v1",
        ] {
            desire(&server, lrp(&guid.replace('*', "-"))).await;
        }
        desire(
            &server,
            proto::DesiredLrp {
                domain: b"other".to_vec(),
                ..lrp("app1-v9")
            },
        )
        .await;
        let found = |request| async { guids(&list(&server, request).await) };
        assert_eq!(
            found(filter(&[], &[])).await,
            [
                "App1-v3", "a-b-v1", "app1-v1", "app1-v2", "app1-v9", "app2-v1", "app_-v1"
            ]
        );
        assert_eq!(
            found(filter(&["app1-v1", "nothing", "app2-v1", "app1-v1"], &[])).await,
            ["app1-v1", "app2-v1"]
        );
        assert_eq!(found(filter(&["nothing"], &[])).await, Vec::<String>::new());
        assert_eq!(
            found(filter(&[], &["app1"])).await,
            ["app1-v1", "app1-v2", "app1-v9"]
        );
        assert_eq!(
            found(filter(&[], &["app2", "App"])).await,
            ["App1-v3", "app2-v1"]
        );
        assert_eq!(
            found(filter(&[], &["app_-v1"])).await,
            ["app1-v1", "app2-v1", "app_-v1"]
        );
        assert_eq!(found(filter(&[], &["%v9"])).await, ["app1-v9"]);
        assert_eq!(found(filter(&[], &["a*", "["])).await, Vec::<String>::new());
        let all = proto::DesiredLrPsRequest {
            domain: b"other".to_vec(),
            ..filter(&["app1-v1", "app1-v9"], &["app"])
        };
        assert_eq!(found(all).await, ["app1-v9"]);
    }
}

on_each_layout!(other_lists_apply_only_the_filters_that_diego_applies);
async fn other_lists_apply_only_the_filters_that_diego_applies(kind: Kind) {
    let server = with_pages_of(kind, 1).await;
    desire(&server, lrp("a")).await;
    desire(
        &server,
        proto::DesiredLrp {
            domain: b"other".to_vec(),
            ..lrp("b")
        },
    )
    .await;
    let request = proto::DesiredLrPsRequest {
        domain: b"other".to_vec(),
        ..filter(&["a", "b"], &["none"])
    };
    let infos: proto::DesiredLrpSchedulingInfosResponse = server
        .call("/v1/desired_lrp_scheduling_infos/list", &request)
        .await
        .message();
    let keys: Vec<_> = infos
        .desired_lrp_scheduling_infos
        .into_iter()
        .map(|info| info.desired_lrp_key.unwrap())
        .collect();
    assert_eq!(
        keys.iter()
            .map(|key| &key.process_guid[..])
            .collect::<Vec<_>>(),
        [b"b"]
    );
    let request = proto::DesiredLrPsRequest {
        domain: b"none".to_vec(),
        ..filter(&["a"], &["none"])
    };
    let infos: proto::DesiredLrPsResponse = server
        .call("/v1/desired_lrp_routing_infos/list", &request)
        .await
        .message();
    assert_eq!(guids(&infos.desired_lrps), ["a"]);
}

on_each_layout!(filter_with_many_guids_is_applied_whole);
/// With about the most guids that MySQL compares itself, and with more than a statement can have
/// parameters there.
async fn filter_with_many_guids_is_applied_whole(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("wanted")).await;
    for count in [9_998, 40_000] {
        let mut many: Vec<_> = (0..count)
            .map(|number| format!("guid-{number:05}").into_bytes())
            .collect();
        many.push(b"\xff".to_vec());
        many.push(b"wanted".to_vec());
        for request in [
            proto::DesiredLrPsRequest {
                process_guids: many.clone(),
                ..Default::default()
            },
            proto::DesiredLrPsRequest {
                app_guids: many,
                ..Default::default()
            },
        ] {
            assert_eq!(guids(&list(&server, request).await), ["wanted"], "{count}");
        }
    }
}

on_each_database!(list_with_too_many_patterns_is_rejected);
async fn list_with_too_many_patterns_is_rejected(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("wanted")).await;
    let mut app_guids = vec![b"%z".to_vec(); 10_000];
    app_guids.push(b"wanted".to_vec());
    let request = proto::DesiredLrPsRequest {
        app_guids,
        ..Default::default()
    };
    let rejected: proto::DesiredLrPsResponse = server
        .call("/v1/desired_lrps/list.r3", &request)
        .await
        .message();
    let error = rejected.error.unwrap();
    assert_eq!(error.r#type(), proto::error::Type::InvalidRequest);
    assert!(
        error
            .message
            .starts_with(b"a list of more than 10000 app guids"),
        "{error:?}"
    );
}

on_each_layout!(single_page_has_a_content_length_and_several_are_chunked);
async fn single_page_has_a_content_length_and_several_are_chunked(kind: Kind) {
    let server = with_pages_of(kind, 2).await;
    for guid in ["a", "b"] {
        desire(&server, lrp(guid)).await;
    }
    let headers = |reply: crate::harness::server::Reply| {
        (
            reply.header("content-length").to_owned(),
            reply.header("transfer-encoding").to_owned(),
            reply.body.len(),
        )
    };
    // Another page may follow a full one, so a full page has no `Content-Length`.
    desire(&server, lrp("c")).await;
    let request = filter(&["a"], &[]).encode_to_vec();
    let (length, encoding, size) = headers(server.post("/v1/desired_lrps/list.r3", request).await);
    assert_eq!((length, encoding), (size.to_string(), String::new()));
    let (length, encoding, _) = headers(server.post("/v1/desired_lrps/list.r3", []).await);
    assert_eq!((length.as_str(), encoding.as_str()), ("", "chunked"));
    assert_eq!(
        guids(&list(&server, Default::default()).await),
        ["a", "b", "c"]
    );
}

on_each_database!(large_records_make_short_pages);
async fn large_records_make_short_pages(kind: Kind) {
    let server = Server::empty(kind).await;
    let file = proto::File {
        path: b"/f".to_vec(),
        content: vec![b'x'; 1_000_000],
    };
    for number in 0..6 {
        let lrp = proto::DesiredLrp {
            volume_mounted_files: vec![file.clone()],
            ..lrp(&format!("guid-{number}"))
        };
        desire(&server, lrp).await;
    }
    let reply = server.post("/v1/desired_lrps/list.r3", []).await;
    assert_eq!(reply.header("transfer-encoding"), "chunked");
    assert_eq!(
        reply
            .message::<proto::DesiredLrPsResponse>()
            .desired_lrps
            .len(),
        6
    );
    let alone = server
        .call(
            "/v1/desired_lrps/list.r3",
            &filter(&["guid-1", "guid-2"], &[]),
        )
        .await;
    assert_eq!(alone.header("content-length"), alone.body.len().to_string());
}

on_each_layout!(all_instances_of_a_process_are_on_one_page);
async fn all_instances_of_a_process_are_on_one_page(kind: Kind) {
    let server = with_pages_of(kind, 1).await;
    for guid in ["a", "b", "c"] {
        desire(
            &server,
            proto::DesiredLrp {
                instances: 3,
                ..lrp(guid)
            },
        )
        .await;
    }
    let found: proto::ActualLrPsResponse = server.post("/v1/actual_lrps/list", []).await.message();
    let slots: Vec<_> = found
        .actual_lrps
        .into_iter()
        .map(|lrp| lrp.actual_lrp_key.unwrap())
        .collect();
    let slots: Vec<_> = slots
        .iter()
        .map(|key| format!("{}{}", key.process_guid.escape_ascii(), key.index))
        .collect();
    assert_eq!(
        slots,
        ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"]
    );

    let request = proto::ActualLrPsByProcessGuidsRequest {
        process_guids: vec![b"c".to_vec(), b"a".to_vec()],
    };
    let found: proto::ActualLrPsResponse = server
        .call("/v1/actual_lrps/list_by_process_guids", &request)
        .await
        .message();
    assert_eq!(found.actual_lrps.len(), 6);
    let request = proto::ActualLrPsRequest {
        index: Some(0),
        domain: b"domain".to_vec(),
        ..Default::default()
    };
    let found: proto::ActualLrPsResponse = server
        .call("/v1/actual_lrps/list", &request)
        .await
        .message();
    assert_eq!(found.actual_lrps.len(), 3);
    let request = proto::ActualLrPsRequest {
        cell_id: b"cell".to_vec(),
        ..Default::default()
    };
    let found: proto::ActualLrPsResponse = server
        .call("/v1/actual_lrps/list", &request)
        .await
        .message();
    assert_eq!(found.actual_lrps.len(), 0);
}

on_each_database!(every_instance_is_listed_once_for_every_page_size);
async fn every_instance_is_listed_once_for_every_page_size(kind: Kind) {
    let counts = [1, 3, 2, 5, 1, 1, 4];
    for units in 1..=8 {
        let server = with_pages_of(kind, units).await;
        for (at, instances) in counts.into_iter().enumerate() {
            // Distinct even for a collation that ignores case.
            let guid = format!("{}{at}", if at % 2 == 0 { "Guid-" } else { "guid_" });
            desire(
                &server,
                proto::DesiredLrp {
                    instances,
                    ..lrp(&guid)
                },
            )
            .await;
        }
        let found: proto::ActualLrPsResponse =
            server.post("/v1/actual_lrps/list", []).await.message();
        let slots = found
            .actual_lrps
            .into_iter()
            .map(|lrp| lrp.actual_lrp_key.unwrap());
        let mut slots: Vec<_> = slots.map(|key| (key.process_guid, key.index)).collect();
        assert_eq!(slots.len(), 17, "pages of {units}");
        slots.sort();
        slots.dedup();
        assert_eq!(slots.len(), 17, "pages of {units}");
    }
}

on_each_database!(error_in_a_later_page_follows_the_records_of_earlier_pages);
async fn error_in_a_later_page_follows_the_records_of_earlier_pages(kind: Kind) {
    let server = with_pages_of(kind, 1).await;
    for guid in ["a", "b", "c"] {
        desire(&server, lrp(guid)).await;
    }
    // The first page is read before the table is renamed; the client reads it afterwards.
    let response = crate::harness::http_client()
        .post(server.url("/v1/desired_lrps/list.r3"))
        .send()
        .await
        .unwrap();
    server.sql("ALTER TABLE desired_lrps RENAME TO gone").await;
    let body = response.bytes().await.unwrap();
    let answer = proto::DesiredLrPsResponse::decode(body).unwrap();
    assert!(!answer.desired_lrps.is_empty());
    let failed: proto::DesiredLrPsResponse =
        server.post("/v1/desired_lrps/list.r3", []).await.message();
    assert_eq!(
        (failed.desired_lrps.len(), failed.error.unwrap().r#type()),
        (0, proto::error::Type::Unrecoverable)
    );
}

on_each_database!(closing_the_gate_aborts_a_list);
async fn closing_the_gate_aborts_a_list(kind: Kind) {
    let server = with_pages_of(kind, 1).await;
    // Far more than fits into the buffers between the host and a client that does not read.
    let file = proto::File {
        path: b"/f".to_vec(),
        content: vec![b'x'; 1_000_000],
    };
    for number in 0..15 {
        let files = vec![file.clone()];
        let lrp = proto::DesiredLrp {
            instances: 0,
            volume_mounted_files: files,
            ..lrp(&format!("guid-{number}"))
        };
        desire(&server, lrp).await;
    }
    let response = crate::harness::http_client()
        .post(server.url("/v1/desired_lrps/list.r3"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    server.gate.close();
    assert!(
        response.bytes().await.is_err(),
        "an incomplete list must end with an error"
    );
}
