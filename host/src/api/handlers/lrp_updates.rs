//! Calls about the definitions of a desired LRP and its update. The calls that begin and end
//! updates are with those that change desired LRPs.

use super::{HandlerCall, HandlerResult, Message, Reader, Service, proto, wire};
use crate::domain::lrp_updates;

pub(super) async fn definitions(reader: &mut Reader, call: HandlerCall<'_>) -> HandlerResult {
    let process_guid = call.valid::<proto::LrpDefinitionsRequest>()?.process_guid;
    let definitions = wire::definitions_to(lrp_updates::definitions(reader, &process_guid).await?);
    Ok(proto::LrpDefinitionsResponse {
        error: None,
        definitions,
    }
    .encode_to_vec())
}

pub(super) async fn status(
    service: &Service,
    reader: &mut Reader,
    call: HandlerCall<'_>,
) -> HandlerResult {
    let process_guid = call
        .valid::<proto::DesiredLrpUpdateStatusRequest>()?
        .process_guid;
    let status = lrp_updates::status(reader, &service.policy().update_pace, &process_guid).await?;
    let status = Some(wire::update_status_to(status));
    Ok(proto::DesiredLrpUpdateStatusResponse {
        error: None,
        status,
    }
    .encode_to_vec())
}
