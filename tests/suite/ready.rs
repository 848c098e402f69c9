//! `bbs ready`, and a host in a system that has no authorities of certificates.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::harness::database::{Kind, execute};
use crate::harness::fixture::OLDEST;
use crate::harness::host::{Host, Installation};
use crate::harness::modules::modules;
use crate::harness::output::{errors, succeeded};
use crate::harness::ports::free_address;

/// Goal: a host works in a container image and in a small system, which have no authorities of
/// certificates.
#[test]
fn host_and_its_commands_need_no_authorities_of_the_system() {
    let address = free_address();
    let installation =
        Installation::new(&modules(), Kind::Sqlite).set("health_address", address.to_string());
    let without = |arguments: &[&str]| {
        let mut command = installation.command(arguments);
        command
            .env("SSL_CERT_FILE", "/nonexistent")
            .env("SSL_CERT_DIR", "/nonexistent");
        command
    };
    succeeded(without(&["check-config"]).output().unwrap());
    let host = Host::start(without(&["serve"]), "serving");
    let ready = without(&["ready", "--wait", "30"]).output().unwrap();
    assert_eq!(succeeded(ready), "The host is ready.\n");
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_reports_a_host_that_is_healthy_and_the_reason_if_it_is_not() {
    let address = free_address();
    let installation =
        Installation::new(&modules(), Kind::Sqlite).set("health_address", address.to_string());
    let output = installation.run(&["ready"]);
    let message = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains(&format!(
            "the host is not ready: nothing answers at {address}"
        )),
        "{message}"
    );

    let host = installation.serve();
    assert_eq!(
        installation.succeed(&["ready", "--wait", "30"]),
        "The host is ready.\n"
    );
    let result: Value = serde_json::from_str(&installation.succeed(&["ready", "--json"])).unwrap();
    assert_eq!(
        result,
        json!({ "ready": true, "address": address.to_string(), "reason": null })
    );
    host.end().await;
    let output = installation.run(&["ready", "--wait", "1", "--json"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        output.status.code() == Some(1) && result["ready"] == false,
        "{result}"
    );

    let without = Installation::new(&modules(), Kind::Sqlite).run(&["ready"]);
    assert!(errors(&without).contains("the configuration has no `health_address`"));
}

#[tokio::test(flavor = "multi_thread")]
async fn migrated_host_is_ready_after_its_migration() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let installation = installation
        .set("migration_units_per_second", 1)
        .set("health_address", free_address().to_string());
    let host = Host::start(installation.command(&["serve"]), "listening");
    installation.succeed(&["ready", "--wait", "30"]);
    let pending = installation.fail(&["ready", "--migrated"]);
    assert!(
        pending.contains("the host is not ready: the host is at work: "),
        "{pending}"
    );
    installation.succeed(&["migrate", "rate", "none"]);
    assert_eq!(
        installation.succeed(&["ready", "--migrated", "--wait", "120"]),
        "The host is ready.\n"
    );
    host.stop();
}

/// Goal: a standby is ready as soon as it is known that another host has the lock, unless that host
/// migrates.
#[tokio::test(flavor = "multi_thread")]
async fn standby_is_ready_unless_another_host_has_begun_a_migration() {
    let master = Installation::new(&modules(), Kind::Sqlite);
    let serving = master.serve();
    let standby = Installation::on(master.database.clone(), &modules())
        .set("health_address", free_address().to_string())
        .set("lock_ttl", "1s");
    let waiting = Host::begin(standby.command(&["serve"]));
    standby.succeed(&["ready", "--migrated", "--wait", "60"]);
    let database = master.database.open().await;
    execute(
        &database,
        "UPDATE bbs_migration_run SET state = 'unfinished', ended_at_ns = NULL",
    )
    .await;
    database.close().await;
    let pending = standby.fail(&["ready", "--migrated"]);
    assert!(
        pending.contains("the migration up from 0 to") && pending.contains("has not ended"),
        "{pending}"
    );
    waiting.kill();
    serving.stop();
}

/// Goal: `--wait` is a limit also if the port takes connections and does not answer.
#[test]
fn wait_ends_though_the_health_port_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let installation = Installation::new(&modules(), Kind::Sqlite).set("health_address", address);
    let output = installation.run(&["ready", "--wait", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(
        errors(&output).contains("the host is not ready: nothing answers at"),
        "{}",
        errors(&output)
    );
    silent.set_nonblocking(true).unwrap();
    let requests = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(requests, 1, "the first request takes the whole wait");
}

/// Goal: the answer of another program at the address neither controls the terminal nor fills it.
#[test]
fn endless_answer_of_another_program_is_shown_as_one_line() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let request = stream.read(&mut [0; 1024]).unwrap();
        assert!(request > 0);
        let head = b"HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\n";
        stream.write_all(head).unwrap();
        // Until the client has closed the connection.
        while stream.write_all(b"\x1b[2J\n").is_ok() {}
    });
    let installation = Installation::new(&modules(), Kind::Sqlite).set("health_address", address);
    let output = installation.run(&["ready"]);
    let message = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.starts_with(r"bbs: the host is not ready: \u{1b}[2J\n\u{1b}[2J"),
        "{message}"
    );
    let line = message.trim_end();
    assert!(!line.contains(char::is_control), "{message}");
    assert!(line.len() < 64 << 10, "{} bytes", line.len());
    answering.join().unwrap();
}
