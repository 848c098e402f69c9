//! The message, level and data of each event's line.

use std::io::Write;
use std::sync::Mutex;

use serde_json::json;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn with(redactor: Redactor, fatal_only: bool, emit: impl FnOnce()) -> Vec<Value> {
    let place = Output::default();
    let lines = LineWriter::start("test", place.clone());
    let lager = Lager::new(
        "bbs",
        TimeFormat::UnixEpoch,
        redactor,
        lines.clone(),
        Arc::new(AtomicBool::new(fatal_only)),
    );
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lager), emit);
    lines.flush();
    let text = String::from_utf8(place.0.lock().unwrap().clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

/// Message, level and data of each line.
fn said(emit: impl FnOnce()) -> Vec<(String, i64, Value)> {
    let lines = with(Redactor::default(), false, emit);
    lines
        .iter()
        .map(|line| {
            assert_eq!(line["source"], "bbs");
            (
                line["message"].as_str().unwrap().to_owned(),
                line["log_level"].as_i64().unwrap(),
                line["data"].clone(),
            )
        })
        .collect()
}

fn line(message: &str, level: i64, data: Value) -> (String, i64, Value) {
    (message.to_owned(), level, data)
}

#[test]
fn notice_of_the_database_is_no_error() {
    let lines = said(
        || tracing::warn!(target: "driver::postgres::notice", "there is no transaction in progress"),
    );
    let data = json!({"text": "there is no transaction in progress"});
    assert_eq!(lines, [line("bbs.driver.postgres.notice", 1, data)]);
}

#[test]
fn event_name_is_the_message_and_the_sentence_is_data() {
    let lines = said(|| {
        tracing::info!(name: "started", "serving");
        tracing::debug!(target: "bbs::startup::drain_it", count = 2_u64, "no name");
        tracing::warn!(name: "a", flag = true, ratio = 0.5, guid = "x", list = ?[1]);
        tracing::error!(name: "b", "said");
    });
    let expected = [
        line("bbs.started", 1, json!({"text": "serving"})),
        line(
            "bbs.startup.drain-it",
            0,
            json!({"text": "no name", "count": 2}),
        ),
        line(
            "bbs.a",
            2,
            json!({"flag": true, "ratio": 0.5, "guid": "x", "list": "[1]"}),
        ),
        line("bbs.b", 2, json!({"text": "said"})),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn spans_are_numbered_sessions() {
    let lines = said(|| {
        let outer = tracing::info_span!(
            "migration-manager",
            version = 3,
            later = tracing::field::Empty
        );
        let _entered = outer.enter();
        outer.record("later", "now");
        tracing::info!(name: "starting", "said");
        tracing::info_span!("step", trace_id = "t", span_id = "")
            .in_scope(|| tracing::info!(name: "done", "said"));
        tracing::info_span!("step").in_scope(|| tracing::info!(target: "bbs::x", "sentence"));
    });
    let expected = [
        line(
            "bbs.migration-manager.starting",
            1,
            json!({"session": "1", "version": 3, "later": "now", "text": "said"}),
        ),
        line(
            "bbs.migration-manager.step.done",
            1,
            json!({"session": "1.1", "version": 3, "later": "now", "trace-id": "t", "text": "said"}),
        ),
        line(
            "bbs.x",
            1,
            json!({"session": "1.2", "version": 3, "later": "now", "text": "sentence"}),
        ),
    ];
    assert_eq!(lines, expected);
}

#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] std::io::Error);

#[test]
fn error_has_its_sources_and_a_fatal_one_a_trace() {
    let error = Outer(std::io::Error::other("inner"));
    let lines = said(|| {
        tracing::error!(name: "failed", target: FATAL, error = &error as &dyn std::error::Error);
    });
    let (message, level, data) = &lines[0];
    assert_eq!(
        (&**message, *level, &data["error"]),
        ("bbs.failed", 3, &json!("outer: inner"))
    );
    assert!(data["trace"].is_string());
    let lines = said(|| tracing::warn!(reason = "worn out", "a sentence"));
    assert_eq!(
        lines[0].2,
        json!({"text": "a sentence", "error": "worn out"})
    );
}

#[test]
fn fatal_level_drops_all_other_events() {
    let lines = with(Redactor::default(), true, || {
        tracing::error!(name: "a", "said");
        tracing::error!(name: "b", target: FATAL, "said");
    });
    assert_eq!(lines.len(), 1);
}

#[test]
fn data_is_redacted() {
    let lines = with(Redactor::new(Some(100), Some(&[])).unwrap(), false, || {
        tracing::info!(name: "a", password = "hunter2", text = "x".repeat(101));
    });
    assert_eq!(lines[0]["data"]["password"], "*REDACTED*");
    assert!(
        lines[0]["data"]["text"]
            .as_str()
            .unwrap()
            .ends_with("-(truncated)")
    );
}
