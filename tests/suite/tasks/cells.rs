//! What calls about tasks ask of others: the auctioneer to place them, a cell to end what is cancelled.

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::models::task::State;
use bbs_proto::prost::Message;
use serde_json::json;

use super::{by_guid, definition, desire, get, start};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::neighbours::{Neighbours, Say};
use crate::harness::server::{Options, Server};

async fn around(kind: Kind) -> (Server, Neighbours) {
    let neighbours = Neighbours::start();
    let server = Server::start(Options { kind, clients: neighbours.clients(), ..Options::default() }).await;
    (server, neighbours)
}

async fn is_cancelled(server: &Server, guid: &str) -> bool {
    let task = get(server, guid).await.unwrap();
    (task.state(), task.failed, &task.failure_reason[..]) == (State::Completed, true, b"task was cancelled")
}

on_each_database!(a_task_is_auctioned_once_it_is_desired_whatever_the_auctioneer_says);
async fn a_task_is_auctioned_once_it_is_desired_whatever_the_auctioneer_says(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    neighbours.auctioneer.say(&[Say::Status(202), Say::Status(500), Say::HangUp]);
    for guid in ["accepted", "refused", "unheard"] {
        assert_eq!(desire(&server, guid).await, Ok(()), "convergence asks again");
        let heard = neighbours.auctioneer.heard();
        assert_eq!((heard[0].path.as_str(), heard[0].trace_id.as_deref()), ("/v1/tasks", Some("")));
        assert_eq!(heard[0].body[0]["TaskGuid"], json!(guid));
        assert_eq!(heard.len(), 1);
        assert_eq!(get(&server, guid).await.unwrap().task_definition, Some(definition()));
    }
}

on_each_database!(the_cell_of_a_cancelled_task_is_asked_to_end_it);
async fn the_cell_of_a_cancelled_task_is_asked_to_end_it(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    for guid in ["runs", "fails", "lost", "nowhere", "waits"] {
        desire(&server, guid).await.unwrap();
    }
    for guid in ["runs", "fails"] {
        start(&server, guid, "cell-a").await.unwrap();
    }
    start(&server, "lost", "cell-b").await.unwrap();
    let request = proto::TaskGuidRequest { task_guid: b"runs".to_vec() };
    let headers = [("x-vcap-request-id", "a-trace")];
    let reply = server.send("POST", "/v1/tasks/cancel", &headers, request.encode_to_vec()).await;
    assert_eq!(reply.message::<proto::TaskLifecycleResponse>().error, None);
    let heard = neighbours.rep.heard();
    assert_eq!((heard[0].method.as_str(), heard[0].path.as_str()), ("POST", "/v1/tasks/runs/cancel"));
    assert_eq!((heard[0].trace_id.as_deref(), heard.len()), (Some("a-trace"), 1));

    neighbours.rep.say(&[Say::Status(500)]);
    for guid in ["fails", "lost", "waits"] {
        assert_eq!(by_guid(&server, "cancel", guid).await, Ok(()), "{guid}: it is over all the same");
        assert!(is_cancelled(&server, guid).await);
    }
    assert_eq!(neighbours.rep.heard().len(), 1, "nobody runs the others");
    start(&server, "nowhere", "cell-a").await.unwrap();
    neighbours.locket.be_silent(true);
    assert_eq!(by_guid(&server, "cancel", "nowhere").await, Ok(()));
    assert!(is_cancelled(&server, "nowhere").await && neighbours.rep.heard().is_empty());
}

on_each_database!(a_cell_without_a_secure_address_is_said_though_the_task_is_over);
async fn a_cell_without_a_secure_address_is_said_though_the_task_is_over(kind: Kind) {
    let (server, neighbours) = around(kind).await;
    neighbours.show_at("cell-a", "http://127.0.0.1:1");
    desire(&server, "task").await.unwrap();
    start(&server, "task", "cell-a").await.unwrap();
    let (kind, text) = by_guid(&server, "cancel", "task").await.unwrap_err();
    assert_eq!(kind, Type::UnknownError);
    assert!(text.contains("https"), "{text}");
    assert!(is_cancelled(&server, "task").await);
}
