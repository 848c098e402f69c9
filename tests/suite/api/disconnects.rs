//! Clients that disconnect before they have the answer.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{desire, lrp};
use crate::harness::database::Kind;
use crate::harness::server::Server;
use crate::harness::{PATIENCE, pause};

const GUIDS: &str = "SELECT process_guid FROM desired_lrps";

/// In each of some rounds, this runtime reads the sockets that are ready.
async fn rounds() {
    for _ in 0..10 {
        pause().await;
    }
}

/// Goal: a change is not cancelled half way. Method: it waits for an earlier call while its client
/// disconnects.
#[tokio::test]
async fn change_of_a_client_that_disconnects_is_completed() {
    let server = Server::empty(Kind::Sqlite).await;
    desire(&server, lrp("guid")).await;
    let earlier = server.service.lock_key(b"guid").await.unwrap();
    let removal = proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    let body = removal.encode_to_vec();
    let length = body.len();
    let head = format!(
        "POST /v1/desired_lrp/remove HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let request = [head.as_bytes(), &body[..]].concat();
    connection.write_all(&request).await.unwrap();
    rounds().await;
    drop(connection);
    rounds().await;
    assert_eq!(server.texts(GUIDS).await, ["guid"], "it waits");
    drop(earlier);
    let removed = async {
        while !server.texts(GUIDS).await.is_empty() {
            pause().await;
        }
    };
    timeout(PATIENCE, removed).await.expect("it is completed");
}
