//! A change of a protobuf message that keeps its unknown fields.

use bbs_sdk::Refused;
use bbs_sdk::wire::{self, Value};

/// Changes the log source of a run info; returns the one before.
pub fn relabel(run_info: &[u8]) -> Result<(Option<&str>, Vec<u8>), Refused> {
    let source = wire::get(run_info, 11)?
        .map(|field| field.text())
        .transpose()?;
    let edited = wire::replace(run_info, 11, Value::Bytes(b"CELL"))?; // also remove, append, fields
    Ok((source, edited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relabelled_message_keeps_its_other_fields() {
        // Field 11 (`APP`) between two others.
        let message = [b"\x08\x01".as_slice(), b"\x5a\x03APP", b"\x62\x01x"].concat();
        let edited = [b"\x08\x01".as_slice(), b"\x5a\x04CELL", b"\x62\x01x"].concat();
        assert_eq!(relabel(&message).unwrap(), (Some("APP"), edited));
    }
}
