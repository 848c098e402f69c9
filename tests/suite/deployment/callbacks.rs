//! Task callbacks that a host did not finish before it was terminated: the next master posts them.

use std::collections::BTreeSet;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use super::lifecycle::end;
use crate::harness::database::{Kind, on_each_database};
use crate::harness::deployment::Deployment;
use crate::harness::host::Host;
use crate::harness::neighbours::{StubReply, StubServer};
use crate::tasks::definition;

const GUIDS: [&str; 3] = ["in-progress", "queued", "not-queued"];

async fn call(deployment: &Deployment, host: &Host, path: &str, request: &impl Message) {
    let answer: proto::TaskLifecycleResponse = deployment
        .call(host, &format!("tasks/{path}"), request)
        .await;
    assert_eq!(answer.error, None, "{path}");
}

on_each_database!(callbacks_unfinished_at_termination_are_posted_by_the_next_host);
async fn callbacks_unfinished_at_termination_are_posted_by_the_next_host(kind: Kind) {
    let receiver = StubServer::start_plain();
    let deployment = Deployment::new(kind)
        .set("task_callback_workers", 1)
        .set("communication_timeout", "10m");
    let host = deployment.serve().await;
    receiver.reply_next(&[StubReply::Never]);
    for guid in GUIDS {
        let task_guid = guid.as_bytes().to_vec();
        let cell_id = b"cell".to_vec();
        let completion_callback_url = format!("{}/{guid}", receiver.url()).into();
        let task_definition = Some(proto::TaskDefinition {
            completion_callback_url,
            ..definition()
        });
        let domain = b"domain".to_vec();
        let desire = proto::DesireTaskRequest {
            task_definition,
            task_guid: task_guid.clone(),
            domain,
        };
        call(&deployment, &host, "desire.r2", &desire).await;
        let start = proto::StartTaskRequest {
            task_guid: task_guid.clone(),
            cell_id: cell_id.clone(),
        };
        call(&deployment, &host, "start", &start).await;
        let complete = proto::CompleteTaskRequest {
            task_guid,
            cell_id,
            ..Default::default()
        };
        call(&deployment, &host, "complete", &complete).await;
        if guid == GUIDS[0] {
            assert_eq!(receiver.wait_for_requests(1).await[0].path, "/in-progress");
        }
    }
    host.signal("TERM");
    assert_eq!(
        end(host).await.0,
        Some(0),
        "it does not wait for the timeout of ten minutes"
    );
    assert_eq!(receiver.take_requests(), [], "one callback at a time");

    let deployment = deployment
        .set("kick_task_duration", "1s")
        .set("converge_repeat_interval", "1s");
    let host = deployment.serve().await;
    // A callback that takes longer than a second is posted again.
    let mut received = BTreeSet::new();
    while received.len() < GUIDS.len() {
        received.extend(
            receiver
                .wait_for_requests(1)
                .await
                .into_iter()
                .map(|request| request.path),
        );
    }
    assert_eq!(
        received.into_iter().collect::<Vec<_>>(),
        ["/in-progress", "/not-queued", "/queued"]
    );
    loop {
        let left: proto::TasksResponse = deployment.call(&host, "tasks/list.r3", &()).await;
        assert_eq!(left.error, None);
        if left.tasks.is_empty() {
            break;
        }
    }
    host.signal("TERM");
    assert_eq!(end(host).await.0, Some(0));
}
