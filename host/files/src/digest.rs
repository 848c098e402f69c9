//! Digests of bytes, and the hexadecimal form of bytes.

use sha2::{Digest, Sha256};

/// The SHA-256 of bytes, in lower-case hexadecimal: a name of fixed length for bytes of any length.
pub fn digest_of(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

/// Bytes as lower-case hexadecimal digits, two for each.
pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The bytes of a text of hexadecimal digits, two for each.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    // The standard library reads a sign as well.
    let digit = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() {
        bytes.collect()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_hexadecimal_digits_are_read() {
        assert_eq!(from_hex("00fFa1"), Some(vec![0, 0xff, 0xa1]));
        for wrong in ["0", "+f", "-0", "0g", " 0", "ä0", "0ä"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_the_form_of_its_bytes_or_none(text in "[0-9a-fA-F+ ]{0,6}|.{0,6}") {
            if let Some(bytes) = from_hex(&text) {
                prop_assert_eq!(to_hex(&bytes), text.to_ascii_lowercase());
            }
        }
    }
}
