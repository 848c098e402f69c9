//! The native handlers: a message in, a message out. Each decodes, checks, calls the domain and
//! encodes; what a call means is the domain's.

use bbs_proto::models as proto;
use prost::Message;

use super::NotHeld;
use super::methods::{Change, Get, List, Native};
use super::{errors, wire};
use crate::domain::validation::{self, Validate};
use crate::domain::{DomainError, Page, actual_lrps, desired_lrps, domains, tasks};
use crate::model::actual_lrp::ActualLrpFilter;
use crate::model::desired_lrp::DesiredLrpFilter;
use crate::model::task::TaskFilter;
use crate::store::{Reader, Store};

/// Diego's BBS would fault.
const NO_UPDATE: &str = "Invalid field: update";

/// An answer: a failure is one with its error set, unless it is for the client to hear of before it looks into the
/// answer. Without a page, a list is given whole.
pub(super) async fn answer(
    store: &Store,
    method: Native,
    request: &[u8],
    page: Option<&mut Page>,
) -> Result<Vec<u8>, NotHeld> {
    match try_answer(store, method, request, page).await {
        Ok(answer) => Ok(answer),
        Err(DomainError::NotHeld(source)) => Err(NotHeld(source.to_string())),
        Err(error) => Ok(errors::answer(&error)),
    }
}

async fn try_answer(
    store: &Store,
    method: Native,
    request: &[u8],
    page: Option<&mut Page>,
) -> Result<Vec<u8>, DomainError> {
    match method {
        Native::Ping => Ok(proto::PingResponse { available: true }.encode_to_vec()),
        Native::Change(method) => change(store, method, request).await,
        Native::Get(method) => match page {
            Some(page) => get(page.reader(), method, request).await,
            None => get(&mut store.reader().await?, method, request).await,
        },
        Native::List(method) => match page {
            Some(page) => list(page, method, request).await,
            None => list(&mut Page::whole(store).await?, method, request).await,
        },
    }
}

async fn list(page: &mut Page, method: List, request: &[u8]) -> Result<Vec<u8>, DomainError> {
    Ok(match method {
        List::DesiredLrps => {
            let lrps = desired_lrps::list(page, &desired_filter(decode(request)?)).await?;
            let desired_lrps = lrps.into_iter().map(wire::desired_lrp_to).collect();
            proto::DesiredLrPsResponse { error: None, desired_lrps }.encode_to_vec()
        }
        List::SchedulingInfos => {
            let filter = DesiredLrpFilter { app_guids: Vec::new(), ..desired_filter(decode(request)?) };
            let infos = desired_lrps::scheduling_infos(page, &filter).await?;
            let desired_lrp_scheduling_infos = infos.into_iter().map(wire::scheduling_info_to).collect();
            proto::DesiredLrpSchedulingInfosResponse { error: None, desired_lrp_scheduling_infos }.encode_to_vec()
        }
        List::RoutingInfos => {
            let process_guids = decode::<proto::DesiredLrPsRequest>(request)?.process_guids;
            let filter = DesiredLrpFilter { process_guids, ..Default::default() };
            let infos = desired_lrps::routing_infos(page, &filter).await?;
            let desired_lrps = infos.into_iter().map(wire::routing_info_to).collect();
            proto::DesiredLrPsResponse { error: None, desired_lrps }.encode_to_vec()
        }
        List::ActualLrps => {
            let request: proto::ActualLrPsRequest = decode(request)?;
            let process_guids = Vec::from_iter((!request.process_guid.is_empty()).then_some(request.process_guid));
            let (domain, cell_id, index) = (request.domain, request.cell_id, request.index);
            actual_list(page, ActualLrpFilter { domain, cell_id, process_guids, index }).await?
        }
        List::ActualLrpsByProcessGuids => {
            let process_guids = valid::<proto::ActualLrPsByProcessGuidsRequest>(request)?.process_guids;
            actual_list(page, ActualLrpFilter { process_guids, ..Default::default() }).await?
        }
        List::Tasks => {
            let proto::TasksRequest { domain, cell_id } = decode(request)?;
            let tasks = tasks::list(page, &TaskFilter { domain, cell_id }).await?;
            proto::TasksResponse { error: None, tasks: tasks.into_iter().map(wire::task_to).collect() }.encode_to_vec()
        }
    })
}

async fn get(reader: &mut Reader, method: Get, request: &[u8]) -> Result<Vec<u8>, DomainError> {
    Ok(match method {
        Get::Domains => proto::DomainsResponse { error: None, domains: domains::list(reader).await? }.encode_to_vec(),
        Get::SchedulingInfoByProcessGuid => {
            let process_guid = valid::<proto::DesiredLrpByProcessGuidRequest>(request)?.process_guid;
            let info = wire::scheduling_info_to(desired_lrps::scheduling_info(reader, &process_guid).await?);
            let desired_lrp_scheduling_info = Some(info);
            proto::DesiredLrpSchedulingInfoByProcessGuidResponse { error: None, desired_lrp_scheduling_info }
                .encode_to_vec()
        }
        Get::DesiredLrpByProcessGuid => {
            let process_guid = valid::<proto::DesiredLrpByProcessGuidRequest>(request)?.process_guid;
            let desired_lrp = Some(wire::desired_lrp_to(desired_lrps::get(reader, &process_guid).await?));
            proto::DesiredLrpResponse { error: None, desired_lrp }.encode_to_vec()
        }
    })
}

/// What changes something answers with nothing but its error.
async fn change(store: &Store, method: Change, request: &[u8]) -> Result<Vec<u8>, DomainError> {
    match method {
        Change::UpsertDomain => {
            let proto::UpsertDomainRequest { domain, ttl } = valid(request)?;
            domains::upsert(store, &domain, ttl).await?;
        }
        Change::DesireDesiredLrp => {
            let lrp = valid::<proto::DesireLrpRequest>(request)?.desired_lrp.unwrap_or_default();
            desired_lrps::desire(store, wire::desired_lrp_from(lrp)).await?;
        }
        Change::UpdateDesiredLrp => {
            let request: proto::UpdateDesiredLrpRequest = valid(request)?;
            let update = request.update.ok_or_else(|| DomainError::Invalid(NO_UPDATE.into()))?;
            desired_lrps::update(store, &request.process_guid, &wire::update_from(update)).await?;
        }
        Change::RemoveDesiredLrp => {
            let process_guid = valid::<proto::RemoveDesiredLrpRequest>(request)?.process_guid;
            desired_lrps::remove(store, &process_guid).await?;
        }
    }
    Ok(Vec::new())
}

async fn actual_list(page: &mut Page, filter: ActualLrpFilter) -> Result<Vec<u8>, DomainError> {
    let lrps = actual_lrps::list(page, &filter).await?;
    let actual_lrps = lrps.into_iter().map(wire::actual_lrp_to).collect();
    Ok(proto::ActualLrPsResponse { error: None, actual_lrps }.encode_to_vec())
}

fn desired_filter(request: proto::DesiredLrPsRequest) -> DesiredLrpFilter {
    let proto::DesiredLrPsRequest { domain, process_guids, app_guids } = request;
    DesiredLrpFilter { domain, process_guids, app_guids }
}

fn decode<M: Message + Default>(request: &[u8]) -> Result<M, DomainError> {
    M::decode(request).map_err(DomainError::Undecodable)
}

fn valid<M: Message + Default + Validate>(request: &[u8]) -> Result<M, DomainError> {
    let message: M = decode(request)?;
    validation::check(&message).map_err(DomainError::Invalid)?;
    Ok(message)
}
