//! The views of a record by a client of a version: written, read, and expected to be read. A record
//! that a test compares is in Diego's current message, with all timeouts in milliseconds and
//! without values that the host sets.

use super::client::ClientVersion::{self, V0_10, V0_11, V1_0, V1_1, V1_2};
use super::*;
use crate::api::answers::in_order;

const NS_PER_MS: i64 = 1_000_000;

/// Edits all timeouts of an action.
fn each_timeout(action: &mut proto::Action, edit: &impl Fn(&mut proto::TimeoutAction)) {
    if let Some(timeout) = &mut action.timeout_action {
        edit(timeout);
        timeout
            .action
            .iter_mut()
            .for_each(|action| each_timeout(action, edit));
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
    let children = action
        .parallel_action
        .iter_mut()
        .flat_map(|outer| &mut outer.actions);
    let children = children.chain(
        action
            .serial_action
            .iter_mut()
            .flat_map(|outer| &mut outer.actions),
    );
    let children = children.chain(
        action
            .codependent_action
            .iter_mut()
            .flat_map(|outer| &mut outer.actions),
    );
    wrapped
        .into_iter()
        .flatten()
        .chain(children)
        .for_each(|action| each_timeout(action, edit));
}

fn in_ns(action: &mut proto::Action) {
    each_timeout(action, &|timeout| {
        timeout.deprecated_timeout_ns = timeout.timeout_ms * NS_PER_MS;
        timeout.timeout_ms = 0;
    });
}

/// Replaces timeouts in nanoseconds, which is what clients up to 0.11 know, and ignores them in
/// newer versions.
fn in_ms(version: ClientVersion, action: &mut proto::Action) {
    each_timeout(action, &|timeout| {
        if version <= V0_11 {
            timeout.timeout_ms = timeout.deprecated_timeout_ns / NS_PER_MS;
        }
        timeout.deprecated_timeout_ns = 0;
    });
}

fn actions(lrp: &mut proto::DesiredLrp) -> impl Iterator<Item = &mut proto::Action> {
    [&mut lrp.setup, &mut lrp.action, &mut lrp.monitor]
        .into_iter()
        .flatten()
}

/// The record as a client of the version sends it.
pub(super) fn written(version: ClientVersion, mut lrp: proto::DesiredLrp) -> proto::DesiredLrp {
    if version <= V0_11 {
        lrp.deprecated_start_timeout_s = u32::try_from(lrp.start_timeout_ms / 1_000).unwrap();
        lrp.start_timeout_ms = 0;
        actions(&mut lrp).for_each(in_ns);
    }
    lrp
}

pub(super) fn written_task(
    version: ClientVersion,
    mut task: proto::TaskDefinition,
) -> proto::TaskDefinition {
    if version <= V0_11 {
        task.action.iter_mut().for_each(in_ns);
    }
    task
}

/// A record as a client of the version understands it after it received it.
pub(super) fn understood(version: ClientVersion, lrp: proto::DesiredLrp) -> proto::DesiredLrp {
    let mut lrp = in_order(lrp);
    assert_eq!(
        std::mem::take(&mut lrp.definition_id).is_empty(),
        version < V1_2,
        "generated, and known from 1.2 on"
    );
    if version <= V0_11 {
        lrp.start_timeout_ms = i64::from(lrp.deprecated_start_timeout_s) * 1_000;
    }
    lrp.deprecated_start_timeout_s = 0;
    actions(&mut lrp).for_each(|action| in_ms(version, action));
    assert!(lrp.modification_tag.take().is_some(), "the host sets it");
    lrp
}

pub(super) fn understood_task(version: ClientVersion, task: proto::Task) -> proto::TaskDefinition {
    let mut definition = crate::api::answers::task_in_order(task)
        .task_definition
        .expect("a task has a definition");
    definition
        .action
        .iter_mut()
        .for_each(|action| in_ms(version, action));
    definition
}

/// A record as a client of the version is expected to understand it: layers and cached dependencies
/// as the revisions before them had them.
pub(super) fn expected(version: ClientVersion, lrp: &proto::DesiredLrp) -> proto::DesiredLrp {
    let mut lrp = in_order(lrp.clone());
    if version <= V0_10 {
        // Neither version knows either of them, also not as downloads.
        return fields_of_0_9(&lrp);
    }
    if version <= V1_0 {
        layers::desired_lrp_without_layers(&mut lrp);
    }
    if version <= V0_11 {
        downloads::fold_lrp(&mut lrp);
    }
    lrp
}

/// Versions before 0.11 have the tasks of 0.11.
pub(super) fn expected_task(
    version: ClientVersion,
    definition: &proto::TaskDefinition,
) -> proto::TaskDefinition {
    let mut definition = definition.clone();
    if version <= V1_0 {
        layers::definition_without_layers(&mut definition);
    }
    if version <= V0_11 {
        downloads::fold_definition(&mut definition);
    }
    definition
}

/// The fields that all versions know.
pub(super) fn fields_of_0_9(lrp: &proto::DesiredLrp) -> proto::DesiredLrp {
    let older = v0_9::DesiredLrp::decode(&lrp.encode_to_vec()[..]).unwrap();
    let start_timeout_ms = lrp.start_timeout_ms;
    proto::DesiredLrp {
        start_timeout_ms,
        ..proto::DesiredLrp::decode(&older.encode_to_vec()[..]).unwrap()
    }
}

/// Leaves out of a record what a client of the version does not know and cannot write.
pub(super) fn known(version: ClientVersion, mut lrp: proto::DesiredLrp) -> proto::DesiredLrp {
    if version <= V0_10 {
        return fields_of_0_9(&lrp);
    }
    if version < V1_1 {
        lrp.image_layers.clear();
    }
    if version <= V0_11 {
        // Read as downloads.
        lrp.cached_dependencies.clear();
    }
    lrp
}

pub(super) fn known_of_task(
    version: ClientVersion,
    mut definition: proto::TaskDefinition,
) -> proto::TaskDefinition {
    if version < V1_1 {
        definition.image_layers.clear();
    }
    if version <= V0_11 {
        definition.cached_dependencies.clear();
    }
    definition
}
