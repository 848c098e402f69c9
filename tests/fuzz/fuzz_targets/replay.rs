//! Units that a migration saved for their author.

#![no_main]

use bbs_fuzz::migrate::read_replay;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read_replay(bytes));
