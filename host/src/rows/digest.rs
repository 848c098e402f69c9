//! The form of keys, digests and versions in the host's own tables: text of fixed length, or a number that every
//! database has.

use sha2::{Digest, Sha256};

use crate::layout::manifest::DataVersion;

/// Versions are timestamps, well below the range of the sign.
pub fn signed(version: DataVersion) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// A name of fixed length for bytes of any length.
pub fn digest_of(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2)).collect()
}
