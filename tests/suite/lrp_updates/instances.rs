//! The instances during an update: replaced one after the other.

use bbs::testing::domain::convergence;
use bbs_model::lrp_update::MaxInFlight;

use super::*;
use crate::api::actual_lrps::{REMOVE, instance, key, published, remove, subscribe};
use crate::harness::database::on_each_database;
use crate::harness::layouts::on_each_layout;

on_each_layout!(old_container_runs_until_the_new_one_is_routable);
async fn old_container_runs_until_the_new_one_is_routable(kind: Kind) {
    let server = running(kind, 1).await;
    update_to(&server, "version-2").await;
    assert_eq!(ids(&server).await, ("version-2".into(), "version-1".into()));
    until_rows(&server, &REPLACED).await;
    // The heartbeat of the old container's cell, which does not know of the update.
    assert_eq!(call_error(&server, START, &start(0, "old-0")).await, None);
    assert_eq!(rows(&server).await, REPLACED);
    claim_new(&server, 0, "new-0").await;
    let unroutable = proto::StartActualLrpRequest {
        routable: Some(false),
        ..start(0, "new-0")
    };
    assert_eq!(call_error(&server, START, &unroutable).await, None);
    settle(&server).await;
    assert_eq!(
        rows(&server).await,
        ["0/0 RUNNING new-0 version-2", "0/1 RUNNING old-0 version-1"]
    );
    assert_eq!(ids(&server).await, ("version-2".into(), "version-1".into()));
    assert_eq!(call_error(&server, START, &start(0, "new-0")).await, None);
    until_rows(&server, &["0/0 RUNNING new-0 version-2"]).await;
    until_done(&server).await;
    assert_eq!(ids(&server).await, ("version-2".into(), String::new()));
}

on_each_layout!(instances_are_replaced_in_the_order_of_their_indices);
async fn instances_are_replaced_in_the_order_of_their_indices(kind: Kind) {
    let server = running(kind, 3).await;
    update_to(&server, "version-2").await;
    for index in 0..3 {
        let current = (0..index).map(|index| format!("{index}/0 RUNNING new-{index} version-2"));
        let replaced = [
            format!("{index}/0 UNCLAIMED  version-2"),
            format!("{index}/1 RUNNING old-{index} version-1"),
        ];
        let old = (index + 1..3).map(|index| format!("{index}/0 RUNNING old-{index} version-1"));
        let expected: Vec<_> = current.chain(replaced).chain(old).collect();
        until_rows(
            &server,
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
        let status = status(&server).await;
        assert_eq!(
            (status.running, status.running_previous, status.waiting),
            (index, 3 - index, 1)
        );
        start_new(&server, index, &format!("new-{index}")).await;
    }
    until_done(&server).await;
}

on_each_layout!(waiting_and_crashed_instances_take_the_new_definition_at_once);
async fn waiting_and_crashed_instances_take_the_new_definition_at_once(kind: Kind) {
    let server = running(kind, 0).await;
    let scaled = proto::DesiredLrpUpdate {
        instances: Some(2),
        ..Default::default()
    };
    assert_eq!(update(&server, scaled).await, None);
    for _ in 0..3 {
        start_new(&server, 1, "crashing").await;
        assert_eq!(
            call_error(&server, CRASH, &crash(1, "crashing")).await,
            None
        );
    }
    assert_eq!(
        rows(&server).await,
        ["0/0 UNCLAIMED  version-1", "1/0 CRASHED  version-1"]
    );
    update_to(&server, "version-2").await;
    assert_eq!(
        rows(&server).await,
        ["0/0 UNCLAIMED  version-2", "1/0 UNCLAIMED  version-2"]
    );
    assert_eq!(images(&server).await[1].crash_count, 0);
}

on_each_layout!(instance_that_was_claimed_before_the_update_is_replaced);
async fn instance_that_was_claimed_before_the_update_is_replaced(kind: Kind) {
    let server = running(kind, 0).await;
    let scaled = proto::DesiredLrpUpdate {
        instances: Some(1),
        ..Default::default()
    };
    assert_eq!(update(&server, scaled).await, None);
    claim_new(&server, 0, "either").await;
    update_to(&server, "version-2").await;
    // Its cell reads the desired LRP only now.
    assert_eq!(get(&server, "guid").await.memory_mb, 128);
    assert_eq!(call_error(&server, START, &start(0, "either")).await, None);
    until_rows(
        &server,
        &["0/0 UNCLAIMED  version-2", "0/1 RUNNING either version-1"],
    )
    .await;
    start_new(&server, 0, "new-0").await;
    until_rows(&server, &["0/0 RUNNING new-0 version-2"]).await;
    until_done(&server).await;
}

on_each_layout!(container_that_did_not_claim_its_instance_is_trusted_with_one_definition);
/// As by Diego's BBS, for which it is the container of a cell that was missing.
async fn container_that_did_not_claim_its_instance_is_trusted_with_one_definition(kind: Kind) {
    let server = Server::with_translators(kind).await;
    desire(
        &server,
        proto::DesiredLrp {
            definition_id: Vec::new(),
            instances: 1,
            ..version_1()
        },
    )
    .await;
    let generated = ids(&server).await.0;
    assert_eq!(
        call_error(&server, START, &start(0, "returned")).await,
        None
    );
    let trusted = [format!("0/0 RUNNING returned {generated}")];
    assert_eq!(rows(&server).await, trusted);
    convergence::run(&server.service).await.unwrap();
    settle(&server).await;
    assert_eq!(rows(&server).await, trusted);
    // The update replaces it as one that runs the only definition before.
    update_to(&server, "version-2").await;
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-2",
            &format!("0/1 RUNNING returned {generated}"),
        ],
    )
    .await;
    start_new(&server, 0, "new-0").await;
    until_rows(&server, &["0/0 RUNNING new-0 version-2"]).await;
    until_done(&server).await;
    // From now on there are two.
    assert_eq!(
        call_error(&server, REMOVE, &remove(0, Some("new-0"))).await,
        None
    );
    assert_eq!(call_error(&server, START, &start(0, "unknown")).await, None);
    convergence::run(&server.service).await.unwrap();
    until_rows(
        &server,
        &["0/0 UNCLAIMED  version-2", "0/1 RUNNING unknown version-2"],
    )
    .await;
}

on_each_layout!(container_that_did_not_claim_its_instance_is_replaced_in_an_update);
async fn container_that_did_not_claim_its_instance_is_replaced_in_an_update(kind: Kind) {
    let server = updating(kind, 1).await;
    // The cell of a container that was started for version-1 long ago.
    assert_eq!(call_error(&server, START, &start(0, "unknown")).await, None);
    // Neither is trusted, and there is no room for a third container.
    until_rows(
        &server,
        &["0/0 UNCLAIMED  version-2", "0/1 RUNNING unknown version-2"],
    )
    .await;
    start_new(&server, 0, "new-0").await;
    until_rows(&server, &["0/0 RUNNING new-0 version-2"]).await;
    until_done(&server).await;
}

on_each_layout!(container_of_a_removed_lrp_is_one_of_the_next);
/// As by Diego's BBS: an LRP with the same process guid keeps the containers that are left, record
/// for record.
async fn container_of_a_removed_lrp_is_one_of_the_next(kind: Kind) {
    let neighbours = Neighbours::start();
    ["cell-old-0", "cell-old-1"]
        .into_iter()
        .for_each(|cell| neighbours.add_cell(cell));
    let options = Options {
        clients: neighbours.clients(),
        ..Options::on(kind)
    };
    let server = running_with(options, 2).await;
    let before = images(&server).await;
    assert_eq!(remove_lrp(&server).await, None);
    let again = proto::DesiredLrp {
        definition_id: b"version-2".to_vec(),
        instances: 2,
        ..version_1()
    };
    desire(&server, again).await;
    convergence::run(&server.service).await.unwrap();
    settle(&server).await;
    assert_eq!(
        rows(&server).await,
        ["0/0 RUNNING old-0 ", "1/0 RUNNING old-1 "]
    );
    assert_eq!(
        images(&server).await,
        before
            .into_iter()
            .map(|lrp| proto::ActualLrp {
                desired_lrp_definition_id: Vec::new(),
                ..lrp
            })
            .collect::<Vec<_>>()
    );
    assert_eq!(call_error(&server, CRASH, &crash(1, "old-1")).await, None);
    assert_eq!(
        rows(&server).await,
        ["0/0 RUNNING old-0 ", "1/0 UNCLAIMED  version-2"]
    );
    update_to(&server, "version-3").await;
    assert_eq!(
        rows(&server).await,
        ["0/0 RUNNING old-0 version-2", "1/0 UNCLAIMED  version-3"]
    );
}

on_each_database!(instance_is_replaced_beside_one_whose_network_is_unreadable);
async fn instance_is_replaced_beside_one_whose_network_is_unreadable(kind: Kind) {
    let pace = Pace {
        max_in_flight: MaxInFlight::Instances(1),
        ..Pace::default()
    };
    let server = running_at(kind, pace, 2).await;
    server
        .sql("UPDATE actual_lrps SET net_info = '02damaged' WHERE instance_index = 0")
        .await;
    update_to(&server, "version-2").await;
    let expected = ["1/0 UNCLAIMED  version-2", "1/1 RUNNING old-1 version-1"];
    until_rows(&server, &expected).await;
    start_new(&server, 1, "new-1").await;
    until_rows(&server, &["1/0 RUNNING new-1 version-2"]).await;
    settle(&server).await;
    let first = "SELECT concat(instance_guid, ' ', net_info) FROM actual_lrps \
         WHERE instance_index = 0";
    assert_eq!(server.texts(first).await, ["old-0 02damaged"]);
}

on_each_database!(instance_is_recreated_beside_one_whose_network_is_unreadable);
async fn instance_is_recreated_beside_one_whose_network_is_unreadable(kind: Kind) {
    let server = Server::with_translators(kind).await;
    let recreate = proto::desired_lrp::UpdateStrategy::Recreate.into();
    let lrp = proto::DesiredLrp {
        update_strategy: recreate,
        ..version_1()
    };
    desire(&server, lrp).await;
    for index in 0..2 {
        start_new(&server, index, &format!("old-{index}")).await;
    }
    server
        .sql("UPDATE actual_lrps SET net_info = '02damaged' WHERE instance_index = 0")
        .await;
    update_to(&server, "version-2").await;
    until_rows(&server, &["1/0 UNCLAIMED  version-2"]).await;
}

on_each_layout!(recreated_instance_is_stopped_before_its_successor_starts);
async fn recreated_instance_is_stopped_before_its_successor_starts(kind: Kind) {
    let server = Server::with_translators(kind).await;
    let recreate = proto::desired_lrp::UpdateStrategy::Recreate.into();
    desire(
        &server,
        proto::DesiredLrp {
            update_strategy: recreate,
            ..version_1()
        },
    )
    .await;
    start_new(&server, 0, "old-0").await;
    start_new(&server, 1, "old-1").await;
    update_to(&server, "version-2").await;
    until_rows(
        &server,
        &["0/0 UNCLAIMED  version-2", "1/0 RUNNING old-1 version-1"],
    )
    .await;
    start_new(&server, 0, "new-0").await;
    until_rows(
        &server,
        &["0/0 RUNNING new-0 version-2", "1/0 UNCLAIMED  version-2"],
    )
    .await;
    start_new(&server, 1, "new-1").await;
    until_done(&server).await;
}

on_each_layout!(scaling_during_an_update_adds_new_instances_and_removes_the_last_ones);
async fn scaling_during_an_update_adds_new_instances_and_removes_the_last_ones(kind: Kind) {
    let server = updating(kind, 2).await;
    let scaled = |instances| proto::DesiredLrpUpdate {
        instances: Some(instances),
        ..Default::default()
    };
    assert_eq!(update(&server, scaled(3)).await, None);
    until_rows(
        &server,
        &[
            "0/0 UNCLAIMED  version-2",
            "0/1 RUNNING old-0 version-1",
            "1/0 RUNNING old-1 version-1",
            "2/0 UNCLAIMED  version-2",
        ],
    )
    .await;
    assert_eq!(update(&server, scaled(1)).await, None);
    // The cell of the instance that is not desired any more stops it.
    assert_eq!(
        call_error(&server, REMOVE, &remove(1, Some("old-1"))).await,
        None
    );
    start_new(&server, 0, "new-0").await;
    until_rows(&server, &["0/0 RUNNING new-0 version-2"]).await;
    until_done(&server).await;
}

on_each_layout!(removal_ends_the_update);
async fn removal_ends_the_update(kind: Kind) {
    // The cell of the container may go on with the heartbeat, or remove it; both are accepted.
    for has_heartbeat in [false, true] {
        let server = updating(kind, 1).await;
        assert_eq!(remove_lrp(&server).await, None);
        assert_eq!(
            server
                .texts("SELECT process_guid FROM bbs_lrp_updates")
                .await,
            [""; 0]
        );
        assert_eq!(rows(&server).await, ["0/0 RUNNING old-0 "]);
        if has_heartbeat {
            assert_eq!(call_error(&server, START, &start(0, "old-0")).await, None);
        }
        assert_eq!(
            call_error(&server, REMOVE, &remove(0, Some("old-0"))).await,
            None
        );
        assert_eq!(rows(&server).await, [""; 0]);
    }
}

on_each_layout!(containers_of_an_lrp_removed_during_its_update_are_removed_by_their_cells);
async fn containers_of_an_lrp_removed_during_its_update_are_removed_by_their_cells(kind: Kind) {
    for names in [["old-0", "new-0"], ["new-0", "old-0"]] {
        let server = updating(kind, 1).await;
        claim_new(&server, 0, "new-0").await;
        assert_eq!(remove_lrp(&server).await, None);
        assert_eq!(
            rows(&server).await,
            ["0/0 CLAIMED new-0 ", "0/1 RUNNING old-0 "]
        );
        for name in names {
            assert_eq!(
                call_error(&server, REMOVE, &remove(0, Some(name))).await,
                None,
                "{name}"
            );
        }
        assert_eq!(rows(&server).await, [""; 0]);
    }
}

on_each_layout!(replaced_container_is_removed_by_its_cell_once_its_lrp_is_desired_again);
async fn replaced_container_is_removed_by_its_cell_once_its_lrp_is_desired_again(kind: Kind) {
    let server = updating(kind, 1).await;
    claim_new(&server, 0, "new-0").await;
    assert_eq!(remove_lrp(&server).await, None);
    desire(&server, version_1()).await;
    assert_eq!(
        call_error(&server, REMOVE, &remove(0, Some("old-0"))).await,
        None
    );
    let rows = rows(&server).await;
    assert!(
        !rows.is_empty() && rows.iter().all(|row| !row.contains("old-0")),
        "{rows:?}"
    );
}

on_each_layout!(container_whose_waiting_successor_is_not_desired_is_removed_by_its_cell);
async fn container_whose_waiting_successor_is_not_desired_is_removed_by_its_cell(kind: Kind) {
    let server = updating(kind, 1).await;
    settle(&server).await;
    let mut subscription = subscribe(&server);
    let none = proto::DesiredLrpUpdate {
        instances: Some(0),
        ..Default::default()
    };
    assert_eq!(update(&server, none).await, None);
    assert_eq!(
        published(&server, &mut subscription).await,
        [
            "0:UNCLAIMED:+1:RUNNING:old-0 -> 1:RUNNING:old-0",
            "1:RUNNING:old-0 -> 0:RUNNING:old-0"
        ]
    );
    assert_eq!(rows(&server).await, ["0/0 RUNNING old-0 version-1"]);
    assert_eq!(
        call_error(&server, REMOVE, &remove(0, Some("old-0"))).await,
        None
    );
    until_done(&server).await;
}

on_each_layout!(container_whose_successor_was_removed_first_is_removed_by_its_cell);
async fn container_whose_successor_was_removed_first_is_removed_by_its_cell(kind: Kind) {
    let neighbours = Neighbours::start();
    // Without its cell, the host removes the row.
    let server = replacing(kind, &neighbours).await;
    start_new_unroutable(&server, 0, "new-0").await;
    let none = proto::DesiredLrpUpdate {
        instances: Some(0),
        ..Default::default()
    };
    assert_eq!(update(&server, none).await, None);
    for name in ["new-0", "old-0"] {
        assert_eq!(
            call_error(&server, REMOVE, &remove(0, Some(name))).await,
            None,
            "{name}"
        );
    }
    until_done(&server).await;
    assert_eq!(rows(&server).await, [""; 0]);
}

on_each_layout!(crash_of_a_replaced_container_leaves_its_successor);
async fn crash_of_a_replaced_container_leaves_its_successor(kind: Kind) {
    let server = updating(kind, 1).await;
    assert_eq!(call_error(&server, CRASH, &crash(0, "old-0")).await, None);
    until_rows(&server, &["0/0 UNCLAIMED  version-2"]).await;
    assert_eq!(images(&server).await[0].crash_count, 0);
}

on_each_layout!(evacuation_of_a_replaced_container_keeps_it_until_its_successor_runs);
async fn evacuation_of_a_replaced_container_keeps_it_until_its_successor_runs(kind: Kind) {
    let server = updating(kind, 1).await;
    let started = start(0, "old-0");
    let request = proto::EvacuateRunningActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("old-0"),
        actual_lrp_net_info: started.actual_lrp_net_info,
        actual_lrp_internal_routes: started.actual_lrp_internal_routes,
        metric_tags: started.metric_tags,
        routable: Some(true),
        availability_zone: started.availability_zone,
    };
    let keeps = async || {
        let reply = server
            .call("/v1.2/actual_lrps/evacuate_running.r1", &request)
            .await;
        reply.message::<proto::EvacuationResponse>().keep_container
    };
    assert!(keeps().await);
    claim_new(&server, 0, "new-0").await;
    assert!(keeps().await);
    assert_eq!(call_error(&server, START, &start(0, "new-0")).await, None);
    until_rows(&server, &["0/0 RUNNING new-0 version-2"]).await;
    assert!(!keeps().await);
    until_done(&server).await;
}

on_each_layout!(convergence_continues_an_update_after_a_restart);
async fn convergence_continues_an_update_after_a_restart(kind: Kind) {
    let server = updating(kind, 2).await;
    // Another host has no hint of the update.
    let clients = bbs::testing::clients::Clients::default();
    let events = bbs::testing::events::Events::default();
    let measures = server.service.measures().clone();
    let other = bbs::testing::domain::Service::new(
        server.store.clone(),
        events,
        clients,
        Policy::default(),
        measures,
    );
    claim_new(&server, 0, "new-0").await;
    server
        .sql(&format!(
            "UPDATE actual_lrps SET state = 'RUNNING', routable = {} WHERE instance_guid = 'new-0'",
            if kind == Kind::Postgres { "true" } else { "1" }
        ))
        .await;
    convergence::run(&other).await.unwrap();
    until_rows(&server, &SECOND_OF_TWO).await;
}
