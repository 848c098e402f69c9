//! Rows as columns in Arrow's layout, as they cross between host and guest: the contract's plain
//! records, a view that reads them in place, and a builder that appends. Knows no names: which
//! column is which is the manifest's order.

use crate::schema::Kind;

/// One column of all rows of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnData {
    /// One bit a row, least significant first, set where there is a value. Empty: no NULL.
    pub validity: Vec<u8>,
    /// Text only: where each value begins in `values`, and where the last one ends.
    pub offsets: Vec<u32>,
    /// Text: all bytes, one value after another. Integers: eight bytes each, little-endian.
    /// Booleans: one bit each, least significant first.
    pub values: Vec<u8>,
}

/// The rows of one table; `columns` follow the access's `reads`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableData {
    /// Unit `i` has the rows from `unit_offsets[i]` up to `unit_offsets[i + 1]`.
    pub unit_offsets: Vec<u32>,
    pub columns: Vec<ColumnData>,
}

/// What one call is given, in the order of the direction's accesses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub tables: Vec<TableData>,
    /// What the opposite step left for each unit. Empty: nothing for any.
    pub residue: Vec<Option<Vec<u8>>>,
}

/// The origin of a row that continues none.
pub const NEW_ROW: u32 = u32::MAX;

/// The rows that a reshaping access returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    pub unit_offsets: Vec<u32>,
    /// For each row, the row it continues, or [`NEW_ROW`].
    pub origins: Vec<u32>,
}

/// The columns written to one table, in the order of the access's `writes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Given exactly where the access reshapes.
    pub shape: Option<Shape>,
    pub columns: Vec<ColumnData>,
}

/// A unit that the row function would not transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub unit: u32,
    pub reason: String,
}

/// What one call gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub tables: Vec<Written>,
    pub refused: Vec<Refusal>,
    /// For the way back, one entry a unit. Empty: nothing to keep.
    pub residue: Vec<Option<Vec<u8>>>,
}

/// One value of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Text(&'a [u8]),
}

impl Cell<'_> {
    /// A value that nobody will read.
    pub(crate) fn filler(kind: Kind) -> Self {
        match kind {
            Kind::Boolean => Self::Boolean(false),
            Kind::Integer => Self::Integer(0),
            Kind::Text => Self::Text(&[]),
        }
    }

    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Cell::Null => None,
            Cell::Boolean(_) => Some(Kind::Boolean),
            Cell::Integer(_) => Some(Kind::Integer),
            Cell::Text(_) => Some(Kind::Text),
        }
    }
}

#[inline]
fn bit(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

/// A column read in place. Its kind follows from its form; a column of no rows needs none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    data: &'a ColumnData,
    pub(crate) kind: Kind,
}

impl<'a> View<'a> {
    /// Checks the column's form once, so that reading a row cannot go out of range.
    pub(crate) fn new(data: &'a ColumnData, rows: usize) -> Option<Self> {
        if !data.validity.is_empty() && data.validity.len() < rows.div_ceil(8) {
            return None;
        }
        let kind = if !data.offsets.is_empty() {
            let ascending = data.offsets.is_sorted();
            let ends_inside = data.offsets.last().is_some_and(|end| *end as usize <= data.values.len());
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
    pub(crate) fn cell(&self, row: usize) -> Cell<'a> {
        let data = self.data;
        if !data.validity.is_empty() && !bit(&data.validity, row) {
            return Cell::Null;
        }
        match self.kind {
            Kind::Text => Cell::Text(&data.values[data.offsets[row] as usize..data.offsets[row + 1] as usize]),
            Kind::Integer => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&data.values[row * 8..row * 8 + 8]);
                Cell::Integer(i64::from_le_bytes(bytes))
            }
            Kind::Boolean => Cell::Boolean(bit(&data.values, row)),
        }
    }
}

/// A column being written, row after row.
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
        Self { kind, rows: 0, data }
    }

    /// Appends a value, which must be NULL or of the column's kind.
    #[inline]
    pub(crate) fn push(&mut self, cell: Cell<'_>) {
        let row = self.rows;
        self.rows += 1;
        let null = matches!(cell, Cell::Null);
        if null || !self.data.validity.is_empty() {
            self.push_validity(row, !null);
        }
        match self.kind {
            Kind::Text => {
                if let Cell::Text(bytes) = cell {
                    self.data.values.extend_from_slice(bytes);
                }
                self.data.offsets.push(self.data.values.len() as u32);
            }
            Kind::Integer => {
                let value = if let Cell::Integer(value) = cell { value } else { 0 };
                self.data.values.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Boolean => {
                if row.is_multiple_of(8) {
                    self.data.values.push(0);
                }
                self.data.values[row / 8] |= u8::from(matches!(cell, Cell::Boolean(true))) << (row % 8);
            }
        }
    }

    /// Notes whether the row has a value. The first NULL makes the rows before it valid.
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

/// A column of these cells. Without any value it has the form of text.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn column_of<'a>(cells: impl Iterator<Item = Cell<'a>> + Clone) -> ColumnData {
    let kind = cells.clone().find_map(Cell::kind).unwrap_or(Kind::Text);
    let mut builder = Builder::new(kind, 0);
    cells.for_each(|cell| builder.push(cell));
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(data: &ColumnData, rows: usize) -> Vec<Cell<'_>> {
        let view = View::new(data, rows).expect("a column in form");
        (0..rows).map(|row| view.cell(row)).collect()
    }

    fn built(kind: Kind, cells: &[Cell<'_>]) -> ColumnData {
        let mut builder = Builder::new(kind, cells.len());
        for cell in cells {
            builder.push(*cell);
        }
        builder.finish()
    }

    #[test]
    fn what_is_built_reads_back_with_null_and_empty_apart() {
        for nulls in 0..20 {
            let mut texts = vec![Cell::Null; nulls];
            texts.extend([Cell::Text(b""), Cell::Null, Cell::Text(b"x"), Cell::Text("é\u{0}".as_bytes())]);
            assert_eq!(cells(&built(Kind::Text, &texts), texts.len()), texts);
            let mut integers = vec![Cell::Integer(7); nulls];
            integers.extend([Cell::Integer(i64::MIN), Cell::Null, Cell::Integer(i64::MAX), Cell::Integer(0)]);
            assert_eq!(cells(&built(Kind::Integer, &integers), integers.len()), integers);
            let mut booleans = vec![Cell::Boolean(true); nulls];
            booleans.extend([Cell::Boolean(false), Cell::Null, Cell::Boolean(true)]);
            assert_eq!(cells(&built(Kind::Boolean, &booleans), booleans.len()), booleans);
        }
    }

    #[test]
    fn a_column_without_null_has_no_validity() {
        assert_eq!(built(Kind::Integer, &[Cell::Integer(1)]).validity, Vec::<u8>::new());
        assert_eq!(built(Kind::Text, &[Cell::Null]).validity, vec![0]);
    }

    #[test]
    fn an_empty_column_has_the_form_of_its_kind() {
        assert_eq!(built(Kind::Text, &[]).offsets, vec![0]);
        assert_eq!(built(Kind::Integer, &[]).offsets, Vec::<u32>::new());
    }

    #[test]
    fn a_column_out_of_form_is_not_viewed() {
        let text = |offsets: &[u32], values: &[u8]| ColumnData {
            offsets: offsets.to_vec(),
            values: values.to_vec(),
            validity: vec![],
        };
        assert!(View::new(&text(&[0, 1, 2], b"ab"), 2).is_some());
        assert!(View::new(&text(&[0, 1], b"ab"), 2).is_none(), "too few offsets");
        assert!(View::new(&text(&[0, 2, 1], b"ab"), 2).is_none(), "offsets that fall");
        assert!(View::new(&text(&[0, 1, 3], b"ab"), 2).is_none(), "an offset out of range");
        let integers = ColumnData { values: vec![0; 15], ..Default::default() };
        assert!(View::new(&integers, 2).is_none(), "half an integer");
        let narrow = ColumnData { validity: vec![0xff], values: vec![0; 72], ..Default::default() };
        assert!(View::new(&narrow, 9).is_none(), "validity for eight rows of nine");
        assert!(View::new(&narrow, 8).is_none());
    }
}
