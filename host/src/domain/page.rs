//! One page of a list: a range of partition keys, read in one transaction. The pages of a list share one, so that the list is of
//! one moment.
//!
//! The first list that is read from the page fixes its last key; later lists see the same keys in the same state. So a
//! translator can join two lists without missing half of a pair.

use crate::store::{Key, Listed, Range, Reader, Store, StoreError};

/// A range of partition keys and its read transaction.
#[derive(Debug)]
pub struct Page {
    pub(super) reader: Reader,
    after: Option<Key>,
    end: PageBound,
    units: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PageBound {
    /// Not known before the first list.
    Open,
    /// The last key; `None` if the page extends to the end of the table.
    Fixed(Option<Key>),
}

impl Page {
    /// Opens a page of the next `units` keys after `after`, or of the first ones.
    ///
    /// # Errors
    /// The read transaction cannot be opened.
    pub async fn begin(store: &Store, after: Option<Key>, units: u32) -> Result<Self, StoreError> {
        Ok(Self::of(store.reader().await?, after, units))
    }

    /// A page that is read in the transaction of an earlier one.
    pub fn of(reader: Reader, after: Option<Key>, units: u32) -> Self {
        Self { reader, after, end: PageBound::Open, units }
    }

    /// Opens a page of all keys.
    ///
    /// # Errors
    /// The read transaction cannot be opened.
    pub async fn whole(store: &Store) -> Result<Self, StoreError> {
        Ok(Self { reader: store.reader().await?, after: None, end: PageBound::Fixed(None), units: 0 })
    }

    /// Opens a page that is new in another transaction.
    ///
    /// # Errors
    /// The read transaction cannot be opened.
    pub async fn begin_again(&mut self, store: &Store) -> Result<(), StoreError> {
        *self = Self::begin(store, None, self.units).await?;
        Ok(())
    }

    /// Whether it is the first page, and nothing was read from it.
    pub fn is_new(&self) -> bool {
        self.after.is_none() && !self.is_read()
    }

    /// For reads that are not lists and must see the same state.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// Whether its end is known: a list of it was read.
    pub fn is_read(&self) -> bool {
        self.end != PageBound::Open
    }

    /// The key after which the next page starts; `None` after the last page.
    pub fn next(&self) -> Option<Key> {
        match &self.end {
            PageBound::Open => None,
            PageBound::Fixed(last) => last.clone(),
        }
    }

    /// Its transaction, for the next page.
    pub fn into_reader(self) -> Reader {
        self.reader
    }

    pub(super) fn range(&self) -> Range {
        let (through, most) = match &self.end {
            PageBound::Open => (None, Some(self.units)),
            PageBound::Fixed(last) => (last.clone(), None),
        };
        Range { after: self.after.clone(), through, most }
    }

    /// The records of a list that was read in this page's range. Fixes the end of the page.
    pub(super) fn records<T>(&mut self, listed: Listed<T>) -> Vec<T> {
        self.end = PageBound::Fixed(listed.last);
        listed.records
    }

    /// Ends an unbounded page at a key.
    pub(super) fn end_at(&mut self, last: Key) {
        self.end = PageBound::Fixed(Some(last));
    }

    /// Whether the page extends to the end of the table.
    pub(super) fn is_unbounded(&self) -> bool {
        self.end == PageBound::Fixed(None)
    }
}
