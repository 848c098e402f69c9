//! Requests that follow from calls about tasks: an auction for a desired one, a cancellation at the
//! cell of a running one.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::models::task::State;
use bbs_proto::prost::Message;
use serde_json::json;

use super::{by_guid, definition, desire, get, start};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::neighbours::StubReply;
use crate::harness::server::Server;

async fn is_cancelled(server: &Server, guid: &str) -> bool {
    let task = get(server, guid).await.unwrap();
    (task.state(), task.failed, &task.failure_reason[..])
        == (State::Completed, true, b"task was cancelled")
}

on_each_database!(desired_task_is_auctioned_once_and_kept_if_the_auction_fails);
async fn desired_task_is_auctioned_once_and_kept_if_the_auction_fails(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    let cases = [
        ("accepted", StubReply::Status(202), 1),
        ("refused", StubReply::Status(500), 3),
        ("lost", StubReply::HangUp, 3),
    ];
    for (guid, reply, attempts) in cases {
        neighbours.auctioneer.reply_always(reply);
        assert_eq!(
            desire(&server, guid).await,
            Ok(()),
            "convergence retries the auction"
        );
        let requests = neighbours.auctioneer.take_requests();
        assert_eq!(
            (requests[0].path.as_str(), requests[0].trace_id.as_deref()),
            ("/v1/tasks", Some(""))
        );
        assert_eq!(requests[0].body[0]["TaskGuid"], json!(guid));
        assert_eq!(requests.len(), attempts, "{guid}");
        assert_eq!(
            get(&server, guid).await.unwrap().task_definition,
            Some(definition())
        );
    }
}

on_each_database!(cancelling_a_running_task_requests_cancellation_from_its_cell);
async fn cancelling_a_running_task_requests_cancellation_from_its_cell(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    for guid in ["runs", "fails", "lost", "nowhere", "waits"] {
        desire(&server, guid).await.unwrap();
    }
    for guid in ["runs", "fails"] {
        start(&server, guid, "cell-a").await.unwrap();
    }
    start(&server, "lost", "cell-b").await.unwrap();
    let request = proto::TaskGuidRequest {
        task_guid: b"runs".to_vec(),
    };
    let headers = [("x-vcap-request-id", "a-trace")];
    let reply = server
        .send(
            "POST",
            "/v1/tasks/cancel",
            &headers,
            request.encode_to_vec(),
        )
        .await;
    reply.assert_no_error();
    let requests = neighbours.rep.take_requests();
    assert_eq!(
        (requests[0].method.as_str(), requests[0].path.as_str()),
        ("POST", "/v1/tasks/runs/cancel")
    );
    assert_eq!(
        (requests[0].trace_id.as_deref(), requests.len()),
        (Some("a-trace"), 1)
    );

    neighbours.rep.reply_next(&[StubReply::Status(500)]);
    for guid in ["fails", "lost", "waits"] {
        assert_eq!(
            by_guid(&server, "cancel", guid).await,
            Ok(()),
            "{guid}: it is completed in any case"
        );
        assert!(is_cancelled(&server, guid).await);
    }
    assert_eq!(
        neighbours.rep.take_requests().len(),
        1,
        "the others run on no present cell"
    );
    start(&server, "nowhere", "cell-a").await.unwrap();
    neighbours.locket.set_unavailable(true);
    assert_eq!(by_guid(&server, "cancel", "nowhere").await, Ok(()));
    assert!(is_cancelled(&server, "nowhere").await && neighbours.rep.take_requests().is_empty());
}

on_each_database!(task_of_a_cell_without_an_https_address_is_cancelled_with_an_error);
async fn task_of_a_cell_without_an_https_address_is_cancelled_with_an_error(kind: Kind) {
    let (server, neighbours) = Server::with_neighbours(kind).await;
    neighbours.add_cell_at("cell-a", "http://127.0.0.1:1");
    desire(&server, "task").await.unwrap();
    start(&server, "task", "cell-a").await.unwrap();
    let (kind, text) = by_guid(&server, "cancel", "task").await.unwrap_err();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("https"), "{text}");
    assert!(is_cancelled(&server, "task").await);
}
