//! The native handlers: a message in, a message out. Each decodes, checks, calls the domain and
//! encodes; what a call means is the domain's. A file for each resource.

mod actual_lrps;
mod desired_lrps;
mod domains;
mod evacuation;
mod tasks;

use bbs_proto::models as proto;
use prost::Message;

use super::methods::{Change, Get, List, Native};
use super::{NotHeld, Request, errors, wire};
use crate::domain::validation::{self, Validate};
use crate::domain::{DomainError, Page, Service, cells};
use crate::model::TraceId;
use crate::store::Reader;

/// What a handler is called with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) body: &'a [u8],
    pub(super) trace_id: &'a TraceId,
}

impl<'a> Call<'a> {
    pub(super) fn of(request: &'a Request) -> Self {
        Self { body: &request.body, trace_id: &request.trace_id }
    }

    fn decode<M: Message + Default>(self) -> Result<M, DomainError> {
        M::decode(self.body).map_err(DomainError::Undecodable)
    }

    fn valid<M: Message + Default + Validate>(self) -> Result<M, DomainError> {
        let message: M = self.decode()?;
        validation::check(&message).map_err(DomainError::Invalid)?;
        Ok(message)
    }
}

/// An answer: a failure is one with its error set, unless it is for the client to hear of before it looks into the
/// answer. Without a page, a list is given whole.
pub(super) async fn answer(
    service: &Service,
    method: Native,
    call: Call<'_>,
    page: Option<&mut Page>,
) -> Result<Vec<u8>, NotHeld> {
    match try_answer(service, method, call, page).await {
        Ok(answer) => Ok(answer),
        Err(DomainError::NotHeld(source)) => Err(NotHeld(source.to_string())),
        Err(error) => Ok(failed(service, &error)),
    }
}

/// The answer to a call that failed. Where none can succeed any more, the host ends once this is said.
pub(super) fn failed(service: &Service, error: &DomainError) -> Vec<u8> {
    end_if_unrecoverable(service, error);
    errors::answer(error)
}

/// For whoever makes an answer of its own of a failure.
fn end_if_unrecoverable(service: &Service, error: &DomainError) {
    if error.unrecoverable().is_some() {
        service.give_up();
    }
}

async fn try_answer(
    service: &Service,
    method: Native,
    call: Call<'_>,
    page: Option<&mut Page>,
) -> Result<Vec<u8>, DomainError> {
    match method {
        Native::Ping => Ok(proto::PingResponse { available: true }.encode_to_vec()),
        Native::Cells => {
            let cells = cells::list(service).await?;
            Ok(proto::CellsResponse { error: None, cells }.encode_to_vec())
        }
        Native::Change(method) => change(service, method, call).await,
        Native::Get(method) => match page {
            Some(page) => get(page.reader(), method, call).await,
            None => get(&mut service.store().look().await?, method, call).await,
        },
        Native::List(method) => match page {
            Some(page) => list(page, method, call).await,
            None => list(&mut Page::whole(service.store()).await?, method, call).await,
        },
    }
}

async fn list(page: &mut Page, method: List, call: Call<'_>) -> Result<Vec<u8>, DomainError> {
    match method {
        List::DesiredLrps => desired_lrps::list(page, call).await,
        List::SchedulingInfos => desired_lrps::scheduling_infos(page, call).await,
        List::RoutingInfos => desired_lrps::routing_infos(page, call).await,
        List::ActualLrps => actual_lrps::list(page, call).await,
        List::ActualLrpsByProcessGuids => actual_lrps::list_by_process_guids(page, call).await,
        List::Tasks => tasks::list(page, call).await,
    }
}

async fn get(reader: &mut Reader, method: Get, call: Call<'_>) -> Result<Vec<u8>, DomainError> {
    match method {
        Get::Domains => domains::list(reader).await,
        Get::SchedulingInfoByProcessGuid => desired_lrps::scheduling_info(reader, call).await,
        Get::DesiredLrpByProcessGuid => desired_lrps::get(reader, call).await,
        Get::TaskByGuid => tasks::get(reader, call).await,
    }
}

async fn change(service: &Service, method: Change, call: Call<'_>) -> Result<Vec<u8>, DomainError> {
    match method {
        Change::Domain => domains::upsert(service, call).await,
        Change::DesiredLrp(method) => desired_lrps::change(service, method, call).await,
        Change::Task(method) => tasks::change(service, method, call).await,
        Change::ActualLrp(method) => actual_lrps::change(service, method, call).await,
        Change::Evacuation(method) => evacuation::call(service, method, call).await,
    }
}
