//! Converts a desired LRP between its two messages and Diego's single one. Timeouts changed their
//! unit between the versions; metric tags were added after 0.10, and Diego now requires one.

use bbs_proto::fields::desired_lrp::{self, PROCESS_GUID, START_TIMEOUT_MS};
use bbs_proto::fields::v0_10::immutable_desired_lrp::START_TIMEOUT_S;
use bbs_proto::fields::v0_10::mutable_desired_lrp;
use bbs_proto::models::Action;
use bbs_sdk::wire::{self, Value, WireError};
use diego_revisions::desired_lrps::ACTIONS;
use prost::Message;

/// The fields that may change: their numbers in the mutable message, and in Diego's.
const MUTABLE: [(u32, u32); 3] = [
    (mutable_desired_lrp::INSTANCES, desired_lrp::INSTANCES),
    (mutable_desired_lrp::ROUTES, desired_lrp::ROUTES),
    (mutable_desired_lrp::ANNOTATION, desired_lrp::ANNOTATION),
];

const MS_PER_S: u64 = 1_000;
const NS_PER_MS: i64 = 1_000_000;

/// Whether both messages name the same process, or at least one names none.
pub(crate) fn same_process(mutable: &[u8], immutable: &[u8]) -> Result<bool, WireError> {
    let one = wire::get_bytes(mutable, PROCESS_GUID)?;
    let other = wire::get_bytes(immutable, PROCESS_GUID)?;
    Ok(one.is_empty() || other.is_empty() || one == other)
}

/// Returns Diego's message. Its values satisfy Diego's current rules if they satisfied 0.10's.
pub(crate) fn native(mutable: &[u8], immutable: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut lrp = immutable.to_vec();
    if wire::get_bytes(&lrp, PROCESS_GUID)?.is_empty() {
        let guid = Value::Bytes(wire::get_bytes(mutable, PROCESS_GUID)?);
        lrp = wire::replace(&lrp, PROCESS_GUID, guid)?;
    }
    // The mutable message takes precedence, even if the other has a field with that number.
    for (_, number) in MUTABLE {
        lrp = wire::remove(&lrp, number)?;
    }
    for field in wire::fields(mutable) {
        let field = field?;
        if let Some((_, number)) = MUTABLE.iter().find(|(number, _)| *number == field.number) {
            wire::append(&mut lrp, *number, field.value);
        }
    }
    lrp = with_start_timeout_ms(lrp)?;
    lrp = with_actions(lrp, |timeout_ms, timeout_ns| {
        // A client that sends back what it read sends both units; they differ only if it changed
        // the one that it knows.
        if *timeout_ns != 0 && timeout_ms.checked_mul(NS_PER_MS) != Some(*timeout_ns) {
            *timeout_ms = timeout_ns
                .saturating_add(NS_PER_MS - 1)
                .div_euclid(NS_PER_MS);
        }
        *timeout_ns = 0;
    })?;
    diego_revisions::with_metric_tag(lrp)
}

pub(crate) fn mutable(lrp: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut mutable = Vec::new();
    for field in wire::fields(lrp) {
        let field = field?;
        if field.number == PROCESS_GUID {
            mutable.extend_from_slice(field.raw);
        } else if let Some((number, _)) = MUTABLE.iter().find(|(_, number)| *number == field.number)
        {
            wire::append(&mut mutable, *number, field.value);
        }
    }
    Ok(mutable)
}

/// Returns all other fields, newer ones too: a client ignores them, and one that sends them back
/// loses none.
pub(crate) fn immutable(lrp: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut immutable = lrp.to_vec();
    for (_, number) in MUTABLE {
        immutable = wire::remove(&immutable, number)?;
    }
    if let Some(timeout_ms) = number(&immutable, START_TIMEOUT_MS)? {
        immutable = wire::replace(
            &immutable,
            START_TIMEOUT_S,
            Value::Varint(seconds(timeout_ms)),
        )?;
    }
    with_actions(immutable, |timeout_ms, timeout_ns| {
        *timeout_ns = timeout_ms.saturating_mul(NS_PER_MS)
    })
}

fn with_start_timeout_ms(lrp: Vec<u8>) -> Result<Vec<u8>, WireError> {
    let Some(timeout_s) = number(&lrp, START_TIMEOUT_S)? else {
        return Ok(lrp);
    };
    let lrp = wire::remove(&lrp, START_TIMEOUT_S)?;
    match number(&lrp, START_TIMEOUT_MS)? {
        Some(timeout_ms) if seconds(timeout_ms) == timeout_s => Ok(lrp),
        Some(_) | None => {
            let timeout_ms = Value::Varint(timeout_s.saturating_mul(MS_PER_S));
            wire::replace(&lrp, START_TIMEOUT_MS, timeout_ms)
        }
    }
}

/// Rounds up, so that a client does not time out too early. A negative timeout counts as none.
fn seconds(timeout_ms: u64) -> u64 {
    if timeout_ms > i64::MAX as u64 {
        0
    } else {
        timeout_ms.div_ceil(MS_PER_S)
    }
}

/// Edits the timeouts of all actions, in milliseconds and in nanoseconds. An action without a
/// timeout, or that cannot be decoded, stays byte for byte the same.
fn with_actions(mut lrp: Vec<u8>, edit: impl Fn(&mut i64, &mut i64)) -> Result<Vec<u8>, WireError> {
    for number in ACTIONS {
        let action = wire::get_message(&lrp, number)?.unwrap_or_default();
        let Ok(mut action) = Action::decode(&action[..]) else {
            continue;
        };
        if edit_timeouts(&mut action, &edit) {
            lrp = wire::replace(&lrp, number, Value::Bytes(&action.encode_to_vec()))?;
        }
    }
    Ok(lrp)
}

/// Returns whether anything changed.
fn edit_timeouts(action: &mut Action, edit: &impl Fn(&mut i64, &mut i64)) -> bool {
    let mut changed = false;
    if let Some(timeout) = &mut action.timeout_action {
        let before = (timeout.timeout_ms, timeout.deprecated_timeout_ns);
        edit(&mut timeout.timeout_ms, &mut timeout.deprecated_timeout_ns);
        changed = before != (timeout.timeout_ms, timeout.deprecated_timeout_ns);
    }
    for inner in action.inner_mut() {
        changed |= edit_timeouts(inner, edit);
    }
    changed
}

fn number(message: &[u8], number: u32) -> Result<Option<u64>, WireError> {
    wire::get(message, number)?
        .map(|field| field.varint())
        .transpose()
}
