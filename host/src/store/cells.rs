//! What an entity writes into columns: plain values that fit, and what is to be sealed. Owns the checks of a value
//! against its column.

use prost::Message;

use super::{StoreError, Table, Writer};
use crate::database::Dialect;
use crate::layout::schema::Sealing;

/// One value to be written, not sealed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Number(i64),
    Flag(bool),
    Text(String),
    Sealed(Sealing, Vec<u8>),
}

/// The columns of one row that are written.
pub(super) type Cells = Vec<(&'static str, Cell)>;

pub(super) fn number(number: impl Into<i64>) -> Cell {
    Cell::Number(number.into())
}

pub(super) fn message(message: &impl Message) -> Cell {
    Cell::Sealed(Sealing::Enveloped, message.encode_to_vec())
}

pub(super) fn json(json: impl Into<Vec<u8>>) -> Cell {
    Cell::Sealed(Sealing::Sealed, json.into())
}

/// The longest reason that its column is given whole, in bytes.
const LONGEST_REASON: usize = 1023;
const CUT: &[u8] = b"(truncated)";

/// A reason as it rests: one that is too long loses its end and says so. It stays text where it was text.
pub(super) fn cut(reason: &[u8]) -> Vec<u8> {
    if reason.len() <= LONGEST_REASON {
        return reason.to_vec();
    }
    let mut end = LONGEST_REASON + 1 - CUT.len();
    while end > 0 && reason[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    [&reason[..end], CUT].concat()
}

impl Writer {
    /// The text that a plain column is to hold, if it can.
    pub(super) fn plain(&self, table: Table, column: &'static str, text: &[u8]) -> Result<Cell, StoreError> {
        let name = table.name;
        let text = std::str::from_utf8(text).map_err(|_| StoreError::NotText { table: name, column })?;
        if self.tx.dialect() == Dialect::Postgres && text.contains('\0') {
            return Err(StoreError::NotText { table: name, column });
        }
        match self.access.capacity(name, column) {
            Some(capacity) if !capacity.holds(text.as_bytes()) => Err(StoreError::TooLong { table: name, column }),
            Some(_) | None => Ok(Cell::Text(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_as_diego_does_but_between_characters() {
        assert_eq!(cut(&[b'x'; 1023]), [b'x'; 1023]);
        let long = cut(&[b'x'; 1024]);
        assert_eq!((long.len(), long.ends_with(b"x(truncated)")), (1024, true));
        let text = "ä".repeat(600);
        let long = String::from_utf8(cut(text.as_bytes())).expect("no character is split");
        assert_eq!(long, format!("{}(truncated)", "ä".repeat(506)));
    }
}
