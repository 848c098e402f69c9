//! Loggregator's answer, and the envelopes that are sent to it.

#![no_main]

use bbs_fuzz::loggregator::messages::{BatchSenderResponse, EnvelopeBatch};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    let _ = BatchSenderResponse::decode(bytes);
    if let Ok(batch) = EnvelopeBatch::decode(bytes) {
        let again =
            EnvelopeBatch::decode(&batch.encode_to_vec()[..]).expect("what was encoded decodes");
        // Not compared as a whole: a gauge may be NaN, which does not equal itself.
        assert_eq!(
            (again.batch.len(), again.encoded_len()),
            (batch.batch.len(), batch.encoded_len())
        );
    }
});
