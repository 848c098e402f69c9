//! Digests of bytes, and the hexadecimal form of bytes.

use sha2::{Digest, Sha256};

/// The SHA-256 of bytes, in lower-case hexadecimal: a name of fixed length for bytes of any length.
pub fn digest_of(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

/// Bytes as lower-case hexadecimal digits, two for each.
pub fn to_hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// The bytes of a text of hexadecimal digits, two for each.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    hex::decode(text).ok()
}
