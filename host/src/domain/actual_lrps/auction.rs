//! Requests auctions of waiting instances. A failed request is only logged: convergence offers a
//! waiting instance again.

use bbs_model::TraceId;
use bbs_model::desired_lrp::SchedulingInfo;
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use crate::clients::auctioneer::LrpStart;
use crate::domain::{DomainError, Service};

/// Requests the auction of one instance, with the resources of the current definition.
pub(in crate::domain) async fn request_auction(
    service: &Service,
    process_guid: &[u8],
    index: i32,
) -> Result<(), DomainError> {
    let info = service
        .store()
        .look()
        .await?
        .auction_info(process_guid)
        .await?
        .ok_or(DomainError::NotFound)?;
    request_auctions(service, &info, vec![index], &TraceId::NONE).await;
    Ok(())
}

/// Requests the auction of several instances of a desired LRP at once.
pub(in crate::domain) async fn request_auctions(
    service: &Service,
    info: &SchedulingInfo,
    indices: Vec<i32>,
    trace_id: &TraceId,
) {
    let starts = [LrpStart::of(info, indices)];
    if let Err(fault) = service
        .clients()
        .auctioneer
        .request_lrps(&starts, trace_id)
        .await
    {
        tracing::error!(process_guid = %lossy(&info.process_guid), reason = %with_causes(&fault), "waiting instances were not auctioned; convergence retries");
    }
}
