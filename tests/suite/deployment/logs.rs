//! Log output: the messages that Diego's log parsers expect, the access log, log levels, and
//! redaction.

use serde_json::Value;

use super::ping;
use crate::harness::certificates::VALID;
use crate::harness::database::Kind;
use crate::harness::deployment::Deployment;
use crate::harness::host::Host;
use crate::harness::pause;

/// Terminates the host and returns its log lines, parsed as JSON.
async fn lines(host: Host) -> Vec<Value> {
    host.signal("TERM");
    let (_, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect()
}

fn messages(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["message"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lifecycle_is_logged_with_diegos_messages_in_order() {
    let deployment = Deployment::new(Kind::Sqlite);
    let lines = lines(deployment.serve().await).await;
    let messages = messages(&lines);
    let mut rest = messages.iter();
    for wanted in [
        "bbs.starting",
        "bbs.locket-lock.started",
        "bbs.locket-lock.acquired-lock",
        "bbs.server.listening",
        "bbs.migration-manager.running-migration",
        "bbs.migration-manager.completed-migration",
        "bbs.migration-manager.finished-migrations",
        "bbs.started",
        "bbs.locket-lock.released-lock",
        "bbs.exited",
    ] {
        assert!(
            rest.any(|message| *message == wanted),
            "{wanted} in order in {messages:#?}"
        );
    }
    let ignored = lines
        .iter()
        .find(|line| line["message"] == "bbs.configuration.ignored-keys")
        .expect("one line");
    assert!(
        ignored["data"]["known"]
            .as_str()
            .unwrap()
            .contains("advertise_url"),
        "{ignored}"
    );
    for line in &lines {
        assert_eq!(line["source"], "bbs");
        assert!(
            line["timestamp"]
                .as_str()
                .is_some_and(|at| at.ends_with('Z') && at.len() == 30),
            "{line}"
        );
        assert!(
            line["level"].is_string()
                && line["data"].is_object()
                && line.get("log_level").is_none(),
            "{line}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_run_of_convergence_begins_and_ends_once_in_the_log() {
    let deployment = Deployment::new(Kind::Sqlite).set("converge_repeat_interval", "20ms");
    let mut host = deployment.serve().await;
    for _ in 0..3 {
        host.wait_for_line(|line| line.contains("converge-lrps-done"));
    }
    let lines = lines(host).await;
    let session = "bbs.executing-convergence.";
    let lines_of = |part: &str| -> Vec<&Value> {
        lines
            .iter()
            .filter(|line| {
                line["message"]
                    .as_str()
                    .unwrap()
                    .starts_with(&format!("{session}{part}-"))
            })
            .collect()
    };
    for part in ["converge-lrps", "converge-tasks"] {
        for (at, line) in lines_of(part).iter().enumerate() {
            let wanted = ["started", "done"][at % 2];
            assert_eq!(
                line["message"],
                format!("{session}{part}-{wanted}"),
                "{line}"
            );
            assert!(
                line["data"]["session"]
                    .as_str()
                    .is_some_and(|session| !session.is_empty()),
                "{line}"
            );
            assert_eq!(line["data"]["running"].is_u64(), wanted == "done", "{line}");
            assert!(!line.to_string().contains("Counts"), "{line}");
        }
        assert!(lines_of(part).len() >= 5, "{part}");
    }
    let all = messages(&lines)
        .into_iter()
        .filter(|message| message.contains("executing-convergence"))
        .count();
    assert_eq!(
        all,
        lines_of("converge-lrps").len() + lines_of("converge-tasks").len(),
        "no other messages"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn older_log_format_and_session_name_are_supported() {
    let deployment = Deployment::new(Kind::Sqlite)
        .without("time_format")
        .set("session_name", "other");
    let command = deployment.command();
    let host = tokio::task::spawn_blocking(move || Host::start(command, "other.started"))
        .await
        .unwrap();
    for line in lines(host).await {
        assert_eq!(line["source"], "other");
        assert!(
            line["message"].as_str().unwrap().starts_with("other."),
            "{line}"
        );
        let (seconds, fraction) = line["timestamp"].as_str().unwrap().split_once('.').unwrap();
        assert!(
            seconds.parse::<u64>().is_ok() && fraction.len() == 9,
            "{line}"
        );
        assert!(
            line["log_level"].as_u64().is_some_and(|level| level <= 3)
                && line.get("level").is_none()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_log_names_the_client_of_each_request() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let client = deployment.client_as(Some(&deployment.authority.issue("cell-7", VALID)));
    assert!(ping(&client, host.address).await.unwrap());
    host.end().await;
    let text = std::fs::read_to_string(deployment.path("access.log")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        messages(&lines),
        ["bbs-access.request.serving", "bbs-access.request.done"]
    );
    for line in &lines {
        assert_eq!(
            (&line["source"], &line["log_level"]),
            (&Value::from("bbs-access"), &Value::from(1))
        );
        let data = &line["data"];
        assert_eq!(
            (&data["method"], &data["request"]),
            (&Value::from("POST"), &Value::from("/v1/ping"))
        );
        assert!(
            data["remote_addr"]
                .as_str()
                .unwrap()
                .starts_with("127.0.0.1:")
        );
        assert_eq!(data["session"], "1");
        assert_eq!(data["peer_cert_subject_common_name"], "cell-7");
        assert_eq!(
            data["peer_cert_subject_organizational_unit"],
            serde_json::json!(["app:42"])
        );
        assert_eq!(data["peer_cert_issuer_common_name"], "Diego's");
        assert_eq!(
            data["peer_cert_issuer_organization"],
            serde_json::json!(["Diego"])
        );
    }
    assert!(lines[0]["data"].get("duration").is_none() && lines[1]["data"]["duration"].is_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn access_log_cuts_long_paths() {
    let deployment = Deployment::new(Kind::Sqlite);
    let host = deployment.serve().await;
    let exact = format!("/{}", "a".repeat(2047));
    for path in [exact.clone(), format!("{exact}b")] {
        let request = deployment
            .client()
            .post(format!("https://{}{path}", host.address));
        assert_eq!(request.send().await.unwrap().status(), 404);
    }
    host.end().await;
    let text = std::fs::read_to_string(deployment.path("access.log")).unwrap();
    let mut logged: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| line["data"]["request"].as_str().unwrap().to_owned())
        .collect();
    // The end of a request may be logged after the begin of the next one.
    logged.sort();
    let cut = format!("{exact}…");
    assert_eq!(logged, [exact.clone(), exact, cut.clone(), cut]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_a_full_disk_keeps_out_of_the_access_log_are_counted_in_the_log() {
    let deployment = Deployment::new(Kind::Sqlite).set("access_log_path", "/dev/full");
    let mut host = deployment.serve().await;
    let client = deployment.client();
    let is_reported = |line: &String| line.contains("access-log.lines-left-out");
    for _ in 0..1000 {
        assert!(
            ping(&client, host.address).await.unwrap(),
            "it serves all the same"
        );
        if host.output().iter().any(is_reported) {
            return;
        }
        pause().await;
    }
    panic!("{:#?}", host.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn log_level_can_be_changed_while_the_host_runs() {
    let deployment = Deployment::new(Kind::Sqlite).without("access_log_path");
    let host = deployment.serve().await;
    let client = deployment.client();
    let plain = reqwest::Client::new();
    let debug = |path: &str| plain.put(format!("http://{}{path}", deployment.debug));
    assert!(ping(&client, host.address).await.unwrap());
    for (level, status) in [("nonsense", 200), ("DEBUG", 200)] {
        let answer = debug("/log-level").body(level).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{level}");
    }
    assert!(ping(&client, host.address).await.unwrap());
    assert!(
        debug("/log-level")
            .body("i")
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
    );
    assert!(ping(&client, host.address).await.unwrap());
    for (path, body, status) in [
        ("/debug/pprof/heap", "", 404),
        ("/block-profile-rate", "100", 200),
        ("/block-profile-rate", "often", 400),
        ("/mutex-profile-fraction", "", 400),
    ] {
        assert_eq!(
            debug(path)
                .body(body)
                .send()
                .await
                .unwrap()
                .status()
                .as_u16(),
            status,
            "{path} {body}"
        );
    }
    let lines = lines(host).await;
    let messages = messages(&lines);
    let count = |wanted| {
        messages
            .iter()
            .filter(|message| **message == wanted)
            .count()
    };
    assert_eq!(
        (count("bbs.request.serving"), count("bbs.request.done")),
        (1, 1),
        "{messages:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_contain_no_secrets() {
    let deployment = Deployment::new(Kind::Sqlite).set("log_level", "debug");
    let host = deployment.serve().await;
    host.signal("TERM");
    let (_, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(
        !output.contains("correct horse") && !output.contains("PRIVATE KEY"),
        "{output}"
    );
}
