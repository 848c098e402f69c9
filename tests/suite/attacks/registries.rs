//! Registries that send without end: a pull reads each answer up to a limit.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::PATIENCE;
use crate::harness::watch::run_within_memory;

/// The bytes of an answer, if the client reads all of them.
const ANSWER_BYTES: usize = 1 << 30;

/// The part of an answer that a registry sends without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endless {
    Manifest,
    Token,
    Error,
    ErrorOfTokens,
}

/// A registry that answers each request with a connection of its own.
async fn registry(endless: Endless) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            // The client closes a connection of which it has read enough.
            tokio::spawn(async move { answer(connection, address, endless).await.ok() });
        }
    });
    address
}

async fn answer(
    connection: TcpStream,
    address: SocketAddr,
    endless: Endless,
) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        if connection.read_line(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let has_tokens = matches!(endless, Endless::Token | Endless::ErrorOfTokens);
    if request.starts_with("GET /v2/ ") {
        let challenge = format!(
            "WWW-Authenticate: Bearer realm=\"http://{address}/token\",service=\"tests\"\r\n"
        );
        let (status, challenge) = if has_tokens {
            ("401 Unauthorized", challenge.as_str())
        } else {
            ("200 OK", "")
        };
        let head = format!(
            "HTTP/1.1 {status}\r\n{challenge}Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
        return connection.write_all(head.as_bytes()).await;
    }
    let status = match endless {
        Endless::Manifest | Endless::Token => "200 OK",
        Endless::Error | Endless::ErrorOfTokens => "500 Internal Server Error",
    };
    connection
        .write_all(
            format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{{\"token\":\"").as_bytes(),
        )
        .await?;
    let part = vec![b'x'; 1 << 20];
    for _ in 0..ANSWER_BYTES / part.len() {
        connection.write_all(&part).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_answers_of_a_registry_are_read_up_to_a_limit() {
    let cases = [
        (
            Endless::Manifest,
            "sends a manifest of more than 4194304 bytes",
        ),
        (Endless::Token, "sends a token of more than 1048576 bytes"),
        (Endless::Error, "the registry failed at"),
        (
            Endless::ErrorOfTokens,
            "its token service answers 500 Internal Server Error",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (endless, words) in cases {
        let reference = format!("oci://{}/diego/modules:1.0", registry(endless).await);
        let mut command = crate::harness::command();
        command
            .args([
                "module",
                "pull",
                &reference,
                "--into",
                "pulled",
                "--insecure-http",
            ])
            .current_dir(&folder);
        command.env("NO_PROXY", "127.0.0.1");
        let running = run_within_memory(command);
        let output = tokio::time::timeout(PATIENCE, running)
            .await
            .expect("the command ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(words),
            "{endless:?}: {errors}"
        );
        assert!(!folder.path().join("pulled").exists(), "{endless:?}");
    }
}
