//! The first reading of the store: every record is decoded and counted, and nothing is written. Its
//! memory grows by the guids of desired LRPs alone, whose halves are compared.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bbs_model::quarantine::is_too_many;
use bbs_work::progress::Counted;
use futures_util::{Stream, StreamExt, pin_mut};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::classify::{Class, Classified, Classifier};
use super::fingerprint::{FingerprintBuilder, StoreFingerprint};
use super::mark::MARKED_VERSION;
use super::report::ImportReport;
use super::{ImportError, VERSION};
use crate::etcd::Leaf;
use crate::etcd::client::{EtcdClient, EtcdError, View};
use crate::etcd::record::{EtcdRecord, RecordKind, StoreVersion, StoredAs, judge};
use crate::migrate::{Context, MigrateError, OnUnreadable, Tuning};

/// Batches of leaves that are decoded at once.
const DECODERS: usize = 2;
/// Batches that wait between reading and decoding.
const WAITING: usize = 1;

/// Whether a store may be imported that was imported before, whose records are those of that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reimport {
    Refuse,
    Allow,
}

/// What the first reading found.
#[derive(Debug)]
pub struct Survey {
    pub(super) fingerprint: StoreFingerprint,
    /// `None` if neither the version nor the records say it.
    pub(super) stored_as: Option<StoredAs>,
    /// What an import would do, if units that cannot be imported go into quarantine.
    pub report: ImportReport,
    version: StoreVersion,
    /// Records under keys that are not configured, by label.
    unknown_labels: BTreeMap<String, u64>,
    /// Records that cannot be imported, by kind, without halves of desired LRPs whose other half is
    /// missing: these are normal for a moment while Diego creates or removes an LRP.
    damaged: BTreeMap<RecordKind, u64>,
}

impl Survey {
    /// Checks that the store may be imported.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn may_import(&self, tuning: &Tuning, reimport: Reimport) -> Result<(), ImportError> {
        match self.version {
            StoreVersion::Readable { .. } => {}
            StoreVersion::AlreadyImported { .. } if reimport == Reimport::Allow => {}
            StoreVersion::AlreadyImported { current } => {
                return Err(ImportError::ImportedBefore { version: current });
            }
            StoreVersion::Unknown { current } => {
                return Err(ImportError::UnknownStoreVersion { version: current });
            }
        }
        if self.stored_as.is_none() {
            return Err(ImportError::TwoLayouts);
        }
        match tuning.on_unreadable {
            OnUnreadable::Stop => self.has_no_damage(),
            OnUnreadable::Quarantine => self
                .damaged
                .keys()
                .try_for_each(|kind| self.check_limit(*kind, 0, tuning.quarantine_limit)),
        }
    }

    fn has_no_damage(&self) -> Result<(), ImportError> {
        if !self.unknown_labels.is_empty() {
            return Err(ImportError::UnknownLabels {
                labels: self.missing_keys(),
            });
        }
        match self.damaged.values().sum::<u64>() {
            0 => Ok(()),
            count => {
                let first = self
                    .report
                    .quarantined
                    .iter()
                    .take(MOST_NAMED)
                    .cloned()
                    .collect();
                Err(ImportError::Refused { count, first })
            }
        }
    }

    /// Checks that the records of a kind that cannot be imported are few enough to be damaged, with
    /// as many more as the database does not store.
    ///
    /// # Errors
    /// [`ImportError::TooManyRefused`].
    pub(super) fn check_limit(
        &self,
        kind: RecordKind,
        not_stored: u64,
        limit: u64,
    ) -> Result<(), ImportError> {
        let damaged = self.damaged.get(&kind).copied().unwrap_or_default();
        let refused = damaged + not_stored;
        let counts = self.report.counts(kind);
        let all = counts.imported + counts.quarantined;
        if !is_too_many(refused, all, limit) {
            return Ok(());
        }
        Err(ImportError::TooManyRefused {
            kind: kind.name(),
            refused,
            all,
            limit,
            limit_helps: !is_too_many(refused, all, u64::MAX),
            labels: self.missing_keys(),
        })
    }

    fn missing_keys(&self) -> Vec<(String, u64)> {
        self.unknown_labels.clone().into_iter().collect()
    }

    /// The number of leaves.
    pub fn leaves(&self) -> u64 {
        self.report.total().seen
    }
}

/// Reads the store and writes nothing.
///
/// # Errors
/// The store cannot be read as a whole, its version is none that Diego wrote, or the catalog lacks
/// [`VERSION`].
pub async fn survey(etcd: &Arc<EtcdClient>, context: &Context) -> Result<Survey, ImportError> {
    let classifier = Arc::new(classifier(context, None)?);
    context.progress.enter(
        "survey",
        "reading etcd; nothing is written",
        Some(Counted::Records.unknown()),
    );
    let mut counting = Counting::default();
    let view = {
        let (reading, batches) = classified(etcd, &classifier);
        pin_mut!(batches);
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            context.progress.advance(batch.len() as u64);
            batch.into_iter().try_for_each(|leaf| counting.add(leaf))?;
        }
        reading.await??
    };
    Ok(counting.finish(&view))
}

pub(super) fn classifier(
    context: &Context,
    stored_as: Option<StoredAs>,
) -> Result<Classifier, ImportError> {
    let layouts = context.layouts().map_err(MigrateError::from)?;
    let layout = layouts
        .at(VERSION)
        .ok_or(ImportError::NoVersion { version: VERSION })?
        .clone();
    let keyring = Arc::clone(&context.keyring);
    let dialect = context.database.dialect();
    Ok(Classifier {
        keyring,
        layout,
        dialect,
        stored_as,
        now_ns: context.now_ns,
    })
}

/// The task that reads the store; its result says whether the leaves were a whole view.
pub(super) type StoreReading = JoinHandle<Result<View, EtcdError>>;

/// Reads the store in a task and classifies its leaves away from the threads that serve, in the
/// order of the answer.
pub(super) fn classified(
    etcd: &Arc<EtcdClient>,
    classifier: &Arc<Classifier>,
) -> (
    StoreReading,
    impl Stream<Item = Result<Vec<Classified>, ImportError>> + use<>,
) {
    let (into, leaves) = mpsc::channel::<Vec<Leaf>>(WAITING);
    let etcd = Arc::clone(etcd);
    let classifier = Arc::clone(classifier);
    let reading = tokio::spawn(async move { etcd.read(into).await });
    let batches = futures_util::stream::unfold(leaves, async |mut leaves| {
        let batch = leaves.recv().await?;
        Some((batch, leaves))
    });
    let classified = batches.map(move |batch| {
        let classifier = Arc::clone(&classifier);
        let work = move || {
            batch
                .into_iter()
                .map(|leaf| classifier.classify(leaf))
                .collect()
        };
        async {
            tokio::task::spawn_blocking(work)
                .await
                .map_err(ImportError::from)
        }
    });
    (reading, classified.buffered(DECODERS))
}

/// The leaves of one of the two layouts, or those that are the same in both.
#[derive(Debug, Default)]
struct LayoutCounts {
    report: ImportReport,
    damaged: BTreeMap<RecordKind, u64>,
    unknown_labels: BTreeMap<String, u64>,
}

impl LayoutCounts {
    fn add(&mut self, leaf: Classified) {
        let Classified {
            leaf,
            kind,
            class,
            label,
        } = leaf;
        self.report.of(kind).seen += 1;
        if let Some(label) = label {
            *self.report.labels.entry(label).or_default() += 1;
        }
        match class {
            Class::Row(_)
            | Class::RunInfo { .. }
            | Class::SchedulingInfo { .. }
            | Class::Store(_) => {
                self.report.of(kind).imported += 1;
                if kind == RecordKind::Domain
                    && leaf.expires_at_ns.is_none()
                    && !leaf.value.is_empty()
                {
                    self.report.is_permanent(&leaf.key);
                }
            }
            Class::Expired => self.report.of(kind).expired += 1,
            Class::Foreign(reason) => self.report.set_apart(kind, &leaf.key, reason),
            Class::Damaged {
                reason,
                unknown_label,
            } => {
                *self.damaged.entry(kind).or_default() += 1;
                if let Some(label) = unknown_label {
                    *self.unknown_labels.entry(label).or_default() += 1;
                }
                self.report.quarantine(kind, &leaf.key, reason);
            }
        }
    }

    fn absorb(&mut self, other: Self) {
        self.report.absorb(other.report);
        // No kind is in both.
        self.damaged.extend(other.damaged);
        for (label, records) in other.unknown_labels {
            *self.unknown_labels.entry(label).or_default() += records;
        }
    }
}

#[derive(Debug, Default)]
struct Counting {
    fingerprint: FingerprintBuilder,
    order: KeyOrder,
    version: Option<i64>,
    both: LayoutCounts,
    whole: LayoutCounts,
    halves: LayoutCounts,
    /// Keys of run information whose scheduling information has not been read yet.
    waiting: HashSet<String>,
}

impl Counting {
    fn add(&mut self, leaf: Classified) -> Result<(), ImportError> {
        self.order.check(&leaf.leaf.key)?;
        self.fingerprint.add(&leaf.leaf);
        match &leaf.class {
            Class::Store(EtcdRecord::Version(version)) => self.version = Some(*version),
            Class::Damaged { .. } if leaf.kind == RecordKind::Version => {
                return Err(ImportError::StoreVersion {
                    value: leaf.leaf.value,
                });
            }
            _ => {}
        }
        match leaf.kind {
            RecordKind::DesiredLrp => self.whole.add(leaf),
            RecordKind::RunInfo | RecordKind::SchedulingInfo => self.add_half(leaf),
            _ => self.both.add(leaf),
        }
        Ok(())
    }

    /// Counts a half as imported once its other half is known.
    fn add_half(&mut self, leaf: Classified) {
        match &leaf.class {
            Class::RunInfo { .. } => {
                self.waiting.insert(leaf.leaf.key.clone());
            }
            Class::SchedulingInfo { guid, .. } if !self.waiting.remove(&run_info_key(guid)) => {
                self.halves.report.of(leaf.kind).seen += 1;
                self.halves
                    .report
                    .quarantine(leaf.kind, &leaf.leaf.key, ALONE_SCHEDULING);
                return;
            }
            _ => {}
        }
        self.halves.add(leaf);
    }

    fn finish(mut self, view: &View) -> Survey {
        let mut alone: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        alone.sort();
        let kind = RecordKind::RunInfo;
        for key in alone {
            self.halves.report.of(kind).imported -= 1;
            self.halves.report.quarantine(kind, &key, ALONE_RUN);
        }
        let version = judge(self.version);
        let has = |counts: &LayoutCounts| counts.report.total().seen > 0;
        let stored_as = stored_as(version, has(&self.whole), has(&self.halves));
        let (used, superseded) = match stored_as {
            Some(StoredAs::Whole) => (self.whole, self.halves),
            Some(StoredAs::Halves) | None => (self.halves, self.whole),
        };
        let mut counts = self.both;
        counts.absorb(used);
        counts.report.supersede(superseded.report);
        let LayoutCounts {
            mut report,
            damaged,
            unknown_labels,
        } = counts;
        report.version = self.version;
        (report.index, report.bytes) = (view.index, view.bytes);
        let fingerprint = self.fingerprint.finish(view.index, &view.cluster_id);
        Survey {
            fingerprint,
            stored_as,
            report,
            version,
            unknown_labels,
            damaged,
        }
    }
}

/// Where the desired LRPs are in a store of this version that has some of them whole, in halves, or
/// both. `None` if neither version nor records say it.
fn stored_as(version: StoreVersion, whole: bool, halves: bool) -> Option<StoredAs> {
    match version {
        // The mark of this host, which takes the place of the version of any layout. A store with
        // both has stopped within its split, and the whole ones count, or was split and has whole
        // ones left over, and the halves count.
        StoreVersion::AlreadyImported {
            current: MARKED_VERSION,
        } => match (whole, halves) {
            (true, true) => None,
            (false, true) => Some(StoredAs::Halves),
            (_, false) => Some(StoredAs::Whole),
        },
        // Diego's import came after every migration of etcd.
        StoreVersion::Readable {
            stored_as: Some(StoredAs::Halves),
        }
        | StoreVersion::AlreadyImported { .. } => Some(StoredAs::Halves),
        StoreVersion::Readable {
            stored_as: Some(StoredAs::Whole),
        } if whole => Some(StoredAs::Whole),
        // Without a version, and after a split whose number was not written, the newer layout is
        // the one in use.
        StoreVersion::Readable { .. } | StoreVersion::Unknown { .. } if halves => {
            Some(StoredAs::Halves)
        }
        StoreVersion::Readable { .. } | StoreVersion::Unknown { .. } => Some(StoredAs::Whole),
    }
}

/// The key of the run information of a process guid.
pub(super) fn run_info_key(process_guid: &str) -> String {
    format!("/v1/desired_lrp/run/{process_guid}")
}

pub(super) const ALONE_SCHEDULING: &str = "its run information is missing or damaged";
pub(super) const ALONE_RUN: &str =
    "its scheduling information is missing or damaged, so the LRP does not exist";
/// Records that an error names.
const MOST_NAMED: usize = 5;

/// Checks that keys come in order, each once: the halves of desired LRPs are joined by it.
#[derive(Debug, Default)]
pub(super) struct KeyOrder {
    last: String,
}

impl KeyOrder {
    /// # Errors
    /// The key is not above the one before it.
    pub fn check(&mut self, key: &str) -> Result<(), ImportError> {
        // Directories are sorted by their own names, so `/` comes before every other character.
        if !self.last.is_empty() && self.last.split('/').ge(key.split('/')) {
            return Err(ImportError::Unsorted {
                key: key.to_owned(),
            });
        }
        key.clone_into(&mut self.last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_of_this_host_leaves_the_layout_to_the_records() {
        let imported = |current| StoreVersion::AlreadyImported { current };
        for (whole, halves, expected) in [
            (false, false, Some(StoredAs::Whole)),
            (true, false, Some(StoredAs::Whole)),
            (false, true, Some(StoredAs::Halves)),
            (true, true, None),
        ] {
            let found = stored_as(imported(MARKED_VERSION), whole, halves);
            assert_eq!(found, expected, "{whole}, {halves}");
            // Diego's import, which ran the migrations of etcd before.
            for current in [1_451_635_201, 1_461_790_966] {
                let found = stored_as(imported(current), whole, halves);
                assert_eq!(found, Some(StoredAs::Halves), "{current}");
            }
        }
    }
}
