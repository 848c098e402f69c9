//! Whether a request says something that can be done, in Diego's own words. Owns the rules and
//! the texts of the findings; reads nothing but the request and changes nothing.
//!
//! Text is bytes throughout, because clients may send what is not UTF-8; only lengths, prefixes and
//! ASCII are ever looked at.

mod actions;
mod actual_lrp;
mod address;
mod checks;
mod desired_lrp;
mod entries;
mod findings;
mod image;
mod security_group;
mod task;
mod url;
mod volumes;

pub use findings::Findings;

use bbs_proto::models::{EventsByCellId, UpsertDomainRequest};

/// What can be found wanting.
pub trait Validate {
    /// Adds to `findings` what is wrong, in the order in which Diego names it.
    fn validate(&self, findings: &mut Findings);
}

/// The text for the error's message when the request is refused: all findings, joined.
pub fn check<T: Validate>(message: &T) -> Result<(), String> {
    let mut findings = Findings::default();
    message.validate(&mut findings);
    if findings.is_empty() { Ok(()) } else { Err(findings.to_string()) }
}

impl Validate for UpsertDomainRequest {
    fn validate(&self, findings: &mut Findings) {
        findings.required("domain", &self.domain);
    }
}

/// Any filter will do: one that matches nothing gives a stream without events.
impl Validate for EventsByCellId {
    fn validate(&self, _: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_a_name() {
        assert_eq!(check(&UpsertDomainRequest::default()).unwrap_err(), "Invalid field: domain");
        assert_eq!(check(&UpsertDomainRequest { domain: b"cf-apps".to_vec(), ttl: 0 }), Ok(()));
        assert_eq!(check(&UpsertDomainRequest { domain: vec![0xff], ttl: 1 }), Ok(()));
    }

    #[test]
    fn a_stream_may_ask_for_any_cell() {
        assert_eq!(check(&EventsByCellId::default()), Ok(()));
    }
}
