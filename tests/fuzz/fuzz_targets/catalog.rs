//! `catalog.toml` and `releases.toml`.

#![no_main]

use bbs_fuzz::modules::read_catalog;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read_catalog(bytes));
