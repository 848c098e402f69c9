//! The set of present cells.

use std::collections::BTreeSet;

use super::Text;

/// The cells that are present at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellSet {
    /// The present cells are not known, so none is treated as gone.
    Unknown,
    /// The present cells are known.
    Known {
        /// The ids of the present cells.
        cells: BTreeSet<Text>,
        /// When they were listed.
        listed_at_ns: i64,
    },
}

impl CellSet {
    /// Whether it is known that the cell is not present, for a record that names it since a time,
    /// as of now: a cell may have come, and taken the record, after the cells were listed. A record
    /// of the future was written by a host whose clock is ahead, at an unknown time.
    pub fn is_gone(&self, cell_id: &[u8], since_ns: i64, now_ns: i64) -> bool {
        let Self::Known {
            cells,
            listed_at_ns,
        } = self
        else {
            return false;
        };
        let is_later = *listed_at_ns < since_ns && since_ns <= now_ns;
        !cells.contains(cell_id) && !is_later
    }

    /// The number of cells known to be present.
    pub fn len(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Known { cells, .. } => cells.len(),
        }
    }

    /// Whether it is known that there are no cells.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Known { cells, .. } if cells.is_empty())
    }

    /// Whether the cell is known to be present.
    pub fn has(&self, cell_id: &[u8]) -> bool {
        matches!(self, Self::Known { cells, .. } if cells.contains(cell_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_is_not_gone_for_what_it_took_after_the_list() {
        const NOW_NS: i64 = 1_000 + 60 * 60 * 1_000_000_000;
        let cells = CellSet::Known {
            cells: [b"here".to_vec()].into(),
            listed_at_ns: 1_000,
        };
        for (cell, since_ns, is_gone) in [
            ("here", 0, false),
            ("here", 1_001, false),
            ("here", NOW_NS + 1, false),
            ("new", 0, true),
            ("new", 1_000, true),
            ("new", 1_001, false),
            ("new", NOW_NS, false),
            // By another clock.
            ("new", NOW_NS + 1, true),
            ("new", i64::MAX, true),
        ] {
            assert_eq!(
                cells.is_gone(cell.as_bytes(), since_ns, NOW_NS),
                is_gone,
                "{cell} {since_ns}"
            );
        }
        assert!(!CellSet::Unknown.is_gone(b"new", 0, NOW_NS));
    }
}
