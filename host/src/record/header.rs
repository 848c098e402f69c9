//! What a sealed text says before anything is opened: the label of its key. Owns how texts under a label begin, so
//! that a database can count and find them by itself; opens nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{ENCODING_TAG, NONCE_LENGTH, RecordError, decode};

/// As many characters as the longest label can need: whole groups of four.
pub const HEADER_LENGTH: usize = ENCODING_TAG.len() + 172;

/// The ways in which a text under one label can begin, and no text under another: all of one length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginnings {
    pub length: usize,
    pub texts: Vec<String>,
}

impl Beginnings {
    /// Base64 cuts bytes at six bits, so the last character may hold bits of the nonce too: then there is a
    /// beginning for each of their values.
    pub fn of(label: &str) -> Self {
        let mut bytes = vec![u8::try_from(label.len()).expect("labels are at most 127 bytes")];
        bytes.extend_from_slice(label.as_bytes());
        let bits = bytes.len() * 8;
        let foreign_bits = (6 - bits % 6) % 6;
        let length = ENCODING_TAG.len() + bits.div_ceil(6);
        let tag = std::str::from_utf8(ENCODING_TAG).expect("two digits");
        let text = |value: u8| {
            let mut bytes = bytes.clone();
            bytes.push(value.checked_shl(8 - u32::try_from(foreign_bits).expect("below six")).unwrap_or(0));
            let mut text = format!("{tag}{}", STANDARD.encode(&bytes));
            text.truncate(length);
            text
        };
        Self { length, texts: (0..1 << foreign_bits).map(text).collect() }
    }
}

/// The label that a text says it is under. Looks at no more than its beginning, so it proves nothing of the rest.
pub fn label_of(text: &[u8]) -> Result<String, RecordError> {
    let blob = decode(&text[..text.len().min(HEADER_LENGTH)])?;
    Ok(String::from_utf8_lossy(label_in(&blob)?).into_owned())
}

/// The beginning of a text that no other shares: label and nonce, which is drawn anew each time.
pub fn identity(text: &[u8]) -> Result<&str, RecordError> {
    let blob = decode(&text[..text.len().min(HEADER_LENGTH)])?;
    let length = ENCODING_TAG.len() + ((1 + label_in(&blob)?.len() + NONCE_LENGTH) * 8).div_ceil(6);
    let identity = text.get(..length).ok_or(RecordError::Truncated { length: blob.len() })?;
    std::str::from_utf8(identity).map_err(|_| RecordError::Base64)
}

fn label_in(blob: &[u8]) -> Result<&[u8], RecordError> {
    let truncated = RecordError::Truncated { length: blob.len() };
    let Some((&length, rest)) = blob.split_first() else { return Err(truncated) };
    rest.get(..usize::from(length)).ok_or(truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::schema::Sealing;
    use crate::record::Keyring;

    fn sealed(label: &str) -> String {
        let keys = Keyring::new([(label, "passphrase")], label).unwrap();
        String::from_utf8(keys.seal(Sealing::Sealed, b"some plaintext")).unwrap()
    }

    fn begins(beginnings: &Beginnings, text: &str) -> bool {
        beginnings.texts.iter().any(|beginning| text.starts_with(beginning.as_str()))
    }

    #[test]
    fn a_text_begins_as_its_own_label_says_and_as_no_other() {
        let labels = ["a", "b", "ab", "key1", "key2", "key-2024", "key-2025", "größe", &"l".repeat(127)];
        for label in labels {
            let beginnings = Beginnings::of(label);
            assert!(beginnings.texts.iter().all(|text| text.len() == beginnings.length));
            for other in labels {
                // Each draws a nonce of its own.
                for _ in 0..64 {
                    let text = sealed(other);
                    assert_eq!(begins(&beginnings, &text), label == other, "{label} {other} {text}");
                    assert_eq!(label_of(text.as_bytes()).unwrap(), other);
                }
            }
        }
    }

    #[test]
    fn the_identity_ends_with_the_nonce() {
        for label in ["a", "ab", "abc", &"l".repeat(127)] {
            let (one, other) = (sealed(label), sealed(label));
            let identities = [&one, &other].map(|text| identity(text.as_bytes()).unwrap());
            assert_ne!(identities[0], identities[1]);
            assert!(one.starts_with(identities[0]));
            assert!(identities[0].len() <= 2 + (1 + label.len() + 12).div_ceil(3) * 4);
        }
    }

    #[test]
    fn a_text_that_names_no_key_is_an_error() {
        assert_eq!(label_of(b"01AAAA"), Err(RecordError::Encoding { found: "01".into() }));
        assert_eq!(label_of(b"02***"), Err(RecordError::Base64));
        assert_eq!(label_of(b"02/w=="), Err(RecordError::Truncated { length: 1 }));
        assert_eq!(identity(b"02BGtleTE="), Err(RecordError::Truncated { length: 5 }));
    }
}
