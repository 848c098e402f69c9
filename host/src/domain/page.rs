//! One page of a list: a range of partition keys, and the short transaction in which everything
//! that is said about them is read.
//!
//! The first list that reads from the page fixes where it ends; every later one sees the same keys
//! in the same state. So a translator may join two lists and never sees half of a pair.

use crate::store::{Key, Listed, Range, Reader, Store, StoreError};

#[derive(Debug)]
pub struct Page {
    pub(super) reader: Reader,
    after: Option<Key>,
    end: End,
    units: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Open,
    /// The last key, or none where the page takes all that is left.
    Fixed(Option<Key>),
}

impl Page {
    /// The next `units` keys after one, or the first.
    pub async fn begin(store: &Store, after: Option<Key>, units: u32) -> Result<Self, StoreError> {
        Ok(Self { reader: store.reader().await?, after, end: End::Open, units })
    }

    /// All keys at once.
    pub async fn whole(store: &Store) -> Result<Self, StoreError> {
        Ok(Self { reader: store.reader().await?, after: None, end: End::Fixed(None), units: 0 })
    }

    /// For what is not a list, and yet must see the same state.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// The key after which the next page begins. `None` after the last page.
    pub fn next(self) -> Option<Key> {
        match self.end {
            End::Open => None,
            End::Fixed(last) => last,
        }
    }

    pub(super) fn range(&self) -> Range {
        let (through, most) = match &self.end {
            End::Open => (None, Some(self.units)),
            End::Fixed(last) => (last.clone(), None),
        };
        Range { after: self.after.clone(), through, most }
    }

    /// The records of a list that was read in the range of this page, which ends where they do.
    pub(super) fn records<T>(&mut self, listed: Listed<T>) -> Vec<T> {
        self.end = End::Fixed(listed.last);
        listed.records
    }

    /// Makes the page end at a key, if it goes on to the end of all.
    pub(super) fn end_at(&mut self, last: Key) {
        self.end = End::Fixed(Some(last));
    }

    /// Whether the page takes all that is left.
    pub(super) fn takes_all(&self) -> bool {
        self.end == End::Fixed(None)
    }
}
