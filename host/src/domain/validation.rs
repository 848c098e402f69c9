//! Validation of requests, with Diego's texts. Owns the rules and the findings; reads only the
//! request and changes nothing.
//!
//! Text is bytes throughout, because clients may send invalid UTF-8; only lengths, prefixes and
//! ASCII are examined.

/// Implements [`Validate`] for messages with simple rules, in Diego's order: `required` for a text
/// that is not empty, `guid` for one that is a guid, `part` for a message that is there and valid,
/// `not_negative` for a number.
macro_rules! rules {
    (@required $message:ident $field:ident $findings:ident) => {
        $findings.required(stringify!($field), &$message.$field)
    };
    (@guid $message:ident $field:ident $findings:ident) => {
        $findings.guid(stringify!($field), &$message.$field)
    };
    (@part $message:ident $field:ident $findings:ident) => {
        $findings.part(stringify!($field), $message.$field.as_ref())
    };
    (@not_negative $message:ident $field:ident $findings:ident) => {
        $findings.at_least(0, stringify!($field), $message.$field)
    };
    ($($message:ident: $($rule:ident $field:ident),+;)*) => {
        $(impl Validate for $message {
            fn validate(&self, findings: &mut Findings) {
                $(rules!(@$rule self $field findings);)+
            }
        })*
    };
}

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

/// A message with validation rules.
pub trait Validate {
    /// Adds a finding for each violated rule, in Diego's order.
    fn validate(&self, findings: &mut Findings);
}

/// Validates a message.
///
/// # Errors
/// All findings, joined: the text of the error that rejects the request.
pub fn check<T: Validate>(message: &T) -> Result<(), String> {
    let mut findings = Findings::default();
    message.validate(&mut findings);
    if findings.is_empty() {
        Ok(())
    } else {
        Err(findings.to_string())
    }
}

rules! {
    UpsertDomainRequest: required domain;
}

/// Any filter is valid: one that matches nothing gives a stream without events.
impl Validate for EventsByCellId {
    fn validate(&self, _: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_without_a_name_is_rejected() {
        assert_eq!(
            check(&UpsertDomainRequest::default()).unwrap_err(),
            "Invalid field: domain"
        );
        assert_eq!(
            check(&UpsertDomainRequest {
                domain: b"cf-apps".to_vec(),
                ttl: 0
            }),
            Ok(())
        );
        assert_eq!(
            check(&UpsertDomainRequest {
                domain: vec![0xff],
                ttl: 1
            }),
            Ok(())
        );
    }

    #[test]
    fn event_filter_may_name_any_cell() {
        assert_eq!(check(&EventsByCellId::default()), Ok(()));
    }
}
