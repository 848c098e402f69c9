//! Locket's responses, and the presences of cells in them.

#![no_main]

use bbs_fuzz::cells::read_presence;
use bbs_fuzz::locket::messages::{FetchAllResponse, FetchResponse, LockResponse, ReleaseResponse};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|answer: &[u8]| {
    if let Ok(text) = std::str::from_utf8(answer) {
        read_presence(text);
    }
    let one = FetchResponse::decode(answer)
        .ok()
        .and_then(|found| found.resource);
    let all = FetchAllResponse::decode(answer)
        .map(|found| found.resources)
        .unwrap_or_default();
    for resource in one.into_iter().chain(all) {
        read_presence(&resource.value);
    }
    let _ = (
        LockResponse::decode(answer),
        ReleaseResponse::decode(answer),
    );
});
