//! Calls about domains.

use super::{HandlerCall, HandlerResult, Message, Reader, Service, proto};
use crate::domain::domains;

pub(super) async fn list(reader: &mut Reader) -> HandlerResult {
    Ok(proto::DomainsResponse {
        error: None,
        domains: domains::list(reader).await?,
    }
    .encode_to_vec())
}

pub(super) async fn upsert(service: &Service, call: HandlerCall<'_>) -> HandlerResult {
    let proto::UpsertDomainRequest { domain, ttl } = call.valid()?;
    domains::upsert(service, &domain, ttl).await?;
    Ok(Vec::new())
}
