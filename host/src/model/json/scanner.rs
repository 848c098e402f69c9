//! Scans JSON values: finds where each starts and ends, and validates it. Not recursive, so that deep
//! nesting uses no stack.

use super::Malformed;

/// Go's limit.
const MAX_DEPTH: usize = 10_000;

pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The raw text of the next value, without the space before it.
    pub(super) fn value(&mut self) -> Result<&'a [u8], Malformed> {
        self.space();
        let start = self.at;
        let mut closers = Vec::new();
        loop {
            if let Some(closer) = self.begin_value()? {
                if closers.len() == MAX_DEPTH {
                    return Err(self.malformed());
                }
                closers.push(closer);
                if !self.closes(closer, true)? {
                    self.key_where(closer)?;
                    continue;
                }
                closers.pop();
            }
            loop {
                let Some(&closer) = closers.last() else { return Ok(&self.text[start..self.at]) };
                if !self.closes(closer, false)? {
                    self.key_where(closer)?;
                    break;
                }
                closers.pop();
            }
        }
    }

    /// Consumes a scalar, or the opening bracket of an object or array, whose closing bracket it returns.
    fn begin_value(&mut self) -> Result<Option<u8>, Malformed> {
        self.space();
        match self.peek() {
            Some(b'{') => self.open(b'{').map(|()| Some(b'}')),
            Some(b'[') => self.open(b'[').map(|()| Some(b']')),
            Some(b'"') => self.string().map(|_| None),
            Some(b't') => self.literal(b"true").map(|()| None),
            Some(b'f') => self.literal(b"false").map(|()| None),
            Some(b'n') => self.literal(b"null").map(|()| None),
            _ => self.number().map(|()| None),
        }
    }

    pub(super) fn open(&mut self, bracket: u8) -> Result<(), Malformed> {
        self.space();
        self.expect(bracket)
    }

    /// Whether the object or array ends here. If not, consumes the comma before the next element.
    pub(super) fn closes(&mut self, closer: u8, at_start: bool) -> Result<bool, Malformed> {
        self.space();
        if self.peek() == Some(closer) {
            self.at += 1;
            return Ok(true);
        }
        if !at_start {
            self.expect(b',')?;
        }
        Ok(false)
    }

    fn key_where(&mut self, closer: u8) -> Result<(), Malformed> {
        if closer == b'}' { self.key().map(|_| ()) } else { Ok(()) }
    }

    /// A member's raw key with its quotes; consumes the colon.
    pub(super) fn key(&mut self) -> Result<&'a [u8], Malformed> {
        self.space();
        let key = self.string()?;
        self.space();
        self.expect(b':')?;
        Ok(key)
    }

    pub(super) fn end(&mut self) -> Result<(), Malformed> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.malformed()) }
    }

    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(&self.text[start..self.at]);
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0x20..) => self.at += 1,
                Some(_) | None => return Err(self.malformed()),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|digit| digit.is_ascii_hexdigit()) {
                        return Err(self.malformed());
                    }
                    self.at += 1;
                }
            }
            Some(_) | None => return Err(self.malformed()),
        }
        Ok(())
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), Malformed> {
        if !self.text[self.at..].starts_with(literal) {
            return Err(self.malformed());
        }
        self.at += literal.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1
        } else {
            self.digits()?
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
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(self.malformed()) }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(self.malformed());
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn malformed(&self) -> Malformed {
        Malformed { at: self.at }
    }
}
