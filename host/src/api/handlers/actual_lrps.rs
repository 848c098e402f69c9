//! Calls about actual LRPs.

use super::{Call, DomainError, Message, Page, proto, wire};
use crate::domain::actual_lrps;
use crate::model::actual_lrp::ActualLrpFilter;

pub(super) async fn list(page: &mut Page, call: Call<'_>) -> Result<Vec<u8>, DomainError> {
    let request: proto::ActualLrPsRequest = call.decode()?;
    let process_guids = Vec::from_iter((!request.process_guid.is_empty()).then_some(request.process_guid));
    let (domain, cell_id, index) = (request.domain, request.cell_id, request.index);
    filtered(page, ActualLrpFilter { domain, cell_id, process_guids, index }).await
}

pub(super) async fn list_by_process_guids(page: &mut Page, call: Call<'_>) -> Result<Vec<u8>, DomainError> {
    let process_guids = call.valid::<proto::ActualLrPsByProcessGuidsRequest>()?.process_guids;
    filtered(page, ActualLrpFilter { process_guids, ..Default::default() }).await
}

async fn filtered(page: &mut Page, filter: ActualLrpFilter) -> Result<Vec<u8>, DomainError> {
    let lrps = actual_lrps::list(page, &filter).await?;
    let actual_lrps = lrps.into_iter().map(wire::actual_lrp_to).collect();
    Ok(proto::ActualLrPsResponse { error: None, actual_lrps }.encode_to_vec())
}
