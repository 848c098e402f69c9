//! Redaction of a line's data before it is written: secrets, and the ends of long texts. Owns the
//! definition of a secret.

use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Map, Value};

const REDACTED: &str = "*REDACTED*";
const TRUNCATED: &str = "-(truncated)";

/// A value under a key that matches is a secret.
const KEYS: &str = "[Pp]wd|[Pp]ass";
/// Values that are secrets under any key: cloud access keys, password hashes, private keys.
const VALUES: [&str; 4] = [
    r"\bAKIA[0-9A-Z]{16}\b",
    r"(?i)(aws|secret|access)_?(access_?)?key\W{1,6}[0-9a-z/+=]{40}",
    r"\$(1|5|6)\$(rounds=[0-9]+\$)?[0-9A-Za-z./]{1,16}\$[0-9A-Za-z./]{22,86}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
];

/// A pattern in the configuration is not a regular expression.
#[derive(Debug, thiserror::Error)]
#[error(
    "`redact_patterns` holds what is not a regular expression: {pattern:?}; correct it or leave it out"
)]
pub struct RedactError {
    pattern: String,
    source: regex::Error,
}

/// Redacts secrets and truncates long texts; the default does neither.
#[derive(Debug, Default)]
pub struct Redactor {
    longest: Option<usize>,
    secrets: Option<Secrets>,
}

#[derive(Debug)]
struct Secrets {
    keys: Regex,
    values: Vec<Regex>,
}

/// Compiles a pattern with Go's semantics: `\w` and similar classes are ASCII.
fn pattern(text: &str) -> Result<Regex, RedactError> {
    let built = RegexBuilder::new(text).unicode(false).build();
    built.map_err(|source| RedactError {
        pattern: text.to_owned(),
        source,
    })
}

impl Redactor {
    /// `longest` is in bytes. `redact` are patterns of secrets: `None` redacts nothing, an empty
    /// list uses the built-in ones.
    ///
    /// # Errors
    /// If a pattern is not a regular expression.
    pub fn new(longest: Option<usize>, redact: Option<&[String]>) -> Result<Self, RedactError> {
        let secrets = match redact {
            None => None,
            Some(given) => {
                let values: Result<Vec<_>, _> = match given {
                    [] => VALUES.iter().map(|text| pattern(text)).collect(),
                    given => given.iter().map(|text| pattern(text)).collect(),
                };
                Some(Secrets {
                    keys: pattern(KEYS)?,
                    values: values?,
                })
            }
        };
        Ok(Self { longest, secrets })
    }

    /// Redacts the data of one line, at every depth.
    pub fn redact(&self, data: &mut Map<String, Value>) {
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
            Value::Object(data) => self.redact(data),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &mut String) {
        if let Some(secrets) = &self.secrets
            && secrets
                .values
                .iter()
                .any(|pattern| pattern.is_match(text.as_bytes()))
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
    fn redacted(redactor: &Redactor, data: Value) -> Value {
        let Value::Object(mut data) = data else {
            panic!("data is an object")
        };
        redactor.redact(&mut data);
        Value::Object(data)
    }

    #[test]
    fn default_leaves_data_unchanged() {
        let data = json!({"password": "x", "text": "y".repeat(10_000)});
        assert_eq!(redacted(&Redactor::default(), data.clone()), data);
    }

    #[test]
    fn secrets_are_redacted_by_key_or_by_pattern() {
        let redactor = Redactor::new(None, Some(&[])).unwrap();
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
        assert_eq!(redacted(&redactor, data), expected);
    }

    #[test]
    fn configured_patterns_replace_the_built_in_ones() {
        let redactor = Redactor::new(None, Some(&[r"^tok-\w+$".to_owned()])).unwrap();
        let data = json!({"a": "tok-1", "b": "AKIAABCDEFGHIJKLMNOP", "pass": "x"});
        let expected = json!({"a": REDACTED, "b": "AKIAABCDEFGHIJKLMNOP", "pass": REDACTED});
        assert_eq!(redacted(&redactor, data), expected);
        assert!(
            Redactor::new(None, Some(&["(".to_owned()]))
                .unwrap_err()
                .to_string()
                .contains("redact_patterns")
        );
    }

    #[test]
    fn long_texts_are_truncated_and_marked() {
        let redactor = Redactor::new(Some(20), None).unwrap();
        let data = json!({"short": "x".repeat(20), "long": "x".repeat(21), "wide": "ü".repeat(20), "number": 1});
        let expected = json!({
            "short": "x".repeat(20), "long": "xxxxxxxx-(truncated)", "wide": "üüüü-(truncated)", "number": 1,
        });
        assert_eq!(redacted(&redactor, data), expected);
        let tiny = Redactor::new(Some(3), None).unwrap();
        assert_eq!(
            redacted(&tiny, json!({"a": "long text"})),
            json!({"a": TRUNCATED})
        );
    }
}
