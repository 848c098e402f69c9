//! The batch budget: how many bytes one batch may make in memory on its way through a lens, over
//! all steps, all calls of modules, defaults and residue. Spent for each column and each answer
//! before it is made, never for each row.

use std::cell::Cell;

/// The bytes that one batch makes at most, besides its rows as they were read (at most 4 MiB and
/// one unit). A migration has up to five batches in memory, sealed ones among them, so the peak of
/// a host stays below 512 MiB.
pub const BATCH_BYTES: usize = 48 << 20;

/// The remaining bytes of one batch.
#[derive(Debug)]
pub struct BatchBudget {
    limit: usize,
    spent: Cell<usize>,
    slow_calls: Cell<u32>,
}

/// Most calls in the search for the units of one batch at fault that fail and are slow. A single
/// unit at fault takes two for each halving, and a batch has at most 20,000 units; with each call
/// at its limit of 5 s, this is five minutes.
pub const MOST_SLOW_CALLS: u32 = 60;

/// A batch would make more bytes than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "its rows take more than {limit} bytes of memory there; return fewer or smaller rows, shorter values or less residue \
     for each unit"
)]
pub struct OverBudget {
    limit: usize,
}

impl Default for BatchBudget {
    fn default() -> Self {
        Self::of(BATCH_BYTES)
    }
}

impl BatchBudget {
    /// A budget of `limit` bytes.
    pub fn of(limit: usize) -> Self {
        Self {
            limit,
            spent: Cell::new(0),
            slow_calls: Cell::new(0),
        }
    }

    /// Spends bytes until the result is dropped.
    ///
    /// # Errors
    /// There are not as many left; nothing is spent.
    pub fn spend(&self, bytes: usize) -> Result<Spent<'_>, OverBudget> {
        let spent = self.spent.get().saturating_add(bytes);
        if spent > self.limit {
            return Err(OverBudget { limit: self.limit });
        }
        self.spent.set(spent);
        Ok(Spent {
            budget: self,
            bytes,
        })
    }

    /// Gives back bytes that were kept and are free again.
    pub(super) fn give_back(&self, bytes: usize) {
        self.spent.set(self.spent.get().saturating_sub(bytes));
    }

    /// Counts a call that failed and was slow. Returns whether another one may be made.
    pub(super) fn allows_slow_call(&self) -> bool {
        self.slow_calls.set(self.slow_calls.get() + 1);
        self.slow_calls.get() < MOST_SLOW_CALLS
    }

    /// The bytes that are spent.
    pub(super) fn spent(&self) -> usize {
        self.spent.get()
    }

    /// Makes `bytes` all that is spent, as a step leaves them: what it needed meanwhile is free
    /// again.
    ///
    /// # Errors
    /// They are more than the limit.
    pub(super) fn settle(&self, bytes: usize) -> Result<(), OverBudget> {
        self.spent.set(0);
        self.spend(bytes).map(Spent::keep)
    }
}

/// Bytes that are in use.
#[derive(Debug)]
pub struct Spent<'a> {
    budget: &'a BatchBudget,
    bytes: usize,
}

impl Spent<'_> {
    /// Spends more for the same.
    ///
    /// # Errors
    /// As [`BatchBudget::spend`].
    pub fn add(&mut self, bytes: usize) -> Result<(), OverBudget> {
        self.budget.spend(bytes)?.keep();
        self.bytes += bytes;
        Ok(())
    }

    /// Leaves them spent, since what they are for outlives this.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Spent<'_> {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_spent_until_they_are_dropped_or_the_step_ends() {
        let budget = BatchBudget::of(10);
        let first = budget.spend(6).unwrap();
        assert_eq!(budget.spend(5).unwrap_err(), OverBudget { limit: 10 });
        drop(first);
        budget.spend(9).unwrap().keep();
        assert!(budget.spend(2).is_err());
        budget.settle(3).unwrap();
        assert_eq!(budget.spent(), 3);
        assert!(budget.spend(usize::MAX).is_err());
        assert!(budget.settle(11).is_err());
    }
}
