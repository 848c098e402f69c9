//! Desired LRPs that left their table because they could not be read, or never were in it because
//! they could not be imported. Owns how long their instances go on without them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::domain::{DomainError, Service};
use crate::store::{EntityKind, Key, Writer};

/// How long instances go on without their desired LRP while its unreadable record is in quarantine.
/// Cloud Controller desires an LRP again that is missing at its next synchronisation, which is due
/// every 30 s.
const HOLD: Duration = Duration::from_secs(60 * 60);

/// The process guids whose instances go on without a desired LRP.
pub(in crate::domain) async fn quarantined(
    service: &Service,
) -> Result<BTreeSet<Key>, DomainError> {
    let since_ns = hold_began_ns(service.store().now_ns());
    Ok(service
        .store()
        .look()
        .await?
        .quarantined_since(EntityKind::DesiredLrp, since_ns)
        .await?)
}

/// Whether the instances of a process guid go on without a desired LRP. Reads the quarantine only
/// if it may have this key.
pub(in crate::domain) async fn is_quarantined(
    writer: &mut Writer,
    process_guid: &[u8],
) -> Result<bool, DomainError> {
    if !writer.may_be_in_quarantine(process_guid).await? {
        return Ok(false);
    }
    let since_ns = hold_began_ns(writer.now_ns());
    Ok(writer
        .quarantined_since(EntityKind::DesiredLrp, since_ns)
        .await?
        .contains(process_guid))
}

/// Ends the time for which the instances of a process guid go on without a desired LRP, so that
/// those of the next one with the same process guid do not, either.
pub(in crate::domain) async fn end(
    writer: &mut Writer,
    process_guid: &[u8],
) -> Result<(), DomainError> {
    Ok(writer
        .end_hold(EntityKind::DesiredLrp, process_guid)
        .await?)
}

fn hold_began_ns(now_ns: i64) -> i64 {
    now_ns.saturating_sub(i64::try_from(HOLD.as_nanos()).expect("an hour"))
}
