//! Connections that send nothing, half of a request or a byte at a time, more than the host may
//! open files.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::database::Kind;
use crate::harness::host::{Host, Installation};
use crate::harness::ports::free_address;
use crate::harness::watch::Watch;
use crate::harness::{modules, until};

/// Files that the host may open, far fewer than the connections of the attack.
const OPEN_FILES: u32 = 160;
const CONNECTIONS: usize = 400;

/// Far above what an answer takes: reached only by a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command whose process may open only a few files.
fn with_few_files(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {OPEN_FILES}; exec \"$0\" \"$@\"")]);
    limited
        .arg(command.get_program())
        .args(command.get_args())
        .env_remove("RUST_LOG");
    limited
}

/// A new connection's answer to a request for this path.
async fn asked(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[track_caller]
fn assert_is_answered(
    answer: Result<std::io::Result<String>, tokio::time::error::Elapsed>,
    what: &str,
) {
    let answer = answer
        .unwrap_or_else(|_| panic!("{what} does not answer"))
        .expect(what);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{what}: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_files_silence_no_port() {
    let health = free_address();
    let metrics = free_address();
    let debug = free_address();
    let installation = Installation::new(&modules::modules(), Kind::Sqlite)
        .set("health_address", health.to_string())
        .set("metrics_address", metrics.to_string())
        .set("debug_address", debug.to_string());
    let host = Host::start(with_few_files(&installation.command(&["serve"])), "serving");
    let api = host.address;
    let mut watch = Watch::on(&host);
    watch.has_begun().await;
    let mut held = Vec::new();
    for address in [api, health, metrics, debug] {
        for number in 0..CONNECTIONS {
            let Ok(Ok(mut connection)) =
                tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await
            else {
                panic!("connection {number} to {address} is not accepted");
            };
            // A third sends nothing, a third half of a head, and a third a part of a body.
            let sent = [
                "",
                "POST /v1/ping HTTP/1.1\r\nHost",
                "POST /v1/ping HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
            ];
            let _ = connection.write_all(sent[number % 3].as_bytes()).await;
            held.push(connection);
        }
        for (address, path, what) in [
            (api, "/v1/ping", "the API"),
            (health, "/", "health"),
            (debug, "/log-level", "debug"),
        ] {
            assert_is_answered(
                tokio::time::timeout(PATIENCE, asked(address, path)).await,
                what,
            );
        }
    }
    drop(held);
    until(|| {
        std::fs::read_dir(format!("/proc/{}/fd", host.pid()))
            .expect("it runs")
            .count()
            < 100
    })
    .await;
    watch.assert_unharmed().await;
}
