//! Reps, of which each cell has one: what runs there is theirs to stop and to change.

use std::collections::BTreeMap;

use bbs_proto::models::CellPresence;

use super::ClientError;
use crate::model::actual_lrp::{InstanceKey, LrpKey};
use crate::model::{Text, TraceId};

#[derive(Debug, Clone, Default)]
pub struct Reps;

/// What is to change in a running container. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InstanceUpdate {
    /// The host names of the internal routes.
    pub internal_routes: Option<Vec<Text>>,
    pub metric_tags: Option<BTreeMap<Text, Text>>,
}

impl Reps {
    /// Asks for the end of a container. It is gone once the rep has removed the instance.
    pub async fn stop(
        &self,
        _cell: &CellPresence,
        _key: &LrpKey,
        _instance: &InstanceKey,
        _trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    pub async fn update(
        &self,
        _cell: &CellPresence,
        _key: &LrpKey,
        _instance: &InstanceKey,
        _update: &InstanceUpdate,
        _trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    pub async fn cancel_task(
        &self,
        _cell: &CellPresence,
        _task_guid: &[u8],
        _trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        Ok(())
    }
}
