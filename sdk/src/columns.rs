//! Rows as columns in Arrow's layout, as they cross between host and guest: a view that reads the
//! contract's records in place, and a builder that appends. Contains no column names: columns are
//! in the manifest's order.

pub use bbs_contract::columns::{
    Batch, ColumnData, NEW_ROW, Outcome, Refusal, Shape, TableData, Written,
};
pub(crate) use bbs_contract::values::{Encoding, Value as ColumnValue};

/// A value of a refused unit's row, which is never read.
pub(crate) fn filler(encoding: Encoding) -> ColumnValue<'static> {
    match encoding {
        Encoding::Boolean => ColumnValue::Boolean(false),
        Encoding::Integer => ColumnValue::Integer(0),
        Encoding::Text => ColumnValue::Text(&[]),
    }
}

#[inline]
fn bit(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

/// A column that is read in place. Its encoding follows from its form; a column without
/// rows has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    data: &'a ColumnData,
    pub(crate) encoding: Encoding,
}

impl<'a> View<'a> {
    /// Validates the column's form once, so that reading a row cannot go out of range.
    pub(crate) fn new(data: &'a ColumnData, rows: usize) -> Option<Self> {
        if !data.validity.is_empty() && data.validity.len() < rows.div_ceil(8) {
            return None;
        }
        let encoding = if !data.offsets.is_empty() {
            let ascending = data.offsets.is_sorted();
            let ends_inside = data
                .offsets
                .last()
                .is_some_and(|end| *end as usize <= data.values.len());
            if data.offsets.len() != rows + 1 || !ascending || !ends_inside {
                return None;
            }
            Encoding::Text
        } else if data.values.len() == rows * 8 {
            Encoding::Integer
        } else if data.values.len() == rows.div_ceil(8) {
            Encoding::Boolean
        } else {
            return None;
        };
        Some(Self { data, encoding })
    }

    #[inline]
    pub(crate) fn value(&self, row: usize) -> ColumnValue<'a> {
        let data = self.data;
        if !data.validity.is_empty() && !bit(&data.validity, row) {
            return ColumnValue::Null;
        }
        match self.encoding {
            Encoding::Text => ColumnValue::Text(
                &data.values[data.offsets[row] as usize..data.offsets[row + 1] as usize],
            ),
            Encoding::Integer => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&data.values[row * 8..row * 8 + 8]);
                ColumnValue::Integer(i64::from_le_bytes(bytes))
            }
            Encoding::Boolean => ColumnValue::Boolean(bit(&data.values, row)),
        }
    }
}

/// A column that is written row by row.
#[derive(Debug)]
pub(crate) struct Builder {
    encoding: Encoding,
    rows: usize,
    data: ColumnData,
}

impl Builder {
    pub(crate) fn new(encoding: Encoding, rows: usize) -> Self {
        let mut data = ColumnData::default();
        match encoding {
            Encoding::Text => {
                data.offsets.reserve(rows + 1);
                data.offsets.push(0);
            }
            Encoding::Integer => data.values.reserve(rows * 8),
            Encoding::Boolean => data.values.reserve(rows.div_ceil(8)),
        }
        Self {
            encoding,
            rows: 0,
            data,
        }
    }

    /// Appends a value, which must be NULL or of the column's encoding.
    #[inline]
    pub(crate) fn push(&mut self, value: ColumnValue<'_>) {
        let row = self.rows;
        self.rows += 1;
        let null = matches!(value, ColumnValue::Null);
        if null || !self.data.validity.is_empty() {
            self.push_validity(row, !null);
        }
        match self.encoding {
            Encoding::Text => {
                if let ColumnValue::Text(bytes) = value {
                    self.data.values.extend_from_slice(bytes);
                }
                self.data.offsets.push(self.data.values.len() as u32);
            }
            Encoding::Integer => {
                let value = if let ColumnValue::Integer(value) = value {
                    value
                } else {
                    0
                };
                self.data.values.extend_from_slice(&value.to_le_bytes());
            }
            Encoding::Boolean => {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn values(data: &ColumnData, rows: usize) -> Vec<ColumnValue<'_>> {
        let view = View::new(data, rows).expect("a column in form");
        (0..rows).map(|row| view.value(row)).collect()
    }

    fn built(encoding: Encoding, values: &[ColumnValue<'_>]) -> ColumnData {
        let mut builder = Builder::new(encoding, values.len());
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
            assert_eq!(values(&built(Encoding::Text, &texts), texts.len()), texts);
            let mut integers = vec![ColumnValue::Integer(7); nulls];
            integers.extend([
                ColumnValue::Integer(i64::MIN),
                ColumnValue::Null,
                ColumnValue::Integer(i64::MAX),
                ColumnValue::Integer(0),
            ]);
            assert_eq!(
                values(&built(Encoding::Integer, &integers), integers.len()),
                integers
            );
            let mut booleans = vec![ColumnValue::Boolean(true); nulls];
            booleans.extend([
                ColumnValue::Boolean(false),
                ColumnValue::Null,
                ColumnValue::Boolean(true),
            ]);
            assert_eq!(
                values(&built(Encoding::Boolean, &booleans), booleans.len()),
                booleans
            );
        }
    }

    #[test]
    fn column_without_null_has_no_validity() {
        assert_eq!(
            built(Encoding::Integer, &[ColumnValue::Integer(1)]).validity,
            Vec::<u8>::new()
        );
        assert_eq!(
            built(Encoding::Text, &[ColumnValue::Null]).validity,
            vec![0]
        );
    }

    #[test]
    fn empty_column_has_the_form_of_its_kind() {
        assert_eq!(built(Encoding::Text, &[]).offsets, vec![0]);
        assert_eq!(built(Encoding::Integer, &[]).offsets, Vec::<u32>::new());
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
