//! Calls about domains.

use super::{DomainError, HandlerCall, Message, Reader, Service, proto};
use crate::domain::domains;

pub(super) async fn list(reader: &mut Reader) -> Result<Vec<u8>, DomainError> {
    Ok(proto::DomainsResponse {
        error: None,
        domains: domains::list(reader).await?,
    }
    .encode_to_vec())
}

pub(super) async fn upsert(
    service: &Service,
    call: HandlerCall<'_>,
) -> Result<Vec<u8>, DomainError> {
    let proto::UpsertDomainRequest { domain, ttl } = call.valid()?;
    domains::upsert(service, &domain, ttl).await?;
    Ok(Vec::new())
}
