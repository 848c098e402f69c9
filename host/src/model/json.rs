//! JSON by Go's rules, as Diego stores it: compact, with `<`, `>`, `&`, U+2028 and U+2029 escaped, the spelling of numbers
//! and strings preserved, and invalid UTF-8 tolerated. Syntax only.

mod scanner;

use scanner::Scanner;

/// The text is not valid JSON, or not of the expected type; `at` is the byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text is not the JSON that this record should hold (byte {at})")]
pub struct Malformed {
    pub at: usize,
}

/// A decoded key and the raw text of its value.
pub type Member<'a> = (Vec<u8>, &'a [u8]);

/// The members of an object; `None` for `null`.
///
/// # Errors
/// The text is not valid JSON of this type.
pub fn members(text: &[u8]) -> Result<Option<Vec<Member<'_>>>, Malformed> {
    let mut scanner = Scanner::new(text);
    if whole(text)? == b"null" {
        return Ok(None);
    }
    let mut members = Vec::new();
    scanner.open(b'{')?;
    while !scanner.closes(b'}', members.is_empty())? {
        let key = unquote(scanner.key()?);
        members.push((key, scanner.value()?));
    }
    Ok(Some(members))
}

/// The raw elements of an array; `None` for `null`.
///
/// # Errors
/// The text is not valid JSON of this type.
pub fn elements(text: &[u8]) -> Result<Option<Vec<&[u8]>>, Malformed> {
    let mut scanner = Scanner::new(text);
    if whole(text)? == b"null" {
        return Ok(None);
    }
    let mut elements = Vec::new();
    scanner.open(b'[')?;
    while !scanner.closes(b']', elements.is_empty())? {
        elements.push(scanner.value()?);
    }
    Ok(Some(elements))
}

/// A decoded string; `None` for `null`.
///
/// # Errors
/// The text is not valid JSON of this type.
pub fn string(text: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    match whole(text)? {
        b"null" => Ok(None),
        [b'"', .., b'"'] => Ok(Some(unquote(whole(text)?))),
        _ => Err(Malformed { at: 0 }),
    }
}

/// Whether the text is the literal `null`.
pub fn is_null(text: &[u8]) -> bool {
    whole(text) == Ok(b"null")
}

/// The single value of the text, without surrounding space.
fn whole(text: &[u8]) -> Result<&[u8], Malformed> {
    let mut scanner = Scanner::new(text);
    let value = scanner.value()?;
    scanner.end()?;
    Ok(value)
}

/// Appends the value as Go renders raw JSON within a document.
///
/// # Errors
/// The text is not valid JSON.
pub fn compact(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let value = whole(text)?;
    let (mut quoted, mut escaped) = (false, false);
    for (at, &byte) in value.iter().enumerate() {
        if !quoted && byte.is_ascii_whitespace() {
            continue;
        }
        (quoted, escaped) = match byte {
            _ if escaped => (true, false),
            b'\\' => (quoted, quoted),
            b'"' => (!quoted, false),
            _ => (quoted, false),
        };
        match byte {
            b'<' | b'>' | b'&' => escape(u32::from(byte), out),
            // The last two bytes of U+2028 and U+2029 are dropped with the first, below.
            0xe2 if is_separator(&value[at..]) => escape(0x2000 | u32::from(value[at + 2] & 0x3f), out),
            0x80 if at >= 1 && is_separator(&value[at - 1..]) => {}
            0xa8 | 0xa9 if at >= 2 && is_separator(&value[at - 2..]) => {}
            _ => out.push(byte),
        }
    }
    Ok(())
}

/// Appends the text as a JSON string. Invalid UTF-8 becomes U+FFFD byte by byte, as in Go.
pub fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\u{8}' => out.extend_from_slice(b"\\b"),
                '\u{c}' => out.extend_from_slice(b"\\f"),
                '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escape(character.into(), out),
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for _ in chunk.invalid() {
            escape(0xfffd, out);
        }
    }
    out.push(b'"');
}

fn is_separator(text: &[u8]) -> bool {
    matches!(text, [0xe2, 0x80, 0xa8 | 0xa9, ..])
}

fn escape(code: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("\\u{code:04x}").as_bytes());
}

/// Decodes a string literal that the scanner has validated.
fn unquote(literal: &[u8]) -> Vec<u8> {
    let inner = &literal[1..literal.len() - 1];
    let mut raw = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            raw.push(byte);
            continue;
        }
        let (&kind, after) = rest.split_first().expect("an escape has a second byte");
        rest = after;
        match kind {
            b'b' => raw.push(8),
            b'f' => raw.push(12),
            b'n' => raw.push(b'\n'),
            b'r' => raw.push(b'\r'),
            b't' => raw.push(b'\t'),
            b'u' => {
                let (character, left) = unescape(rest);
                raw.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = left;
            }
            other => raw.push(other),
        }
    }
    replace_invalid(&raw)
}

/// Decodes a `\u` escape, with a second one if the first is the first half of a surrogate pair. A lone half is
/// U+FFFD.
fn unescape(digits: &[u8]) -> (char, &[u8]) {
    let (first, rest) = hex(digits);
    if let Some(character) = char::from_u32(first) {
        return (character, rest);
    }
    if let Some(second_digits) = rest.strip_prefix(b"\\u") {
        let (second, after) = hex(second_digits);
        if (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second) {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return (char::from_u32(code).expect("a pair names a character"), after);
        }
    }
    (char::REPLACEMENT_CHARACTER, rest)
}

fn hex(digits: &[u8]) -> (u32, &[u8]) {
    let (four, rest) = digits.split_at(4);
    let value = four.iter().fold(0, |value, &digit| {
        value << 4 | char::from(digit).to_digit(16).expect("the scanner has checked the digits")
    });
    (value, rest)
}

fn replace_invalid(raw: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(raw.len());
    for chunk in raw.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        for _ in chunk.invalid() {
            text.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    text
}

#[cfg(test)]
mod tests;
