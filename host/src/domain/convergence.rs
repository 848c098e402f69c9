//! Convergence: what nothing else moves on is looked at again and again, until what runs is what is desired. One run
//! over everything, page by page; what is decided about each record is the model's.

mod counts;
mod lrps;
mod tasks;

pub use counts::LrpCounts;
pub use tasks::TaskCounts;

use bbs_proto::models::CellPresence;

use super::{DomainError, Service};
use crate::model::cell::CellSet;
use lrps::Present;

/// What a run found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub lrps: LrpCounts,
    pub tasks: TaskCounts,
}

/// One run. Nothing is done without knowing which cells there are.
pub async fn run(service: &Service) -> Result<Counts, DomainError> {
    let cells = service.clients().cells.all().await.map_err(DomainError::Cells)?;
    run_among(service, cells).await
}

/// One run, where these are the cells.
pub async fn run_among(service: &Service, cells: Option<Vec<CellPresence>>) -> Result<Counts, DomainError> {
    let set = match &cells {
        None => CellSet::Unknown,
        Some(cells) => CellSet::Known(cells.iter().map(|cell| cell.cell_id.clone()).collect()),
    };
    let cells = cells.into_iter().flatten().map(|cell| (cell.cell_id.clone(), cell)).collect();
    let present = Present { set, cells };
    // Both to their end, whatever happens to the other.
    let (lrps, tasks) = tokio::join!(lrps::run(service, &present), tasks::run(service, &present.set));
    Ok(Counts { lrps: lrps?, tasks: tasks? })
}
