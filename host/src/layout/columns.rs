//! Rows as columns in Arrow's layout: what the lens carries from the database through the
//! modules and back. Owns the data and its consistency; knows neither SQL nor WebAssembly.

/// One column of a run of rows.
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

/// The rows of one table as a guest sees them: `columns` follow the access's `reads`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableData {
    /// Unit `i` has the rows from `unit_offsets[i]` up to `unit_offsets[i + 1]`.
    pub unit_offsets: Vec<u32>,
    pub columns: Vec<ColumnData>,
}

/// What one call of a row function is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// In the order of the manifest's accesses for the direction.
    pub tables: Vec<TableData>,
    /// What the opposite step left for each unit. Empty: nothing for any.
    pub residue: Vec<Option<Vec<u8>>>,
}

/// A row that continues none.
pub const NEW_ROW: u32 = u32::MAX;

/// The rows that a reshaping access returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    pub unit_offsets: Vec<u32>,
    /// For each row, the row it continues, or [`NEW_ROW`].
    pub origins: Vec<u32>,
}

/// The columns written to one table, in the order of the access's `writes`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Present exactly where the access reshapes.
    pub shape: Option<Shape>,
    pub columns: Vec<ColumnData>,
}

/// A unit that the row function would not transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub unit: u32,
    pub reason: String,
}

/// What one call of a row function gave, already checked against the batch it was given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub tables: Vec<Written>,
    pub refused: Vec<Refusal>,
    /// For the way back, one entry a unit. Empty: nothing to keep.
    pub residue: Vec<Option<Vec<u8>>>,
}

/// What a step may need from outside: stored at first use, the same ever after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunArguments {
    pub started_at_ns: i64,
    pub namespace: uuid::Uuid,
}
