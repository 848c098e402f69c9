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
}

/// Which actual LRPs are asked for. All conditions hold; an empty one does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActualLrpFilter {
    pub domain: Text,
    pub cell_id: Text,
    pub process_guids: Vec<Text>,
    pub index: Option<i32>,
}
