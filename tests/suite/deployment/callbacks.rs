//! The ends of tasks that a host could not tell before it was ended: the next master tells them.

use std::collections::BTreeSet;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::life::end;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::deployment::Deployment;
use crate::harness::host::Host;
use crate::harness::neighbours::{Say, StandIn};
use crate::tasks::definition;

const GUIDS: [&str; 3] = ["being-told", "waits", "has-no-place"];

async fn call(deployment: &Deployment, host: &Host, path: &str, request: &impl Message) {
    let call = deployment.client().post(format!("https://{}/v1/tasks/{path}", host.address));
    let body = call.body(request.encode_to_vec()).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(proto::TaskLifecycleResponse::decode(&body[..]).unwrap().error, None, "{path}");
}

on_each_database!(a_host_that_is_ended_waits_for_no_receiver_and_the_next_one_tells_it);
async fn a_host_that_is_ended_waits_for_no_receiver_and_the_next_one_tells_it(kind: Kind) {
    let receiver = StandIn::start_plain();
    let deployment = Deployment::new(kind).set("task_callback_workers", 1).set("communication_timeout", "10m");
    let host = deployment.serve().await;
    receiver.say(&[Say::Nothing]);
    for guid in GUIDS {
        let (task_guid, cell_id) = (guid.as_bytes().to_vec(), b"cell".to_vec());
        let completion_callback_url = format!("{}/{guid}", receiver.url()).into();
        let task_definition = Some(proto::TaskDefinition { completion_callback_url, ..definition() });
        let domain = b"domain".to_vec();
        let desire = proto::DesireTaskRequest { task_definition, task_guid: task_guid.clone(), domain };
        call(&deployment, &host, "desire.r2", &desire).await;
        let start = proto::StartTaskRequest { task_guid: task_guid.clone(), cell_id: cell_id.clone() };
        call(&deployment, &host, "start", &start).await;
        let complete = proto::CompleteTaskRequest { task_guid, cell_id, ..Default::default() };
        call(&deployment, &host, "complete", &complete).await;
        if guid == GUIDS[0] {
            assert_eq!(receiver.hears(1).await[0].path, "/being-told");
        }
    }
    host.signal("TERM");
    assert_eq!(end(host).await.0, Some(0), "it does not wait for ten minutes");
    assert_eq!(receiver.heard(), [], "one at a time");

    let deployment = deployment.set("kick_task_duration", "1s").set("converge_repeat_interval", "1s");
    let host = deployment.serve().await;
    // One that takes longer than a second is told again.
    let mut told = BTreeSet::new();
    while told.len() < GUIDS.len() {
        told.extend(receiver.hears(1).await.into_iter().map(|heard| heard.path));
    }
    assert_eq!(told.into_iter().collect::<Vec<_>>(), ["/being-told", "/has-no-place", "/waits"]);
    loop {
        let list = deployment.client().post(format!("https://{}/v1/tasks/list.r3", host.address));
        let body = list.send().await.unwrap().bytes().await.unwrap();
        let left = proto::TasksResponse::decode(&body[..]).unwrap();
        assert_eq!(left.error, None);
        if left.tasks.is_empty() {
            break;
        }
    }
    host.signal("TERM");
    assert_eq!(end(host).await.0, Some(0));
}
