//! One page of a list: a range of partition keys, read in one transaction. The pages of a list
//! share one, so that the list is of one moment.
//!
//! The first list that is read from the page fixes its last key; later lists see the same keys in
//! the same state. So a translator can join two lists without missing half of a pair.

use crate::store::{Key, Listed, Range, Reader, Store, StoreError};

/// A range of partition keys and its read transaction.
#[derive(Debug)]
pub struct Page {
    /// Absent between [`Page::give_back`] and [`Page::ready`].
    reader: Option<Reader>,
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
        Self {
            reader: Some(reader),
            after,
            end: PageBound::Open,
            units,
        }
    }

    /// Opens a page of all keys.
    ///
    /// # Errors
    /// The read transaction cannot be opened.
    pub async fn whole(store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            reader: Some(store.reader().await?),
            after: None,
            end: PageBound::Fixed(None),
            units: 0,
        })
    }

    /// Ends the transaction of a page that is new, after a failure. A caller that pauses, or waits
    /// for another transaction, holds no connection that others may need.
    pub fn give_back(&mut self) {
        self.reader = None;
    }

    /// Begins a transaction, if it was given back.
    ///
    /// # Errors
    /// The read transaction cannot be opened.
    pub async fn ready(&mut self, store: &Store) -> Result<(), StoreError> {
        if self.reader.is_none() {
            self.reader = Some(store.reader().await?);
        }
        Ok(())
    }

    /// Whether it is the first page, and nothing was read from it.
    pub fn is_new(&self) -> bool {
        self.after.is_none() && !self.is_read()
    }

    /// Its transaction, also for reads that are not lists and must see the same state.
    ///
    /// # Panics
    /// If it was given back.
    pub fn reader(&mut self) -> &mut Reader {
        self.reader
            .as_mut()
            .expect("a page is ready before it is read")
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
    pub fn into_reader(self) -> Option<Reader> {
        self.reader
    }

    pub(super) fn range(&self) -> Range {
        let (through, most) = match &self.end {
            PageBound::Open => (None, Some(self.units)),
            PageBound::Fixed(last) => (last.clone(), None),
        };
        Range {
            after: self.after.clone(),
            through,
            most,
        }
    }

    /// The records of a list that was read in this page's range. Fixes the end of the page.
    pub(super) fn records<T>(&mut self, listed: Listed<T>) -> Vec<T> {
        debug_assert!(
            listed.last.is_none() || listed.last != self.after,
            "a page ends after the key at which it begins"
        );
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
