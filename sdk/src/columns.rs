//! Rows as columns in Arrow's layout, as they cross between host and guest: the contract's records,
//! a view that reads them in place, and a builder that appends. Contains no column names: columns
//! are in the manifest's order.

use crate::schema::Kind;

/// One column of all rows of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnData {
    /// One bit per row, least significant first, set if the row has a value. Empty if there is no
    /// NULL.
    pub validity: Vec<u8>,
    /// Text only: the start of each value in `values`, and the end of the last one.
    pub offsets: Vec<u32>,
    /// Text: all bytes, one value after another. Integers: eight bytes each, little-endian.
    /// Booleans: one bit each, least significant first.
    pub values: Vec<u8>,
}

/// The rows of one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableData {
    /// Unit `i` has the rows from `unit_offsets[i]` up to `unit_offsets[i + 1]`.
    pub unit_offsets: Vec<u32>,
    /// The columns, in the order of the access's `reads`.
    pub columns: Vec<ColumnData>,
}

/// The input of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// One table for each access of the direction, in their order.
    pub tables: Vec<TableData>,
    /// The residue of the opposite step for each unit. Empty if there is none for any.
    pub residue: Vec<Option<Vec<u8>>>,
}

/// The origin of a new row.
pub const NEW_ROW: u32 = u32::MAX;

/// The rows that an access with `reshapes` returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// Unit `i` has the rows from `unit_offsets[i]` up to `unit_offsets[i + 1]`.
    pub unit_offsets: Vec<u32>,
    /// For each row, the given row that it continues, or [`NEW_ROW`].
    pub origins: Vec<u32>,
}

/// The columns written to one table, in the order of the access's `writes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Present if and only if the access reshapes.
    pub shape: Option<Shape>,
    /// The columns, in the order of the access's `writes`.
    pub columns: Vec<ColumnData>,
}

/// A unit that the row function refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The unit's index in the batch.
    pub unit: u32,
    /// What is wrong with the unit.
    pub reason: String,
}

/// The result of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One table for each access of the direction, in their order.
    pub tables: Vec<Written>,
    /// The refused units. Their rows are ignored.
    pub refused: Vec<Refusal>,
    /// Residue for the opposite direction, one entry per unit. Empty if there is none.
    pub residue: Vec<Option<Vec<u8>>>,
}

/// One value of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnValue<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(&'a [u8]),
}

impl ColumnValue<'_> {
    /// A value of a refused unit's row, which is never read.
    pub(crate) fn filler(kind: Kind) -> Self {
        match kind {
            Kind::Boolean => Self::Boolean(false),
            Kind::Integer => Self::Integer(0),
            Kind::Text => Self::Text(&[]),
        }
    }

    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            ColumnValue::Null => None,
            ColumnValue::Boolean(_) => Some(Kind::Boolean),
            ColumnValue::Integer(_) => Some(Kind::Integer),
            ColumnValue::Text(_) => Some(Kind::Text),
        }
    }
}

#[inline]
fn bit(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

/// A column that is read in place. Its kind follows from its form; a column without rows has no
/// kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    data: &'a ColumnData,
    pub(crate) kind: Kind,
}

impl<'a> View<'a> {
    /// Validates the column's form once, so that reading a row cannot go out of range.
    pub(crate) fn new(data: &'a ColumnData, rows: usize) -> Option<Self> {
        if !data.validity.is_empty() && data.validity.len() < rows.div_ceil(8) {
            return None;
        }
        let kind = if !data.offsets.is_empty() {
            let ascending = data.offsets.is_sorted();
            let ends_inside = data
                .offsets
                .last()
                .is_some_and(|end| *end as usize <= data.values.len());
            if data.offsets.len() != rows + 1 || !ascending || !ends_inside {
                return None;
            }
            Kind::Text
        } else if data.values.len() == rows * 8 {
            Kind::Integer
        } else if data.values.len() == rows.div_ceil(8) {
            Kind::Boolean
        } else {
            return None;
        };
        Some(Self { data, kind })
    }

    #[inline]
    pub(crate) fn value(&self, row: usize) -> ColumnValue<'a> {
        let data = self.data;
        if !data.validity.is_empty() && !bit(&data.validity, row) {
            return ColumnValue::Null;
        }
        match self.kind {
            Kind::Text => ColumnValue::Text(
                &data.values[data.offsets[row] as usize..data.offsets[row + 1] as usize],
            ),
            Kind::Integer => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&data.values[row * 8..row * 8 + 8]);
                ColumnValue::Integer(i64::from_le_bytes(bytes))
            }
            Kind::Boolean => ColumnValue::Boolean(bit(&data.values, row)),
        }
    }
}

/// A column that is written row by row.
#[derive(Debug)]
pub(crate) struct Builder {
    kind: Kind,
    rows: usize,
    data: ColumnData,
}

impl Builder {
    pub(crate) fn new(kind: Kind, rows: usize) -> Self {
        let mut data = ColumnData::default();
        match kind {
            Kind::Text => {
                data.offsets.reserve(rows + 1);
                data.offsets.push(0);
            }
            Kind::Integer => data.values.reserve(rows * 8),
            Kind::Boolean => data.values.reserve(rows.div_ceil(8)),
        }
        Self {
            kind,
            rows: 0,
            data,
        }
    }

    /// Appends a value, which must be NULL or of the column's kind.
    #[inline]
    pub(crate) fn push(&mut self, value: ColumnValue<'_>) {
        let row = self.rows;
        self.rows += 1;
        let null = matches!(value, ColumnValue::Null);
        if null || !self.data.validity.is_empty() {
            self.push_validity(row, !null);
        }
        match self.kind {
            Kind::Text => {
                if let ColumnValue::Text(bytes) = value {
                    self.data.values.extend_from_slice(bytes);
                }
                self.data.offsets.push(self.data.values.len() as u32);
            }
            Kind::Integer => {
                let value = if let ColumnValue::Integer(value) = value {
                    value
                } else {
                    0
                };
                self.data.values.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Boolean => {
                if row.is_multiple_of(8) {
                    self.data.values.push(0);
                }
                self.data.values[row / 8] |=
                    u8::from(matches!(value, ColumnValue::Boolean(true))) << (row % 8);
            }
        }
    }

    /// Records whether the row has a value. The first NULL marks all earlier rows as valid.
    fn push_validity(&mut self, row: usize, valid: bool) {
        if self.data.validity.is_empty() {
            self.data.validity.resize(row.div_ceil(8), 0xff);
            if !row.is_multiple_of(8) {
                self.data.validity[row / 8] = (1 << (row % 8)) - 1;
            }
        }
        if row.is_multiple_of(8) {
            self.data.validity.push(0);
        }
        self.data.validity[row / 8] |= u8::from(valid) << (row % 8);
    }

    pub(crate) fn finish(self) -> ColumnData {
        self.data
    }
}

/// Builds a column of values. Without any value except NULL it has the form of text.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn column_of<'a>(values: impl Iterator<Item = ColumnValue<'a>> + Clone) -> ColumnData {
    let kind = values
        .clone()
        .find_map(ColumnValue::kind)
        .unwrap_or(Kind::Text);
    let mut builder = Builder::new(kind, 0);
    values.for_each(|value| builder.push(value));
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(data: &ColumnData, rows: usize) -> Vec<ColumnValue<'_>> {
        let view = View::new(data, rows).expect("a column in form");
        (0..rows).map(|row| view.value(row)).collect()
    }

    fn built(kind: Kind, values: &[ColumnValue<'_>]) -> ColumnData {
        let mut builder = Builder::new(kind, values.len());
        for value in values {
            builder.push(*value);
        }
        builder.finish()
    }

    #[test]
    fn built_column_reads_back_and_distinguishes_null_from_empty() {
        for nulls in 0..20 {
            let mut texts = vec![ColumnValue::Null; nulls];
            texts.extend([
                ColumnValue::Text(b""),
                ColumnValue::Null,
                ColumnValue::Text(b"x"),
                ColumnValue::Text("é\u{0}".as_bytes()),
            ]);
            assert_eq!(values(&built(Kind::Text, &texts), texts.len()), texts);
            let mut integers = vec![ColumnValue::Integer(7); nulls];
            integers.extend([
                ColumnValue::Integer(i64::MIN),
                ColumnValue::Null,
                ColumnValue::Integer(i64::MAX),
                ColumnValue::Integer(0),
            ]);
            assert_eq!(
                values(&built(Kind::Integer, &integers), integers.len()),
                integers
            );
            let mut booleans = vec![ColumnValue::Boolean(true); nulls];
            booleans.extend([
                ColumnValue::Boolean(false),
                ColumnValue::Null,
                ColumnValue::Boolean(true),
            ]);
            assert_eq!(
                values(&built(Kind::Boolean, &booleans), booleans.len()),
                booleans
            );
        }
    }

    #[test]
    fn column_without_null_has_no_validity() {
        assert_eq!(
            built(Kind::Integer, &[ColumnValue::Integer(1)]).validity,
            Vec::<u8>::new()
        );
        assert_eq!(built(Kind::Text, &[ColumnValue::Null]).validity, vec![0]);
    }

    #[test]
    fn empty_column_has_the_form_of_its_kind() {
        assert_eq!(built(Kind::Text, &[]).offsets, vec![0]);
        assert_eq!(built(Kind::Integer, &[]).offsets, Vec::<u32>::new());
    }

    #[test]
    fn malformed_column_has_no_view() {
        let text = |offsets: &[u32], values: &[u8]| ColumnData {
            offsets: offsets.to_vec(),
            values: values.to_vec(),
            validity: vec![],
        };
        assert!(View::new(&text(&[0, 1, 2], b"ab"), 2).is_some());
        assert!(
            View::new(&text(&[0, 1], b"ab"), 2).is_none(),
            "too few offsets"
        );
        assert!(
            View::new(&text(&[0, 2, 1], b"ab"), 2).is_none(),
            "offsets that fall"
        );
        assert!(
            View::new(&text(&[0, 1, 3], b"ab"), 2).is_none(),
            "an offset out of range"
        );
        let integers = ColumnData {
            values: vec![0; 15],
            ..Default::default()
        };
        assert!(View::new(&integers, 2).is_none(), "half an integer");
        let narrow = ColumnData {
            validity: vec![0xff],
            values: vec![0; 72],
            ..Default::default()
        };
        assert!(
            View::new(&narrow, 9).is_none(),
            "validity for eight rows of nine"
        );
        assert!(View::new(&narrow, 8).is_none());
    }
}
