//! The findings of one request, and the rules for single values. Bounds the number of findings and
//! keeps their order; independent of any message type.

use std::borrow::Cow;
use std::fmt;

use bbs_model::bounds::INSTANCES;

use super::Validate;

/// Findings kept per request: three bytes of a request can cause five findings.
const MAX_FINDINGS: usize = 1000;

/// The findings of one request, in order.
#[derive(Debug, Default)]
pub struct Findings {
    texts: Vec<Cow<'static, str>>,
}

impl Findings {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Adds a finding with its own text.
    pub(super) fn add(&mut self, text: impl Into<Cow<'static, str>>) {
        if self.texts.len() < MAX_FINDINGS {
            self.texts.push(text.into());
        }
    }

    pub(super) fn invalid(&mut self, field: &str) {
        self.add(format!("Invalid field: {field}"));
    }

    pub(super) fn invalid_if(&mut self, wrong: bool, field: &str) {
        if wrong {
            self.invalid(field);
        }
    }

    pub(super) fn required(&mut self, field: &str, text: &[u8]) {
        self.invalid_if(text.is_empty(), field);
    }

    pub(super) fn at_least(&mut self, least: i64, field: &str, value: impl Into<i64>) {
        self.invalid_if(value.into() < least, field);
    }

    pub(super) fn at_most(&mut self, most: usize, field: &str, length: usize) {
        self.invalid_if(length > most, field);
    }

    /// The text names the bound, which Diego does not have.
    pub(super) fn instances(&mut self, value: i32) {
        if value > INSTANCES {
            self.add(format!(
                "Invalid field: instances, of which one LRP has at most {INSTANCES}"
            ));
        }
    }

    /// Requires letters, digits, `_` and `-`, at least one: a guid must be usable in a path and a
    /// file name.
    pub(super) fn guid(&mut self, field: &str, text: &[u8]) {
        let has_other_bytes = text
            .iter()
            .any(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-'));
        self.invalid_if(text.is_empty() || has_other_bytes, field);
    }

    /// Requires a part and validates it; its absence is a finding under `field`.
    pub(super) fn part<T: Validate>(&mut self, field: &str, part: Option<&T>) {
        match part {
            Some(part) => part.validate(self),
            None => self.invalid(field),
        }
    }

    /// Adds `field` before the findings of `rules`, if there are any.
    pub(super) fn within(&mut self, field: &str, rules: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        rules(&mut inner);
        if !inner.is_empty() {
            self.invalid(field);
            inner.texts.into_iter().for_each(|text| self.add(text));
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rules: impl FnOnce(&mut Findings)) -> String {
        let mut findings = Findings::default();
        rules(&mut findings);
        findings.to_string()
    }

    #[test]
    fn findings_are_joined_in_order() {
        let all = found(|findings| {
            findings.invalid("b");
            findings.add("something else");
            findings.invalid("a");
        });
        assert_eq!(all, "Invalid field: b, something else, Invalid field: a");
        assert_eq!(found(|_| ()), "");
    }

    #[test]
    fn guid_allows_letters_digits_dashes_and_underscores_only() {
        for good in [
            "a",
            "Z",
            "0",
            "_",
            "-",
            "aA9_-",
            "3cb2a1a4-45a5-4fd1-a1be-9a1c2c7e4ee5",
        ] {
            assert_eq!(
                found(|findings| findings.guid("g", good.as_bytes())),
                "",
                "{good}"
            );
        }
        for bad in [
            &b""[..],
            b"a b",
            b"a.",
            b"a/",
            b"a\n",
            b"\na",
            b"a\0",
            b"\xc3\xa4",
            b"\xff",
            b"a:b",
            b"@",
            b"[",
            b"`",
            b"{",
        ] {
            assert_eq!(
                found(|findings| findings.guid("g", bad)),
                "Invalid field: g",
                "{bad:?}"
            );
        }
    }

    #[test]
    fn bounds_are_inclusive() {
        assert_eq!(found(|findings| findings.at_least(0, "n", 0)), "");
        assert_eq!(
            found(|findings| findings.at_least(0, "n", -1)),
            "Invalid field: n"
        );
        assert_eq!(
            found(|findings| findings.at_least(0, "n", i32::MIN)),
            "Invalid field: n"
        );
        assert_eq!(
            found(|findings| findings.at_least(-1, "n", i64::MIN)),
            "Invalid field: n"
        );
        assert_eq!(found(|findings| findings.at_most(3, "n", 3)), "");
        assert_eq!(
            found(|findings| findings.at_most(3, "n", 4)),
            "Invalid field: n"
        );
    }

    #[test]
    fn findings_within_a_field_follow_its_name() {
        let all = found(|findings| {
            findings.within("quiet", |_| ());
            findings.within("loud", |findings| {
                findings.within("inner", |findings| findings.add("it"))
            });
        });
        assert_eq!(all, "Invalid field: loud, Invalid field: inner, it");
    }

    #[test]
    fn number_of_findings_is_bounded() {
        let all = found(|findings| {
            findings.within("all", |findings| {
                (0..5000).for_each(|_| findings.invalid("x"))
            })
        });
        assert_eq!(all.split(", ").count(), MAX_FINDINGS);
        assert!(all.starts_with("Invalid field: all, Invalid field: x"));
    }
}
