//! Manifests of modules, in the form in which a sandbox returns them.

#![no_main]

use bbs_fuzz::modules::read_manifests;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read_manifests(bytes));
