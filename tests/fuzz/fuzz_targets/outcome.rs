//! Answers of row functions, in the form in which a sandbox returns them.

#![no_main]

use bbs_fuzz::modules::read_outcome;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read_outcome(bytes));
