//! One page of a list: a range of partition keys, read in one transaction. The pages of a list
//! share one, so that the list is of one moment.
//!
//! The first list that is read from the page fixes its last key; later lists see the same keys in
//! the same state. So a translator can join two lists without missing half of a pair. A later list
//! that has more units than a page cuts the page: it has to be read again up to that end.

use tokio::time::Instant;

use crate::store::{Key, Listed, Range, Reader, Store, StoreError};

/// A range of partition keys and its read transaction.
#[derive(Debug)]
pub struct Page {
    /// Absent before [`Page::ready`], and after [`Page::give_back`].
    reader: Option<Reader>,
    /// The end of the wait for a reader, if its readers are those of [`Store::lasting_reader`].
    lasting_until: Option<Instant>,
    /// The keys that it may have.
    range: Range,
    end: PageBound,
    /// The last key of a later list that ends before the page does.
    cut: Option<Key>,
    /// The key of the first record of the lists.
    first_key: Option<Key>,
    has_several_keys: bool,
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
        let range = Range {
            after,
            most: Some(units),
            ..Range::default()
        };
        Ok(Self::of(Some(store.reader().await?), range))
    }

    /// The first page of a range, which is read in the transaction of an earlier one. If there is
    /// none, [`ready`](Self::ready) begins it.
    pub fn of(reader: Option<Reader>, range: Range) -> Self {
        Self {
            reader,
            lasting_until: None,
            range,
            end: PageBound::Open,
            cut: None,
            first_key: None,
            has_several_keys: false,
        }
    }

    /// Marks the page as one that stays open while translators run. Its reader, if it has one, is
    /// that of [`Store::lasting_reader`]; it waits for one up to `until`.
    pub fn lasting(self, until: Instant) -> Self {
        Self {
            lasting_until: Some(until),
            ..self
        }
    }

    /// Opens a page of all keys.
    ///
    /// # Errors
    /// The read transaction cannot be opened.
    pub async fn whole(store: &Store) -> Result<Self, StoreError> {
        Ok(Self::of(Some(store.reader().await?), Range::default()))
    }

    /// Ends the transaction of a page that is new, after a failure. A caller that pauses, or waits
    /// for another transaction, holds no connection that others may need.
    pub fn give_back(&mut self) {
        self.reader = None;
    }

    /// Begins a transaction, if there is none.
    ///
    /// # Errors
    /// The read transaction cannot be opened.
    pub async fn ready(&mut self, store: &Store) -> Result<(), StoreError> {
        if self.reader.is_none() {
            let reader = match self.lasting_until {
                Some(until) => store.lasting_reader(until).await?,
                None => store.reader().await?,
            };
            self.reader = Some(reader);
        }
        Ok(())
    }

    /// Whether it is the first page, and nothing was read from it.
    pub fn is_new(&self) -> bool {
        self.range.after.is_none() && !self.is_read()
    }

    /// Its transaction, also for reads that are not lists and must see the same state.
    ///
    /// # Panics
    /// If it has none.
    pub fn reader(&mut self) -> &mut Reader {
        self.reader
            .as_mut()
            .expect("a page is ready before it is read")
    }

    /// Whether its end is known: a list of it was read.
    pub fn is_read(&self) -> bool {
        self.end != PageBound::Open
    }

    /// Whether its end is known, and the records of all its lists have the same key.
    pub fn has_one_key(&self) -> bool {
        self.is_read() && !self.has_several_keys
    }

    /// The key after which the next page starts; `None` after the last page.
    pub fn next(&self) -> Option<Key> {
        match &self.end {
            PageBound::Open => None,
            PageBound::Fixed(last) => last.clone(),
        }
    }

    /// The end up to which the page has to be read again, because a later list has more units than
    /// a page.
    pub fn cut(&self) -> Option<Key> {
        self.cut.clone()
    }

    /// Its transaction, for the next page.
    pub fn into_reader(self) -> Option<Reader> {
        self.reader
    }

    /// The range of the next list. A later one is bounded, too: a filter of the first, or keys that
    /// only the later one has, may leave any number of units up to the end of the page.
    pub(super) fn range(&self) -> Range {
        match &self.end {
            PageBound::Open => self.range.clone(),
            PageBound::Fixed(last) => Range {
                through: last.clone(),
                has_earlier_list: true,
                ..self.range.clone()
            },
        }
    }

    /// The records of a list that was read in this page's range, each with the partition key that
    /// `key_of` returns. The first one fixes the end of the page; a later one may cut it.
    pub(super) fn records<T>(&mut self, listed: Listed<T>, key_of: impl Fn(&T) -> &[u8]) -> Vec<T> {
        debug_assert!(
            listed.last.is_none() || listed.last != self.range.after,
            "a page ends after the key at which it begins"
        );
        match &self.end {
            PageBound::Open => self.end = PageBound::Fixed(listed.last),
            PageBound::Fixed(last) if *last == listed.last => {}
            PageBound::Fixed(_) => self.cut = listed.last,
        }
        // In key order: all between them have the key that both have.
        for record in [listed.records.first(), listed.records.last()]
            .into_iter()
            .flatten()
        {
            let key = key_of(record);
            let first_key = self.first_key.get_or_insert_with(|| key.to_vec());
            self.has_several_keys |= first_key.as_slice() != key;
        }
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
