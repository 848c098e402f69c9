//! Strings: their escapes, written and read. Whether a literal is valid is the scanner's to check.

use std::borrow::Cow;

/// A valid string literal of a scanned text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Without the quotes.
    pub(super) inner: &'a [u8],
}

impl Quoted<'_> {
    /// Returns the text of the literal. Each byte that is not UTF-8, and each lone half of a
    /// surrogate pair, is U+FFFD.
    #[must_use]
    pub fn decode(self) -> String {
        // Most texts are plain.
        if !self.inner.contains(&b'\\')
            && let Ok(text) = std::str::from_utf8(self.inner)
        {
            return text.to_owned();
        }
        let mut text = String::with_capacity(self.inner.len());
        let mut rest = self.inner;
        while let Some(plain) = rest.iter().position(|byte| *byte == b'\\') {
            push_replaced(&rest[..plain], &mut text);
            let (character, after) = unescape(&rest[plain + 1..]);
            text.push(character);
            rest = after;
        }
        push_replaced(rest, &mut text);
        text
    }
}

/// Returns a text with U+FFFD in the place of each byte that is not UTF-8, as Go encodes and decodes
/// it. [`String::from_utf8_lossy`] has a single U+FFFD for all bytes of a truncated character.
#[must_use]
pub fn replace_invalid(text: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(text) {
        return Cow::Borrowed(text);
    }
    let mut replaced = String::with_capacity(text.len());
    push_replaced(text, &mut replaced);
    Cow::Owned(replaced)
}

fn push_replaced(raw: &[u8], text: &mut String) {
    for chunk in raw.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

/// Decodes an escape, given what follows its backslash; returns the rest, too.
fn unescape(escape: &[u8]) -> (char, &[u8]) {
    let (&kind, rest) = escape.split_first().expect("an escape has a second byte");
    let character = match kind {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unescape_unicode(rest),
        other => char::from(other),
    };
    (character, rest)
}

/// Decodes the digits of a `\u` escape, with a second escape if the first is the first half of a
/// surrogate pair.
fn unescape_unicode(digits: &[u8]) -> (char, &[u8]) {
    let (first, rest) = hex(digits);
    if let Some(character) = char::from_u32(first) {
        return (character, rest);
    }
    if let Some(second_digits) = rest.strip_prefix(b"\\u") {
        let (second, after) = hex(second_digits);
        if (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second) {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return (
                char::from_u32(code).expect("a pair names a character"),
                after,
            );
        }
    }
    (char::REPLACEMENT_CHARACTER, rest)
}

fn hex(digits: &[u8]) -> (u32, &[u8]) {
    let (four, rest) = digits.split_at(4);
    let value = four.iter().fold(0, |value, &digit| {
        value << 4
            | char::from(digit)
                .to_digit(16)
                .expect("the scanner has checked the digits")
    });
    (value, rest)
}

/// Appends a text as a JSON string. Each byte that is not UTF-8 becomes an escaped U+FFFD.
pub fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        escape(chunk.valid(), &mut |piece| {
            out.extend_from_slice(piece.as_bytes())
        });
        for _ in chunk.invalid() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
    out.push(b'"');
}

/// Appends a text as a JSON string.
pub fn quote_str(text: &str, out: &mut String) {
    out.push('"');
    escape(text, &mut |piece| out.push_str(piece));
    out.push('"');
}

/// Writes the text in pieces: escapes, and what is between them.
fn escape(text: &str, write: &mut impl FnMut(&str)) {
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        let short = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => "",
            _ => continue,
        };
        write(&text[plain..at]);
        plain = at + character.len_utf8();
        if short.is_empty() {
            escape_code(character.into(), write);
        } else {
            write(short);
        }
    }
    write(&text[plain..]);
}

/// Writes a code point of at most four digits as a `\u` escape. Does not use `format!`, which would
/// become a part of each module.
pub(super) fn escape_code(code: u32, write: &mut impl FnMut(&str)) {
    write("\\u");
    for shift in [12, 8, 4, 0] {
        let digit = (code >> shift & 0xf) as usize;
        write(&"0123456789abcdef"[digit..=digit]);
    }
}
