//! Calls about desired LRPs, whole and in parts.

use bbs_model::Text;
use bbs_model::desired_lrp::{DesiredLrpFilter, SchedulingInfo};

use super::{
    DomainError, HandlerCall, HandlerResult, Message, NativeVersion, Page, Reader, Service, proto,
    wire,
};
use crate::api::methods::DesiredLrpChange;
use crate::domain::desired_lrps;
use crate::domain::lrp_updates::{self, DefinitionChange};
use crate::domain::validation::{self, Validate};

pub(super) async fn list(page: &mut Page, call: HandlerCall<'_>) -> HandlerResult {
    let lrps = desired_lrps::list(page, &filter(call.decode()?)).await?;
    Ok(lrps_to(lrps, |lrp| wire::desired_lrp_to(lrp, call.version)))
}

fn lrps_to<T>(lrps: Vec<T>, lrp_to: impl FnMut(T) -> proto::DesiredLrp) -> Vec<u8> {
    proto::DesiredLrPsResponse {
        error: None,
        desired_lrps: lrps.into_iter().map(lrp_to).collect(),
    }
    .encode_to_vec()
}

pub(super) async fn scheduling_infos(page: &mut Page, call: HandlerCall<'_>) -> HandlerResult {
    let infos = desired_lrps::scheduling_infos(page, &filter_of_infos(call)?).await?;
    Ok(scheduling_infos_to(infos, call.version))
}

pub(super) async fn scheduling_infos_of_definitions(
    page: &mut Page,
    call: HandlerCall<'_>,
) -> HandlerResult {
    let infos =
        desired_lrps::scheduling_infos_of_definitions(page, &filter_of_infos(call)?).await?;
    Ok(scheduling_infos_to(infos, call.version))
}

/// App guids are ignored, as in Diego.
fn filter_of_infos(call: HandlerCall<'_>) -> Result<DesiredLrpFilter, DomainError> {
    Ok(DesiredLrpFilter {
        app_guids: Vec::new(),
        ..filter(call.decode()?)
    })
}

fn scheduling_infos_to(infos: Vec<SchedulingInfo>, version: NativeVersion) -> Vec<u8> {
    let desired_lrp_scheduling_infos = infos
        .into_iter()
        .map(|info| wire::scheduling_info_to(info, version))
        .collect();
    proto::DesiredLrpSchedulingInfosResponse {
        error: None,
        desired_lrp_scheduling_infos,
    }
    .encode_to_vec()
}

pub(super) async fn routing_infos(page: &mut Page, call: HandlerCall<'_>) -> HandlerResult {
    let process_guids = call.decode::<proto::DesiredLrPsRequest>()?.process_guids;
    let filter = DesiredLrpFilter {
        process_guids,
        ..Default::default()
    };
    let infos = desired_lrps::routing_infos(page, &filter).await?;
    Ok(lrps_to(infos, |info| {
        wire::routing_info_to(info, call.version)
    }))
}

pub(super) async fn scheduling_info(reader: &mut Reader, call: HandlerCall<'_>) -> HandlerResult {
    let info = desired_lrps::scheduling_info(reader, &process_guid(call)?).await?;
    let desired_lrp_scheduling_info = Some(wire::scheduling_info_to(info, call.version));
    Ok(proto::DesiredLrpSchedulingInfoByProcessGuidResponse {
        error: None,
        desired_lrp_scheduling_info,
    }
    .encode_to_vec())
}

pub(super) async fn scheduling_infos_of(
    reader: &mut Reader,
    call: HandlerCall<'_>,
) -> HandlerResult {
    let infos = desired_lrps::scheduling_infos_of(reader, &process_guid(call)?).await?;
    Ok(scheduling_infos_to(infos, call.version))
}

pub(super) async fn get(reader: &mut Reader, call: HandlerCall<'_>) -> HandlerResult {
    let lrp = desired_lrps::get(reader, &process_guid(call)?).await?;
    let desired_lrp = Some(wire::desired_lrp_to(lrp, call.version));
    Ok(proto::DesiredLrpResponse {
        error: None,
        desired_lrp,
    }
    .encode_to_vec())
}

fn process_guid(call: HandlerCall<'_>) -> Result<Text, DomainError> {
    let request: proto::DesiredLrpByProcessGuidRequest = call.valid()?;
    Ok(request.process_guid)
}

/// The answer holds only an error, if there is one.
pub(super) async fn change(
    service: &Service,
    method: DesiredLrpChange,
    call: HandlerCall<'_>,
) -> HandlerResult {
    match method {
        DesiredLrpChange::Desire => {
            let request = desire_request(call)?;
            let guid = request
                .desired_lrp
                .as_ref()
                .map(|lrp| &*lrp.process_guid)
                .unwrap_or_default();
            check(service, &request, guid)?;
            let lrp = wire::desired_lrp_from(request.desired_lrp.unwrap_or_default());
            desired_lrps::desire(service, lrp, call.trace_id).await?;
        }
        DesiredLrpChange::Update => {
            let request = update_request(call)?;
            check(service, &request, &request.process_guid)?;
            let update = wire::update_from(request.update.unwrap_or_default());
            desired_lrps::update(service, &request.process_guid, &update, call.trace_id).await?;
        }
        DesiredLrpChange::CancelUpdate => {
            let process_guid = call
                .valid::<proto::CancelUpdateDesiredLrpRequest>()?
                .process_guid;
            let change = DefinitionChange::Cancel;
            lrp_updates::change_definition(service, &process_guid, change, call.trace_id).await?;
        }
        DesiredLrpChange::RollBack => {
            let request: proto::RollbackDesiredLrpRequest = call.valid()?;
            let process_guid = &request.process_guid;
            let change = DefinitionChange::RollBack(&request.definition_id);
            lrp_updates::change_definition(service, process_guid, change, call.trace_id).await?;
        }
        DesiredLrpChange::Remove => {
            let process_guid = call.valid::<proto::RemoveDesiredLrpRequest>()?.process_guid;
            desired_lrps::remove(service, &process_guid, call.trace_id).await?;
        }
    }
    Ok(Vec::new())
}

/// Definitions are unknown fields in Diego's API, which its BBS ignores.
fn desire_request(call: HandlerCall<'_>) -> Result<proto::DesireLrpRequest, DomainError> {
    let mut request: proto::DesireLrpRequest = call.decode()?;
    if let (NativeVersion::Diego, Some(lrp)) = (call.version, &mut request.desired_lrp) {
        lrp.definition_id.clear();
        lrp.previous_definition_id.clear();
    }
    Ok(request)
}

/// As [`desire_request`].
fn update_request(call: HandlerCall<'_>) -> Result<proto::UpdateDesiredLrpRequest, DomainError> {
    let mut request: proto::UpdateDesiredLrpRequest = call.decode()?;
    if let (NativeVersion::Diego, Some(update)) = (call.version, &mut request.update) {
        update.lrp_definition = None;
    }
    Ok(request)
}

/// Rejects an invalid request, and writes the findings to the log of the app.
fn check(
    service: &Service,
    request: &impl Validate,
    process_guid: &[u8],
) -> Result<(), DomainError> {
    validation::check(request).map_err(|findings| {
        desired_lrps::log_rejection(service, process_guid, &findings);
        DomainError::Invalid(findings)
    })
}

fn filter(request: proto::DesiredLrPsRequest) -> DesiredLrpFilter {
    let proto::DesiredLrPsRequest {
        domain,
        process_guids,
        app_guids,
    } = request;
    DesiredLrpFilter {
        domain,
        process_guids,
        app_guids,
    }
}
