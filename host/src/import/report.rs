//! What an import did, or would do, with each leaf of the store. The counts of a kind add up to the
//! leaves that were seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::etcd::record::RecordKind;

/// The most keys of one list; all of them are counted.
const MOST_LISTED: usize = 100;

/// The leaves of one kind, by what becomes of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafCounts {
    pub seen: u64,
    pub imported: u64,
    /// Past their expiration.
    pub expired: u64,
    /// Kept in `bbs_quarantine` with the reason.
    pub quarantined: u64,
    /// Not a record that Diego would read.
    pub foreign: u64,
}

impl LeafCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            seen: self.seen + other.seen,
            imported: self.imported + other.imported,
            expired: self.expired + other.expired,
            quarantined: self.quarantined + other.quarantined,
            foreign: self.foreign + other.foreign,
        }
    }
}

/// A leaf that is not imported, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub key: String,
    pub reason: String,
}

/// What an import did with the leaves of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    /// `/version` of the store; absent if it had none.
    pub version: Option<i64>,
    /// Drawn for each import that fills tables; absent from a check, and from the report of an
    /// earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_id: Option<String>,
    /// The store's index.
    pub index: u64,
    /// Bytes of the answer.
    pub bytes: u64,
    /// By the name of the kind.
    pub kinds: BTreeMap<String, LeafCounts>,
    /// Sealed records by the label of their key.
    pub labels: BTreeMap<String, u64>,
    /// The first leaves in quarantine.
    pub quarantined: Vec<LeftOut>,
    /// The first foreign leaves.
    pub foreign: Vec<LeftOut>,
    /// Domains that lost their expiration when the store was encrypted again, and so never expire.
    pub permanent_domains: Vec<String>,
}

impl ImportReport {
    /// All kinds together.
    pub fn total(&self) -> LeafCounts {
        self.kinds
            .values()
            .copied()
            .fold(LeafCounts::default(), LeafCounts::plus)
    }

    /// The leaves of a kind.
    pub(super) fn counts(&self, kind: RecordKind) -> LeafCounts {
        self.kinds.get(kind.name()).copied().unwrap_or_default()
    }

    pub(super) fn of(&mut self, kind: RecordKind) -> &mut LeafCounts {
        self.kinds.entry(kind.name().to_owned()).or_default()
    }

    pub(super) fn quarantine(&mut self, kind: RecordKind, key: &str, reason: impl Into<String>) {
        self.of(kind).quarantined += 1;
        list(&mut self.quarantined, key, reason.into());
    }

    pub(super) fn set_apart(&mut self, kind: RecordKind, key: &str, reason: &str) {
        self.of(kind).foreign += 1;
        list(&mut self.foreign, key, reason.to_owned());
    }

    /// Adds the report of other leaves.
    pub(super) fn absorb(&mut self, other: Self) {
        for (label, records) in &other.labels {
            *self.labels.entry(label.clone()).or_default() += records;
        }
        self.add(other);
    }

    /// What the first reading alone knows.
    pub(super) fn without_counts(&self) -> Self {
        Self {
            kinds: BTreeMap::new(),
            quarantined: Vec::new(),
            foreign: Vec::new(),
            ..self.clone()
        }
    }

    /// Adds the counts of some leaves.
    pub(super) fn add(&mut self, leaves: Self) {
        for (kind, counts) in leaves.kinds {
            let sum = self.kinds.entry(kind).or_default();
            *sum = sum.plus(counts);
        }
        leaves
            .quarantined
            .into_iter()
            .for_each(|LeftOut { key, reason }| list(&mut self.quarantined, &key, reason));
        leaves
            .foreign
            .into_iter()
            .for_each(|LeftOut { key, reason }| list(&mut self.foreign, &key, reason));
    }

    /// Adds kinds that are in the store and not used any more.
    pub(super) fn supersede(&mut self, other: Self) {
        for (kind, LeafCounts { seen, .. }) in other.kinds {
            list(&mut self.foreign, &kind, super::SUPERSEDED.to_owned());
            self.kinds.insert(
                kind,
                LeafCounts {
                    seen,
                    foreign: seen,
                    ..LeafCounts::default()
                },
            );
        }
    }

    pub(super) fn is_permanent(&mut self, domain: &str) {
        if self.permanent_domains.len() < MOST_LISTED {
            self.permanent_domains.push(domain.to_owned());
        }
    }
}

fn list(listed: &mut Vec<LeftOut>, key: &str, reason: String) {
    if listed.len() < MOST_LISTED {
        listed.push(LeftOut {
            key: key.to_owned(),
            reason,
        });
    }
}
