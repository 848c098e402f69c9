//! A task: a process that runs once.

mod converge;
mod transition;

use bbs_proto::models::TaskDefinition;

use super::Text;
pub use converge::{TaskAction, TaskConvergence};
pub use transition::{End, TaskError, TaskState};

/// The record of a task.
/// The fields are those of Diego's `Task`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Task {
    pub guid: Text,
    pub domain: Text,
    /// Nanoseconds since 1970.
    pub created_at_ns: i64,
    /// Nanoseconds since 1970.
    pub updated_at_ns: i64,
    /// Nanoseconds since 1970; 0 until the task completes. Deliveries of the result do not change
    /// it.
    pub first_completed_at_ns: i64,
    /// The number of a `TaskState`; unknown numbers are preserved.
    pub state: i32,
    /// Empty without a cell. Completion empties it, unless convergence failed the task.
    pub cell_id: Text,
    /// As the cell reported it; empty if the host failed the task.
    pub result: Text,
    pub failed: bool,
    pub failure_reason: Text,
    /// How often the auctioneer could not place it.
    pub rejection_count: i32,
    pub rejection_reason: Text,
    /// The definition of the run, stored whole.
    pub definition: TaskDefinition,
}

/// A filter of tasks. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    pub domain: Text,
    pub cell_id: Text,
    pub guids: Vec<Text>,
}
