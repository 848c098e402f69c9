//! Convergence: what nothing else moves on is looked at again and again, until what runs is what is desired. One run
//! over everything, page by page; what is decided about each record is the model's.

mod lrps;
mod tasks;

pub use lrps::LrpCounts;
pub use tasks::TaskCounts;

use super::{DomainError, Service};
use crate::model::cell::CellSet;

/// What a run found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub lrps: LrpCounts,
    pub tasks: TaskCounts,
}

/// One run. Nothing is done without knowing which cells there are.
pub async fn run(service: &Service) -> Result<Counts, DomainError> {
    let cells = service.clients().cells.all().await.map_err(DomainError::Cells)?;
    let cells = match cells {
        None => CellSet::Unknown,
        Some(cells) => CellSet::Known(cells.into_iter().map(|cell| cell.cell_id).collect()),
    };
    run_with(service, &cells).await
}

/// One run, where these are the cells. What fails in one part does not stop the other.
pub async fn run_with(service: &Service, cells: &CellSet) -> Result<Counts, DomainError> {
    let (lrps, tasks) = tokio::join!(lrps::run(service, cells), tasks::run(service, cells));
    Ok(Counts { lrps: lrps?, tasks: tasks? })
}
