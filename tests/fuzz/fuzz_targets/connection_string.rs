//! Connection strings and durations of a configuration.

#![no_main]

use bbs_fuzz::config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    config::read_connection_strings(text);
    let quoted = serde_json::Value::String(text.to_owned());
    let _ = serde_json::from_value::<config::duration::GoDuration>(quoted);
});
