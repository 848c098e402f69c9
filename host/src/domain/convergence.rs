//! Convergence: repeatedly compares what runs with what is desired and repairs the difference. One
//! run reads all records page by page; the decision about each record is the model's.

mod cell_calls;
mod lrp_counter;
mod lrps;
mod tasks;
mod unreadable;

use std::time::Instant;

use bbs_model::cell::CellSet;
use bbs_proto::models::CellPresence;

use super::{DomainError, Service, lrp_updates};
pub use crate::metrics::{LrpCounts, TaskCounts};
use lrps::Present;

/// Findings and actions of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// From the pass over desired LRPs and their instances.
    pub lrps: LrpCounts,
    /// From the pass over tasks.
    pub tasks: TaskCounts,
}

/// Runs convergence once.
///
/// # Errors
/// Locket cannot list the cells, in which case nothing is done, or reading the records fails.
pub async fn run(service: &Service) -> Result<Counts, DomainError> {
    let listed_at_ns = service.store().now_ns();
    let cells = service.clients().cells.all().await?;
    run_among(service, cells, listed_at_ns).await
}

/// Runs convergence once with these cells, which were listed at a time in nanoseconds since 1970;
/// `None` if the present cells are unknown.
///
/// # Errors
/// Reading the records fails.
pub async fn run_among(
    service: &Service,
    cells: Option<Vec<CellPresence>>,
    listed_at_ns: i64,
) -> Result<Counts, DomainError> {
    let set = match &cells {
        None => CellSet::Unknown,
        Some(cells) => CellSet::Known {
            cells: cells.iter().map(|cell| cell.cell_id.clone()).collect(),
            listed_at_ns,
        },
    };
    let cells = cells
        .into_iter()
        .flatten()
        .map(|cell| (cell.cell_id.clone(), cell))
        .collect();
    let present = Present { set, cells };
    unreadable::run(service).await?;
    // Not try_join: one failing does not cancel the other.
    let (lrps, tasks, ()) = tokio::join!(
        converge_lrps(service, &present),
        converge_tasks(service, &present),
        lrp_updates::prune(service)
    );
    Ok(Counts {
        lrps: lrps?,
        tasks: tasks?,
    })
}

async fn converge_lrps(service: &Service, present: &Present) -> Result<LrpCounts, DomainError> {
    tracing::info!(name: "converge-lrps-started", "converging instances");
    let began = Instant::now();
    let found = lrps::run(service, present).await;
    service
        .measures()
        .lrps_converged(found.as_ref().ok().cloned(), began.elapsed());
    // A field for each, which a query of the log finds. A failed run has none.
    let of = |count: fn(&LrpCounts) -> u64| found.as_ref().ok().map(count);
    tracing::info!(
        name: "converge-lrps-done",
        unclaimed = of(|counts| counts.unclaimed),
        claimed = of(|counts| counts.claimed),
        running = of(|counts| counts.running),
        crashed = of(|counts| counts.crashed),
        crashing_desired = of(|counts| counts.crashing_desired),
        desired = of(|counts| counts.desired),
        missing = of(|counts| counts.missing),
        extra = of(|counts| counts.extra),
        suspect_running = of(|counts| counts.suspect_running),
        suspect_claimed = of(|counts| counts.suspect_claimed),
        present_cells = of(|counts| counts.present_cells),
        suspect_cells = of(|counts| counts.suspect_cells),
        halted_updates = of(|counts| counts.halted_updates),
        fresh_domains = of(|counts| counts.fresh_domains.len() as u64),
        started = of(|counts| counts.started),
        failed = of(|counts| counts.failed),
        "converged"
    );
    found
}

async fn converge_tasks(service: &Service, present: &Present) -> Result<TaskCounts, DomainError> {
    tracing::info!(name: "converge-tasks-started", "converging tasks");
    let began = Instant::now();
    let found = tasks::run(service, &present.set).await;
    service
        .measures()
        .tasks_converged(found.as_ref().ok().cloned(), began.elapsed());
    let of = |count: fn(&TaskCounts) -> u64| found.as_ref().ok().map(count);
    tracing::info!(
        name: "converge-tasks-done",
        pending = of(|counts| counts.pending),
        running = of(|counts| counts.running),
        completed = of(|counts| counts.completed),
        resolving = of(|counts| counts.resolving),
        pruned = of(|counts| counts.pruned),
        kicked = of(|counts| counts.kicked),
        "converged"
    );
    found
}
