//! The budget of linear memory that the instances of all translators share. Each instance has a
//! limit of its own; without a common one, as many as may run at once could take it all at the same
//! time. Half of the budget is divided among the translators: however much the instances of one
//! use, each other one has its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes of linear memory that the instances of several translators share.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    limit: usize,
    used: Mutex<UsedMemory>,
}

#[derive(Debug, Default)]
struct UsedMemory {
    /// The number of translators so far, and the key of the next one.
    translators: u64,
    /// Bytes that the instances of each translator use.
    by_translator: BTreeMap<u64, usize>,
}

/// The memory of one translator. Its part of the budget goes to the others when this is dropped.
#[derive(Debug)]
pub(super) struct TranslatorMemory {
    budget: Arc<MemoryBudget>,
    translator: u64,
}

/// The memory of one instance. Freed when it is dropped, as the instance's memory is.
#[derive(Debug, Default)]
pub(super) struct MemoryShare {
    /// `None` for an instance whose own limit is the only one.
    translator: Option<Arc<TranslatorMemory>>,
    bytes: usize,
}

impl UsedMemory {
    fn total(&self) -> usize {
        self.by_translator.values().sum()
    }
}

impl MemoryBudget {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: Mutex::default(),
        })
    }

    /// The memory of one more translator.
    pub(super) fn translator(self: &Arc<Self>) -> Arc<TranslatorMemory> {
        let mut used = self.used.lock();
        let translator = used.translators;
        used.translators += 1;
        used.by_translator.insert(translator, 0);
        Arc::new(TranslatorMemory {
            budget: Arc::clone(self),
            translator,
        })
    }

    /// Takes memory for a translator, unless the rest is needed for the parts of the others.
    fn reserve(&self, translator: u64, bytes: usize) -> bool {
        let mut used = self.used.lock();
        let Some(own) = used.by_translator[&translator].checked_add(bytes) else {
            return false;
        };
        let part = self.limit / 2 / used.by_translator.len();
        let mut others_use = 0_usize;
        let mut others_have = 0_usize;
        for (other, bytes) in &used.by_translator {
            if *other != translator {
                others_use += *bytes;
                others_have += part.max(*bytes);
            }
        }
        let fits = |others: usize| own <= self.limit.saturating_sub(others);
        // A translator that was just added makes the parts smaller, and may find that the others
        // use more than what is left beside them all.
        let is_free = bytes == 0 || fits(others_have) || (own <= part && fits(others_use));
        if is_free {
            used.by_translator.insert(translator, own);
        }
        is_free
    }
}

impl TranslatorMemory {
    /// The memory of one more instance.
    pub(super) fn share(self: &Arc<Self>) -> MemoryShare {
        MemoryShare {
            translator: Some(Arc::clone(self)),
            bytes: 0,
        }
    }

    fn reserve(&self, bytes: usize) -> bool {
        self.budget.reserve(self.translator, bytes)
    }
}

impl Drop for TranslatorMemory {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        used.by_translator.remove(&self.translator);
    }
}

impl MemoryShare {
    /// Takes what an instance needs to grow to `bytes`; false if the budget does not have it.
    /// Linear memory never shrinks.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if self
            .translator
            .as_ref()
            .is_some_and(|translator| !translator.reserve(more))
        {
            return false;
        }
        self.bytes += more;
        true
    }

    /// Whether the instance may be kept for later: it holds at most `limit`, and half of the budget
    /// is left for those that run.
    pub(super) fn may_idle(&self, limit: usize) -> bool {
        let leaves_half = |translator: &Arc<TranslatorMemory>| {
            let budget = &translator.budget;
            budget.used.lock().total() <= budget.limit / 2
        };
        self.bytes <= limit && self.translator.as_ref().is_none_or(leaves_half)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if let Some(TranslatorMemory { budget, translator }) = self.translator.as_deref() {
            let mut used = budget.used.lock();
            let bytes = used.by_translator.get_mut(translator);
            *bytes.expect("a translator is there as long as its instances are") -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_stay_within_the_budget() {
        let budget = MemoryBudget::new(100);
        let translator = budget.translator();
        let mut first = translator.share();
        let mut second = translator.share();
        assert!(first.grow_to(60) && second.grow_to(40));
        assert!(!second.grow_to(41), "the budget is used up");
        assert!(second.grow_to(40), "nothing more is needed");
        drop(first);
        assert!(second.grow_to(100));
        assert!(!second.grow_to(usize::MAX));
        drop(second);
        assert_eq!(budget.used.lock().total(), 0);
    }

    #[test]
    fn translator_leaves_each_other_one_its_part() {
        let budget = MemoryBudget::new(120);
        let [greedy, other, third] = [(); 3].map(|()| budget.translator());
        let mut all = greedy.share();
        assert!(!all.grow_to(81), "20 are kept for each of two others");
        assert!(all.grow_to(80));
        let mut first = other.share();
        assert!(first.grow_to(20));
        assert!(!first.grow_to(21), "the rest is the third one's");
        assert!(third.share().grow_to(20));
        drop(third);
        assert!(first.grow_to(40), "its part is free");
        drop(all);
        assert!(first.grow_to(90), "a part of 30 is kept");
        assert!(!first.grow_to(91));
    }

    #[test]
    fn part_of_an_added_translator_is_free_once_others_use_less() {
        let budget = MemoryBudget::new(100);
        let before = budget.translator();
        let mut most = before.share();
        let mut rest = before.share();
        assert!(most.grow_to(80) && rest.grow_to(20));
        let added = budget.translator();
        let mut share = added.share();
        assert!(!share.grow_to(1), "nothing is free");
        drop(rest);
        assert!(share.grow_to(20));
        assert!(!share.grow_to(21), "the budget is used up");
        assert!(!before.share().grow_to(1));
    }

    #[test]
    fn instance_is_kept_while_half_of_the_budget_is_left() {
        let budget = MemoryBudget::new(100);
        let translator = budget.translator();
        let mut small = translator.share();
        let mut other = translator.share();
        assert!(small.grow_to(10) && other.grow_to(40));
        assert!(small.may_idle(10) && !small.may_idle(9));
        assert!(other.grow_to(41));
        assert!(!small.may_idle(10), "51 of 100 are used");
        let mut alone = MemoryShare::default();
        assert!(alone.grow_to(usize::MAX) && alone.may_idle(usize::MAX));
    }
}
