//! A cell says that it runs an instance, once or again and again.

use std::collections::BTreeMap;

use bbs_proto::models::ActualLrpNetInfo;

use super::{Refusal, Slot, rules};
use crate::model::actual_lrp::{ActualLrp, InstanceKey, LrpKey, Presence, State};
use crate::model::{ModificationTag, Text};

/// A container that runs, as its cell describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Container {
    pub key: LrpKey,
    pub instance: InstanceKey,
    pub net_info: ActualLrpNetInfo,
    pub internal_routes: Vec<Text>,
    pub metric_tags: BTreeMap<Text, Text>,
    pub routable: bool,
    pub availability_zone: Text,
}

impl Container {
    /// The one that a record is about.
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

    /// A new record of it.
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

    /// What a record says of its container.
    fn describe(&self, row: &mut ActualLrp) {
        row.set_instance(self.instance.clone());
        row.net_info.clone_from(&self.net_info);
        row.internal_routes.clone_from(&self.internal_routes);
        row.metric_tags.clone_from(&self.metric_tags);
        row.routable = self.routable;
        row.availability_zone.clone_from(&self.availability_zone);
    }

    /// Whether a record says exactly this.
    fn is_told_by(&self, row: &ActualLrp) -> bool {
        let mut told = row.clone();
        self.describe(&mut told);
        row.is_at(&self.key) && row.state() == Some(State::Running) && told == *row
    }
}

impl Slot {
    /// Whatever stood in for the instance is needed no longer.
    pub fn start(&mut self, container: &Container, now_ns: i64) -> Result<(), Refusal> {
        if self.suspect.as_ref().is_some_and(|row| row.is_instance(&container.instance)) {
            return Ok(());
        }
        match &mut self.ordinary {
            None => self.ordinary = Some(container.recorded(Presence::Ordinary, now_ns)),
            Some(row) if container.is_told_by(row) => {}
            Some(row) if rules::may_enter(row, &container.key, &container.instance, State::Running) => {
                container.describe(row);
                row.placement_error.clear();
                row.enter(State::Running, now_ns);
            }
            Some(_) => return Err(Refusal::CannotBeStarted),
        }
        self.evacuating = None;
        self.suspect = None;
        Ok(())
    }
}
