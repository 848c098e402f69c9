//! The residue of `down`: whole rows that have no place under the old key, and the values of
//! remaining rows that the old columns cannot express. A protobuf message, so that fields can be
//! added.

use bbs_sdk::Refused;
use bbs_sdk::wire::{self, Field, Value, WireError};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Residue {
    pub(crate) reduced: Vec<ReducedRow>,
    pub(crate) suspects: Vec<Suspect>,
}

/// A row that remained, identified by its old key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReducedRow {
    pub(crate) index: i64,
    pub(crate) key: bool,
    pub(crate) presence: i64,
    pub(crate) evacuating: Option<bool>,
}

/// A row that was removed; its columns in the order in which the migration lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suspect {
    pub(crate) index: i64,
    pub(crate) presence: i64,
    pub(crate) evacuating: Option<bool>,
    pub(crate) texts: Vec<Option<Vec<u8>>>,
    pub(crate) integers: Vec<Option<i64>>,
}

const REDUCED: u32 = 1;
const SUSPECT: u32 = 2;
const INDEX: u32 = 1;
const PRESENCE: u32 = 2;
const EVACUATING: u32 = 3;
const KEY: u32 = 4;
/// Column values: one message each, empty for NULL.
const TEXT: u32 = 5;
const INTEGER: u32 = 6;
const VALUE: u32 = 1;

impl Residue {
    pub(crate) fn reduced(&self, index: i64, evacuating: Option<bool>) -> Option<&ReducedRow> {
        self.reduced
            .iter()
            .find(|row| row.index == index && Some(row.key) == evacuating)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut message = Vec::new();
        for reduced in &self.reduced {
            let mut row = row(reduced.index, reduced.presence, reduced.evacuating);
            wire::append(&mut row, KEY, Value::Varint(reduced.key.into()));
            wire::append(&mut message, REDUCED, Value::Bytes(&row));
        }
        for suspect in &self.suspects {
            let mut row = row(suspect.index, suspect.presence, suspect.evacuating);
            for text in &suspect.texts {
                append_value(&mut row, TEXT, text.as_deref().map(Value::Bytes));
            }
            for integer in &suspect.integers {
                append_value(
                    &mut row,
                    INTEGER,
                    integer.map(|integer| Value::Varint(integer as u64)),
                );
            }
            wire::append(&mut message, SUSPECT, Value::Bytes(&row));
        }
        message
    }

    pub(crate) fn decode(message: &[u8]) -> Result<Self, Refused> {
        Self::read(message)
            .map_err(|error| Refused::new(format!("the residue cannot be read: {error}")))
    }

    fn read(message: &[u8]) -> Result<Self, WireError> {
        let mut residue = Self::default();
        for field in wire::fields(message) {
            let field = field?;
            match field.number {
                REDUCED => {
                    let row = field.bytes()?;
                    let (index, presence, evacuating) = read_row(row)?;
                    let key = integer(row, KEY)? == Some(1);
                    residue.reduced.push(ReducedRow {
                        index,
                        key,
                        presence,
                        evacuating,
                    });
                }
                SUSPECT => {
                    let row = field.bytes()?;
                    let (index, presence, evacuating) = read_row(row)?;
                    let texts = values(row, TEXT, |value| Ok(value.bytes()?.to_vec()))?;
                    let integers = values(row, INTEGER, |value| Ok(value.varint()? as i64))?;
                    residue.suspects.push(Suspect {
                        index,
                        presence,
                        evacuating,
                        texts,
                        integers,
                    });
                }
                _ => {}
            }
        }
        Ok(residue)
    }
}

fn row(index: i64, presence: i64, evacuating: Option<bool>) -> Vec<u8> {
    let mut row = Vec::new();
    wire::append(&mut row, INDEX, Value::Varint(index as u64));
    wire::append(&mut row, PRESENCE, Value::Varint(presence as u64));
    if let Some(evacuating) = evacuating {
        wire::append(&mut row, EVACUATING, Value::Varint(evacuating.into()));
    }
    row
}

fn read_row(row: &[u8]) -> Result<(i64, i64, Option<bool>), WireError> {
    let evacuating = integer(row, EVACUATING)?.map(|flag| flag == 1);
    Ok((
        integer(row, INDEX)?.unwrap_or(0),
        integer(row, PRESENCE)?.unwrap_or(0),
        evacuating,
    ))
}

fn integer(row: &[u8], number: u32) -> Result<Option<i64>, WireError> {
    wire::get(row, number)?
        .map(|field| field.varint().map(|value| value as i64))
        .transpose()
}

fn append_value(row: &mut Vec<u8>, number: u32, value: Option<Value<'_>>) {
    let mut field = Vec::new();
    if let Some(value) = value {
        wire::append(&mut field, VALUE, value);
    }
    wire::append(row, number, Value::Bytes(&field));
}

fn values<T>(
    row: &[u8],
    number: u32,
    read: impl Fn(Field<'_>) -> Result<T, WireError>,
) -> Result<Vec<Option<T>>, WireError> {
    let fields = wire::get_all(row, number)?.into_iter();
    fields
        .map(|field| wire::get(field.bytes()?, VALUE)?.map(&read).transpose())
        .collect()
}
