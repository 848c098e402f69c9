//! Diego's records in etcd: any value under the path of each kind of record, with and without its
//! encoding.

#![no_main]

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_fuzz::encryption::Keyring;
use bbs_fuzz::etcd::Leaf;
use bbs_fuzz::etcd::record;
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 8] = [
    "/version",
    "/encryption-key",
    "/v1/domain/d",
    "/v1/desired/g",
    "/v1/desired_lrp/schedule/g",
    "/v1/desired_lrp/run/g",
    "/v1/actual/g/0/instance",
    "/v1/task/g",
];

static KEYS: LazyLock<Keyring> =
    LazyLock::new(|| Keyring::new([("a", "one")], "a").expect("one key"));

fuzz_target!(|value: &[u8]| {
    let text = String::from_utf8_lossy(value).into_owned();
    let encoded = format!("01{}", STANDARD.encode(value));
    for key in PATHS {
        for value in [&text, &encoded] {
            let _ = record::label(value);
            let leaf = Leaf {
                key: key.to_owned(),
                value: value.clone(),
                modified_index: 1,
                expires_at_ns: None,
            };
            let _ = record::decode(&leaf, &KEYS);
        }
    }
});
