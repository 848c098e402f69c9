//! Desired LRPs in the form of Diego's first revisions.

use bbs_sdk::wire::{self, Value, WireError};

use crate::Convert;
use crate::actions::Downloaded;

/// Field numbers of its actions: setup, action and monitor.
pub const ACTIONS: [u32; 3] = [6, 7, 9];
/// The field of its start timeout in seconds.
pub const START_TIMEOUT_S: u32 = 8;
/// The field of its start timeout in milliseconds.
pub const START_TIMEOUT_MS: u32 = 27;
/// Its cached dependencies, which are downloaded before its setup action.
pub const CACHED_DEPENDENCIES: Downloaded = Downloaded {
    files: 22,
    action: 6,
    legacy_download_user: 23,
};

/// Converts the actions, and writes the start timeout in seconds too. `None` if it stays as it is.
///
/// # Errors
/// If the message cannot be parsed.
pub fn in_old_units(lrp: &[u8], action: Convert) -> Result<Option<Vec<u8>>, WireError> {
    let edited = each_action(lrp, action)?;
    let timeout_ms = wire::get(lrp, START_TIMEOUT_MS)?.map_or(Ok(0), |field| field.varint())?;
    // As Diego's BBS cut it to 32 bits.
    let timeout_s = u64::from(timeout_ms as u32 / 1_000);
    if timeout_s == 0 && wire::get(lrp, START_TIMEOUT_S)?.is_none() {
        return Ok(edited);
    }
    wire::replace(
        edited.as_deref().unwrap_or(lrp),
        START_TIMEOUT_S,
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
