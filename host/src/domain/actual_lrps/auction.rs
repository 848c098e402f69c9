//! Requests the auction of one instance.

use crate::clients::auctioneer::LrpStart;
use crate::domain::{DomainError, Service};
use crate::model::TraceId;

/// A failed request is only logged: convergence offers a waiting instance again.
pub(in crate::domain) async fn request_auction(
    service: &Service,
    process_guid: &[u8],
    index: i32,
) -> Result<(), DomainError> {
    let info = service.store().look().await?.scheduling_info(process_guid).await?.ok_or(DomainError::NotFound)?;
    let starts = [LrpStart::of(&info, vec![index])];
    if let Err(fault) = service.clients().auctioneer.request_lrps(&starts, &TraceId::NONE).await {
        let process_guid = String::from_utf8_lossy(process_guid);
        tracing::error!(%process_guid, index, reason = %fault, "a waiting instance was not auctioned; convergence retries");
    }
    Ok(())
}
