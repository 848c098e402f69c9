//! Parses JSON as Go's decoder does: strict about structure, lenient about invalid Unicode, which becomes U+FFFD. Numbers
//! keep their spelling. Nesting is limited, because the input is untrusted.

use std::collections::BTreeMap;

use super::{JsonError, JsonValue};

/// Deepest nesting of arrays and objects.
const DEPTH: usize = 128;

pub(super) fn read(text: &[u8]) -> Result<JsonValue, JsonError> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.skip_blanks();
    if reader.at < text.len() { Err(reader.error()) } else { Ok(value) }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn error(&self) -> JsonError {
        let before = &self.text[..self.at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        JsonError { line, column }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(self.error());
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        if depth > DEPTH {
            return Err(self.error());
        }
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(JsonValue::String),
            Some(b't') => self.word(b"true", JsonValue::Bool(true)),
            Some(b'f') => self.word(b"false", JsonValue::Bool(false)),
            Some(b'n') => self.word(b"null", JsonValue::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.error()),
        }
    }

    fn word(&mut self, word: &[u8], value: JsonValue) -> Result<JsonValue, JsonError> {
        for byte in word {
            self.expect(*byte)?;
        }
        Ok(value)
    }

    fn object(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        let mut members = BTreeMap::new();
        self.list(b'}', |reader| {
            reader.skip_blanks();
            let name = reader.string()?;
            reader.skip_blanks();
            reader.expect(b':')?;
            members.insert(name, reader.value(depth + 1)?);
            Ok(())
        })?;
        Ok(JsonValue::Object(members))
    }

    fn array(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        let mut items = Vec::new();
        self.list(b']', |reader| {
            items.push(reader.value(depth + 1)?);
            Ok(())
        })?;
        Ok(JsonValue::Array(items))
    }

    /// Parses comma-separated items up to the closing bracket.
    fn list(&mut self, end: u8, mut item: impl FnMut(&mut Self) -> Result<(), JsonError>) -> Result<(), JsonError> {
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(end) {
            self.at += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            self.skip_blanks();
            if self.peek() == Some(b',') {
                self.at += 1;
            } else {
                return self.expect(end);
            }
        }
    }

    fn number(&mut self) -> Result<JsonValue, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(JsonValue::Number(String::from_utf8_lossy(&self.text[start..self.at]).into_owned()))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.error()) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.expect(b'"')?;
        let mut string = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            string.push_str(&String::from_utf8_lossy(&self.text[start..self.at]));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => {
                    self.at += 1;
                    string.push(self.escape()?);
                }
                _ => return Err(self.error()),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let character = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.error()),
        };
        self.at += 1;
        Ok(character)
    }

    /// Parses an escaped character, which may be a surrogate pair. A lone surrogate becomes U+FFFD.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.unit()?;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 1;
            let second = self.unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let character = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Parses `u` and four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(|| self.error())?;
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }
}
