//! Attacks by modules, clients, peers and files: none ends the host, takes its memory over the
//! limit or blocks native calls.

mod answers;
mod bodies;
pub mod compilation;
mod connections;
mod files;
mod migrations;
mod peers;
mod raw_sockets;
pub(crate) mod records;
mod registries;
mod soak;
mod subscribers;
mod translators;

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a request without a body, and reads only the beginning of the response.
async fn half_read(address: SocketAddr, verb_and_path: &str) -> TcpStream {
    let mut connection = TcpStream::connect(address).await.expect("the host accepts");
    let request = format!("{verb_and_path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    connection
        .write_all(request.as_bytes())
        .await
        .expect("the host reads");
    let mut head = [0; 12];
    connection
        .read_exact(&mut head)
        .await
        .expect("the host answers");
    assert_eq!(&head, b"HTTP/1.1 200");
    connection
}
