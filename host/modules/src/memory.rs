//! The budget of linear memory that the instances of all translators share. Each instance has a
//! limit of its own; without a common one, as many as may run at once could take it all at the same
//! time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of linear memory that several instances share.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
}

/// The part of one instance. Freed when it is dropped, as the instance's memory is.
#[derive(Debug, Default)]
pub(super) struct MemoryShare {
    /// `None` for an instance whose own limit is the only one.
    budget: Option<Arc<MemoryBudget>>,
    bytes: usize,
}

impl MemoryBudget {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
        })
    }

    pub(super) fn share(self: &Arc<Self>) -> MemoryShare {
        MemoryShare {
            budget: Some(Arc::clone(self)),
            bytes: 0,
        }
    }

    fn reserve(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|used| *used <= self.limit)
            })
            .is_ok()
    }
}

impl MemoryShare {
    /// Takes what an instance needs to grow to `bytes`; false if the budget does not have it.
    /// Linear memory never shrinks.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if self
            .budget
            .as_ref()
            .is_some_and(|budget| !budget.reserve(more))
        {
            return false;
        }
        self.bytes += more;
        true
    }

    /// Whether the instance may be kept for later: it holds at most `limit`, and half of the budget
    /// is left for those that run.
    pub(super) fn may_idle(&self, limit: usize) -> bool {
        let leaves_half =
            |budget: &Arc<MemoryBudget>| budget.used.load(Ordering::Relaxed) <= budget.limit / 2;
        self.bytes <= limit && self.budget.as_ref().is_none_or(leaves_half)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_stay_within_the_budget() {
        let budget = MemoryBudget::new(100);
        let mut first = budget.share();
        let mut second = budget.share();
        assert!(first.grow_to(60) && second.grow_to(40));
        assert!(!second.grow_to(41), "the budget is used up");
        assert!(second.grow_to(40), "nothing more is needed");
        drop(first);
        assert!(second.grow_to(100));
        assert!(!second.grow_to(usize::MAX));
        drop(second);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn instance_is_kept_while_half_of_the_budget_is_left() {
        let budget = MemoryBudget::new(100);
        let mut small = budget.share();
        let mut other = budget.share();
        assert!(small.grow_to(10) && other.grow_to(40));
        assert!(small.may_idle(10) && !small.may_idle(9));
        assert!(other.grow_to(41));
        assert!(!small.may_idle(10), "51 of 100 are used");
        let mut alone = MemoryShare::default();
        assert!(alone.grow_to(usize::MAX) && alone.may_idle(usize::MAX));
    }
}
