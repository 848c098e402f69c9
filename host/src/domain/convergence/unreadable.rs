//! Records that cannot be read leave the tables for the quarantine, so that their slots are filled
//! and their guids are free. Owns when: at the beginning of a run, once readers have met one. If
//! there are too many, the host ends instead.

use std::collections::BTreeSet;

use bbs_model::actual_lrp::ActualLrpFilter;
use bbs_model::desired_lrp::DesiredLrpFilter;
use bbs_model::quarantine::is_too_many;
use bbs_model::task::TaskFilter;
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use crate::domain::retry::retry;
use crate::domain::{DomainError, Page, Service, actual_lrps, desired_lrps, tasks};
use crate::store::{EntityKind, UnreadableRow};

/// Units that are read at once.
const PAGE_UNITS: u32 = 250;

/// Moves the records that cannot be read into quarantine. Looks for them only in the tables where
/// readers have met some since the last run.
///
/// # Errors
/// There are too many of them, or the database fails.
pub(super) async fn run(service: &Service) -> Result<(), DomainError> {
    let store = service.store();
    let limit = service.policy().quarantine_limit;
    // The notes stay: updates leave out the slots of records that stay in their table.
    if limit == 0 || !store.has_quarantine().await? {
        return Ok(());
    }
    let met: BTreeSet<_> = store
        .take_unreadable()
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    for kind in met {
        // All of them, so that those of a wrong key are not moved one after another as they are
        // met.
        let readable = count_readable(service, kind).await?;
        let noted = store.take_unreadable();
        let keys: Vec<_> = noted
            .into_iter()
            .filter(|(noted, _)| *noted == kind)
            .map(|(_, key)| key)
            .collect();
        let unreadable = keys.len() as u64;
        let all = readable + unreadable;
        if is_too_many(unreadable, all, limit) {
            return Err(DomainError::TooManyUnreadable {
                table: kind.table(),
                unreadable,
                all,
            });
        }
        for key in keys {
            if let Err(fault) = quarantine(service, kind, &key).await {
                tracing::warn!(table = kind.table(), key = %lossy(&key), reason = %with_causes(&fault), "an unreadable record stays in its table");
            }
        }
    }
    Ok(())
}

/// Reads all records of a kind; the store notes those that it cannot read.
async fn count_readable(service: &Service, kind: EntityKind) -> Result<u64, DomainError> {
    let mut readable = 0;
    let mut after = None;
    loop {
        let mut page = Page::begin(service.store(), after, PAGE_UNITS).await?;
        let listed = match kind {
            EntityKind::DesiredLrp => desired_lrps::list(&mut page, &DesiredLrpFilter::default())
                .await?
                .len(),
            EntityKind::ActualLrp => actual_lrps::list(&mut page, &ActualLrpFilter::default())
                .await?
                .len(),
            EntityKind::Task => tasks::list(&mut page, &TaskFilter::default()).await?.len(),
        };
        readable += listed as u64;
        after = page.next();
        if after.is_none() {
            return Ok(readable);
        }
    }
}

async fn quarantine(service: &Service, kind: EntityKind, key: &[u8]) -> Result<(), DomainError> {
    let _lock = service.lock_key(key).await?;
    let rows = retry(|| async {
        let mut writer = service.store().writer().await?;
        let rows = writer.quarantine_unreadable(kind, key).await?;
        writer.commit().await?;
        Ok(rows)
    })
    .await?;
    for UnreadableRow { place, source } in rows {
        tracing::error!(
            name: "record.quarantined",
            table = kind.table(), key = %lossy(key), ?place, reason = %with_causes(&source),
            "a record cannot be read and was moved into quarantine as it is, so that its place is free; \
             `bbs migrate quarantine list` names it"
        );
    }
    Ok(())
}
