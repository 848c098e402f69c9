//! Answers of etcd's second API.

#![no_main]

use bbs_fuzz::etcd::client::read_answers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| read_answers(body));
