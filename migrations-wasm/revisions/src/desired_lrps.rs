//! Desired LRPs in the form of Diego's first revisions.

use bbs_proto::fields::desired_lrp::{
    ACTION, CACHED_DEPENDENCIES as DEPENDENCIES, DEPRECATED_START_TIMEOUT_S, LEGACY_DOWNLOAD_USER,
    MONITOR, SETUP, START_TIMEOUT_MS,
};
use bbs_sdk::wire::{self, Value, WireError};

use crate::Convert;
use crate::actions::Downloaded;

/// Field numbers of its actions.
pub const ACTIONS: [u32; 3] = [SETUP, ACTION, MONITOR];
/// Its cached dependencies, which are downloaded before its setup action.
pub const CACHED_DEPENDENCIES: Downloaded = Downloaded {
    files: DEPENDENCIES,
    action: SETUP,
    legacy_download_user: LEGACY_DOWNLOAD_USER,
};

/// Converts the actions, and writes the start timeout in seconds too. `None` if it stays as it is.
///
/// # Errors
/// If the message cannot be parsed.
pub fn in_old_units(lrp: &[u8], action: Convert) -> Result<Option<Vec<u8>>, WireError> {
    let edited = each_action(lrp, action)?;
    let timeout_ms = wire::get_varint(lrp, START_TIMEOUT_MS)?;
    // As Diego's BBS cut it to 32 bits.
    let timeout_s = u64::from(timeout_ms as u32 / 1_000);
    if timeout_s == 0 && wire::get(lrp, DEPRECATED_START_TIMEOUT_S)?.is_none() {
        return Ok(edited);
    }
    wire::replace(
        edited.as_deref().unwrap_or(lrp),
        DEPRECATED_START_TIMEOUT_S,
        Value::Varint(timeout_s),
    )
    .map(Some)
}

/// Converts the actions. `None` if all stay as they are.
///
/// # Errors
/// If the message cannot be parsed.
pub fn each_action(lrp: &[u8], action: Convert) -> Result<Option<Vec<u8>>, WireError> {
    wire::edit(lrp, |field| {
        if ACTIONS.contains(&field.number) {
            action(field.bytes()?)
        } else {
            Ok(None)
        }
    })
}
