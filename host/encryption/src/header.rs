//! The unencrypted header of a sealed text: the label of its key, and the nonce. Owns the prefixes
//! of texts under a label, by which a database counts and finds them; decrypts nothing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{ENCODING_TAG, EncryptionError, NONCE_LENGTH, decode};

/// Enough characters for the longest label: the encoding tag and whole base64 groups of four.
pub const HEADER_LENGTH: usize = ENCODING_TAG.len() + 172;

/// The prefixes of sealed texts under one label. No text under another label has one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelPrefixes {
    /// The length of each prefix.
    pub length: usize,
    pub texts: Vec<String>,
}

impl LabelPrefixes {
    /// A base64 character has six bits, so the last one may contain bits of the nonce; there is a
    /// prefix for each value of these.
    ///
    /// # Panics
    /// If the label is longer than 255 bytes; a keyring's labels are at most 127.
    pub fn of(label: &str) -> Self {
        let mut bytes = vec![u8::try_from(label.len()).expect("labels are at most 127 bytes")];
        bytes.extend_from_slice(label.as_bytes());
        let bits = bytes.len() * 8;
        let foreign_bits = (6 - bits % 6) % 6;
        let length = ENCODING_TAG.len() + bits.div_ceil(6);
        let tag = std::str::from_utf8(ENCODING_TAG).expect("two digits");
        let text = |value: u8| {
            let mut bytes = bytes.clone();
            bytes.push(
                value
                    .checked_shl(8 - u32::try_from(foreign_bits).expect("below six"))
                    .unwrap_or(0),
            );
            let mut text = format!("{tag}{}", STANDARD.encode(&bytes));
            text.truncate(length);
            text
        };
        Self {
            length,
            texts: (0..1 << foreign_bits).map(text).collect(),
        }
    }
}

/// The label in the header of a sealed text. Reads the first [`HEADER_LENGTH`] bytes only, so the
/// rest may be damaged.
///
/// # Errors
/// If the header is damaged.
pub fn label_of(text: &[u8]) -> Result<String, EncryptionError> {
    let blob = decode(&text[..text.len().min(HEADER_LENGTH)])?;
    let (label, _) = split_label(&blob)?;
    Ok(String::from_utf8_lossy(label).into_owned())
}

/// The prefix of a sealed text that contains label and nonce. Unique, because each text has a
/// random nonce.
///
/// # Errors
/// If the header is damaged.
pub fn identity(text: &[u8]) -> Result<&str, EncryptionError> {
    let blob = decode(&text[..text.len().min(HEADER_LENGTH)])?;
    let (label, _) = split_label(&blob)?;
    let length = ENCODING_TAG.len() + ((1 + label.len() + NONCE_LENGTH) * 8).div_ceil(6);
    let identity = text
        .get(..length)
        .ok_or(EncryptionError::Truncated { length: blob.len() })?;
    std::str::from_utf8(identity).map_err(|_| EncryptionError::Base64)
}

/// Splits the decoded bytes of a sealed text, or its beginning, into the label and the rest.
pub(super) fn split_label(blob: &[u8]) -> Result<(&[u8], &[u8]), EncryptionError> {
    blob.split_first()
        .and_then(|(&length, rest)| rest.split_at_checked(usize::from(length)))
        .ok_or(EncryptionError::Truncated { length: blob.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Keyring, Sealing};

    fn sealed(label: &str) -> String {
        let keys = Keyring::new([(label, "passphrase")], label).unwrap();
        String::from_utf8(keys.seal(Sealing::Sealed, b"some plaintext")).unwrap()
    }

    fn has_prefix(prefixes: &LabelPrefixes, text: &str) -> bool {
        prefixes
            .texts
            .iter()
            .any(|prefix| text.starts_with(prefix.as_str()))
    }

    #[test]
    fn text_has_a_prefix_of_its_own_label_only() {
        let labels = [
            "a",
            "b",
            "ab",
            "key1",
            "key2",
            "key-2024",
            "key-2025",
            "größe",
            &"l".repeat(127),
        ];
        for label in labels {
            let prefixes = LabelPrefixes::of(label);
            assert!(
                prefixes
                    .texts
                    .iter()
                    .all(|text| text.len() == prefixes.length)
            );
            for other in labels {
                // With a random nonce each time.
                for _ in 0..64 {
                    let text = sealed(other);
                    assert_eq!(
                        has_prefix(&prefixes, &text),
                        label == other,
                        "{label} {other} {text}"
                    );
                    assert_eq!(label_of(text.as_bytes()).unwrap(), other);
                }
            }
        }
    }

    #[test]
    fn identity_differs_by_nonce_and_is_a_short_prefix() {
        for label in ["a", "ab", "abc", &"l".repeat(127)] {
            let one = sealed(label);
            let other = sealed(label);
            let identities = [&one, &other].map(|text| identity(text.as_bytes()).unwrap());
            assert_ne!(identities[0], identities[1]);
            assert!(one.starts_with(identities[0]));
            assert!(identities[0].len() <= 2 + (1 + label.len() + 12).div_ceil(3) * 4);
        }
    }

    #[test]
    fn damaged_header_is_an_error() {
        assert_eq!(
            label_of(b"01AAAA"),
            Err(EncryptionError::Encoding { found: "01".into() })
        );
        assert_eq!(label_of(b"02***"), Err(EncryptionError::Base64));
        assert_eq!(
            label_of(b"02/w=="),
            Err(EncryptionError::Truncated { length: 1 })
        );
        assert_eq!(
            identity(b"02BGtleTE="),
            Err(EncryptionError::Truncated { length: 5 })
        );
    }
}
