//! JSON payloads: what the receptor (to 2015-08) and the first releases of the BBS (to 0.1428)
//! wrote. Go's decoder read them: keys match in any case, unknown keys are ignored, and `null` is
//! zero.

mod action;
mod fields;
mod lrp;
mod messages;
mod object;
mod task;
mod url;

pub(super) use lrp::{actual_lrp, desired_lrp};
pub(super) use object::JsonObject;
pub(super) use task::task;
