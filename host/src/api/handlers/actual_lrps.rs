//! Calls about actual LRPs.

use bbs_model::actual_lrp::ActualLrpFilter;

use super::{DomainError, HandlerCall, Message, NativeVersion, Page, Service, proto, wire};
use crate::api::methods::ActualLrpChange;
use crate::domain::{actual_lrps, evacuation};

pub(super) async fn list(page: &mut Page, call: HandlerCall<'_>) -> Result<Vec<u8>, DomainError> {
    let request: proto::ActualLrPsRequest = call.decode()?;
    let process_guids =
        Vec::from_iter((!request.process_guid.is_empty()).then_some(request.process_guid));
    let domain = request.domain;
    let cell_id = request.cell_id;
    let index = request.index;
    filtered(
        page,
        ActualLrpFilter {
            domain,
            cell_id,
            process_guids,
            index,
        },
        call.version,
    )
    .await
}

pub(super) async fn list_by_process_guids(
    page: &mut Page,
    call: HandlerCall<'_>,
) -> Result<Vec<u8>, DomainError> {
    let process_guids = call
        .valid::<proto::ActualLrPsByProcessGuidsRequest>()?
        .process_guids;
    filtered(
        page,
        ActualLrpFilter {
            process_guids,
            ..Default::default()
        },
        call.version,
    )
    .await
}

async fn filtered(
    page: &mut Page,
    filter: ActualLrpFilter,
    version: NativeVersion,
) -> Result<Vec<u8>, DomainError> {
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
) -> Result<Vec<u8>, DomainError> {
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
            actual_lrps::remove(
                service,
                &request.process_guid,
                request.index,
                instance.as_ref(),
            )
            .await?;
        }
        ActualLrpChange::Retire => {
            let request: proto::RetireActualLrpRequest = call.valid()?;
            actual_lrps::retire(
                service,
                &wire::lrp_key_from(request.actual_lrp_key),
                call.trace_id,
            )
            .await?;
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
