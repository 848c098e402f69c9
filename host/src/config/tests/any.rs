//! Property test: for any value under any key, the file is read or rejected with a message, and no
//! error repeats a secret.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const OURS: [&str; 17] = [
    "accept_older_catalogs",
    "admin_socket",
    "advanced_metrics",
    "data_dir",
    "enable_db_health_check",
    "health_check_interval",
    "metrics_address",
    "migration_batch_time",
    "migration_lock_timeout",
    "migration_mode",
    "migration_units_per_second",
    "on_unreadable",
    "pin_data_version",
    "pin_release",
    "quarantine_limit",
    "redact_patterns",
    "trusted_keys",
];

fn values() -> impl Strategy<Value = Value> {
    let plain = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("10s"),
        json!("0s"),
        json!("9000000h"),
        json!("127.0.0.1:1"),
        json!("hunter2:hunter2@tcp(hunter2)/x"),
        json!("ü\u{0}"),
        json!([]),
        json!(["x", 1]),
        json!({}),
        json!({"colours": null}),
        json!({"colours": ["x", null]}),
        json!({"Colours": []}),
        json!({"enabled": 1, "loggregator_use_v2_api": true, "loggregator_ca_path": 5}),
    ];
    prop::sample::select(plain.to_vec())
}

proptest! {
    #[test]
    fn any_value_is_read_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), values()), 1..6)) {
        let mut file = parse(diego::DIEGO).unwrap();
        file.insert("modules_dir".to_owned(), "modules".into());
        let keys: Vec<String> = file.keys().cloned().chain(OURS.map(str::to_owned)).collect();
        for (key, value) in changes {
            file.insert(key.get(&keys).clone(), value);
        }
        for error in check(file, folders()).err().unwrap_or_default() {
            let said = error.to_string();
            prop_assert!(said.len() > 20 && said.contains('`'), "{said}");
            let of_the_database = matches!(error, ConfigError::ConnectionString { .. });
            prop_assert!(!of_the_database || !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused_at_a_place_in_it(
        text in prop_oneof![Just(diego::DIEGO.to_owned()), Just("{\n}".to_owned()), ".*"],
        length in any::<prop::sample::Index>(),
        inserted in ".{0,3}",
    ) {
        let (start, end) = text.split_at(text.floor_char_boundary(length.index(text.len() + 1)));
        let text = [start, &inserted, end].concat();
        match parse(&text) {
            Ok(file) => prop_assert!(text.trim_start().starts_with('{'), "{text:?} is {file:?}"),
            Err(error) => prop_assert!(error.line() <= 1 + text.matches('\n').count(), "{text:?}: {error}"),
        }
    }
}
