//! An actual LRP: one instance of a desired one, waiting or running somewhere.

use std::collections::BTreeMap;

use bbs_proto::models::ActualLrpNetInfo;

use super::{ModificationTag, Text};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Waiting for a cell.
    Unclaimed,
    /// A cell is starting it.
    Claimed,
    Running,
    /// Waiting to be started again.
    Crashed,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Unclaimed, Self::Claimed, Self::Running, Self::Crashed];

    /// As it rests and as clients read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unclaimed => "UNCLAIMED",
            Self::Claimed => "CLAIMED",
            Self::Running => "RUNNING",
            Self::Crashed => "CRASHED",
        }
    }

    pub fn at_rest(self) -> Text {
        self.name().into()
    }
}

/// Which of the rows of a slot one is. The numbers are those at rest and on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// The row that the service manages.
    Ordinary = 0,
    /// The old container, while its cell is being emptied.
    Evacuating = 1,
    /// The container on a cell that has disappeared.
    Suspect = 2,
}

impl Presence {
    pub const ALL: [Self; 3] = [Self::Ordinary, Self::Evacuating, Self::Suspect];
}

/// Which slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LrpKey {
    pub process_guid: Text,
    pub index: i32,
    pub domain: Text,
}

/// Which container, and where. Empty for an instance that no cell has.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceKey {
    pub instance_guid: Text,
    pub cell_id: Text,
}

impl InstanceKey {
    pub fn is_empty(&self) -> bool {
        self.instance_guid.is_empty() && self.cell_id.is_empty()
    }
}

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

impl ActualLrp {
    /// `None` for one that nobody knows.
    pub fn state(&self) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name().as_bytes() == self.state)
    }

    /// `None` for one that nobody knows.
    pub fn presence(&self) -> Option<Presence> {
        Presence::ALL.into_iter().find(|presence| *presence as i32 == self.presence)
    }

    pub fn key(&self) -> LrpKey {
        LrpKey { process_guid: self.process_guid.clone(), index: self.index, domain: self.domain.clone() }
    }

    pub fn instance_key(&self) -> InstanceKey {
        InstanceKey { instance_guid: self.instance_guid.clone(), cell_id: self.cell_id.clone() }
    }

    pub fn is_at(&self, key: &LrpKey) -> bool {
        (&self.process_guid, self.index, &self.domain) == (&key.process_guid, key.index, &key.domain)
    }

    pub fn is_instance(&self, instance: &InstanceKey) -> bool {
        (&self.instance_guid, &self.cell_id) == (&instance.instance_guid, &instance.cell_id)
    }

    /// Waits for a cell, with a history of its own.
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

    /// From now on in this state: another image of the same record.
    pub(super) fn enter(&mut self, state: State, now_ns: i64) {
        self.state = state.at_rest();
        self.changed(now_ns);
    }

    /// Another image of the same record.
    pub(super) fn changed(&mut self, now_ns: i64) {
        self.since_ns = now_ns;
        self.tag.index = self.tag.index.wrapping_add(1);
    }

    /// No cell has it any more.
    pub(super) fn leave_cell(&mut self) {
        self.set_instance(InstanceKey::default());
        self.net_info = ActualLrpNetInfo::default();
    }
}

/// Which actual LRPs are asked for. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActualLrpFilter {
    pub domain: Text,
    pub cell_id: Text,
    pub process_guids: Vec<Text>,
    pub index: Option<i32>,
}
