//! Rows as columns in Arrow's memory layout: the form in which rows pass from the database through
//! the modules and back. Owns the data types only; independent of SQL and of WebAssembly.

/// One column of consecutive rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnData {
    /// One bit for each row, least significant first; set where the value is not NULL. Empty if no
    /// value is NULL.
    pub validity: Vec<u8>,
    /// Text only: the byte offset of each value in `values`, and the end of the last one: rows + 1
    /// entries.
    pub offsets: Vec<u32>,
    /// Text: the bytes of all values, concatenated. Integers: eight bytes each, little-endian.
    /// Booleans: one bit each, least significant first.
    pub values: Vec<u8>,
}

impl ColumnData {
    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.validity.len() + self.offsets.len() * size_of::<u32>() + self.values.len()
    }
}

/// The rows of one table that a guest receives. `columns` are in the order of the access's `reads`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableData {
    /// Unit `i` consists of the rows `unit_offsets[i]..unit_offsets[i + 1]`.
    pub unit_offsets: Vec<u32>,
    /// One for each column that the access reads.
    pub columns: Vec<ColumnData>,
}

/// The input of one call of a row function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// In the order of the manifest's accesses for the direction.
    pub tables: Vec<TableData>,
    /// The residue of the opposite step, one entry for each unit. Empty if no unit has residue.
    pub residue: Vec<Option<Vec<u8>>>,
}

impl Batch {
    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        let table = |table: &TableData| {
            let columns: usize = table.columns.iter().map(ColumnData::bytes).sum();
            table.unit_offsets.len() * size_of::<u32>() + columns
        };
        self.tables.iter().map(table).sum::<usize>() + residue_bytes(&self.residue)
    }
}

fn residue_bytes(residue: &[Option<Vec<u8>>]) -> usize {
    residue
        .iter()
        .map(|bytes| size_of::<Vec<u8>>() + bytes.as_ref().map_or(0, Vec::len))
        .sum()
}

/// The origin of a row that the guest added.
pub const NEW_ROW: u32 = u32::MAX;

/// The rows returned for an access that reshapes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// The rows of each unit, as in [`TableData`].
    pub unit_offsets: Vec<u32>,
    /// For each returned row, the index of the input row that it continues, or [`NEW_ROW`].
    pub origins: Vec<u32>,
}

impl Shape {
    /// The units of which given rows are not continued, with the number of those rows.
    ///
    /// # Panics
    /// If it continues rows that were not given.
    pub fn removed_rows(&self, given: &[u32]) -> impl Iterator<Item = (usize, u64)> {
        let mut is_continued = vec![false; given.last().map_or(0, |&rows| rows as usize)];
        self.origins
            .iter()
            .filter(|&&row| row != NEW_ROW)
            .for_each(|&row| is_continued[row as usize] = true);
        given
            .windows(2)
            .enumerate()
            .filter_map(move |(unit, ends)| {
                let rows = &is_continued[ends[0] as usize..ends[1] as usize];
                let removed = rows.iter().filter(|is_continued| !**is_continued).count() as u64;
                (removed > 0).then_some((unit, removed))
            })
    }
}

/// The columns returned for one table, in the order of the access's `writes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Present exactly if the access reshapes.
    pub shape: Option<Shape>,
    /// One for each column that the access writes, with as many rows as `shape` has, or as the
    /// input without it.
    pub columns: Vec<ColumnData>,
}

/// A unit that the row function rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The position of the unit in the batch.
    pub unit: u32,
    /// The function's own text, for operators.
    pub reason: String,
}

/// The output of one call of a row function, validated against its input batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In the order of the manifest's accesses for the direction.
    pub tables: Vec<Written>,
    /// Rows and residue of these units are ignored.
    pub refused: Vec<Refusal>,
    /// The residue for the opposite direction, one entry for each unit. Empty if no unit leaves
    /// any.
    pub residue: Vec<Option<Vec<u8>>>,
}

impl Outcome {
    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        let shape =
            |shape: &Shape| (shape.unit_offsets.len() + shape.origins.len()) * size_of::<u32>();
        let table = |table: &Written| {
            let columns: usize = table.columns.iter().map(ColumnData::bytes).sum();
            table.shape.as_ref().map_or(0, shape) + columns
        };
        let refused = |refusal: &Refusal| size_of::<Refusal>() + refusal.reason.len();
        self.tables.iter().map(table).sum::<usize>()
            + self.refused.iter().map(refused).sum::<usize>()
            + residue_bytes(&self.residue)
    }
}
