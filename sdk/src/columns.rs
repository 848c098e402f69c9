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
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Cell::Null => None,
            Cell::Boolean(_) => Some(Kind::Boolean),
            Cell::Integer(_) => Some(Kind::Integer),
            Cell::Text(_) => Some(Kind::Text),
        }
    }
}

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
#[derive(Debug, Default)]
pub(crate) struct Builder {
    kind: Option<Kind>,
    rows: usize,
    data: ColumnData,
}

impl Builder {
    pub(crate) fn new(kind: Option<Kind>, rows: usize) -> Self {
        let mut builder = Self::default();
        match kind {
            Some(Kind::Text) => builder.data.offsets.reserve(rows + 1),
            Some(Kind::Integer) => builder.data.values.reserve(rows * 8),
            Some(Kind::Boolean) | None => {}
        }
        if let Some(kind) = kind {
            builder.settle(kind);
        }
        builder
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Gives the column its kind; rows pushed before, all of them NULL, take that kind's form.
    fn settle(&mut self, kind: Kind) {
        if self.kind.is_some() {
            return;
        }
        self.kind = Some(kind);
        match kind {
            Kind::Text => self.data.offsets.resize(self.rows + 1, 0),
            Kind::Integer => self.data.values.resize(self.rows * 8, 0),
            Kind::Boolean => self.data.values.resize(self.rows.div_ceil(8), 0),
        }
    }

    /// Appends a value, which must be of the column's kind.
    pub(crate) fn push(&mut self, cell: Cell<'_>) {
        if let Some(kind) = cell.kind() {
            self.settle(kind);
        }
        let row = self.rows;
        self.rows += 1;
        if cell == Cell::Null && self.data.validity.is_empty() {
            self.data.validity.resize(row / 8, 0xff);
            self.data.validity.push((1 << (row % 8)) - 1);
        } else if !self.data.validity.is_empty() {
            self.data.validity.resize(self.rows.div_ceil(8), 0);
            self.data.validity[row / 8] |= u8::from(cell != Cell::Null) << (row % 8);
        }
        match self.kind {
            Some(Kind::Text) => {
                if let Cell::Text(bytes) = cell {
                    self.data.values.extend_from_slice(bytes);
                }
                self.data.offsets.push(self.data.values.len() as u32);
            }
            Some(Kind::Integer) => {
                let value = if let Cell::Integer(value) = cell { value } else { 0 };
                self.data.values.extend_from_slice(&value.to_le_bytes());
            }
            Some(Kind::Boolean) => {
                self.data.values.resize(self.rows.div_ceil(8), 0);
                self.data.values[row / 8] |= u8::from(cell == Cell::Boolean(true)) << (row % 8);
            }
            None => {}
        }
    }

    /// Appends a value that nobody will read: the row belongs to a refused unit.
    pub(crate) fn push_filler(&mut self) {
        self.push(match self.kind {
            Some(Kind::Text) => Cell::Text(&[]),
            Some(Kind::Integer) => Cell::Integer(0),
            Some(Kind::Boolean) => Cell::Boolean(false),
            None => Cell::Null,
        });
    }

    pub(crate) fn finish(mut self) -> ColumnData {
        self.settle(Kind::Text);
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(data: &ColumnData, rows: usize) -> Vec<Cell<'_>> {
        let view = View::new(data, rows).expect("a column in form");
        (0..rows).map(|row| view.cell(row)).collect()
    }

    fn built(kind: Option<Kind>, cells: &[Cell<'_>]) -> ColumnData {
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
            assert_eq!(cells(&built(None, &texts), texts.len()), texts);
            assert_eq!(cells(&built(Some(Kind::Text), &texts), texts.len()), texts);
            let mut integers = vec![Cell::Integer(7); nulls];
            integers.extend([Cell::Integer(i64::MIN), Cell::Null, Cell::Integer(i64::MAX), Cell::Integer(0)]);
            assert_eq!(cells(&built(None, &integers), integers.len()), integers);
            let mut booleans = vec![Cell::Boolean(true); nulls];
            booleans.extend([Cell::Boolean(false), Cell::Null, Cell::Boolean(true)]);
            assert_eq!(cells(&built(None, &booleans), booleans.len()), booleans);
        }
    }

    #[test]
    fn a_column_without_null_has_no_validity() {
        assert_eq!(built(None, &[Cell::Integer(1)]).validity, Vec::<u8>::new());
        assert_eq!(built(None, &[Cell::Null]).validity, vec![0]);
    }

    #[test]
    fn an_empty_column_has_the_form_of_its_kind() {
        assert_eq!(built(Some(Kind::Text), &[]).offsets, vec![0]);
        assert_eq!(built(Some(Kind::Integer), &[]).offsets, Vec::<u32>::new());
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
