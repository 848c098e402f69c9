//! The instances of an LRP by what they run, in words.

use std::fmt::Write;

use bbs_client::models;

use super::super::bbs::printable;

/// The instances of an update by what they run.
pub(super) fn counts(status: &models::DesiredLrpUpdateStatus) -> String {
    let mut text = format!("{} of {} run it", status.running, status.instances);
    for (count, rest) in [
        (status.running_previous, "run another definition"),
        (status.waiting, "do not run yet"),
        (status.failing, "fail"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {rest}");
        }
    }
    text
}

/// The result of an update that is over.
pub(super) fn outcome(status: &models::DesiredLrpUpdateStatus) -> String {
    let definition = printable(&status.definition_id);
    if status.running == status.instances {
        format!(
            "all {} instances run the definition {definition}",
            status.instances
        )
    } else {
        format!("the definition {definition}: {}", counts(status))
    }
}
