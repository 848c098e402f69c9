//! A page of a list as a translator answers it: the error is split from the data.

#![no_main]

use bbs_fuzz::protobuf::split_field;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| {
    let Ok((data, error)) = split_field(answer.to_vec(), 1) else {
        return;
    };
    let error = error.unwrap_or_default();
    assert_eq!(data.len() + error.len(), answer.len());
    assert_eq!(
        split_field(data.clone(), 1),
        Ok((data, None)),
        "the data has no error"
    );
    if !error.is_empty() {
        assert_eq!(split_field(error.clone(), 1), Ok((Vec::new(), Some(error))));
    }
});
