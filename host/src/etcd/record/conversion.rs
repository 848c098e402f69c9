//! Brings decoded records to the present form: timeouts in milliseconds, and valid UTF-8 in texts
//! that become columns. Texts within stored messages stay as they are.

use bbs_proto::models::{
    Action, ActualLrp, DesiredLrp, DesiredLrpKey, DesiredLrpRunInfo, DesiredLrpSchedulingInfo,
    ModificationTag, Task,
};

const NS_PER_MS: i64 = 1_000_000;
const MS_PER_S: i64 = 1000;

pub(super) fn desired_lrp(lrp: &mut DesiredLrp) {
    convert_start_timeout(
        &mut lrp.start_timeout_ms,
        &mut lrp.deprecated_start_timeout_s,
    );
    convert_actions(
        [&mut lrp.setup, &mut lrp.action, &mut lrp.monitor]
            .into_iter()
            .flatten(),
    );
    make_valid([
        &mut lrp.domain,
        &mut lrp.root_fs,
        &mut lrp.log_guid,
        &mut lrp.annotation,
    ]);
    make_valid(epoch(&mut lrp.modification_tag));
}

pub(super) fn scheduling_info(info: &mut DesiredLrpSchedulingInfo) {
    make_valid(lrp_key(&mut info.desired_lrp_key));
    make_valid([&mut info.annotation]);
    make_valid(
        info.desired_lrp_resource
            .as_mut()
            .map(|resource| &mut resource.root_fs),
    );
    make_valid(epoch(&mut info.modification_tag));
    make_valid(&mut info.placement_tags);
}

pub(super) fn run_info(info: &mut DesiredLrpRunInfo) {
    convert_start_timeout(
        &mut info.start_timeout_ms,
        &mut info.deprecated_start_timeout_s,
    );
    convert_actions(
        [&mut info.setup, &mut info.action, &mut info.monitor]
            .into_iter()
            .flatten(),
    );
    // The key repeats that of the scheduling info.
    make_valid(lrp_key(&mut info.desired_lrp_key));
}

pub(super) fn actual_lrp(lrp: &mut ActualLrp) {
    make_valid(lrp.actual_lrp_key.as_mut().map(|key| &mut key.domain));
    make_valid(
        lrp.actual_lrp_instance_key
            .iter_mut()
            .flat_map(|key| [&mut key.instance_guid, &mut key.cell_id]),
    );
    make_valid([
        &mut lrp.crash_reason,
        &mut lrp.state,
        &mut lrp.placement_error,
    ]);
    make_valid(epoch(&mut lrp.modification_tag));
}

pub(super) fn task(task: &mut Task) {
    convert_actions(
        task.task_definition
            .iter_mut()
            .flat_map(|definition| &mut definition.action),
    );
    make_valid([
        &mut task.domain,
        &mut task.cell_id,
        &mut task.result,
        &mut task.failure_reason,
    ]);
    make_valid([&mut task.rejection_reason]);
}

fn lrp_key(key: &mut Option<DesiredLrpKey>) -> impl Iterator<Item = &mut Vec<u8>> {
    key.iter_mut()
        .flat_map(|key| [&mut key.domain, &mut key.log_guid])
}

fn epoch(tag: &mut Option<ModificationTag>) -> Option<&mut Vec<u8>> {
    tag.as_mut().map(|tag| &mut tag.epoch)
}

/// Text columns reject other texts. Diego's BBS did not check those of its clients, such as reasons
/// and results.
fn make_valid<'a>(texts: impl IntoIterator<Item = &'a mut Vec<u8>>) {
    for text in texts {
        if std::str::from_utf8(text).is_err() {
            *text = String::from_utf8_lossy(text).into_owned().into_bytes();
        }
    }
}

fn convert_start_timeout(ms: &mut i64, seconds: &mut u32) {
    let seconds = std::mem::take(seconds);
    if *ms == 0 {
        *ms = i64::from(seconds) * MS_PER_S;
    }
}

fn convert_actions<'a>(actions: impl IntoIterator<Item = &'a mut Action>) {
    actions.into_iter().for_each(convert_action);
}

/// Recursive: decoding has limited the depth.
fn convert_action(action: &mut Action) {
    if let Some(timeout) = &mut action.timeout_action {
        let ns = std::mem::take(&mut timeout.deprecated_timeout_ns);
        if timeout.timeout_ms == 0 && ns != 0 {
            // Diego rejects a timeout of zero.
            timeout.timeout_ms = (ns / NS_PER_MS).max(1);
        }
    }
    convert_actions(action.inner_mut());
}
