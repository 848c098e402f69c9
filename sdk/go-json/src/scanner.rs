//! Scans JSON: checks the syntax and finds where each part starts and ends. Not recursive, so that
//! deep nesting uses no stack.

use super::{Malformed, Quoted};

/// Go's limit.
const MAX_DEPTH: usize = 10_000;

/// The start of a value; of a scalar, the whole of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, with its spelling.
    Number(&'a [u8]),
    /// A string.
    String(Quoted<'a>),
    /// The start of an array, to be followed by calls of [`Scanner::element`].
    Array,
    /// The start of an object, to be followed by calls of [`Scanner::key`].
    Object,
}

/// A position in a text. A caller reads with it either one token after the other or whole values,
/// arrays and objects, and ends with [`Scanner::end`].
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The closing brackets of open arrays and objects, innermost last.
    closers: Vec<u8>,
    /// Whether the innermost one has just been opened, so that no comma precedes what follows.
    at_start: bool,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of a text.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            closers: Vec::new(),
            at_start: false,
        }
    }

    /// Returns the raw text of the next value, without the space before it.
    ///
    /// # Errors
    /// If there is no valid value.
    pub fn value(&mut self) -> Result<&'a [u8], Malformed> {
        self.space();
        let start = self.at;
        let depth = self.closers.len();
        self.token()?;
        while self.closers.len() > depth {
            let has_next = if self.closers.last() == Some(&b'}') {
                self.key()?.is_some()
            } else {
                self.element()?
            };
            if has_next {
                self.token()?;
            }
        }
        Ok(&self.text[start..self.at])
    }

    /// Consumes a scalar, or the opening bracket of an array or object.
    ///
    /// # Errors
    /// If there is neither, or the nesting is deeper than Go's limit.
    pub fn token(&mut self) -> Result<Token<'a>, Malformed> {
        self.space();
        match self.peek() {
            Some(b'{') => self.open(b'}').map(|()| Token::Object),
            Some(b'[') => self.open(b']').map(|()| Token::Array),
            Some(b'"') => self.string().map(Token::String),
            Some(b't') => self.literal(b"true").map(|()| Token::Bool(true)),
            Some(b'f') => self.literal(b"false").map(|()| Token::Bool(false)),
            Some(b'n') => self.literal(b"null").map(|()| Token::Null),
            _ => self.number().map(Token::Number),
        }
    }

    /// Whether the innermost open array has another element. Consumes the comma before it, or the
    /// closing bracket.
    ///
    /// # Errors
    /// If there is neither.
    pub fn element(&mut self) -> Result<bool, Malformed> {
        self.space();
        let at_start = std::mem::take(&mut self.at_start);
        if self.peek().is_some() && self.peek() == self.closers.last().copied() {
            self.at += 1;
            self.closers.pop();
            return Ok(false);
        }
        if !at_start {
            self.expect(b',')?;
        }
        Ok(true)
    }

    /// Consumes the next key of the innermost open object, and its colon; `None` at the closing
    /// bracket.
    ///
    /// # Errors
    /// If there is neither.
    pub fn key(&mut self) -> Result<Option<Quoted<'a>>, Malformed> {
        if !self.element()? {
            return Ok(None);
        }
        self.space();
        let key = self.string()?;
        self.space();
        self.expect(b':')?;
        Ok(Some(key))
    }

    /// Consumes `null`, or an object with the function, which is called after each key and consumes
    /// the value. Returns whether it was an object.
    ///
    /// # Errors
    /// If there is neither, or the function fails.
    pub fn members(
        &mut self,
        mut read: impl FnMut(Quoted<'a>, &mut Self) -> Result<(), Malformed>,
    ) -> Result<bool, Malformed> {
        let start = self.at;
        match self.token()? {
            Token::Null => return Ok(false),
            Token::Object => {}
            _ => return Err(Malformed { at: start }),
        }
        while let Some(key) = self.key()? {
            read(key, self)?;
        }
        Ok(true)
    }

    /// Consumes `null`, or an array with the function, which is called for each element and
    /// consumes it. Returns whether it was an array.
    ///
    /// # Errors
    /// If there is neither, or the function fails.
    pub fn elements(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<bool, Malformed> {
        let start = self.at;
        match self.token()? {
            Token::Null => return Ok(false),
            Token::Array => {}
            _ => return Err(Malformed { at: start }),
        }
        while self.element()? {
            read(self)?;
        }
        Ok(true)
    }

    /// Consumes a string and returns its text; `None` for `null`.
    ///
    /// # Errors
    /// If there is neither.
    pub fn text(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let start = self.at;
        match self.token()? {
            Token::Null => Ok(None),
            Token::String(quoted) => Ok(Some(quoted.decode().into_bytes())),
            _ => Err(Malformed { at: start }),
        }
    }

    /// Checks that nothing but space is left.
    ///
    /// # Errors
    /// If there is more.
    pub fn end(&mut self) -> Result<(), Malformed> {
        self.space();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }

    /// Returns the error for the current position.
    #[must_use]
    pub fn malformed(&self) -> Malformed {
        Malformed { at: self.at }
    }

    fn open(&mut self, closer: u8) -> Result<(), Malformed> {
        if self.closers.len() == MAX_DEPTH {
            return Err(self.malformed());
        }
        self.at += 1;
        self.closers.push(closer);
        self.at_start = true;
        Ok(())
    }

    fn string(&mut self) -> Result<Quoted<'a>, Malformed> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            let plain = self.text[self.at..]
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | ..0x20));
            self.at = plain.map_or(self.text.len(), |plain| self.at + plain);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Quoted {
                        inner: &self.text[start..self.at - 1],
                    });
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
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
        literal.iter().try_for_each(|byte| self.expect(*byte))
    }

    fn number(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.at;
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
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start {
            Ok(())
        } else {
            Err(self.malformed())
        }
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
}
