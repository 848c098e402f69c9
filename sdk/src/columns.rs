//! Rows as columns in Arrow's layout, as they cross between host and guest: a view that reads the
//! contract's records in place. Contains no column names: columns are in the manifest's order.

pub use bbs_contract::columns::{
    Batch, ColumnData, NEW_ROW, Outcome, Refusal, Shape, TableData, Written,
};
pub(crate) use bbs_contract::values::{ColumnBuilder, Encoding, Value as ColumnValue};

/// A value of a refused unit's row, which is never read.
pub(crate) fn filler(encoding: Encoding) -> ColumnValue<'static> {
    match encoding {
        Encoding::Boolean => ColumnValue::Boolean(false),
        Encoding::Integer => ColumnValue::Integer(0),
        Encoding::Text => ColumnValue::Text(&[]),
    }
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
        self.data.get(self.encoding, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
