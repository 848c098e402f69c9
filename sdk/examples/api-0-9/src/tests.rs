//! The next version is a closure.

use bbs_sdk::{Fault, Translator};

use crate::Older;

#[test]
fn list_is_answered_by_the_next_version_under_its_newer_name() {
    let next = |method: &str, request: &[u8]| {
        assert_eq!(method, "ListThings");
        Ok::<_, Fault>([request, b" answered"].concat())
    };
    assert_eq!(Older::call("ListThings_0_9", b"request", &next).unwrap(), b"request answered");
}

#[test]
fn method_that_is_not_declared_is_a_fault() {
    let next = |_: &str, _: &[u8]| panic!("the next version is not called");
    assert!(Older::call("Other", b"", &next).is_err());
}
