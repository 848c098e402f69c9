//! Reads at 0.12 against an oracle: timeouts in nanoseconds and start timeouts in seconds too.

use super::generated::{lrps_agree, tasks_agree};
use super::*;
use proto::Action;

/// Marks the outermost timeouts with their length in nanoseconds.
fn mark(action: &mut Action) {
    if let Some(timeout) = &mut action.timeout_action {
        timeout.deprecated_timeout_ns = timeout.timeout_ms * 1_000_000;
    }
    let wrapped = [
        action
            .emit_progress_action
            .as_mut()
            .and_then(|outer| outer.action.as_deref_mut()),
        action
            .try_action
            .as_mut()
            .and_then(|outer| outer.action.as_deref_mut()),
    ];
    wrapped.into_iter().flatten().for_each(mark);
    action
        .parallel_action
        .iter_mut()
        .flat_map(|outer| &mut outer.actions)
        .for_each(mark);
    action
        .serial_action
        .iter_mut()
        .flat_map(|outer| &mut outer.actions)
        .for_each(mark);
    action
        .codependent_action
        .iter_mut()
        .flat_map(|outer| &mut outer.actions)
        .for_each(mark);
}

pub(super) fn set_start_timeout_s(lrp: &mut proto::DesiredLrp) {
    let milliseconds = lrp.start_timeout_ms.rem_euclid(1 << 32);
    lrp.deprecated_start_timeout_s = u32::try_from(milliseconds / 1_000).unwrap();
}

#[test]
fn generated_desired_lrps_get_the_old_timeouts() {
    lrps_agree("0.12", "DesiredLRPs_r1", |lrp| {
        [&mut lrp.action, &mut lrp.setup, &mut lrp.monitor]
            .into_iter()
            .flatten()
            .for_each(mark);
        set_start_timeout_s(lrp);
    });
}

#[test]
fn generated_tasks_get_the_old_timeouts() {
    tasks_agree("0.12", "Tasks_r1", |definition| {
        definition.action.iter_mut().for_each(mark)
    });
}
