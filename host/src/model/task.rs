//! A task: what runs once.

mod converge;
mod transition;

use bbs_proto::models::TaskDefinition;

use super::Text;
pub use converge::{Action, World};
pub use transition::{End, Refusal, State};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Task {
    pub guid: Text,
    pub domain: Text,
    pub created_at_ns: i64,
    pub updated_at_ns: i64,
    pub first_completed_at_ns: i64,
    /// The number of a `State`; unknown ones are kept.
    pub state: i32,
    pub cell_id: Text,
    pub result: Text,
    pub failed: bool,
    pub failure_reason: Text,
    pub rejection_count: i32,
    pub rejection_reason: Text,
    /// What runs. Stored whole.
    pub definition: TaskDefinition,
}

/// Which tasks are asked for. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    pub domain: Text,
    pub cell_id: Text,
}
