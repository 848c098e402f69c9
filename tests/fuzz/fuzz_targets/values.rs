//! The encoding of values in cursors and digests.

#![no_main]

use bbs_lens::layout::values::Value;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Some((value, after)) = Value::decode(rest) {
        assert!(after.len() < rest.len(), "every value has a length");
        let mut written = Vec::new();
        value.encode(&mut written);
        assert_eq!(Value::decode(&written), Some((value, &[][..])));
        rest = after;
    }
});
