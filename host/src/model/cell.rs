//! Cells, as far as it matters which of them there are.

use std::collections::BTreeSet;

use super::Text;

/// The cells that there are at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellSet {
    /// Nobody says which there are, so none is taken for gone.
    Unknown,
    Known(BTreeSet<Text>),
}

impl CellSet {
    pub fn is_gone(&self, cell_id: &[u8]) -> bool {
        matches!(self, Self::Known(cells) if !cells.contains(cell_id))
    }

    /// How many are known to be there.
    pub fn len(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Known(cells) => cells.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Known(cells) if cells.is_empty())
    }

    /// Whether it is known to be there.
    pub fn has(&self, cell_id: &[u8]) -> bool {
        matches!(self, Self::Known(cells) if cells.contains(cell_id))
    }
}
