//! Single values in and out of columns. Owns the encoding that `columns` describes and the
//! selection of rows; independent of a column's meaning and of encryption.

use crate::columns::{ColumnData, NEW_ROW};
use crate::schema::{ColumnType, Literal};

/// The encoding of a column's values in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// One bit.
    Boolean,
    /// Eight bytes, little-endian, signed; also for columns of 32 bits.
    Integer,
    /// Bytes, delimited by offsets.
    Text,
}

impl From<ColumnType> for Encoding {
    fn from(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Boolean => Self::Boolean,
            ColumnType::Integer | ColumnType::BigInteger => Self::Integer,
            ColumnType::Varchar(_)
            | ColumnType::Text
            | ColumnType::MediumText
            | ColumnType::LongText => Self::Text,
        }
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Text => "text",
        })
    }
}

/// One value, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(
    missing_docs,
    reason = "the variants are the encodings of a column, and NULL"
)]
pub enum Value<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The value of a column that is not written: its default, or NULL.
    pub fn of(default: Option<&'a Literal>) -> Self {
        match default {
            None => Self::Null,
            Some(Literal::Boolean(value)) => Self::Boolean(*value),
            Some(Literal::Integer(value)) => Self::Integer(*value),
            Some(Literal::Text(value)) => Self::Text(value.as_bytes()),
        }
    }

    /// Whether a column of this encoding can have it.
    pub fn fits(self, encoding: Encoding) -> bool {
        self.encoding().is_none_or(|own| own == encoding)
    }

    /// Its encoding; NULL has none.
    pub fn encoding(self) -> Option<Encoding> {
        match self {
            Self::Null => None,
            Self::Boolean(_) => Some(Encoding::Boolean),
            Self::Integer(_) => Some(Encoding::Integer),
            Self::Text(_) => Some(Encoding::Text),
        }
    }

    /// The length of a text; 0 of anything else.
    pub fn text_bytes(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Null | Self::Boolean(_) | Self::Integer(_) => 0,
        }
    }

    /// The bytes that the encoding adds to a text at most.
    pub const MOST_TAG_BYTES: usize = 9;

    /// Appends an injective encoding: different values, and different sequences of values, have
    /// different bytes.
    pub fn encode(self, into: &mut Vec<u8>) {
        match self {
            Self::Null => into.push(0),
            Self::Boolean(value) => into.extend_from_slice(&[1, u8::from(value)]),
            Self::Integer(value) => {
                into.push(2);
                into.extend_from_slice(&value.to_le_bytes());
            }
            Self::Text(bytes) => {
                into.push(3);
                into.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
                into.extend_from_slice(bytes);
            }
        }
    }

    /// Reads the value that `encode` wrote at the start of `bytes`; returns it with the remaining
    /// bytes. None if the bytes are cut short or have an unknown tag.
    pub fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&tag, rest) = bytes.split_first()?;
        match tag {
            0 => Some((Self::Null, rest)),
            1 => rest
                .split_first()
                .map(|(&bit, rest)| (Self::Boolean(bit != 0), rest)),
            2 => {
                let (number, rest) = rest.split_first_chunk()?;
                Some((Self::Integer(i64::from_le_bytes(*number)), rest))
            }
            3 => {
                let (length, rest) = rest.split_first_chunk()?;
                let (text, rest) =
                    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
                Some((Self::Text(text), rest))
            }
            _ => None,
        }
    }
}

/// The most bytes that a row takes in a column, besides its text.
fn width(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Boolean => 1,
        Encoding::Integer => 9,
        Encoding::Text => 5,
    }
}

/// A column under construction.
#[derive(Debug)]
pub struct ColumnBuilder {
    encoding: Encoding,
    rows: usize,
    nulls: bool,
    data: ColumnData,
}

impl ColumnBuilder {
    /// A column without rows.
    pub fn new(encoding: Encoding) -> Self {
        let offsets = if encoding == Encoding::Text {
            vec![0]
        } else {
            Vec::new()
        };
        Self {
            encoding,
            rows: 0,
            nulls: false,
            data: ColumnData {
                offsets,
                ..ColumnData::default()
            },
        }
    }

    /// Appends one value. A NULL is stored as zero or empty text, with its validity bit cleared.
    ///
    /// # Panics
    /// If the value has another encoding than the column, or the text of the column exceeds 4 GiB.
    #[inline]
    pub fn push(&mut self, value: Value<'_>) {
        push_bit(&mut self.data.validity, self.rows, value != Value::Null);
        self.nulls |= value == Value::Null;
        match (self.encoding, value) {
            (Encoding::Boolean, Value::Boolean(_) | Value::Null) => {
                push_bit(
                    &mut self.data.values,
                    self.rows,
                    value == Value::Boolean(true),
                );
            }
            (Encoding::Integer, Value::Integer(number)) => {
                self.data.values.extend_from_slice(&number.to_le_bytes())
            }
            (Encoding::Integer, Value::Null) => self.data.values.extend_from_slice(&[0; 8]),
            (Encoding::Text, Value::Text(bytes)) => {
                self.data.values.extend_from_slice(bytes);
                self.end_text();
            }
            (Encoding::Text, Value::Null) => self.end_text(),
            // Without the value: an error may have this text, and the value may be a secret.
            (encoding, _) => {
                unreachable!("a value of another encoding in a column of {encoding:?}")
            }
        }
        self.rows += 1;
    }

    fn end_text(&mut self) {
        let end =
            u32::try_from(self.data.values.len()).expect("batches are bounded far below 4 GiB");
        self.data.offsets.push(end);
    }

    /// The column of the values appended.
    pub fn finish(mut self) -> ColumnData {
        if !self.nulls {
            self.data.validity.clear();
        }
        self.data
    }
}

fn push_bit(bits: &mut Vec<u8>, index: usize, set: bool) {
    if index.is_multiple_of(8) {
        bits.push(0);
    }
    bits[index / 8] |= u8::from(set) << (index % 8);
}

fn bit(bits: &[u8], index: usize) -> bool {
    bits[index / 8] >> (index % 8) & 1 == 1
}

impl ColumnData {
    /// The value of a row.
    ///
    /// # Panics
    /// If the column has no such row.
    #[inline]
    pub fn get(&self, encoding: Encoding, row: usize) -> Value<'_> {
        if !self.validity.is_empty() && !bit(&self.validity, row) {
            return Value::Null;
        }
        match encoding {
            Encoding::Boolean => Value::Boolean(bit(&self.values, row)),
            Encoding::Integer => {
                let number = self.values[row * 8..][..8].try_into().expect("eight bytes");
                Value::Integer(i64::from_le_bytes(number))
            }
            Encoding::Text => Value::Text(
                &self.values[self.offsets[row] as usize..self.offsets[row + 1] as usize],
            ),
        }
    }

    /// A column of `rows` rows with the same value.
    pub fn repeat(encoding: Encoding, value: Value<'_>, rows: usize) -> Self {
        let mut column = ColumnBuilder::new(encoding);
        (0..rows).for_each(|_| column.push(value));
        column.finish()
    }

    /// The memory that [`ColumnData::repeat`] takes.
    pub fn repeated_bytes(encoding: Encoding, value: Value<'_>, rows: usize) -> usize {
        rows.saturating_mul(width(encoding) + value.text_bytes())
    }

    /// The memory that [`ColumnData::pick`] takes.
    pub fn picked_bytes(&self, encoding: Encoding, origins: &[u32], otherwise: Value<'_>) -> usize {
        let fixed = origins.len() * width(encoding);
        if encoding != Encoding::Text {
            return fixed;
        }
        let length = |&origin: &u32| match origin {
            NEW_ROW => otherwise.text_bytes(),
            row => (self.offsets[row as usize + 1] - self.offsets[row as usize]) as usize,
        };
        fixed + origins.iter().map(length).sum::<usize>()
    }

    /// The rows at `origins`, in that order; `otherwise` for [`NEW_ROW`].
    pub fn pick(&self, encoding: Encoding, origins: &[u32], otherwise: Value<'_>) -> Self {
        let mut column = ColumnBuilder::new(encoding);
        for &origin in origins {
            column.push(if origin == NEW_ROW {
                otherwise
            } else {
                self.get(encoding, origin as usize)
            });
        }
        column.finish()
    }

    /// The rows of a range.
    pub fn slice(&self, encoding: Encoding, rows: std::ops::Range<usize>) -> Self {
        let mut column = ColumnBuilder::new(encoding);
        rows.for_each(|row| column.push(self.get(encoding, row)));
        column.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_encoding_round_trip_across_byte_boundaries() {
        for (encoding, values) in [
            (
                Encoding::Boolean,
                vec![Value::Boolean(true), Value::Null, Value::Boolean(false)],
            ),
            (
                Encoding::Integer,
                vec![Value::Integer(i64::MIN), Value::Null, Value::Integer(-1)],
            ),
            (
                Encoding::Text,
                vec![
                    Value::Text(b""),
                    Value::Null,
                    Value::Text("größe".as_bytes()),
                ],
            ),
        ] {
            let values: Vec<_> = values.into_iter().cycle().take(20).collect();
            let mut builder = ColumnBuilder::new(encoding);
            values.iter().for_each(|&value| builder.push(value));
            let column = builder.finish();
            let read: Vec<_> = (0..20).map(|row| column.get(encoding, row)).collect();
            assert_eq!(read, values);
            let slice = column.slice(encoding, 7..12);
            assert_eq!(
                (0..5)
                    .map(|row| slice.get(encoding, row))
                    .collect::<Vec<_>>(),
                values[7..12]
            );
            let picked = column.pick(encoding, &[19, NEW_ROW, 0], values[0]);
            assert_eq!(picked.get(encoding, 0), values[19]);
            assert_eq!(picked.get(encoding, 1), values[0]);
        }
    }

    #[test]
    fn column_without_null_has_no_validity_bits() {
        assert!(
            ColumnData::repeat(Encoding::Integer, Value::Integer(4), 9)
                .validity
                .is_empty()
        );
        assert_eq!(
            ColumnData::repeat(Encoding::Boolean, Value::Null, 9).validity,
            [0, 0]
        );
        assert_eq!(
            ColumnData::repeat(Encoding::Text, Value::Null, 0).offsets,
            [0]
        );
    }

    #[test]
    fn concatenated_encoded_values_decode_one_by_one() {
        let row = [
            Value::Text(b"a"),
            Value::Null,
            Value::Integer(7),
            Value::Boolean(true),
            Value::Text(b""),
        ];
        let mut bytes = Vec::new();
        row.iter().for_each(|value| value.encode(&mut bytes));
        let mut rest = bytes.as_slice();
        for value in row {
            let (decoded, after) = Value::decode(rest).unwrap();
            assert_eq!(decoded, value);
            rest = after;
        }
        assert!(rest.is_empty());
        assert_eq!(
            Value::decode(&[3, 9, 0, 0, 0, 0, 0, 0, 0, 1]),
            None,
            "cut short"
        );
        assert_eq!(Value::decode(&[9]), None, "unknown tag");
        assert_eq!(Value::decode(&[]), None);
    }
}
