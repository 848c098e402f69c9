//! The mark in etcd: the version of the store is set to a number that no BBS knows, so that one
//! which has etcd alone ends at its start, and one that would import the store again does so, too.
//! The only write to etcd; never unconditional.

use std::sync::Arc;

use super::ImportError;
use super::fingerprint::{FingerprintBuilder, VERSION_KEY};
use super::state::ImportState;
use crate::etcd::client::{EtcdClient, EtcdError};
use crate::migrate::fault;

/// Above every version of every BBS: the largest number of Go's `int64`.
pub(super) const MARKED_VERSION: i64 = i64::MAX;

/// The value of `/version` that marks a store: [`MARKED_VERSION`] and the id of the import, which
/// distinguishes it from the mark of another database. Diego ignores unknown members. Imports of
/// earlier releases have no id.
fn mark_of(imported: &ImportState) -> String {
    let id = imported.report.import_id.as_ref();
    let id = id.map(|id| format!(r#","ImportId":"{id}""#));
    format!(
        r#"{{"CurrentVersion":{MARKED_VERSION},"TargetVersion":{MARKED_VERSION}{}}}"#,
        id.unwrap_or_default()
    )
}

/// Whether a value of `/version` is the mark of any import.
fn is_mark(value: &str) -> bool {
    value.starts_with(&format!(r#"{{"CurrentVersion":{MARKED_VERSION},"#))
}

/// Marks the store. Unless clients have been served from the database since the import, checks
/// first that the store is still what was imported. Returns whether a mark was there already, of an
/// earlier attempt, whose success was not recorded, or of another import.
///
/// # Errors
/// etcd cannot be reached or is another cluster, the store has changed, or its version was written
/// by another client or is the mark of another import.
pub async fn mark(
    etcd: &Arc<EtcdClient>,
    imported: &ImportState,
    served: bool,
) -> Result<bool, ImportError> {
    let fingerprint = &imported.fingerprint;
    let mark = mark_of(imported);
    // The indexes of two clusters may be equal.
    etcd.expect_cluster(&fingerprint.cluster_id);
    let (version, index) = etcd.get(VERSION_KEY).await?;
    if version.as_ref().is_some_and(|leaf| leaf.value == mark) {
        return Ok(true);
    }
    let lost = |is_marked| match (is_marked, served) {
        // The mark of another import keeps an older BBS out as well.
        (true, true) => Ok(true),
        (true, false) => Err(ImportError::MarkedByOther),
        (false, true) => Err(ImportError::MarkLost),
        (false, false) => Err(ImportError::ChangedSince),
    };
    let is_marked = version.as_ref().is_some_and(|leaf| is_mark(&leaf.value));
    if version.map(|leaf| leaf.modified_index) != fingerprint.version_index {
        return lost(is_marked);
    }
    if !served && index != fingerprint.index && !is_unchanged(etcd, imported).await? {
        return Err(ImportError::ChangedSince);
    }
    fault::point(fault::BEFORE_MARK);
    match etcd
        .swap(VERSION_KEY, fingerprint.version_index, &mark)
        .await
    {
        Ok(()) => {}
        Err(EtcdError::Compare { .. }) => {
            let (version, _) = etcd.get(VERSION_KEY).await?;
            return lost(version.is_some_and(|leaf| is_mark(&leaf.value)));
        }
        Err(fault) => return Err(fault.into()),
    }
    fault::point(fault::AFTER_MARK);
    Ok(false)
}

/// Reads the whole store once more.
async fn is_unchanged(etcd: &Arc<EtcdClient>, imported: &ImportState) -> Result<bool, ImportError> {
    let (into, mut leaves) = tokio::sync::mpsc::channel(1);
    let reader = Arc::clone(etcd);
    let reading = tokio::spawn(async move { reader.read(into).await });
    let mut fingerprint = FingerprintBuilder::default();
    while let Some(batch) = leaves.recv().await {
        let batch: Vec<crate::etcd::Leaf> = batch;
        batch.iter().for_each(|leaf| fingerprint.add(leaf));
    }
    let view = reading.await??;
    Ok(fingerprint.is_unchanged_since(&imported.fingerprint, &view.cluster_id))
}
