//! The residue of `down`: the ids of a unit. A protobuf message, so that fields can be added.

use bbs_sdk::Refused;
use bbs_sdk::wire::{self, Value, WireError};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Residue {
    pub(crate) current: Option<Vec<u8>>,
    pub(crate) previous: Option<Vec<u8>>,
    pub(crate) instances: Vec<InstanceIds>,
}

/// The ids of one row of `actual_lrps`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InstanceIds {
    pub(crate) index: i64,
    pub(crate) presence: i64,
    /// The instance guid; empty without a container.
    pub(crate) container: Vec<u8>,
    pub(crate) definition: Option<Vec<u8>>,
    pub(crate) uncertain: Option<bool>,
}

const CURRENT: u32 = 1;
const PREVIOUS: u32 = 2;
const INSTANCE: u32 = 3;
const INDEX: u32 = 1;
const PRESENCE: u32 = 2;
const DEFINITION: u32 = 3;
const UNCERTAIN: u32 = 4;
const CONTAINER: u32 = 5;

impl Residue {
    pub(crate) fn instance(
        &self,
        index: i64,
        presence: i64,
        container: &[u8],
    ) -> Option<&InstanceIds> {
        self.instances.iter().find(|ids| {
            (ids.index, ids.presence, &ids.container[..]) == (index, presence, container)
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut message = Vec::new();
        for (number, id) in [(CURRENT, &self.current), (PREVIOUS, &self.previous)] {
            if let Some(id) = id {
                wire::append(&mut message, number, Value::Bytes(id));
            }
        }
        for ids in &self.instances {
            let mut field = Vec::new();
            wire::append(&mut field, INDEX, Value::Varint(ids.index.cast_unsigned()));
            wire::append(
                &mut field,
                PRESENCE,
                Value::Varint(ids.presence.cast_unsigned()),
            );
            if let Some(definition) = &ids.definition {
                wire::append(&mut field, DEFINITION, Value::Bytes(definition));
            }
            if let Some(uncertain) = ids.uncertain {
                wire::append(&mut field, UNCERTAIN, Value::Varint(u64::from(uncertain)));
            }
            wire::append(&mut field, CONTAINER, Value::Bytes(&ids.container));
            wire::append(&mut message, INSTANCE, Value::Bytes(&field));
        }
        message
    }

    pub(crate) fn decode(message: &[u8]) -> Result<Self, Refused> {
        Self::read(message)
            .map_err(|error| Refused::new(format!("the residue cannot be read: {error}")))
    }

    fn read(message: &[u8]) -> Result<Self, WireError> {
        let instances = wire::get_all(message, INSTANCE)?
            .into_iter()
            .map(|field| InstanceIds::read(field.bytes()?));
        Ok(Self {
            current: bytes(message, CURRENT)?,
            previous: bytes(message, PREVIOUS)?,
            instances: instances.collect::<Result<_, WireError>>()?,
        })
    }
}

impl InstanceIds {
    fn read(field: &[u8]) -> Result<Self, WireError> {
        let number = |number| {
            wire::get(field, number)?
                .map(|field| field.varint())
                .transpose()
        };
        Ok(Self {
            index: number(INDEX)?.unwrap_or_default().cast_signed(),
            presence: number(PRESENCE)?.unwrap_or_default().cast_signed(),
            container: bytes(field, CONTAINER)?.unwrap_or_default(),
            definition: bytes(field, DEFINITION)?,
            uncertain: number(UNCERTAIN)?.map(|uncertain| uncertain != 0),
        })
    }
}

fn bytes(message: &[u8], number: u32) -> Result<Option<Vec<u8>>, WireError> {
    Ok(wire::get(message, number)?
        .map(|field| field.bytes())
        .transpose()?
        .map(<[u8]>::to_vec))
}
