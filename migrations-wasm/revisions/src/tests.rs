//! Conversions over messages of prost's, which know every field.

use bbs_proto::models as proto;
use proto::{Action, DownloadAction, RunAction, SerialAction, TimeoutAction, TryAction};

use super::*;

fn run(path: &str) -> Action {
    Action {
        run_action: Some(RunAction {
            path: path.into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn timeout(timeout_ms: i64, deprecated_timeout_ns: i64, action: Action) -> Action {
    let timeout = TimeoutAction {
        timeout_ms,
        deprecated_timeout_ns,
        action: Some(Box::new(action)),
        ..Default::default()
    };
    Action {
        timeout_action: Some(Box::new(timeout)),
        ..Default::default()
    }
}

fn tried(action: Action) -> Action {
    let tried = TryAction {
        action: Some(Box::new(action)),
        log_source: b"log".to_vec(),
    };
    Action {
        try_action: Some(Box::new(tried)),
        ..Default::default()
    }
}

fn serial(actions: Vec<Action>) -> Action {
    Action {
        serial_action: Some(SerialAction {
            actions,
            log_source: b"log".to_vec(),
        }),
        ..Default::default()
    }
}

fn converted(convert: Convert, action: &Action) -> Option<Action> {
    let bytes = convert(&action.encode_to_vec()).unwrap()?;
    Some(Action::decode(&bytes[..]).unwrap())
}

#[test]
fn timeouts_are_written_in_ns_but_for_those_inside_of_others() {
    let tree = |ns| {
        serial(vec![
            run("a"),
            tried(timeout(5, ns, timeout(1, 7, run("b")))),
        ])
    };
    assert_eq!(
        converted(actions::with_timeouts_in_ns, &tree(3)),
        Some(tree(5_000_000))
    );
    assert_eq!(
        converted(actions::with_timeouts_in_ns, &serial(vec![tried(run("a"))])),
        None
    );
}

#[test]
fn timeouts_in_ns_are_written_in_ms_at_every_depth() {
    let tree = |outer, inner| {
        serial(vec![tried(timeout(
            outer,
            5_999_999,
            timeout(inner, 1_000_000, run("b")),
        ))])
    };
    assert_eq!(
        converted(actions::with_timeouts_in_ms, &tree(0, 9)),
        Some(tree(5, 1))
    );
    let inner_alone = |ms| timeout(4, 0, timeout(ms, 2_000_000, run("b")));
    assert_eq!(
        converted(actions::with_timeouts_in_ms, &inner_alone(0)),
        Some(inner_alone(2))
    );
    assert_eq!(
        converted(actions::with_timeouts_in_ms, &timeout(4, 0, run("a"))),
        None,
        "it is in ms"
    );
}

#[test]
fn action_follows_the_downloads_with_its_first_alternative_alone() {
    let download = DownloadAction {
        from: b"f".to_vec(),
        ..Default::default()
    };
    let parallel = actions::parallel_downloads(std::slice::from_ref(&download));
    let both = Action {
        try_action: tried(run("t")).try_action,
        ..run("r")
    };
    let decoded = |bytes: &[u8]| Action::decode(bytes).unwrap();
    let expected = |rest: Vec<Action>| {
        let parallel = decoded(&parallel);
        assert_eq!(
            parallel.parallel_action.as_ref().unwrap().actions[0].download_action,
            Some(download.clone())
        );
        let actions = [vec![parallel], rest].concat();
        Action {
            serial_action: Some(SerialAction {
                actions,
                ..Default::default()
            }),
            ..Default::default()
        }
    };
    let after =
        |action: Option<&[u8]>| decoded(&actions::serial(parallel.clone(), action).unwrap());
    assert_eq!(after(Some(&both.encode_to_vec())), expected(vec![run("r")]));
    assert_eq!(after(Some(&[])), expected(vec![Action::default()]));
    assert_eq!(after(None), expected(vec![]));
    assert!(actions::serial(parallel.clone(), Some(b"\x0a")).is_err());
}

#[test]
fn missing_metric_tag_is_the_metrics_guid_or_the_process_guid() {
    let tag = |lrp: &proto::DesiredLrp| {
        let lrp =
            proto::DesiredLrp::decode(&with_metric_tag(lrp.encode_to_vec()).unwrap()[..]).unwrap();
        let [tag] = &lrp.metric_tags[..] else {
            panic!("{:?}", lrp.metric_tags)
        };
        (
            tag.key.clone(),
            tag.value.clone().unwrap_or_default().r#static,
        )
    };
    let lrp = proto::DesiredLrp {
        process_guid: b"p".to_vec(),
        ..Default::default()
    };
    assert_eq!(tag(&lrp), (b"source_id".to_vec(), b"p".to_vec()));
    let with_guid = proto::DesiredLrp {
        metrics_guid: b"m".to_vec(),
        ..lrp.clone()
    };
    assert_eq!(tag(&with_guid), (b"source_id".to_vec(), b"m".to_vec()));
    let own = proto::MetricTagEntry {
        key: b"own".to_vec(),
        value: None,
    };
    assert_eq!(
        tag(&proto::DesiredLrp {
            metric_tags: vec![own],
            ..lrp
        }),
        (b"own".to_vec(), Vec::new())
    );
}

#[test]
fn malformed_request_stays_as_it_is_and_a_malformed_answer_is_an_error() {
    let emptied: Convert = |_| Ok(Some(Vec::new()));
    assert_eq!(
        request(b"\x0a\x01x\x12\x01y", emptied),
        b"\x0a\x00\x12\x01y"
    );
    assert_eq!(request(b"\x0a\x09x", emptied), b"\x0a\x09x");
    assert_eq!(
        answer(b"\x0a\x00\x12\x01y".to_vec(), emptied),
        Ok(b"\x0a\x00\x12\x00".to_vec())
    );
    assert!(answer(b"\x12\x09y".to_vec(), emptied).is_err());
    assert_eq!(
        complete_answer(b"\x0a\x00\x12\x01y".to_vec(), emptied),
        Ok(b"\x0a\x00\x12\x01y".to_vec())
    );
    assert_eq!(
        complete_answer(b"\x12\x01y".to_vec(), emptied),
        Ok(b"\x12\x00".to_vec())
    );
}
