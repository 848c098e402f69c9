//! Messages about definitions and updates.

use bbs_model::desired_lrp::{ArchivedDefinition, Definition};
use bbs_model::lrp_update::UpdateStatus;
use bbs_proto::models as proto;

use super::{NativeVersion, desired_lrp_from, desired_lrp_to};
use crate::domain::lrp_updates::DefinitionList;

pub(super) fn definition_from(definition: proto::LrpDefinition) -> Definition {
    desired_lrp_from((&definition).into()).definition()
}

/// The current definition first.
pub(in crate::api) fn definitions_to(
    definitions: DefinitionList,
) -> Vec<proto::ArchivedLrpDefinition> {
    let DefinitionList { lrp, others } = definitions;
    let archived = |archived: ArchivedDefinition| proto::ArchivedLrpDefinition {
        created_at: archived.definition.run_info.created_at,
        last_active_at: archived.last_active_ns.unwrap_or_default(),
        definition: Some(
            (&desired_lrp_to(
                lrp.with_definition(archived.definition),
                NativeVersion::Definitions,
            ))
                .into(),
        ),
    };
    let current = archived(ArchivedDefinition {
        definition: lrp.definition(),
        last_active_ns: None,
    });
    std::iter::once(current)
        .chain(others.into_iter().map(archived))
        .collect()
}

pub(in crate::api) fn update_status_to(status: UpdateStatus) -> proto::DesiredLrpUpdateStatus {
    let UpdateStatus {
        target,
        update,
        progress,
        halt,
    } = status;
    let count = |instances: usize| i32::try_from(instances).unwrap_or(i32::MAX);
    proto::DesiredLrpUpdateStatus {
        definition_id: target.definition_id,
        previous_definition_id: target.previous_definition_id,
        cancelled: update.as_ref().is_some_and(|update| update.is_cancelled),
        started_at: update.map_or(0, |update| update.started_at_ns),
        instances: target.instances,
        running: count(progress.current),
        running_previous: count(progress.old),
        waiting: count(progress.pending),
        failing: count(progress.failing),
        halt_reason: halt
            .as_ref()
            .map(|halt| halt.reason.clone())
            .unwrap_or_default(),
        halted_at: halt.map_or(0, |halt| halt.since_ns),
    }
}
