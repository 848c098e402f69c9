//! Every call about tasks: its effect and each of its errors.

use bbs::testing::events::Topic;
use bbs_model::change::RecordChange;
use bbs_model::task::TaskState;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::models::task::State;

use super::{
    by_guid, complete, definition, desire, desire_request, get, no_transition, not_found, reject,
    start, try_call,
};
use crate::harness::database::Kind;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::server::{NOW_NS, Server};

on_layouts_of_sqlite!(task_passes_through_all_states);
async fn task_passes_through_all_states(kind: Kind) {
    let server = Server::empty(kind).await;
    assert_eq!(desire(&server, "task").await, Ok(()));
    let pending = get(&server, "task").await.unwrap();
    assert_eq!(
        (pending.state(), pending.created_at, pending.updated_at),
        (State::Pending, NOW_NS, NOW_NS)
    );
    assert_eq!(
        (&pending.domain[..], pending.task_definition),
        (&b"domain"[..], Some(definition()))
    );

    server.clock.set(NOW_NS + 1);
    assert_eq!(start(&server, "task", "cell").await, Ok(true));
    assert_eq!(
        start(&server, "task", "cell").await,
        Ok(false),
        "it is running on that cell already"
    );
    let running = get(&server, "task").await.unwrap();
    assert_eq!(
        (running.state(), &running.cell_id[..], running.updated_at),
        (State::Running, &b"cell"[..], NOW_NS + 1)
    );

    server.clock.set(NOW_NS + 2);
    assert_eq!(complete(&server, "task", "cell").await, Ok(()));
    let ended = get(&server, "task").await.unwrap();
    assert_eq!(
        (ended.state(), ended.cell_id.len(), ended.failed),
        (State::Completed, 0, true)
    );
    assert_eq!(
        (&ended.failure_reason[..], &ended.result[..]),
        (&b"exit 1"[..], &b"output"[..])
    );
    assert_eq!(
        (ended.updated_at, ended.first_completed_at),
        (NOW_NS + 2, NOW_NS + 2)
    );

    assert_eq!(by_guid(&server, "resolving", "task").await, Ok(()));
    assert_eq!(
        get(&server, "task").await.unwrap().state(),
        State::Resolving
    );
    assert_eq!(by_guid(&server, "delete", "task").await, Ok(()));
    assert_eq!(get(&server, "task").await, not_found());
    assert_eq!(
        server.texts("SELECT guid FROM tasks").await,
        Vec::<String>::new()
    );
}

on_layouts_of_sqlite!(calls_that_do_not_fit_the_task_state_are_rejected_and_change_nothing);
async fn calls_that_do_not_fit_the_task_state_are_rejected_and_change_nothing(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, "task").await.unwrap();
    let exists = (
        Type::ResourceExists,
        "the requested resource already exists".to_owned(),
    );
    assert_eq!(desire(&server, "task").await, Err(exists));
    assert_eq!(
        complete(&server, "task", "cell").await,
        no_transition("Pending", "Completed")
    );
    assert_eq!(
        by_guid(&server, "resolving", "task").await,
        no_transition("Pending", "Resolving")
    );
    assert_eq!(
        by_guid(&server, "delete", "task").await,
        no_transition("Pending", "Resolving")
    );

    start(&server, "task", "cell").await.unwrap();
    let before = get(&server, "task").await;
    assert_eq!(
        start(&server, "task", "other").await,
        no_transition("Running", "Running")
    );
    let elsewhere = (
        Type::RunningOnDifferentCell,
        "Running on cell cell not other".to_owned(),
    );
    assert_eq!(complete(&server, "task", "other").await, Err(elsewhere));
    assert_eq!(get(&server, "task").await, before);

    complete(&server, "task", "cell").await.unwrap();
    assert_eq!(
        start(&server, "task", "cell").await,
        no_transition("Completed", "Running")
    );
    assert_eq!(
        by_guid(&server, "cancel", "task").await,
        no_transition("Completed", "Completed")
    );
    let rejection = (
        Type::InvalidRequest,
        "the request received is invalid".to_owned(),
    );
    assert_eq!(reject(&server, "task").await, Err(rejection));

    for call in ["cancel", "resolving", "delete"] {
        assert_eq!(
            by_guid(&server, call, "absent").await,
            not_found(),
            "{call}"
        );
    }
    assert_eq!(start(&server, "absent", "cell").await, not_found());
    assert_eq!(complete(&server, "absent", "cell").await, not_found());
    assert_eq!(reject(&server, "absent").await, not_found());
}

on_layouts_of_sqlite!(pending_and_running_tasks_can_be_cancelled);
async fn pending_and_running_tasks_can_be_cancelled(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, "pending").await.unwrap();
    desire(&server, "running").await.unwrap();
    start(&server, "running", "cell").await.unwrap();
    for guid in ["pending", "running"] {
        assert_eq!(by_guid(&server, "cancel", guid).await, Ok(()));
        let task = get(&server, guid).await.unwrap();
        assert_eq!(
            (task.state(), task.failed, task.cell_id.len()),
            (State::Completed, true, 0)
        );
        assert_eq!(task.failure_reason, b"task was cancelled");
    }
}

on_layouts_of_sqlite!(task_rejected_four_times_fails);
async fn task_rejected_four_times_fails(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, "task").await.unwrap();
    for count in 1..=3 {
        assert_eq!(reject(&server, "task").await, Ok(()));
        let task = get(&server, "task").await.unwrap();
        assert_eq!(
            (task.state(), task.rejection_count),
            (State::Pending, count)
        );
        assert_eq!(task.rejection_reason, b"no room");
    }
    let mut events = server.service.events().subscribe(Topic::Tasks).unwrap();
    assert_eq!(reject(&server, "task").await, Ok(()));
    let task = get(&server, "task").await.unwrap();
    assert_eq!(
        (task.state(), task.rejection_count, task.failed),
        (State::Completed, 4, true)
    );
    assert_eq!(task.failure_reason, b"no room");
    assert_eq!(
        reject(&server, "task").await,
        no_transition("Completed", "Completed"),
        "the failure is answered, not the rejection"
    );
    by_guid(&server, "resolving", "task").await.unwrap();
    let mut published = Vec::new();
    for _ in 0..2 {
        let event = events.next().await.unwrap();
        let RecordChange::Task { after, .. } = &event.change else {
            panic!("another event: {event:?}");
        };
        published.push(after.as_ref().map(|task| task.state()));
    }
    let ended = [TaskState::Completed, TaskState::Resolving].map(Some);
    assert_eq!(published, ended, "one event of the last rejection");
}

on_layouts_of_sqlite!(rejection_reason_that_is_too_long_is_truncated);
async fn rejection_reason_that_is_too_long_is_truncated(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, "task").await.unwrap();
    let request = proto::RejectTaskRequest {
        task_guid: b"task".to_vec(),
        rejection_reason: vec![b'x'; 5000],
    };
    assert_eq!(
        try_call(&server, "/v1/tasks/reject", &request).await,
        Ok(())
    );
    let reason = get(&server, "task").await.unwrap().rejection_reason;
    assert_eq!(
        (reason.len(), reason.ends_with(b"x(truncated)")),
        (1024, true)
    );
}

on_layouts_of_sqlite!(task_fails_at_the_deprecated_route);
async fn task_fails_at_the_deprecated_route(kind: Kind) {
    const PATH: &str = "/v1/tasks/fail";
    let server = Server::with_translators(kind).await;
    let request = |guid: &str, reason: &str| proto::FailTaskRequest {
        task_guid: guid.into(),
        failure_reason: reason.into(),
    };
    let invalid = |what: &str| Err((Type::InvalidRequest, format!("Invalid field: {what}")));
    assert_eq!(
        try_call(&server, PATH, &request("no guid", "why")).await,
        invalid("task_guid")
    );
    assert_eq!(
        try_call(&server, PATH, &request("task", "")).await,
        invalid("failure_reason")
    );
    assert_eq!(
        try_call(&server, PATH, &request("task", "why"))
            .await
            .unwrap_err()
            .0,
        Type::ResourceNotFound
    );
    for (guid, is_running) in [("pending", false), ("running", true)] {
        desire(&server, guid).await.unwrap();
        if is_running {
            start(&server, guid, "cell").await.unwrap();
        }
        assert_eq!(try_call(&server, PATH, &request(guid, "why")).await, Ok(()));
        let task = get(&server, guid).await.unwrap();
        assert_eq!(
            (task.state(), task.failed, &task.failure_reason[..]),
            (State::Completed, true, &b"why"[..])
        );
        let error = try_call(&server, PATH, &request(guid, "why"))
            .await
            .unwrap_err();
        assert_eq!(
            error,
            (
                Type::InvalidStateTransition,
                "Cannot transition from Completed to Completed".into()
            )
        );
    }
    let native = Server::empty(kind).await;
    assert_eq!(
        native.post(PATH, []).await.status,
        404,
        "the route belongs to the translator"
    );
}

on_layouts_of_sqlite!(invalid_task_requests_are_rejected);
async fn invalid_task_requests_are_rejected(kind: Kind) {
    let server = Server::empty(kind).await;
    let invalid = |what: &str| Err((Type::InvalidRequest, format!("Invalid field: {what}")));
    assert_eq!(desire(&server, "no guid").await, invalid("task_guid"));
    let without = proto::DesireTaskRequest {
        task_definition: None,
        ..desire_request("task")
    };
    assert_eq!(
        try_call(&server, "/v1/tasks/desire.r2", &without).await,
        invalid("task_definition")
    );
    assert_eq!(
        start(&server, "task", "").await.map(drop),
        invalid("cell_id")
    );
    assert_eq!(complete(&server, "task", "").await, invalid("cell_id"));
    let without_reason = proto::RejectTaskRequest {
        task_guid: b"task".to_vec(),
        rejection_reason: Vec::new(),
    };
    assert_eq!(
        try_call(&server, "/v1/tasks/reject", &without_reason).await,
        invalid("failure_reason")
    );
    for call in ["cancel", "resolving", "delete"] {
        assert_eq!(
            by_guid(&server, call, "").await,
            invalid("task_guid"),
            "{call}"
        );
    }
    assert_eq!(get(&server, "").await.map(drop), invalid("task_guid"));
}

on_layouts_of_sqlite!(one_of_many_concurrent_starts_succeeds);
async fn one_of_many_concurrent_starts_succeeds(kind: Kind) {
    let server = Server::empty(kind).await;
    desire(&server, "task").await.unwrap();
    let cells: Vec<String> = (0..8).map(|cell| format!("cell-{cell}")).collect();
    let started =
        futures_util::future::join_all(cells.iter().map(|cell| start(&server, "task", cell))).await;
    assert_eq!(
        started
            .iter()
            .filter(|started| **started == Ok(true))
            .count(),
        1,
        "{started:?}"
    );
    let running = String::from_utf8(get(&server, "task").await.unwrap().cell_id).unwrap();
    assert_eq!(
        started[cells.iter().position(|cell| *cell == running).unwrap()],
        Ok(true)
    );
}
