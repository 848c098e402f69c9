//! The set of present cells.

use std::collections::BTreeSet;

use super::Text;

/// The cells that are present at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellSet {
    /// The present cells are not known, so none is treated as gone.
    Unknown,
    Known(BTreeSet<Text>),
}

impl CellSet {
    /// Whether it is known that the cell is not present.
    pub fn is_gone(&self, cell_id: &[u8]) -> bool {
        matches!(self, Self::Known(cells) if !cells.contains(cell_id))
    }

    /// The number of cells known to be present.
    pub fn len(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Known(cells) => cells.len(),
        }
    }

    /// Whether it is known that there are no cells.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Known(cells) if cells.is_empty())
    }

    /// Whether the cell is known to be present.
    pub fn has(&self, cell_id: &[u8]) -> bool {
        matches!(self, Self::Known(cells) if cells.contains(cell_id))
    }
}
