//! Values that are not the record of their path: each kind of damage has its error.

use bbs_encryption::{EncryptionError, Keyring, Sealing};
use bbs_proto::models::{ActualLrp, ActualLrpKey, DesiredLrpSchedulingInfo, Task, TaskDefinition};

use super::{base64, decoded, enveloped, sealed};
use crate::etcd::record::{EtcdRecord, RecordError, label};

/// A path of each kind of record.
const PATHS: [&str; 6] = [
    "/v1/desired/g",
    "/v1/desired_lrp/schedule/g",
    "/v1/desired_lrp/run/g",
    "/v1/actual/g/0/instance",
    "/v1/actual/g/0/evacuating",
    "/v1/task/g",
];

#[track_caller]
fn check_all(value: &str, error: &RecordError) {
    for path in PATHS {
        assert_eq!(
            decoded(path, value).as_ref(),
            Err(error),
            "{path}: {value:?}"
        );
    }
}

#[track_caller]
fn check_all_sealed(value: &str, error: EncryptionError) {
    check_all(value, &RecordError::Sealed(error));
}

fn task() -> Task {
    let task_definition = Some(TaskDefinition {
        root_fs: b"r".to_vec(),
        ..TaskDefinition::default()
    });
    Task {
        task_guid: b"g".to_vec(),
        domain: b"d".to_vec(),
        task_definition,
        ..Task::default()
    }
}

#[test]
fn empty_value_is_an_error_of_records() {
    for value in [String::new(), "00".into(), "01".into(), sealed(b"")] {
        check_all(&value, &RecordError::Empty);
    }
}

#[test]
fn tag_that_no_release_wrote_is_an_error() {
    for (value, found) in [
        ("03AAAA", "03"),
        ("10", "10"),
        ("99{}", "99"),
        ("0{}", "0{"),
        ("2\u{1}", "2\u{1}"),
    ] {
        check_all(
            value,
            &RecordError::Encoding {
                found: found.into(),
            },
        );
    }
}

#[test]
fn invalid_base64_is_an_error() {
    for value in ["01*", "01A", "01AgAK=", "01é"] {
        check_all(value, &RecordError::Base64);
    }
    for value in ["02BGtl*", "02BGtleTE"] {
        check_all_sealed(value, EncryptionError::Base64);
    }
}

#[test]
fn truncated_sealed_value_is_an_error() {
    let value = sealed(b"x");
    for (value, length) in [("02", 0), ("02/w==", 1), (&value[..2 + 4 * 4], 12)] {
        check_all_sealed(value, EncryptionError::Truncated { length });
    }
}

#[test]
fn unknown_label_and_wrong_key_are_different_errors() {
    let seal = |label: &str, passphrase: &str| {
        let keys = Keyring::new([(label, passphrase)], label).unwrap();
        String::from_utf8(keys.seal(Sealing::Sealed, &enveloped(0, &task()))).unwrap()
    };
    check_all_sealed(
        &seal("lost", "x"),
        EncryptionError::UnknownKey {
            label: "lost".into(),
        },
    );
    check_all_sealed(
        &seal("key1", "x"),
        EncryptionError::Cipher {
            label: "key1".into(),
        },
    );
    assert_eq!(label(&seal("lost", "x")), Ok(Some("lost".into())));
}

#[test]
fn label_is_that_of_sealed_values_only() {
    for value in ["", "0", "00", "01AA", "03", "{}", "x"] {
        assert_eq!(label(value), Ok(None), "{value:?}");
    }
    assert_eq!(label(&sealed(b"")), Ok(Some("key1".into())));
    let damaged_end = format!("{}*", sealed(&[0; 200]));
    assert_eq!(
        label(&damaged_end),
        Ok(Some("key1".into())),
        "the end is not read"
    );
    for (value, error) in [
        ("02", EncryptionError::Truncated { length: 0 }),
        ("02**", EncryptionError::Base64),
    ] {
        assert_eq!(label(value), Err(RecordError::Sealed(error)), "{value}");
    }
}

#[test]
fn text_that_is_no_json_is_an_error() {
    for (value, at) in [
        ("hello", 0),
        ("{", 1),
        ("{\"a\":1,}", 7),
        ("\u{2}\u{3}{}", 0),
        ("[]", 0),
        ("\"x\"", 0),
    ] {
        for path in ["/v1/desired/g", "/v1/actual/g/0/instance", "/v1/task/g"] {
            assert_eq!(
                decoded(path, value),
                Err(RecordError::Json { at }),
                "{path}: {value:?}"
            );
            assert_eq!(
                decoded(path, &base64(value.as_bytes())),
                Err(RecordError::Json { at }),
                "{path}: {value:?}"
            );
        }
    }
}

#[test]
fn parts_of_desired_lrps_are_never_json() {
    for path in ["/v1/desired_lrp/schedule/g", "/v1/desired_lrp/run/g"] {
        for value in [r#"{"process_guid":"g"}"#, "\u{1}\u{0}{}", "hello"] {
            assert_eq!(
                decoded(path, value),
                Err(RecordError::UnexpectedJson),
                "{path}: {value:?}"
            );
        }
    }
}

#[test]
fn truncated_protobuf_is_an_error() {
    let whole = enveloped(0, &task());
    // Without an envelope it would be JSON.
    for length in 3..whole.len() {
        let found = decoded("/v1/task/g", &base64(&whole[..length]));
        let is_expected = match &found {
            Err(RecordError::Protobuf(_) | RecordError::KeyMismatch { .. }) => true,
            // Cut between two fields: the domain is last.
            Ok(EtcdRecord::Task(task)) => task.domain.is_empty(),
            _ => false,
        };
        assert!(is_expected, "{length} bytes: {found:?}");
    }
    for length in [2, whole.len()] {
        let found = decoded("/v1/task/g", &base64(&whole[..length]));
        assert!(
            !matches!(found, Err(RecordError::Protobuf(_))),
            "{length} bytes: {found:?}"
        );
    }
}

#[test]
fn length_beyond_the_value_is_an_error() {
    // Field 1 with a length of 2^63 - 1, 2^64 - 1, 2^32 and too many bytes.
    for length in [
        &b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[..],
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x80\x80\x80\x80\x10",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let value = base64(&[b"\x02\x00\x0a", length, b"x"].concat());
        for path in PATHS {
            assert!(
                matches!(decoded(path, &value), Err(RecordError::Protobuf(_))),
                "{path}: {length:x?}"
            );
        }
    }
}

#[test]
fn deep_nesting_of_actions_is_an_error_and_no_overflow() {
    let json = |levels: usize| {
        let action = format!(
            "{}{}{}",
            r#"{"try":{"action":"#.repeat(levels),
            r#"{"run":{}}"#,
            "}}".repeat(levels)
        );
        format!(r#"{{"task_guid":"g","action":{action}}}"#)
    };
    assert!(matches!(
        decoded("/v1/task/g", &json(39)),
        Ok(EtcdRecord::Task(_))
    ));
    for levels in [40, 41, 1000] {
        assert_eq!(
            decoded("/v1/task/g", &json(levels)),
            Err(RecordError::ActionDepth { limit: 40 }),
            "{levels}"
        );
    }
    assert!(matches!(
        decoded("/v1/task/g", &json(100_000)),
        Err(RecordError::Json { .. })
    ));

    let delimited = |number: u8, content: &[u8]| {
        let mut bytes = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        bytes.push(u8::try_from(length).unwrap());
        bytes.extend(content);
        bytes
    };
    for levels in [100, 10_000] {
        let action = (0..levels).fold(Vec::new(), |inner, _| delimited(8, &delimited(1, &inner)));
        let value = base64(&[&[2, 0], &delimited(1, &delimited(3, &action))[..]].concat());
        assert!(
            matches!(decoded("/v1/task/g", &value), Err(RecordError::Protobuf(_))),
            "{levels} levels"
        );
    }
}

/// Goal: what is read from JSON can be stored as protobuf and read again, also within an answer of
/// the API.
#[test]
fn deepest_actions_of_json_can_be_decoded_as_protobuf() {
    use bbs_proto::models::TasksResponse;
    use bbs_proto::prost::Message;
    let run = r#"{"run":{"env":[{"name":"A","value":"B"}],"resource_limits":{"nofile":1}}}"#;
    let action = format!(
        "{}{run}{}",
        r#"{"serial":{"actions":["#.repeat(39),
        "]}}".repeat(39)
    );
    let value = format!(r#"{{"task_guid":"g","action":{action}}}"#);
    let Ok(EtcdRecord::Task(task)) = decoded("/v1/task/g", &value) else {
        panic!("not a task")
    };
    let answer = TasksResponse {
        tasks: vec![*task],
        ..TasksResponse::default()
    };
    assert_eq!(
        TasksResponse::decode(&answer.encode_to_vec()[..]),
        Ok(answer)
    );
}

/// Goal: JSON that has more values than a record may have is refused, however they are nested, and
/// before any of them is built: the other faults of these texts would be found then.
#[test]
fn json_with_too_many_values_is_an_error() {
    use crate::protobuf::MOST_ELEMENTS;
    let many = |value: &str, count: usize| vec![value; count].join(",");
    let task = |member: &str| decoded("/v1/task/g", &format!(r#"{{"task_guid":"g",{member}}}"#));
    let too_many: Result<EtcdRecord, _> = Err(RecordError::Elements {
        limit: MOST_ELEMENTS,
    });
    let rules = |count| task(&format!(r#""egress_rules":[{}]"#, many("{}", count)));
    // The task, its guid and the list are values, too.
    assert!(matches!(rules(MOST_ELEMENTS - 3), Ok(EtcdRecord::Task(_))));
    assert_eq!(rules(MOST_ELEMENTS - 2), too_many);
    // Neither list is too long by itself.
    let half = many("null", MOST_ELEMENTS / 2);
    let list = format!(r#"{{"parallel":{{"actions":[{half}]}}}}"#);
    let nested = format!(r#""action":{{"serial":{{"actions":[{list},{list}]}}}}"#);
    assert_eq!(task(&nested), too_many);
    assert_eq!(task(&many(r#""state":"none""#, MOST_ELEMENTS)), too_many);
    for path in ["/v1/desired/g", "/v1/actual/g/0/instance"] {
        let text = format!(r#"{{"ports":[{}]}}"#, many("[]", MOST_ELEMENTS));
        assert_eq!(decoded(path, &text), too_many, "{path}");
    }
}

#[test]
fn record_of_another_path_is_an_error() {
    let mismatch = |path: &str, found: &str| RecordError::KeyMismatch {
        path: path.into(),
        found: found.into(),
    };
    assert_eq!(
        decoded("/v1/task/other", &sealed(&enveloped(1, &task()))),
        Err(mismatch("other", "g"))
    );
    assert_eq!(
        decoded("/v1/task/x", r#"{"task_guid":"y"}"#),
        Err(mismatch("x", "y"))
    );
    assert_eq!(decoded("/v1/task/x", "null"), Err(mismatch("x", "")));
    assert_eq!(
        decoded("/v1/desired/x", r#"{"process_guid":"X"}"#),
        Err(mismatch("x", "X"))
    );
    assert_eq!(
        decoded(
            "/v1/actual/g/1/instance",
            r#"{"process_guid":"h","index":1}"#
        ),
        Err(mismatch("g", "h"))
    );
    assert_eq!(
        decoded("/v1/actual/g/1/instance", r#"{"process_guid":"g"}"#),
        Err(mismatch("1", "0"))
    );
    let lrp = ActualLrp {
        actual_lrp_key: Some(ActualLrpKey {
            process_guid: b"g".to_vec(),
            index: -1,
            ..ActualLrpKey::default()
        }),
        ..ActualLrp::default()
    };
    assert_eq!(
        decoded("/v1/actual/g/0/evacuating", &base64(&enveloped(0, &lrp))),
        Err(mismatch("0", "-1"))
    );
    let info = enveloped(0, &DesiredLrpSchedulingInfo::default());
    assert_eq!(
        decoded("/v1/desired_lrp/schedule/g", &base64(&info)),
        Err(mismatch("g", ""))
    );
    assert_eq!(
        decoded("/v1/desired_lrp/run/g", &base64(&[2, 0])),
        Err(mismatch("g", ""))
    );
}

#[test]
fn task_without_definition_is_an_error() {
    let task = Task {
        task_definition: None,
        ..task()
    };
    assert_eq!(
        decoded("/v1/task/g", &sealed(&enveloped(1, &task))),
        Err(RecordError::MissingDefinition)
    );
}

#[test]
fn guid_of_another_pattern_is_an_error() {
    let guid = |guid: &str| Err(RecordError::Guid { guid: guid.into() });
    assert_eq!(
        decoded("/v1/task/a.b", r#"{"task_guid":"a.b"}"#),
        guid("a.b")
    );
    assert_eq!(decoded("/v1/actual/a b/0/instance", ""), guid("a b"));
    assert_eq!(decoded("/v1/desired_lrp/run/", ""), guid(""));
}

#[test]
fn values_of_domains_labels_and_foreign_leaves_are_never_errors() {
    for value in ["", "x", "99", "02**", "\u{2}\u{0}"] {
        assert_eq!(
            decoded("/v1/domain/a/b", value),
            Ok(EtcdRecord::Domain { name: "a/b".into() })
        );
        assert_eq!(
            decoded("/encryption-key", value),
            Ok(EtcdRecord::KeyLabel(value.into()))
        );
        assert_eq!(decoded("/v1/start/x", value), Ok(EtcdRecord::Foreign));
    }
}

#[test]
fn messages_contain_no_content_but_guids() {
    let secret = "hunter2";
    for value in [
        format!(r#"{{"task_guid":"g","env":[{{"name":"P","value":["{secret}"]}}]}}"#),
        format!(r#"{{"task_guid":"g","env":"{secret}"}}"#),
        format!("{{{secret}"),
        base64(&[b"\x02\x00\x0a\x09\x12\x07", secret.as_bytes()].concat()),
    ] {
        let error = decoded("/v1/task/g", &value).unwrap_err();
        assert!(
            !error.to_string().contains(secret) && !format!("{error:?}").contains(secret),
            "{error:?}"
        );
    }
}
