//! A committed change of one desired LRP, slot or task: the record before and after. Events of all revisions derive from
//! it.

use super::TraceId;
use super::desired_lrp::DesiredLrp;
use super::slot::Slot;
use super::task::Task;

/// A committed change; `None` before a creation and after a removal.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordChange {
    DesiredLrp { before: Option<Box<DesiredLrp>>, after: Option<Box<DesiredLrp>>, trace_id: TraceId },
    Slot { before: Box<Slot>, after: Box<Slot>, cause: Cause, trace_id: TraceId },
    Task { before: Option<Box<Task>>, after: Option<Box<Task>> },
}

/// Why a slot changed, where the rows before and after do not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    #[default]
    Other,
    /// An instance crashed; it may already wait for a cell again.
    Crash,
}
