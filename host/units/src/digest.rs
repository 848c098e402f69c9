//! The form of keys, digests and numbers in the host's own tables: text of fixed length, or a
//! number that every database has.

pub use bbs_files::digest::{digest_of, from_hex, to_hex};

/// A number as databases store it. Versions are timestamps, and counts are of rows, both well below
/// the range of the sign.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
