//! A committed change of one desired LRP, slot or task: the record before and after. Events of all
//! revisions derive from it.

use super::TraceId;
use super::desired_lrp::DesiredLrp;
use super::lrp_update::UpdateStatus;
use super::slot::Slot;
use super::task::Task;

/// A committed change; `None` before a creation and after a removal.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordChange {
    /// A desired LRP was created, updated or removed.
    DesiredLrp {
        before: Option<Box<DesiredLrp>>,
        after: Option<Box<DesiredLrp>>,
        trace_id: TraceId,
    },
    /// The update of a desired LRP was halted, or is not any more; its records are unchanged.
    UpdateHalt {
        lrp: Box<DesiredLrp>,
        status: Box<UpdateStatus>,
    },
    /// Rows of a slot changed; an absent row is `None` within the slot.
    Slot {
        before: Box<Slot>,
        after: Box<Slot>,
        cause: Cause,
        trace_id: TraceId,
    },
    /// A task was created, changed state or was removed.
    Task {
        before: Option<Box<Task>>,
        after: Option<Box<Task>>,
    },
}

/// Why a slot changed, where the rows before and after do not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// The rows before and after show it.
    #[default]
    Other,
    /// An instance crashed; it may already wait for a cell again.
    Crash,
    /// A container that was being replaced is the managed one again. Its successor ended in the
    /// change before.
    Reversion,
}
