//! Actual LRPs in groups: of the rows of one instance, at most one evacuating and one other, which
//! loses the rest. Diego's BBS has not stored groups since it has rows of several presences.

use std::collections::BTreeMap;

use bbs_proto::fields::actual_lrp::{ACTUAL_LRP_KEY, PRESENCE, STATE};
use bbs_proto::fields::actual_lrp_group::{EVACUATING, INSTANCE};
use bbs_proto::models::actual_lrp::Presence;
use bbs_proto::models::error::Type;
use bbs_proto::models::{
    ActualLrPsRequest, ActualLrpGroupByProcessGuidAndIndexRequest,
    ActualLrpGroupsByProcessGuidRequest, ActualLrpGroupsRequest, ActualLrpKey,
};
use bbs_sdk::wire::{self, Value, WireError};
use bbs_sdk::{Fault, Next};
use diego_revisions::{ERROR, OBJECTS, failed};
use prost::Message;

pub(crate) fn list(request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    let Ok(ActualLrpGroupsRequest { domain, cell_id }) = Message::decode(request) else {
        return Ok(malformed());
    };
    groups(
        &ActualLrPsRequest {
            domain,
            cell_id,
            ..Default::default()
        },
        next,
    )
    .map(Answer::into_list)
}

pub(crate) fn list_by_process_guid(request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    let Ok(ActualLrpGroupsByProcessGuidRequest { process_guid }) = Message::decode(request) else {
        return Ok(malformed());
    };
    if process_guid.is_empty() {
        return Ok(failed(Type::InvalidRequest, "Invalid field: process_guid"));
    }
    groups(
        &ActualLrPsRequest {
            process_guid,
            ..Default::default()
        },
        next,
    )
    .map(Answer::into_list)
}

/// The group of one instance. Rows of its slot in several domains are several groups; the first one
/// is returned.
pub(crate) fn get(request: &[u8], next: &dyn Next) -> Result<Vec<u8>, Fault> {
    let Ok(ActualLrpGroupByProcessGuidAndIndexRequest {
        process_guid,
        index,
    }) = Message::decode(request)
    else {
        return Ok(malformed());
    };
    let invalid: Vec<_> = [
        (process_guid.is_empty(), "process_guid"),
        (index < 0, "index"),
    ]
    .into_iter()
    .filter(|(is_invalid, _)| *is_invalid)
    .map(|(_, field)| format!("Invalid field: {field}"))
    .collect();
    if !invalid.is_empty() {
        return Ok(failed(Type::InvalidRequest, &invalid.join(", ")));
    }
    let answer = groups(
        &ActualLrPsRequest {
            process_guid,
            index: Some(index),
            ..Default::default()
        },
        next,
    )?;
    Ok(match answer {
        Answer {
            error: None,
            groups,
        } if groups.is_empty() => failed(
            Type::ResourceNotFound,
            "the requested resource could not be found",
        ),
        Answer { error, groups } => Answer {
            error,
            groups: groups.into_iter().take(1).collect(),
        }
        .into_list(),
    })
}

fn malformed() -> Vec<u8> {
    failed(Type::InvalidRequest, "the request received is invalid")
}

/// What the current API answered, in groups.
struct Answer {
    /// The field with the error, as it was.
    error: Option<Vec<u8>>,
    /// Encoded, in the order in which their first rows came.
    groups: Vec<Vec<u8>>,
}

impl Answer {
    fn into_list(self) -> Vec<u8> {
        let mut answer = self.error.unwrap_or_default();
        for group in self.groups {
            wire::append(&mut answer, OBJECTS, Value::Bytes(&group));
        }
        answer
    }
}

fn groups(request: &ActualLrPsRequest, next: &dyn Next) -> Result<Answer, Fault> {
    let rows = next.call("ActualLRPs", &request.encode_to_vec())?;
    let (mut error, mut places, mut groups) = (None, BTreeMap::new(), Vec::<Group<'_>>::new());
    for field in wire::fields(&rows) {
        let field = field?;
        match field.number {
            ERROR => error = Some(field.raw.to_vec()),
            OBJECTS => {
                let row = Row::read(field.bytes()?)?;
                let place = *places.entry(row.key.clone()).or_insert(groups.len());
                if place == groups.len() {
                    groups.push(Group::default());
                }
                groups[place].add(row);
            }
            _ => {}
        }
    }
    Ok(Answer {
        error,
        groups: groups.iter().map(Group::encoded).collect(),
    })
}

/// An actual LRP, as far as its group depends on it.
#[derive(Clone)]
pub(crate) struct Row<'a> {
    /// Process guid, index and domain.
    key: (Vec<u8>, i32, Vec<u8>),
    state: &'a [u8],
    presence: i32,
    pub(crate) encoded: &'a [u8],
}

impl<'a> Row<'a> {
    pub(crate) fn read(encoded: &'a [u8]) -> Result<Self, Fault> {
        let mut row = Self {
            key: Default::default(),
            state: b"",
            presence: 0,
            encoded,
        };
        for field in wire::fields(encoded) {
            let field = field?;
            match field.number {
                ACTUAL_LRP_KEY => {
                    let key = ActualLrpKey::decode(field.bytes()?)
                        .map_err(|error| Fault::new(error.to_string()))?;
                    row.key = (key.process_guid, key.index, key.domain);
                }
                STATE => row.state = field.bytes()?,
                PRESENCE => row.presence = presence(field.varint())?,
                _ => {}
            }
        }
        Ok(row)
    }

    pub(crate) fn is(&self, state: &str) -> bool {
        self.state == state.as_bytes()
    }
}

/// Numbers beyond 32 bits are no presence.
fn presence(number: Result<u64, WireError>) -> Result<i32, WireError> {
    number.map(|number| i32::try_from(number).unwrap_or(i32::MAX))
}

/// The rows of one instance that its group shows.
#[derive(Default)]
pub(crate) struct Group<'a> {
    instance: Option<Row<'a>>,
    evacuating: Option<Row<'a>>,
}

impl<'a> Group<'a> {
    /// The group without its other slot.
    pub(crate) fn only(&self, slot: u32) -> Self {
        let row = self.slot(slot).cloned();
        if slot == EVACUATING {
            Self {
                evacuating: row,
                instance: None,
            }
        } else {
            Self {
                instance: row,
                evacuating: None,
            }
        }
    }

    pub(crate) fn slot(&self, slot: u32) -> Option<&Row<'a>> {
        if slot == EVACUATING {
            self.evacuating.as_ref()
        } else {
            self.instance.as_ref()
        }
    }

    /// The row that stands for the group to clients that take it for one instance.
    pub(crate) fn resolved(&self) -> Option<&Row<'a>> {
        let stands = |row: &&Row<'a>| row.is("RUNNING") || row.is("CRASHED");
        self.instance
            .as_ref()
            .filter(stands)
            .or(self.evacuating.as_ref())
            .or(self.instance.as_ref())
    }

    pub(crate) fn add(&mut self, row: Row<'a>) {
        if row.presence == i32::from(Presence::Evacuating) {
            self.evacuating = Some(row);
        } else if self
            .instance
            .as_ref()
            .is_none_or(|current| replaces(&row, current))
        {
            self.instance = Some(row);
        }
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut group = Vec::new();
        for (number, row) in [(INSTANCE, &self.instance), (EVACUATING, &self.evacuating)] {
            if let Some(row) = row {
                wire::append(&mut group, number, Value::Bytes(row.encoded));
            }
        }
        group
    }
}

/// Whether the group shows a row instead of an earlier one of the same instance.
fn replaces(row: &Row<'_>, current: &Row<'_>) -> bool {
    let is_ordinary = row.presence == i32::from(Presence::Ordinary);
    let is_suspect = row.presence == i32::from(Presence::Suspect);
    if row.is("RUNNING") {
        return is_ordinary || is_suspect && !current.is("RUNNING");
    }
    row.is("CLAIMED")
        && !current.is("RUNNING")
        && (is_suspect || is_ordinary && !current.is("CLAIMED"))
}
