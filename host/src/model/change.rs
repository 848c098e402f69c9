//! What one operation did to one desired LRP, slot or task: the image before and the image after. All events of all
//! revisions are made from these.

use super::TraceId;
use super::desired_lrp::DesiredLrp;
use super::slot::Slot;
use super::task::Task;

#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    DesiredLrp { before: Option<Box<DesiredLrp>>, after: Option<Box<DesiredLrp>>, trace_id: TraceId },
    Slot { before: Box<Slot>, after: Box<Slot>, cause: Cause, trace_id: TraceId },
    Task { before: Option<Box<Task>>, after: Option<Box<Task>> },
}

/// Why a slot changed, where the images do not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    #[default]
    Other,
    /// An instance crashed, and may be waiting again already.
    Crash,
}
