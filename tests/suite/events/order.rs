//! Events of records that are changed concurrently: in commit order and complete, so that a
//! subscriber ends with the stored state.

use std::collections::BTreeMap;

use bbs_proto::models as proto;
use futures_util::future::join_all;

use crate::api::{desire, lrp};
use crate::harness::database::Kind;
use crate::harness::event_stream::{EventStream, INSTANCES, ReceivedEvent, TASKS};
use crate::harness::layouts::on_each_layout;
use crate::harness::server::Server;

/// The events of each task, as the images before and after.
type Chains = BTreeMap<Vec<u8>, Vec<(Option<proto::Task>, Option<proto::Task>)>>;

fn chains(events: &[ReceivedEvent]) -> Chains {
    let mut chains = Chains::new();
    for event in events {
        let (before, after) = match event.name.as_str() {
            "task_created" => (None, event.message::<proto::TaskCreatedEvent>().task),
            "task_removed" => (event.message::<proto::TaskRemovedEvent>().task, None),
            _ => {
                let changed: proto::TaskChangedEvent = event.message();
                (changed.before, changed.after)
            }
        };
        let guid = before
            .as_ref()
            .or(after.as_ref())
            .unwrap()
            .task_guid
            .clone();
        chains.entry(guid).or_default().push((before, after));
    }
    chains
}

on_each_layout!(events_of_each_task_follow_the_order_of_its_changes);
async fn events_of_each_task_follow_the_order_of_its_changes(kind: Kind) {
    const GUIDS: [&[u8]; 3] = [b"a", b"b", b"c"];
    let server = Server::empty(kind).await;
    let listener = EventStream::open(server.url(TASKS), "").await;
    join_all((0..6).map(|seed| {
        let server = &server;
        let mut random = fastrand::Rng::with_seed(seed);
        async move {
            for _ in 0..40 {
                let task_guid = GUIDS[random.usize(..GUIDS.len())].to_vec();
                let domain = b"d".to_vec();
                let cell_id = b"cell".to_vec();
                let guid = task_guid.clone();
                // Longer than what is stored of it.
                let rejection_reason = vec![b'y'; 2_000];
                let task_definition = Some(crate::tasks::definition());
                let by_guid = proto::TaskGuidRequest { task_guid: guid };
                match random.u8(..6) {
                    0 => {
                        let request = proto::DesireTaskRequest {
                            task_definition,
                            task_guid,
                            domain,
                        };
                        server.call("/v1/tasks/desire.r2", &request).await
                    }
                    1 => {
                        server
                            .call(
                                "/v1/tasks/start",
                                &proto::StartTaskRequest { task_guid, cell_id },
                            )
                            .await
                    }
                    2 => {
                        let request = proto::RejectTaskRequest {
                            task_guid,
                            rejection_reason,
                        };
                        server.call("/v1/tasks/reject", &request).await
                    }
                    3 => server.call("/v1/tasks/cancel", &by_guid).await,
                    4 => server.call("/v1/tasks/resolving", &by_guid).await,
                    _ => server.call("/v1/tasks/delete", &by_guid).await,
                };
            }
        }
    }))
    .await;
    server.gate.end_streams();
    let events = listener.rest().await;
    assert!(events.len() > 20, "{} events", events.len());
    let found: proto::TasksResponse = server.post("/v1/tasks/list.r3", []).await.message();
    for (guid, chain) in chains(&events) {
        let stored = found
            .tasks
            .iter()
            .find(|task| task.task_guid == guid)
            .cloned();
        assert_eq!(chain[0].0, None);
        for pair in chain.windows(2) {
            assert_eq!(
                pair[0].1, pair[1].0,
                "each event starts from the state that the previous one left"
            );
        }
        assert_eq!(
            chain.last().unwrap().1,
            stored,
            "the last event has the stored state"
        );
    }
}

/// A routing table: the address of each container, by index, instance guid and whether it is
/// evacuating.
type Endpoints = BTreeMap<(i32, Vec<u8>, bool), Vec<u8>>;

struct ObservedInstance {
    key: proto::ActualLrpKey,
    instance: proto::ActualLrpInstanceKey,
    state: Vec<u8>,
    presence: i32,
    address: Vec<u8>,
}

impl ObservedInstance {
    fn of(lrp: proto::ActualLrp) -> Self {
        Self {
            key: lrp.actual_lrp_key.unwrap(),
            instance: lrp.actual_lrp_instance_key.unwrap(),
            state: lrp.state,
            presence: lrp.presence,
            address: lrp.actual_lrp_net_info.unwrap().address,
        }
    }

    fn info(changed: &proto::ActualLrpInstanceChangedEvent, info: proto::ActualLrpInfo) -> Self {
        Self {
            key: changed.actual_lrp_key.clone().unwrap(),
            instance: changed.actual_lrp_instance_key.clone().unwrap(),
            state: info.state,
            presence: info.presence,
            address: info.actual_lrp_net_info.unwrap().address,
        }
    }

    fn is_running(&self) -> bool {
        self.state == b"RUNNING"
    }

    fn endpoint(&self) -> (i32, Vec<u8>, bool) {
        let evacuating = self.presence == i32::from(proto::actual_lrp::Presence::Evacuating);
        (
            self.key.index,
            self.instance.instance_guid.clone(),
            evacuating,
        )
    }
}

fn route(endpoints: &mut Endpoints, event: &ReceivedEvent) {
    let (removed, added) = match event.name.as_str() {
        "actual_lrp_instance_created" => (
            None,
            event
                .message::<proto::ActualLrpInstanceCreatedEvent>()
                .actual_lrp
                .map(ObservedInstance::of),
        ),
        "actual_lrp_instance_removed" => (
            event
                .message::<proto::ActualLrpInstanceRemovedEvent>()
                .actual_lrp
                .map(ObservedInstance::of),
            None,
        ),
        "actual_lrp_instance_changed" => {
            let mut changed: proto::ActualLrpInstanceChangedEvent = event.message();
            let before = changed.before.take().unwrap();
            let after = changed.after.take().unwrap();
            (
                Some(ObservedInstance::info(&changed, before)),
                Some(ObservedInstance::info(&changed, after)),
            )
        }
        _ => (None, None),
    };
    if let Some(removed) = removed.filter(ObservedInstance::is_running) {
        endpoints.remove(&removed.endpoint());
    }
    if let Some(added) = added.filter(ObservedInstance::is_running) {
        endpoints.insert(added.endpoint(), added.address);
    }
}

const CONTAINERS: [&str; 3] = ["a", "b", "c"];

/// Makes one random call of a cell or the auctioneer about an instance.
async fn random_call(server: &Server, random: &mut fastrand::Rng) {
    let container = CONTAINERS[random.usize(..CONTAINERS.len())];
    let index = random.i32(0..2);
    let actual_lrp_key = Some(proto::ActualLrpKey {
        process_guid: b"guid".to_vec(),
        index,
        domain: b"domain".to_vec(),
    });
    let instance_guid = format!("{container}{index}").into_bytes();
    let cell_id = container.into();
    let actual_lrp_instance_key = Some(proto::ActualLrpInstanceKey {
        instance_guid,
        cell_id,
    });
    let address = format!("10.0.0.{}", random.u8(..4)).into_bytes();
    let actual_lrp_net_info = Some(proto::ActualLrpNetInfo {
        address,
        ..Default::default()
    });
    let error_message = b"why".to_vec();
    let start = proto::StartActualLrpRequest {
        actual_lrp_key: actual_lrp_key.clone(),
        actual_lrp_instance_key: actual_lrp_instance_key.clone(),
        actual_lrp_net_info: actual_lrp_net_info.clone(),
        ..Default::default()
    };
    // The requests of these routes share their first fields.
    let crash = proto::CrashActualLrpRequest {
        actual_lrp_key: actual_lrp_key.clone(),
        actual_lrp_instance_key: actual_lrp_instance_key.clone(),
        error_message,
    };
    let claim = proto::ClaimActualLrpRequest {
        process_guid: b"guid".to_vec(),
        index,
        actual_lrp_instance_key,
    };
    let path = |name: &str| format!("/v1/actual_lrps/{name}");
    let reply = match random.u8(..14) {
        0..3 => server.call(&path("claim"), &claim).await,
        3..6 => server.call(&path("start.r1"), &start).await,
        6..8 => server.call(&path("evacuate_running.r1"), &start).await,
        8 => server.call(&path("crash"), &crash).await,
        9 => server.call(&path("evacuate_claimed"), &crash).await,
        10 => server.call(&path("evacuate_crashed"), &crash).await,
        11 => server.call(&path("evacuate_stopped"), &crash).await,
        12 => server.call(&path("remove_evacuating"), &crash).await,
        _ => {
            server
                .call(
                    &path("retire"),
                    &proto::RetireActualLrpRequest { actual_lrp_key },
                )
                .await
        }
    };
    assert_eq!(reply.status, 200);
}

on_each_layout!(routing_table_built_from_events_equals_the_running_containers);
async fn routing_table_built_from_events_equals_the_running_containers(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, lrp("guid")).await;
    let listener = EventStream::open(server.url(INSTANCES), "").await;
    join_all((0..4).map(|seed| {
        let server = &server;
        let mut random = fastrand::Rng::with_seed(seed);
        async move {
            for _ in 0..50 {
                random_call(server, &mut random).await;
            }
        }
    }))
    .await;
    server.gate.end_streams();
    let events = listener.rest().await;
    assert!(events.len() > 20, "{} events", events.len());
    let mut endpoints = Endpoints::new();
    events.iter().for_each(|event| route(&mut endpoints, event));
    let found: proto::ActualLrPsResponse = server.post("/v1/actual_lrps/list", []).await.message();
    let running = found
        .actual_lrps
        .into_iter()
        .map(ObservedInstance::of)
        .filter(ObservedInstance::is_running);
    let running: Endpoints = running
        .map(|instance| (instance.endpoint(), instance.address))
        .collect();
    assert_eq!(endpoints, running);
}
