//! Values: their encoding tag and their envelope, which are independent of each other.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs_encryption::{Keyring, Sealing, header};

use super::RecordError;

/// A value without encoding tag and envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Payload {
    Json(Vec<u8>),
    Protobuf(Vec<u8>),
}

const JSON_FORMAT: u8 = 1;
const PROTOBUF_FORMAT: u8 = 2;
/// The second byte of an envelope, which has never changed the decoding.
const HIGHEST_ENVELOPE_VERSION: u8 = 2;

/// The label of the key that a value is sealed with; `None` if it is not sealed. Opens nothing and
/// reads the first [`header::HEADER_LENGTH`] bytes only, so the rest of the value may be damaged.
///
/// Domains may have sealed values, too, but these need not be opened.
///
/// # Errors
/// [`RecordError::Sealed`] if the value is sealed and its header is damaged.
pub fn label(value: &str) -> Result<Option<String>, RecordError> {
    if !value.starts_with("02") {
        return Ok(None);
    }
    Ok(Some(header::label_of(value.as_bytes())?))
}

/// The payload of a record's value.
pub(super) fn payload(value: &str, keyring: &Keyring) -> Result<Payload, RecordError> {
    let mut plain = plain(value, keyring)?;
    match plain[..] {
        [] => Err(RecordError::Empty),
        [
            format @ (JSON_FORMAT | PROTOBUF_FORMAT),
            0..=HIGHEST_ENVELOPE_VERSION,
            ..,
        ] => {
            plain.drain(..2);
            Ok(if format == JSON_FORMAT {
                Payload::Json(plain)
            } else {
                Payload::Protobuf(plain)
            })
        }
        _ => Ok(Payload::Json(plain)),
    }
}

/// The value without its encoding tag. A value that does not begin with a digit has none.
pub(super) fn plain(value: &str, keyring: &Keyring) -> Result<Vec<u8>, RecordError> {
    let bytes = value.as_bytes();
    match bytes {
        [] | [_] => Ok(bytes.to_vec()),
        [first, ..] if !first.is_ascii_digit() => Ok(bytes.to_vec()),
        [b'0', b'0', rest @ ..] => Ok(rest.to_vec()),
        [b'0', b'1', rest @ ..] => STANDARD.decode(rest).map_err(|_| RecordError::Base64),
        [b'0', b'2', ..] => Ok(keyring.open(Sealing::Sealed, bytes)?),
        [..] => Err(RecordError::Encoding {
            found: value.chars().take(2).collect(),
        }),
    }
}
