//! A desired LRP: what to run, and how many instances of it. Split into the parts that are read
//! separately: scheduling, routing, and the whole.

mod definition;

use bbs_proto::models::{DesiredLrpRunInfo, VolumeMount};

pub use definition::{ArchivedDefinition, Definition, derived_id};

use super::routes::Routes;
use super::tags::MetricTags;
use super::{ModificationTag, Text};

/// The part for scheduling instances; also the larger part of a whole record.
/// The fields are those of Diego's `DesiredLRPSchedulingInfo`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SchedulingInfo {
    pub process_guid: Text,
    pub domain: Text,
    pub log_guid: Text,
    /// At most 10 KiB.
    pub annotation: Text,
    /// The number of instances; not negative.
    pub instances: i32,
    /// For one instance, in MiB; not negative.
    pub memory_mb: i32,
    /// For one instance, in MiB; not negative.
    pub disk_mb: i32,
    /// The most processes and threads of one instance; not negative.
    pub max_pids: i32,
    pub root_fs: Text,
    /// `None` is stored as `null`, and differs from an empty map.
    pub routes: Option<Routes>,
    pub tag: ModificationTag,
    /// The drivers of the volumes, in the order of the mounts.
    pub volume_drivers: Vec<Text>,
    pub placement_tags: Vec<Text>,
    /// Names the current definition, to which the resources and placement belong.
    pub definition_id: Text,
    /// Names the previous definition; empty unless an update is under way.
    pub previous_definition_id: Text,
}

/// The part for routing traffic and metrics.
/// The fields are those of Diego's `DesiredLRP`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoutingInfo {
    pub process_guid: Text,
    pub domain: Text,
    pub log_guid: Text,
    pub instances: i32,
    pub routes: Option<Routes>,
    pub tag: ModificationTag,
    pub metric_tags: MetricTags,
    /// Names the current definition.
    pub definition_id: Text,
}

/// A whole desired LRP.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredLrp {
    /// Also read by itself.
    pub scheduling: SchedulingInfo,
    /// Tags of the metrics of every instance.
    pub metric_tags: MetricTags,
    /// The number of an `UpdateStrategy`; unknown numbers are preserved.
    pub update_strategy: i32,
    /// The definition of a run, stored whole.
    pub run_info: DesiredLrpRunInfo,
}

/// The changeable fields; absent ones stay as they are.
/// The fields are those of Diego's `DesiredLRPUpdate`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredLrpUpdate {
    pub instances: Option<i32>,
    pub routes: Option<Routes>,
    pub annotation: Option<Text>,
    pub metric_tags: Option<MetricTags>,
    /// User name and password, always together.
    pub image_credentials: Option<(Text, Text)>,
    /// Replaces the whole current definition.
    pub definition: Option<Definition>,
}

impl DesiredLrpUpdate {
    /// Whether it has a definition and nothing else.
    pub fn is_of_definition_alone(&self) -> bool {
        let Self {
            instances,
            routes,
            annotation,
            metric_tags,
            image_credentials,
            definition,
        } = self;
        definition.is_some()
            && instances.is_none()
            && routes.is_none()
            && annotation.is_none()
            && metric_tags.is_none()
            && image_credentials.is_none()
    }
}

/// A run information with another user name and password for its image.
pub fn with_image_credentials(
    run_info: &DesiredLrpRunInfo,
    (username, password): &(Text, Text),
) -> DesiredLrpRunInfo {
    DesiredLrpRunInfo {
        image_username: username.clone(),
        image_password: password.clone(),
        ..run_info.clone()
    }
}

/// The drivers of volumes, in the order of their mounts.
pub fn volume_drivers(mounts: &[VolumeMount]) -> Vec<Text> {
    mounts.iter().map(|mount| mount.driver.clone()).collect()
}

/// A filter of desired LRPs. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredLrpFilter {
    pub domain: Text,
    pub process_guids: Vec<Text>,
    /// SQL `LIKE` patterns for the start of the process guid.
    pub app_guids: Vec<Text>,
}
