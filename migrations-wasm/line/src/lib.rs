//! The manifests of all migrations of the default catalog, in order, for tests of the layout that
//! they add up to. No module: the host reads manifests from the catalog.

use bbs_sdk::{Manifest, Migration};

/// The manifests, oldest first.
#[must_use]
pub fn manifests() -> Vec<Manifest> {
    vec![
        migration_1461790966_init_sql::InitSql::manifest(),
        migration_1471030898_increase_run_info_column::IncreaseRunInfoColumn::manifest(),
        migration_1472757022_add_placement_tags_to_desired_lrp::AddPlacementTags::manifest(),
        migration_1474908092_increase_error_columns::IncreaseErrorColumns::manifest(),
        migration_1474993971_encrypt_routes::EncryptRoutes::manifest(),
        migration_1481761088_add_max_pid_limit::AddMaxPidLimit::manifest(),
        migration_1502289152_increase_rootfs_column::IncreaseRootfsColumn::manifest(),
        migration_1522700600_add_task_rejection_count::AddTaskRejectionCount::manifest(),
        migration_1523050077_add_rejection_reason_to_task::AddRejectionReasonToTask::manifest(),
        migration_1528928964_increase_task_error_columns::IncreaseTaskErrorColumns::manifest(),
        migration_1529530809_add_presence_to_actual_lrp::AddPresence::manifest(),
        migration_1643660541_add_internal_routes_to_actual_lrp::AddInternalRoutes::manifest(),
        migration_1674146125_set_run_info_longtext::SetRunInfoLongtext::manifest(),
        migration_1676360874_add_metric_tags_to_actual_lrp::AddMetricTagsToActualLrp::manifest(),
        migration_1686692176_add_routable_to_actual_lrps::AddRoutable::manifest(),
        migration_1698182853_add_availability_zone_to_actual_lrps::AddAvailabilityZone::manifest(),
        migration_1722634733_split_metric_tags::SplitMetricTags::manifest(),
        migration_1764949919_health_check::HealthCheck::manifest(),
        migration_1772581987_add_update_strategy_to_desired_lrp::AddUpdateStrategy::manifest(),
        migration_1795000000_record_version::RecordVersion::manifest(),
        migration_1795000010_lrp_definitions::LrpDefinitions::manifest(),
    ]
}

#[cfg(test)]
mod tests;
