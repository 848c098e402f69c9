//! Volume mounts: a volume and its configuration in the mount itself, as they were, and in a shared
//! device, as they are.

use bbs_proto::fields::volume_mount::{CONTAINER_DIR, DRIVER, MODE, SHARED};
use bbs_proto::models::SharedDevice;
use bbs_sdk::wire::{self, Value, WireError};
use prost::Message;

/// Field numbers of the old form, which Diego's message reserves.
const DEPRECATED_VOLUME_ID: u32 = 2;
const DEPRECATED_MODE: u32 = 4;
const DEPRECATED_CONFIG: u32 = 5;

/// The old mode for reading alone; any other is for reading and writing.
const READ_ONLY: u64 = 0;

/// A mount in the new form, from the old fields alone: one of the new form is rejected afterwards
/// for its missing volume, as by Diego's BBS.
pub(crate) fn newer(mount: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut newer = Vec::new();
    for number in [DRIVER, CONTAINER_DIR] {
        if let Some(field) = wire::get(mount, number)? {
            newer.extend_from_slice(field.raw);
        }
    }
    let mode = wire::get_varint(mount, DEPRECATED_MODE)?;
    wire::append(
        &mut newer,
        MODE,
        Value::Bytes(if mode == READ_ONLY { b"r" } else { b"rw" }),
    );
    let device = SharedDevice {
        volume_id: wire::get_bytes(mount, DEPRECATED_VOLUME_ID)?.to_vec(),
        mount_config: wire::get_bytes(mount, DEPRECATED_CONFIG)?.to_vec(),
    };
    wire::append(&mut newer, SHARED, Value::Bytes(&device.encode_to_vec()));
    Ok(newer)
}
