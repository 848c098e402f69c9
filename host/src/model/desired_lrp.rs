//! A desired LRP: what to run, and how many instances of it. Split into the parts that are read separately: scheduling,
//! routing, and the whole.

use bbs_proto::models::DesiredLrpRunInfo;

use super::routes::Routes;
use super::tags::MetricTags;
use super::{ModificationTag, Text};

/// The part for scheduling instances; also the larger part of a whole record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SchedulingInfo {
    pub process_guid: Text,
    pub domain: Text,
    pub log_guid: Text,
    pub annotation: Text,
    pub instances: i32,
    pub memory_mb: i32,
    pub disk_mb: i32,
    pub max_pids: i32,
    pub root_fs: Text,
    pub routes: Option<Routes>,
    pub tag: ModificationTag,
    /// The drivers of the volumes, in the order of the mounts.
    pub volume_drivers: Vec<Text>,
    pub placement_tags: Vec<Text>,
}

/// The part for routing traffic and metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoutingInfo {
    pub process_guid: Text,
    pub domain: Text,
    pub log_guid: Text,
    pub instances: i32,
    pub routes: Option<Routes>,
    pub tag: ModificationTag,
    pub metric_tags: MetricTags,
}

/// A whole desired LRP.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredLrp {
    pub scheduling: SchedulingInfo,
    pub metric_tags: MetricTags,
    /// The number of an `UpdateStrategy`; unknown numbers are preserved.
    pub update_strategy: i32,
    /// The definition of a run, stored whole.
    pub run_info: DesiredLrpRunInfo,
}

/// The changeable fields; absent ones stay as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredLrpUpdate {
    pub instances: Option<i32>,
    pub routes: Option<Routes>,
    pub annotation: Option<Text>,
    pub metric_tags: Option<MetricTags>,
    /// User name and password, always together.
    pub image_credentials: Option<(Text, Text)>,
}

/// A filter of desired LRPs. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredLrpFilter {
    pub domain: Text,
    pub process_guids: Vec<Text>,
    /// SQL `LIKE` patterns for the start of the process guid.
    pub app_guids: Vec<Text>,
}
