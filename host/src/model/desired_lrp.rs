//! A desired LRP: how many instances of what should run. In the parts in which it is read: what
//! placing needs, what routing needs, and everything.

use bbs_proto::models::DesiredLrpRunInfo;

use super::routes::Routes;
use super::tags::MetricTags;
use super::{ModificationTag, Text};

/// What placing an instance needs; also the greater part of a whole record.
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

/// What routing traffic and metrics needs.
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

#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredLrp {
    pub scheduling: SchedulingInfo,
    pub metric_tags: MetricTags,
    /// The number of an `UpdateStrategy`; unknown ones are kept.
    pub update_strategy: i32,
    /// What runs. Stored whole.
    pub run_info: DesiredLrpRunInfo,
}

/// What may change. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredLrpUpdate {
    pub instances: Option<i32>,
    pub routes: Option<Routes>,
    pub annotation: Option<Text>,
    pub metric_tags: Option<MetricTags>,
    /// The user's name and password, which come together.
    pub image_credentials: Option<(Text, Text)>,
}

/// Which desired LRPs are asked for. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredLrpFilter {
    pub domain: Text,
    pub process_guids: Vec<Text>,
    /// Patterns of SQL's `LIKE` that a process guid may begin with.
    pub app_guids: Vec<Text>,
}
