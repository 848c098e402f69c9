//! Ranges of partition keys and pages of lists. Owns the size at which a page ends.

/// A partition key. Databases differ in the order of keys, so the host never compares them by
/// order.
pub type Key = Vec<u8>;

/// A range of partition keys in the database's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// Exclusive lower bound.
    pub after: Option<Key>,
    /// Inclusive upper bound.
    pub through: Option<Key>,
    /// The most units; fewer if their records are large, see [`Listed::last`].
    pub most: Option<u32>,
    /// Whether another list has been read from it. Units that have one record in that one may have
    /// several in this one.
    pub has_earlier_list: bool,
}

/// The readable records of a range, in key order.
#[derive(Debug)]
pub struct Listed<T> {
    pub records: Vec<T>,
    /// The last key of the page, after which the next one begins; that of the range if none of its
    /// records follow.
    pub last: Option<Key>,
}

/// Bytes of large columns at which a page ends, after the unit that reaches them. Bounds the memory
/// of a list, and of a translator that processes it, whatever the size of records.
const PAGE_BYTES: u64 = 4 << 20;

/// Counts units until a page is full.
#[derive(Debug)]
pub(super) struct PageEnd {
    units: u32,
    bytes: u64,
    most: u32,
}

impl PageEnd {
    pub(super) fn new(most: u32) -> Self {
        Self {
            units: 0,
            bytes: 0,
            most,
        }
    }

    pub(super) fn begin_unit(&mut self) {
        self.units += 1;
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Whether the page is full.
    pub(super) fn is_reached(&self) -> bool {
        self.bytes >= PAGE_BYTES || self.units >= self.most
    }

    /// The number of units from which [`Self::find`] finds the end: one more than the page has, so
    /// that a unit follows it.
    pub(super) fn most_read(&self) -> u32 {
        self.most.saturating_add(1)
    }

    /// The last key of the page that begins with these units, each with its size; none if no unit
    /// follows it.
    pub(super) fn find(mut self, units: Vec<(Key, u64)>) -> Option<Key> {
        let mut units = units.into_iter().peekable();
        while let Some((key, bytes)) = units.next() {
            self.begin_unit();
            self.add(bytes);
            if self.is_reached() {
                return units.peek().is_some().then_some(key);
            }
        }
        None
    }
}
