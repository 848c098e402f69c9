//! What is taken out of the data of a line before it is written: secrets, and the ends of long texts. Owns what is
//! taken for a secret.

use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Map, Value};

const REDACTED: &str = "*REDACTED*";
const TRUNCATED: &str = "-(truncated)";

/// Whatever is said under a key like this is a secret.
const KEYS: &str = "[Pp]wd|[Pp]ass";
/// What usually is one, whatever key it is under: the keys of a cloud's users, hashes of passwords, private keys.
const VALUES: [&str; 4] = [
    r"\bAKIA[0-9A-Z]{16}\b",
    r"(?i)(aws|secret|access)_?(access_?)?key\W{1,6}[0-9a-z/+=]{40}",
    r"\$(1|5|6)\$(rounds=[0-9]+\$)?[0-9A-Za-z./]{1,16}\$[0-9A-Za-z./]{22,86}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
];

#[derive(Debug, thiserror::Error)]
#[error("`redact_patterns` holds what is not a regular expression: {pattern:?}; correct it or leave it out")]
pub struct ScrubError {
    pattern: String,
    source: regex::Error,
}

#[derive(Debug, Default)]
pub struct Scrub {
    longest: Option<usize>,
    secrets: Option<Secrets>,
}

#[derive(Debug)]
struct Secrets {
    keys: Regex,
    values: Vec<Regex>,
}

/// As Go understands it: `\w` and its like are ASCII.
fn pattern(text: &str) -> Result<Regex, ScrubError> {
    let built = RegexBuilder::new(text).unicode(false).build();
    built.map_err(|source| ScrubError { pattern: text.to_owned(), source })
}

impl Scrub {
    /// `redact` are patterns of secrets; where there are none, what usually is a secret is taken for one.
    pub fn new(longest: Option<usize>, redact: Option<&[String]>) -> Result<Self, ScrubError> {
        let secrets = match redact {
            None => None,
            Some(given) => {
                let values: Result<Vec<_>, _> = match given {
                    [] => VALUES.iter().map(|text| pattern(text)).collect(),
                    given => given.iter().map(|text| pattern(text)).collect(),
                };
                Some(Secrets { keys: pattern(KEYS)?, values: values? })
            }
        };
        Ok(Self { longest, secrets })
    }

    pub fn scrub(&self, data: &mut Map<String, Value>) {
        if self.longest.is_none() && self.secrets.is_none() {
            return;
        }
        for (key, value) in data {
            match &self.secrets {
                Some(secrets) if secrets.keys.is_match(key.as_bytes()) => *value = REDACTED.into(),
                _ => self.value(value),
            }
        }
    }

    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Object(data) => self.scrub(data),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &mut String) {
        if let Some(secrets) = &self.secrets
            && secrets.values.iter().any(|pattern| pattern.is_match(text.as_bytes()))
        {
            *text = REDACTED.to_owned();
        }
        if let Some(longest) = self.longest
            && text.len() > longest
        {
            text.truncate(text.floor_char_boundary(longest.saturating_sub(TRUNCATED.len())));
            text.push_str(TRUNCATED);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn scrubbed(scrub: &Scrub, data: Value) -> Value {
        let Value::Object(mut data) = data else { panic!("data is an object") };
        scrub.scrub(&mut data);
        Value::Object(data)
    }

    #[test]
    fn nothing_is_taken_out_unless_asked_for() {
        let data = json!({"password": "x", "text": "y".repeat(10_000)});
        assert_eq!(scrubbed(&Scrub::default(), data.clone()), data);
    }

    #[test]
    fn secrets_are_known_by_key_or_by_what_they_look_like() {
        let scrub = Scrub::new(None, Some(&[])).unwrap();
        let hash = format!("$6$salt${}", "a".repeat(86));
        let data = json!({
            "password": "x", "db_Pwd": {"deep": 1}, "pass": ["x"], "name": "pass",
            "list": ["AKIAABCDEFGHIJKLMNOP", "AKIA"], "deep": {"hash": hash, "passphrase": "x"},
            "key": "-----BEGIN RSA PRIVATE KEY-----\nMII",
        });
        let expected = json!({
            "password": REDACTED, "db_Pwd": REDACTED, "pass": REDACTED, "name": "pass",
            "list": [REDACTED, "AKIA"], "deep": {"hash": REDACTED, "passphrase": REDACTED}, "key": REDACTED,
        });
        assert_eq!(scrubbed(&scrub, data), expected);
    }

    #[test]
    fn patterns_of_the_operators_own_replace_the_usual_ones() {
        let scrub = Scrub::new(None, Some(&[r"^tok-\w+$".to_owned()])).unwrap();
        let data = json!({"a": "tok-1", "b": "AKIAABCDEFGHIJKLMNOP", "pass": "x"});
        let expected = json!({"a": REDACTED, "b": "AKIAABCDEFGHIJKLMNOP", "pass": REDACTED});
        assert_eq!(scrubbed(&scrub, data), expected);
        assert!(Scrub::new(None, Some(&["(".to_owned()])).unwrap_err().to_string().contains("redact_patterns"));
    }

    #[test]
    fn long_texts_are_cut_and_say_so() {
        let scrub = Scrub::new(Some(20), None).unwrap();
        let data = json!({"short": "x".repeat(20), "long": "x".repeat(21), "wide": "ü".repeat(20), "number": 1});
        let expected = json!({
            "short": "x".repeat(20), "long": "xxxxxxxx-(truncated)", "wide": "üüüü-(truncated)", "number": 1,
        });
        assert_eq!(scrubbed(&scrub, data), expected);
        let tiny = Scrub::new(Some(3), None).unwrap();
        assert_eq!(scrubbed(&tiny, json!({"a": "long text"})), json!({"a": TRUNCATED}));
    }
}
