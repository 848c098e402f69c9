//! The cells that are present, as Locket lists them.

use bbs_proto::models::CellPresence;

use super::{DomainError, Service};

/// Lists the present cells; empty if Locket is not configured.
///
/// # Errors
/// Locket cannot list the cells.
pub async fn list(service: &Service) -> Result<Vec<CellPresence>, DomainError> {
    let cells = service.clients().cells.all().await?;
    Ok(cells.unwrap_or_default())
}
