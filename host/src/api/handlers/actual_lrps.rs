//! Calls about actual LRPs.

use bbs_model::actual_lrp::ActualLrpFilter;

use super::{HandlerCall, HandlerResult, Message, NativeVersion, Page, Service, proto, wire};
use crate::api::methods::ActualLrpChange;
use crate::domain::{actual_lrps, evacuation};

pub(super) async fn list(page: &mut Page, call: HandlerCall<'_>) -> HandlerResult {
    let request: proto::ActualLrPsRequest = call.decode()?;
    let process_guids =
        Vec::from_iter((!request.process_guid.is_empty()).then_some(request.process_guid));
    let filter = ActualLrpFilter {
        domain: request.domain,
        cell_id: request.cell_id,
        process_guids,
        index: request.index,
    };
    filtered(page, filter, call.version).await
}

pub(super) async fn list_by_process_guids(page: &mut Page, call: HandlerCall<'_>) -> HandlerResult {
    let request: proto::ActualLrPsByProcessGuidsRequest = call.valid()?;
    let filter = ActualLrpFilter {
        process_guids: request.process_guids,
        ..Default::default()
    };
    filtered(page, filter, call.version).await
}

async fn filtered(
    page: &mut Page,
    filter: ActualLrpFilter,
    version: NativeVersion,
) -> HandlerResult {
    let lrps = actual_lrps::list(page, &filter).await?;
    let actual_lrps = lrps
        .into_iter()
        .map(|lrp| wire::actual_lrp_to(lrp, version))
        .collect();
    Ok(proto::ActualLrPsResponse {
        error: None,
        actual_lrps,
    }
    .encode_to_vec())
}

/// The answer holds only an error, if there is one.
pub(super) async fn change(
    service: &Service,
    method: ActualLrpChange,
    call: HandlerCall<'_>,
) -> HandlerResult {
    match method {
        ActualLrpChange::Claim => {
            let request: proto::ClaimActualLrpRequest = call.valid()?;
            let instance = wire::instance_key_from(request.actual_lrp_instance_key);
            actual_lrps::claim(service, &request.process_guid, request.index, &instance).await?;
        }
        ActualLrpChange::Start => {
            actual_lrps::start(service, &wire::started_from(call.valid()?)).await?
        }
        ActualLrpChange::Crash => {
            let request: proto::CrashActualLrpRequest = call.valid()?;
            let key = wire::lrp_key_from(request.actual_lrp_key);
            let instance = wire::instance_key_from(request.actual_lrp_instance_key);
            actual_lrps::crash(service, &key, &instance, &request.error_message).await?;
        }
        ActualLrpChange::Fail => {
            let request: proto::FailActualLrpRequest = call.valid()?;
            let key = wire::lrp_key_from(request.actual_lrp_key);
            actual_lrps::fail(service, &key, &request.error_message).await?;
        }
        ActualLrpChange::Remove => {
            let request: proto::RemoveActualLrpRequest = call.valid()?;
            let instance = request
                .actual_lrp_instance_key
                .map(|key| wire::instance_key_from(Some(key)));
            let instance = instance.as_ref();
            actual_lrps::remove(service, &request.process_guid, request.index, instance).await?;
        }
        ActualLrpChange::Retire => {
            let request: proto::RetireActualLrpRequest = call.valid()?;
            let key = wire::lrp_key_from(request.actual_lrp_key);
            actual_lrps::retire(service, &key, call.trace_id).await?;
        }
        ActualLrpChange::RemoveEvacuating => {
            let request: proto::RemoveEvacuatingActualLrpRequest = call.valid()?;
            let key = wire::lrp_key_from(request.actual_lrp_key);
            let instance = wire::instance_key_from(request.actual_lrp_instance_key);
            evacuation::remove_evacuating(service, &key, &instance).await?;
        }
    }
    Ok(Vec::new())
}
