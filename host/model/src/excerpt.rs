//! The texts of failures, as records keep them: never rejected, because the failure itself must be
//! stored.

/// Failure texts of this many bytes or more are truncated, as in Diego.
const LONG: usize = 1024;
/// In the place of what is no text.
const REPLACED: char = char::REPLACEMENT_CHARACTER;
const CUT: &str = "(truncated)";

/// A failure text in the form that fits a column: lossy UTF-8, truncated. `stores_nul` if the
/// database stores a NUL character; otherwise U+FFFD is in its place.
pub fn excerpt(text: &[u8], stores_nul: bool) -> String {
    let mut text = String::from_utf8_lossy(text).into_owned();
    if !stores_nul {
        text = text.replace('\0', "\u{fffd}");
    }
    if text.len() >= LONG {
        text.truncate(text.floor_char_boundary(LONG - CUT.len()));
        text.push_str(CUT);
    }
    text
}

/// Most bytes of the excerpt of a text.
pub(crate) fn bytes(text: &[u8]) -> usize {
    (text.len() * REPLACED.len_utf8()).min(LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_text_is_truncated_and_made_valid() {
        for stores_nul in [false, true] {
            let stored = |text: &[u8]| excerpt(text, stores_nul);
            assert_eq!(stored(b""), "");
            assert_eq!(stored("a".repeat(1023).as_bytes()), "a".repeat(1023));
            assert_eq!(
                stored("a".repeat(1024).as_bytes()),
                format!("{}(truncated)", "a".repeat(1013))
            );
            // The 1013th byte is within a character.
            assert_eq!(
                stored("é".repeat(600).as_bytes()),
                format!("{}(truncated)", "é".repeat(506))
            );
            assert_eq!(stored(b"a\xff"), "a\u{fffd}");
            assert_eq!(stored(&[0xff; 400]).len(), 1011 + CUT.len());
        }
        assert_eq!(excerpt(b"a\0b", false), "a\u{fffd}b");
        assert_eq!(excerpt(b"a\0b", true), "a\0b");
    }
}
