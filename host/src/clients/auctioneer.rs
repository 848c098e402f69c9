//! The auctioneer, which finds cells for what waits.

use super::ClientError;
use crate::model::desired_lrp::SchedulingInfo;
use crate::model::task::Task;
use crate::model::{Text, TraceId};

#[derive(Debug, Clone, Default)]
pub struct Auctioneer;

/// Instances of one desired LRP that wait for cells.
#[derive(Debug, Clone, PartialEq)]
pub struct LrpStart {
    pub process_guid: Text,
    pub domain: Text,
    pub indices: Vec<i32>,
    pub placement_tags: Vec<Text>,
    pub volume_drivers: Vec<Text>,
    pub root_fs: Text,
    pub memory_mb: i32,
    pub disk_mb: i32,
    pub max_pids: i32,
}

impl LrpStart {
    pub fn of(info: &SchedulingInfo, indices: Vec<i32>) -> Self {
        Self {
            process_guid: info.process_guid.clone(),
            domain: info.domain.clone(),
            indices,
            placement_tags: info.placement_tags.clone(),
            volume_drivers: info.volume_drivers.clone(),
            root_fs: info.root_fs.clone(),
            memory_mb: info.memory_mb,
            disk_mb: info.disk_mb,
            max_pids: info.max_pids,
        }
    }
}

impl Auctioneer {
    /// One request for all of them.
    pub async fn request_lrps(&self, _starts: &[LrpStart], _trace_id: &TraceId) -> Result<(), ClientError> {
        Ok(())
    }

    /// One request for all of them.
    pub async fn request_tasks(&self, _tasks: &[Task], _trace_id: &TraceId) -> Result<(), ClientError> {
        Ok(())
    }
}
