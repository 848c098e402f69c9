//! The native handlers, a file for each resource. Each decodes and validates a message, calls the
//! domain and encodes the answer.

mod actual_lrps;
mod desired_lrps;
mod domains;
mod evacuation;
mod lrp_updates;
mod tasks;

use backon::BackoffBuilder;
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_work::pauses;
use prost::{Message, Name};

use super::errors::{self, RunError};
use super::methods::{ChangeMethod, GetMethod, ListMethod, NativeMethod, NativeVersion};
use super::wire;
use crate::domain::validation::{self, Validate};
use crate::domain::{DomainError, Page, Service, cells, retry};
use crate::protobuf;
use crate::store::Reader;

/// The encoded answer of a handler.
pub(super) type HandlerResult = Result<Vec<u8>, DomainError>;

/// Input of a handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandlerCall<'a> {
    pub(super) body: &'a [u8],
    pub(super) trace_id: &'a TraceId,
    /// The version of the messages.
    pub(super) version: NativeVersion,
}

impl HandlerCall<'_> {
    /// Counts the elements first, also of requests that translators make.
    fn decode<M: Message + Name + Default>(self) -> Result<M, DomainError> {
        if protobuf::elements_of::<M>(self.body).is_none() {
            return Err(DomainError::TooManyElements {
                most: protobuf::MOST_ELEMENTS,
            });
        }
        M::decode(self.body).map_err(DomainError::Undecodable)
    }

    fn valid<M: Message + Name + Default + Validate>(self) -> Result<M, DomainError> {
        let message: M = self.decode()?;
        validation::check(&message).map_err(DomainError::Invalid)?;
        Ok(message)
    }
}

/// Calls the handler of a method. A failure is an encoded answer with its error set, except those
/// that become an HTTP status. Without a page, a list is returned whole.
pub(super) async fn answer(
    service: &Service,
    method: NativeMethod,
    call: HandlerCall<'_>,
    page: Option<&mut Page>,
) -> Result<Vec<u8>, RunError> {
    try_answer(service, method, call, page)
        .await
        .or_else(|error| failed(service, &error))
}

/// The answer to a failed call. Stops the host after the answer if no call can succeed any more.
///
/// A call that has to be repeated gets no message: Diego's Go client repeats calls that fail
/// without one, and a cell that gets an error in a message deletes its container and never reports
/// its end again.
pub(super) fn failed(service: &Service, error: &DomainError) -> Result<Vec<u8>, RunError> {
    end_if_unrecoverable(service, error);
    if let DomainError::NotHeld(source) = error {
        Err(RunError::NotHeld(source.to_string()))
    } else if error.is_to_be_repeated() {
        Err(RunError::Unavailable(errors::text(error)))
    } else {
        Ok(errors::answer(error))
    }
}

/// Also for handlers that encode the error themselves.
fn end_if_unrecoverable(service: &Service, error: &DomainError) {
    if let Some(fault) = error.unrecoverable() {
        service.give_up(fault);
    }
}

async fn try_answer(
    service: &Service,
    method: NativeMethod,
    call: HandlerCall<'_>,
    page: Option<&mut Page>,
) -> HandlerResult {
    match method {
        NativeMethod::Ping => Ok(proto::PingResponse { available: true }.encode_to_vec()),
        NativeMethod::Cells => {
            let cells = cells::list(service).await?;
            Ok(proto::CellsResponse { error: None, cells }.encode_to_vec())
        }
        // Boxed, because it is by far the largest: reads would carry its size on their stack.
        NativeMethod::Change(method) => Box::pin(change(service, method, call)).await,
        NativeMethod::Get(method) => match page {
            Some(page) => {
                page.ready(service.store()).await?;
                get(service, page.reader(), method, call).await
            }
            None => {
                retry(|| async move {
                    let store = service.store();
                    let mut reader = if method.needs_snapshot() {
                        store.reader().await?
                    } else {
                        store.look().await?
                    };
                    get(service, &mut reader, method, call).await
                })
                .await
            }
        },
        NativeMethod::List(method) => match page {
            Some(page) => list_with_retries(service, page, method, call).await,
            None => {
                retry(|| async move {
                    list(&mut Page::whole(service.store()).await?, method, call).await
                })
                .await
            }
        },
    }
}

/// Lists a page. The first one of a list may be of another moment, so it is begun again after a
/// failure that passes.
async fn list_with_retries(
    service: &Service,
    page: &mut Page,
    method: ListMethod,
    call: HandlerCall<'_>,
) -> HandlerResult {
    let mut pauses = pauses::of_calls().build();
    loop {
        page.ready(service.store()).await?;
        match list(page, method, call).await {
            Err(fault) if fault.is_transient() && page.is_new() => {
                let Some(pause) = pauses.next() else {
                    return Err(fault);
                };
                page.give_back();
                tokio::time::sleep(pause).await;
            }
            listed => return listed,
        }
    }
}

async fn list(page: &mut Page, method: ListMethod, call: HandlerCall<'_>) -> HandlerResult {
    match method {
        ListMethod::DesiredLrps => desired_lrps::list(page, call).await,
        ListMethod::SchedulingInfos => desired_lrps::scheduling_infos(page, call).await,
        ListMethod::SchedulingInfosOfDefinitions => {
            desired_lrps::scheduling_infos_of_definitions(page, call).await
        }
        ListMethod::RoutingInfos => desired_lrps::routing_infos(page, call).await,
        ListMethod::ActualLrps => actual_lrps::list(page, call).await,
        ListMethod::ActualLrpsByProcessGuids => {
            actual_lrps::list_by_process_guids(page, call).await
        }
        ListMethod::Tasks => tasks::list(page, call).await,
    }
}

async fn get(
    service: &Service,
    reader: &mut Reader,
    method: GetMethod,
    call: HandlerCall<'_>,
) -> HandlerResult {
    match method {
        GetMethod::Domains => domains::list(reader).await,
        GetMethod::SchedulingInfo => desired_lrps::scheduling_info(reader, call).await,
        GetMethod::SchedulingInfosOfDefinitions => {
            desired_lrps::scheduling_infos_of(reader, call).await
        }
        GetMethod::Definitions => lrp_updates::definitions(reader, call).await,
        GetMethod::UpdateStatus => lrp_updates::status(service, reader, call).await,
        GetMethod::DesiredLrpByProcessGuid => desired_lrps::get(reader, call).await,
        GetMethod::TaskByGuid => tasks::get(reader, call).await,
    }
}

async fn change(service: &Service, method: ChangeMethod, call: HandlerCall<'_>) -> HandlerResult {
    match method {
        ChangeMethod::Domain => domains::upsert(service, call).await,
        ChangeMethod::DesiredLrp(method) => desired_lrps::change(service, method, call).await,
        ChangeMethod::Task(method) => tasks::change(service, method, call).await,
        ChangeMethod::ActualLrp(method) => actual_lrps::change(service, method, call).await,
        ChangeMethod::Evacuation(method) => evacuation::call(service, method, call).await,
    }
}
