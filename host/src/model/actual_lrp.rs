//! An actual LRP: one instance of a desired one, waiting or running somewhere.

use std::collections::BTreeMap;

use bbs_proto::models::ActualLrpNetInfo;

use super::{ModificationTag, Text};

/// Waiting for a cell.
pub const UNCLAIMED: &str = "UNCLAIMED";
/// Waiting to be started again.
pub const CRASHED: &str = "CRASHED";

/// The row that the service manages, next to those of an evacuation or a lost cell.
pub const ORDINARY: i32 = 0;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ActualLrp {
    pub process_guid: Text,
    pub index: i32,
    pub domain: Text,
    pub instance_guid: Text,
    pub cell_id: Text,
    pub net_info: ActualLrpNetInfo,
    pub crash_count: i32,
    pub crash_reason: Text,
    pub state: Text,
    pub placement_error: Text,
    pub since_ns: i64,
    pub tag: ModificationTag,
    /// The number of a `Presence`; unknown ones are kept.
    pub presence: i32,
    pub internal_routes: Vec<Text>,
    pub metric_tags: BTreeMap<Text, Text>,
    pub routable: bool,
    pub availability_zone: Text,
}

/// Which actual LRPs are asked for. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActualLrpFilter {
    pub domain: Text,
    pub cell_id: Text,
    pub process_guids: Vec<Text>,
    pub index: Option<i32>,
}
