//! The findings of one request and the rules over single values. Owns their texts, their order and
//! how many are kept; refuses to know what any message looks like.

use std::borrow::Cow;
use std::fmt;

use super::Validate;

/// Three bytes of request can be worth five findings. An answer that lists a thousand has said enough.
const MOST: usize = 1000;

#[derive(Debug, Default)]
pub struct Findings {
    texts: Vec<Cow<'static, str>>,
}

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// A finding with a text of its own.
    pub(super) fn say(&mut self, text: impl Into<Cow<'static, str>>) {
        if self.texts.len() < MOST {
            self.texts.push(text.into());
        }
    }

    pub(super) fn invalid(&mut self, field: &str) {
        self.say(format!("Invalid field: {field}"));
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

    /// Letters, digits, `_` and `-`, and not nothing: what may stand in a path and in a file name.
    pub(super) fn guid(&mut self, field: &str, text: &[u8]) {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        self.invalid_if(text.is_empty() || !text.iter().all(allowed), field);
    }

    /// A part that must be there and be right: its absence is a finding under its own name.
    pub(super) fn part<T: Validate>(&mut self, field: &str, part: Option<&T>) {
        match part {
            Some(part) => part.validate(self),
            None => self.invalid(field),
        }
    }

    /// Names `field` before what `rules` find, and only when they find something.
    pub(super) fn within(&mut self, field: &str, rules: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        rules(&mut inner);
        if !inner.is_empty() {
            self.invalid(field);
            inner.texts.into_iter().for_each(|text| self.say(text));
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
            findings.say("something else");
            findings.invalid("a");
        });
        assert_eq!(all, "Invalid field: b, something else, Invalid field: a");
        assert_eq!(found(|_| ()), "");
    }

    #[test]
    fn a_guid_is_made_of_letters_digits_dashes_and_underscores() {
        for good in ["a", "Z", "0", "_", "-", "aA9_-", "3cb2a1a4-45a5-4fd1-a1be-9a1c2c7e4ee5"] {
            assert_eq!(found(|findings| findings.guid("g", good.as_bytes())), "", "{good}");
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
            assert_eq!(found(|findings| findings.guid("g", bad)), "Invalid field: g", "{bad:?}");
        }
    }

    #[test]
    fn bounds_include_themselves() {
        assert_eq!(found(|findings| findings.at_least(0, "n", 0)), "");
        assert_eq!(found(|findings| findings.at_least(0, "n", -1)), "Invalid field: n");
        assert_eq!(found(|findings| findings.at_least(0, "n", i32::MIN)), "Invalid field: n");
        assert_eq!(found(|findings| findings.at_least(-1, "n", i64::MIN)), "Invalid field: n");
        assert_eq!(found(|findings| findings.at_most(3, "n", 3)), "");
        assert_eq!(found(|findings| findings.at_most(3, "n", 4)), "Invalid field: n");
    }

    #[test]
    fn what_is_found_within_a_field_follows_its_name() {
        let all = found(|findings| {
            findings.within("quiet", |_| ());
            findings.within("loud", |findings| findings.within("inner", |findings| findings.say("it")));
        });
        assert_eq!(all, "Invalid field: loud, Invalid field: inner, it");
    }

    #[test]
    fn the_list_of_findings_has_an_end() {
        let all = found(|findings| findings.within("all", |findings| (0..5000).for_each(|_| findings.invalid("x"))));
        assert_eq!(all.split(", ").count(), MOST);
        assert!(all.starts_with("Invalid field: all, Invalid field: x"));
    }
}
