//! JSON as Go's `encoding/json` reads and writes it, because Go's encoder wrote Diego's columns and
//! they have to stay the same byte for byte. The host and the SDK share it; it compiles to
//! WebAssembly.
//!
//! # Rules
//!
//! - Written JSON is compact. In strings, `<`, `>`, `&`, U+2028 and U+2029 are escaped besides what
//!   JSON requires.
//! - Numbers and raw values keep their spelling.
//! - The structure is checked strictly, Unicode is not: each byte that is not UTF-8, and each half
//!   of a surrogate pair without the other, is read as U+FFFD.
//! - Arrays and objects nest at most 10,000 deep.
//!
//! The order of keys, and which of two equal keys counts, is up to the caller, as is the mapping to
//! types. Go decodes members in the order of the text, each into the field that [`names_field`] finds,
//! so that the last of several spellings counts.
//!
//! # Use
//!
//! [`members`], [`elements`] and [`string`] split a text one level at a time and leave the parts as
//! they are; [`compact`] and [`quote`] write such parts. [`Scanner`] is below them, for a caller
//! that builds values of its own.
//!
//! ```
//! let object = br#"{ "a<b" : [ 1.50 ] }"#;
//! let mut out = Vec::new();
//! for (name, value) in bbs_go_json::members(object)?.unwrap_or_default() {
//!     bbs_go_json::quote(&name, &mut out);
//!     bbs_go_json::compact(value, &mut out)?;
//! }
//! assert_eq!(out, br#""a\u003cb"[1.50]"#);
//! # Ok::<(), bbs_go_json::Malformed>(())
//! ```

#![warn(missing_docs)]

mod scanner;
mod strings;

pub use scanner::{Scanner, Token};
pub use strings::{Quoted, quote, quote_str, replace_invalid};

/// A text is not valid JSON, or not of the expected type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the expected JSON: the error is at byte {at}")]
pub struct Malformed {
    /// Offset of the error in bytes.
    pub at: usize,
}

/// Reads a text with the function, which has to leave nothing but space.
///
/// # Errors
/// If the function fails, or leaves more.
pub fn read<'a, T>(
    text: &'a [u8],
    read: impl FnOnce(&mut Scanner<'a>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let mut scanner = Scanner::new(text);
    let read = read(&mut scanner)?;
    scanner.end()?;
    Ok(read)
}

/// A decoded key and the raw text of its value.
pub type Member<'a> = (Vec<u8>, &'a [u8]);

/// Returns the members of an object in their order; `None` for `null`.
///
/// # Errors
/// If the text is not valid JSON of this type.
pub fn members(text: &[u8]) -> Result<Option<Vec<Member<'_>>>, Malformed> {
    let mut members = Vec::new();
    let is_object = read(text, |scanner| {
        scanner.members(|key, scanner| {
            members.push((key.decode().into_bytes(), scanner.value()?));
            Ok(())
        })
    })?;
    Ok(is_object.then_some(members))
}

/// Whether Go decodes a member of this name into the field: it compares names without regard to
/// case, by Unicode's simple folding. The name of the field is ASCII.
#[must_use]
pub fn names_field(name: &[u8], field: &str) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    // The characters beyond ASCII that fold to a letter of ASCII: the long s and the kelvin sign.
    let folded = name.chars().map(|character| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(field
        .chars()
        .map(|character| character.to_ascii_lowercase()))
}

/// Returns the raw elements of an array; `None` for `null`.
///
/// # Errors
/// If the text is not valid JSON of this type.
pub fn elements(text: &[u8]) -> Result<Option<Vec<&[u8]>>, Malformed> {
    let mut elements = Vec::new();
    let is_array = read(text, |scanner| {
        scanner.elements(|scanner| {
            elements.push(scanner.value()?);
            Ok(())
        })
    })?;
    Ok(is_array.then_some(elements))
}

/// Returns a decoded string; `None` for `null`.
///
/// # Errors
/// If the text is not valid JSON of this type.
pub fn string(text: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    read(text, Scanner::text)
}

/// Whether the text is the literal `null`.
#[must_use]
pub fn is_null(text: &[u8]) -> bool {
    read(text, Scanner::token) == Ok(Token::Null)
}

/// Appends a value as Go renders raw JSON within a document.
///
/// # Errors
/// If the text is not valid JSON; nothing is appended then.
pub fn compact(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut rest = whole(text)?;
    let mut is_quoted = false;
    let mut is_escaped = false;
    while let [byte, after @ ..] = rest {
        rest = after;
        if !is_quoted && byte.is_ascii_whitespace() {
            continue;
        }
        (is_quoted, is_escaped) = match byte {
            _ if is_escaped => (true, false),
            b'\\' => (is_quoted, is_quoted),
            b'"' => (!is_quoted, false),
            _ => (is_quoted, false),
        };
        let code = match (byte, after) {
            (b'<' | b'>' | b'&', _) => u32::from(*byte),
            (0xe2, [0x80, last @ (0xa8 | 0xa9), after @ ..]) => {
                rest = after;
                0x2000 | u32::from(last & 0x3f)
            }
            _ => {
                out.push(*byte);
                continue;
            }
        };
        strings::escape_code(code, &mut |piece| out.extend_from_slice(piece.as_bytes()));
    }
    Ok(())
}

/// The single value of the text, without surrounding space.
fn whole(text: &[u8]) -> Result<&[u8], Malformed> {
    read(text, Scanner::value)
}

#[cfg(test)]
mod tests;
