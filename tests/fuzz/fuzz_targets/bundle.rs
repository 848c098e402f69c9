//! Bundles of modules: tar files, OCI image layouts and manifests, and the catalogs in them.

#![no_main]

use bbs_fuzz::modules::read_bundles;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| read_bundles(bytes));
