//! An actual LRP: one instance of a desired LRP, waiting or running.

use std::collections::BTreeMap;

use bbs_proto::models::ActualLrpNetInfo;
use prost::Message;

use super::{ModificationTag, Text, excerpt};

/// The state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waiting for a cell.
    Unclaimed,
    /// A cell is starting it.
    Claimed,
    /// A cell runs it.
    Running,
    /// Waiting to be started again.
    Crashed,
}

impl State {
    /// All states, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Unclaimed, Self::Claimed, Self::Running, Self::Crashed];

    /// The stored and wire form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unclaimed => "UNCLAIMED",
            Self::Claimed => "CLAIMED",
            Self::Running => "RUNNING",
            Self::Crashed => "CRASHED",
        }
    }

    /// The stored form, as text.
    pub fn at_rest(self) -> Text {
        self.name().into()
    }
}

/// Which of a slot's rows this is. The numbers are the stored and wire form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// The row that the service manages.
    Ordinary = 0,
    /// The old container, while its cell is being evacuated.
    Evacuating = 1,
    /// The container on a cell that is no longer present.
    Suspect = 2,
}

impl Presence {
    /// All presences, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Ordinary, Self::Evacuating, Self::Suspect];
}

/// Identifies a slot.
/// The fields are those of Diego's `ActualLRPKey`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LrpKey {
    pub process_guid: Text,
    /// Counted from 0; below the number of instances, unless that was reduced.
    pub index: i32,
    pub domain: Text,
}

/// Identifies a container and its cell. Empty for an instance without a cell.
/// The fields are those of Diego's `ActualLRPInstanceKey`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    pub instance_guid: Text,
    pub cell_id: Text,
}

impl InstanceKey {
    /// Whether the instance has no container.
    pub fn is_empty(&self) -> bool {
        self.instance_guid.is_empty() && self.cell_id.is_empty()
    }
}

/// One row of a slot.
/// The fields are those of Diego's `ActualLRP`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ActualLrp {
    pub process_guid: Text,
    pub index: i32,
    pub domain: Text,
    /// Empty without a container.
    pub instance_guid: Text,
    /// Empty without a cell.
    pub cell_id: Text,
    pub net_info: ActualLrpNetInfo,
    /// Crashes since the last run of more than five minutes.
    pub crash_count: i32,
    pub crash_reason: Text,
    /// The name of a [`State`]; unknown names are preserved.
    pub state: Text,
    /// Why the last auction found no cell; empty once a cell has claimed the instance.
    pub placement_error: Text,
    /// The last change of the instance's state or description, in nanoseconds since 1970. A new
    /// revision alone leaves it.
    pub since_ns: i64,
    pub tag: ModificationTag,
    /// The number of a `Presence`; unknown numbers are preserved.
    pub presence: i32,
    /// Host names.
    pub internal_routes: Vec<Text>,
    pub metric_tags: BTreeMap<Text, Text>,
    /// Whether the instance may receive traffic.
    pub routable: bool,
    pub availability_zone: Text,
    /// The definition of its desired LRP that the instance runs, or that it will run once a cell
    /// has claimed it.
    pub definition_id: Text,
    /// Whether its container may run another definition: the current one changed between the claim,
    /// after which a cell reads the desired LRP, and the start; the container was started by a cell
    /// that had not claimed the instance; or it runs that of a cancelled update, which was followed
    /// by one to a third definition.
    pub definition_uncertain: bool,
}

impl ActualLrp {
    /// `None` for an unknown state.
    pub fn state(&self) -> Option<State> {
        State::ALL
            .into_iter()
            .find(|state| state.name().as_bytes() == self.state)
    }

    /// `None` for an unknown presence.
    pub fn presence(&self) -> Option<Presence> {
        Presence::ALL
            .into_iter()
            .find(|presence| *presence as i32 == self.presence)
    }

    /// The text of the row in bytes as stored, estimated: sealed text is base64, and JSON escapes
    /// some characters.
    pub fn stored_bytes(&self) -> usize {
        let plain = [
            &self.process_guid,
            &self.domain,
            &self.instance_guid,
            &self.cell_id,
            &self.state,
            &self.tag.epoch,
            &self.availability_zone,
            &self.definition_id,
        ];
        let escaped = |text: &Text| {
            text.len()
                + 5 * text
                    .iter()
                    .filter(|byte| **byte < b' ' || b"<>&".contains(byte))
                    .count()
        };
        let tags: usize = self
            .metric_tags
            .iter()
            .map(|(name, value)| escaped(name) + escaped(value) + 6)
            .sum();
        let hostnames: usize = self
            .internal_routes
            .iter()
            .map(|hostname| escaped(hostname) + 16)
            .sum();
        let failures = [&self.crash_reason, &self.placement_error].map(|text| excerpt::bytes(text));
        let sealed = self.net_info.encoded_len() + tags + hostnames;
        plain
            .into_iter()
            .map(Vec::len)
            .chain(failures)
            .sum::<usize>()
            + sealed.div_ceil(3) * 4
    }

    /// The key of the slot.
    pub fn key(&self) -> LrpKey {
        LrpKey {
            process_guid: self.process_guid.clone(),
            index: self.index,
            domain: self.domain.clone(),
        }
    }

    /// The key of the container; empty without one.
    pub fn instance_key(&self) -> InstanceKey {
        InstanceKey {
            instance_guid: self.instance_guid.clone(),
            cell_id: self.cell_id.clone(),
        }
    }

    /// Whether the row is in this slot.
    pub fn is_at(&self, key: &LrpKey) -> bool {
        (&self.process_guid, self.index, &self.domain)
            == (&key.process_guid, key.index, &key.domain)
    }

    /// Whether the row is that of this container.
    pub fn is_instance(&self, instance: &InstanceKey) -> bool {
        (&self.instance_guid, &self.cell_id) == (&instance.instance_guid, &instance.cell_id)
    }

    /// A new instance that waits for a cell.
    pub fn unclaimed(key: &LrpKey, now_ns: i64) -> Self {
        Self {
            process_guid: key.process_guid.clone(),
            index: key.index,
            domain: key.domain.clone(),
            state: State::Unclaimed.at_rest(),
            since_ns: now_ns,
            tag: ModificationTag::begin(),
            presence: Presence::Ordinary as i32,
            ..Self::default()
        }
    }

    pub(super) fn set_instance(&mut self, instance: InstanceKey) {
        self.instance_guid = instance.instance_guid;
        self.cell_id = instance.cell_id;
    }

    /// Enters a state, as a new revision of the record.
    pub(super) fn enter(&mut self, state: State, now_ns: i64) {
        self.state = state.at_rest();
        self.changed(now_ns);
    }

    /// Starts a new revision of the record.
    pub(super) fn changed(&mut self, now_ns: i64) {
        self.since_ns = now_ns;
        self.revise();
    }

    /// Starts a new revision of the record of an instance that stays in its state. The time of the
    /// state stays, too: a container that has crashed before counts as working only some time after
    /// it.
    pub(super) fn revise(&mut self) {
        self.tag.index = self.tag.index.wrapping_add(1);
    }

    /// Removes the container and its cell from the record.
    pub(super) fn leave_cell(&mut self) {
        self.set_instance(InstanceKey::default());
        self.net_info = ActualLrpNetInfo::default();
    }
}

/// A filter of actual LRPs. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActualLrpFilter {
    pub domain: Text,
    pub cell_id: Text,
    pub process_guids: Vec<Text>,
    pub index: Option<i32>,
}
