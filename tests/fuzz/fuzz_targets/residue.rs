//! Residue: the texts of its columns, and the values that it gives back to rows.

#![no_main]

use bbs_files::digest::{from_hex, to_hex};
use bbs_fuzz::restore;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(from_hex(&to_hex(bytes)).as_deref(), Some(bytes));
    if let Some(read) = std::str::from_utf8(bytes).ok().and_then(from_hex) {
        assert!(
            to_hex(&read).as_bytes().eq_ignore_ascii_case(bytes),
            "only hexadecimal digits are read"
        );
    }
    restore(bytes);
});
