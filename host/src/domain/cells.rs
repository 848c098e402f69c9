//! Cells: those that say they are there. They say it elsewhere; here it is passed on.

use bbs_proto::models::CellPresence;

use super::{DomainError, Service};

/// None where nobody is configured who could say.
pub async fn list(service: &Service) -> Result<Vec<CellPresence>, DomainError> {
    let cells = service.clients().cells.all().await.map_err(DomainError::Cells)?;
    Ok(cells.unwrap_or_default())
}
