//! Bounds the memory of the records that native calls read at once, whatever the number of
//! connections to the database.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::methods::{GetMethod, NativeMethod};

/// First pages of lists that are read at once. Before it is decoded, a page takes up to 10.4 MB: it
/// ends after the record that reaches 4 MiB, and by then the next record has arrived.
const FIRST_PAGES: usize = 16;
/// Later pages that are read at once. They do not wait for first ones: those may wait for a reader,
/// and these have one.
const LATER_PAGES: usize = 8;
/// Large single records, of up to 5.2 MB, that are read at once. They do not wait for lists.
const LARGE_RECORDS: usize = 16;

/// Longest time for which a read keeps its permit. From a database that is silent for longer, such
/// as one in which a table is locked, no records arrive, and reads of other tables may go on.
pub(super) const LONGEST_READ: Duration = Duration::from_secs(2);

/// The permits of native reads. A call waits for one before it has a reader, or with the reader of
/// its list for a permit that only such calls have.
pub(super) struct ReadPermits {
    first_pages: Semaphore,
    later_pages: Semaphore,
    large_records: Semaphore,
}

impl Default for ReadPermits {
    fn default() -> Self {
        Self {
            first_pages: Semaphore::new(FIRST_PAGES),
            later_pages: Semaphore::new(LATER_PAGES),
            large_records: Semaphore::new(LARGE_RECORDS),
        }
    }
}

impl ReadPermits {
    /// The permits of a method; `None` if it reads little, or changes something. `has_reader` if it
    /// goes on with a list.
    pub(super) fn of(&self, method: NativeMethod, has_reader: bool) -> Option<&Semaphore> {
        match method {
            NativeMethod::List(_) if has_reader => Some(&self.later_pages),
            NativeMethod::List(_) => Some(&self.first_pages),
            NativeMethod::Get(
                GetMethod::DesiredLrpByProcessGuid | GetMethod::TaskByGuid | GetMethod::Definitions,
            ) => Some(&self.large_records),
            NativeMethod::Get(_)
            | NativeMethod::Change(_)
            | NativeMethod::Ping
            | NativeMethod::Cells => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::methods::ListMethod;
    use super::*;

    #[test]
    fn reads_are_bounded_and_lists_in_progress_and_single_records_do_not_wait_for_new_lists() {
        let reads = ReadPermits::default();
        let list = NativeMethod::List(ListMethod::DesiredLrps);
        let is_free = |method: NativeMethod, has_reader: bool| {
            let permits = reads.of(method, has_reader).expect("it is bounded");
            permits.try_acquire().is_ok()
        };
        let first_pages = reads.of(list, false).expect("it is bounded");
        let taken: Vec<_> = (0..FIRST_PAGES)
            .map(|_| first_pages.try_acquire().expect("a permit is left"))
            .collect();
        assert!(!is_free(list, false));
        assert!(!is_free(NativeMethod::List(ListMethod::Tasks), false));
        assert!(is_free(list, true));
        assert!(is_free(NativeMethod::Get(GetMethod::TaskByGuid), false));
        assert!(reads.of(NativeMethod::Ping, false).is_none());
        drop(taken);
        assert!(is_free(list, false));
    }
}
