//! Start: a cell reports that it runs an instance, also as a heartbeat.

use std::collections::BTreeMap;

use bbs_proto::models::ActualLrpNetInfo;

use super::{Slot, SlotError, rules};
use crate::model::actual_lrp::{ActualLrp, InstanceKey, LrpKey, Presence, State};
use crate::model::{ModificationTag, Text};

/// A running container, as its cell describes it.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the fields are those of `ActualLrp`")]
pub struct Container {
    pub key: LrpKey,
    pub instance: InstanceKey,
    pub net_info: ActualLrpNetInfo,
    /// Host names of the internal routes.
    pub internal_routes: Vec<Text>,
    pub metric_tags: BTreeMap<Text, Text>,
    /// Whether the instance may receive traffic.
    pub routable: bool,
    pub availability_zone: Text,
}

impl Container {
    /// The container that a row describes.
    pub(super) fn of(row: &ActualLrp) -> Self {
        Self {
            key: row.key(),
            instance: row.instance_key(),
            net_info: row.net_info.clone(),
            internal_routes: row.internal_routes.clone(),
            metric_tags: row.metric_tags.clone(),
            routable: row.routable,
            availability_zone: row.availability_zone.clone(),
        }
    }

    /// A new row for the container.
    pub(super) fn recorded(&self, presence: Presence, now_ns: i64) -> ActualLrp {
        let mut row = ActualLrp {
            process_guid: self.key.process_guid.clone(),
            index: self.key.index,
            domain: self.key.domain.clone(),
            state: State::Running.at_rest(),
            since_ns: now_ns,
            tag: ModificationTag::begin(),
            presence: presence as i32,
            ..ActualLrp::default()
        };
        self.describe(&mut row);
        row
    }

    /// Copies the description of the container into a row.
    fn describe(&self, row: &mut ActualLrp) {
        row.set_instance(self.instance.clone());
        row.net_info.clone_from(&self.net_info);
        row.internal_routes.clone_from(&self.internal_routes);
        row.metric_tags.clone_from(&self.metric_tags);
        row.routable = self.routable;
        row.availability_zone.clone_from(&self.availability_zone);
    }

    /// Whether a row describes exactly this running container.
    fn is_described_by(&self, row: &ActualLrp) -> bool {
        let mut described = row.clone();
        self.describe(&mut described);
        row.is_at(&self.key) && row.state() == Some(State::Running) && described == *row
    }
}

impl Slot {
    /// Starts the instance in a container, and removes its evacuating and suspect containers.
    ///
    /// # Errors
    /// `CannotBeStarted` if another container runs.
    pub fn start(&mut self, container: &Container, now_ns: i64) -> Result<(), SlotError> {
        if self.suspect.as_ref().is_some_and(|row| row.is_instance(&container.instance)) {
            return Ok(());
        }
        match &mut self.ordinary {
            None => self.ordinary = Some(container.recorded(Presence::Ordinary, now_ns)),
            Some(row) if container.is_described_by(row) => {}
            Some(row) if rules::may_enter(row, &container.key, &container.instance, State::Running) => {
                container.describe(row);
                row.placement_error.clear();
                row.enter(State::Running, now_ns);
            }
            Some(_) => return Err(SlotError::CannotBeStarted),
        }
        self.evacuating = None;
        self.suspect = None;
        Ok(())
    }
}
