//! Asking for a cell for one instance.

use crate::clients::auctioneer::LrpStart;
use crate::domain::{DomainError, Service};
use crate::model::TraceId;

/// That the auctioneer did not listen is no failure of whoever asks: what waits for too long is offered again.
pub(in crate::domain) async fn request_auction(
    service: &Service,
    process_guid: &[u8],
    index: i32,
) -> Result<(), DomainError> {
    let info = service.store().look().await?.scheduling_info(process_guid).await?.ok_or(DomainError::NotFound)?;
    let starts = [LrpStart::of(&info, vec![index])];
    if let Err(fault) = service.clients().auctioneer.request_lrps(&starts, &TraceId::NONE).await {
        let process_guid = String::from_utf8_lossy(process_guid);
        tracing::error!(%process_guid, index, reason = %fault, "an instance that waits was not auctioned; a convergence will");
    }
    Ok(())
}
