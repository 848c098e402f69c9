//! Diego's record format: how an encrypted column is written and read, byte for byte.
//! Owns the cipher, the keys and the envelope; knows no table.
//!
//! `02`, then base64 of: label length, label, a 12-byte nonce, and AES-256-GCM ciphertext with its tag.
//! Protobuf columns hold two more bytes, `02 00`, before the message; JSON columns hold the JSON alone.

pub mod header;
mod keyring;

pub use keyring::{Keyring, KeyringError};

use aes_gcm::Nonce;
use aes_gcm::aead::{Aead, AeadInOut};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::layout::schema::Sealing;

const ENCODING_TAG: &[u8] = b"02";
const NONCE_LENGTH: usize = 12;
const TAG_LENGTH: usize = 16;
/// Format "protobuf", version 0. Skipped without a look when read, as Diego does.
const ENVELOPE: [u8; 2] = [2, 0];

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error(
        "unknown encoding {found:?}: this host reads records that begin with \"02\"; \
         older ones must first be rewritten by a Diego that knows them"
    )]
    Encoding { found: String },
    #[error("the record is not base64: it is damaged")]
    Base64,
    #[error("the record is cut short: {length} bytes after base64, fewer than its fixed parts need")]
    Truncated { length: usize },
    #[error("key with label {label:?} was not found; add it to `encryption_keys`")]
    UnknownKey { label: String },
    #[error("the record does not open with key {label:?}: wrong passphrase or damaged record")]
    Cipher { label: String },
    #[error("the record has {length} bytes of plaintext, too few for its envelope")]
    Envelope { length: usize },
}

impl Keyring {
    /// The column text for `plain`, under the active key and a fresh nonce.
    pub fn seal(&self, sealing: Sealing, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LENGTH];
        getrandom::fill(&mut nonce).expect("the operating system gives random bytes");
        self.seal_with_nonce(sealing, plain, nonce)
    }

    fn seal_with_nonce(&self, sealing: Sealing, plain: &[u8], nonce: [u8; NONCE_LENGTH]) -> Vec<u8> {
        let envelope: &[u8] = match sealing {
            Sealing::Plain => return plain.to_vec(),
            Sealing::Sealed => &[],
            Sealing::Enveloped => &ENVELOPE,
        };
        let (label, cipher) = self.active();
        let mut blob = Vec::with_capacity(1 + label.len() + NONCE_LENGTH + envelope.len() + plain.len() + TAG_LENGTH);
        blob.push(u8::try_from(label.len()).expect("labels are at most 127 bytes"));
        blob.extend_from_slice(label.as_bytes());
        blob.extend_from_slice(&nonce);
        let start = blob.len();
        blob.extend_from_slice(envelope);
        blob.extend_from_slice(plain);
        let tag = cipher
            .encrypt_inout_detached(&Nonce::from(nonce), &[], (&mut blob[start..]).into())
            .expect("a record is far below the cipher's limit of 64 GiB");
        blob.extend_from_slice(&tag);

        let mut text = vec![0; ENCODING_TAG.len() + blob.len().div_ceil(3) * 4];
        text[..ENCODING_TAG.len()].copy_from_slice(ENCODING_TAG);
        STANDARD.encode_slice(&blob, &mut text[ENCODING_TAG.len()..]).expect("the buffer has the encoded length");
        text
    }

    /// The plain bytes of a column's text. A plain column comes back as it is.
    pub fn open(&self, sealing: Sealing, text: &[u8]) -> Result<Vec<u8>, RecordError> {
        if sealing == Sealing::Plain {
            return Ok(text.to_vec());
        }
        let blob = decode(text)?;
        let (label, sealed) = split(&blob)?;
        let (nonce, ciphertext) = sealed.split_at(NONCE_LENGTH);
        let named = || String::from_utf8_lossy(label).into_owned();
        let cipher = self.find(label).ok_or_else(|| RecordError::UnknownKey { label: named() })?;
        let nonce = Nonce::try_from(nonce).expect("split at the nonce's length");
        let mut plain = cipher.decrypt(&nonce, ciphertext).map_err(|_| RecordError::Cipher { label: named() })?;
        if sealing == Sealing::Enveloped {
            if plain.len() < ENVELOPE.len() {
                return Err(RecordError::Envelope { length: plain.len() });
            }
            plain.drain(..ENVELOPE.len());
        }
        Ok(plain)
    }

    /// The same plain bytes under the active key, whatever they are: the envelope is part of them.
    pub fn reseal(&self, text: &[u8]) -> Result<Vec<u8>, RecordError> {
        Ok(self.seal(Sealing::Sealed, &self.open(Sealing::Sealed, text)?))
    }
}

fn decode(text: &[u8]) -> Result<Vec<u8>, RecordError> {
    let encoded = text.strip_prefix(ENCODING_TAG).ok_or_else(|| RecordError::Encoding {
        found: String::from_utf8_lossy(&text[..text.len().min(2)]).into_owned(),
    })?;
    STANDARD.decode(encoded).map_err(|_| RecordError::Base64)
}

/// The label, and the nonce with the ciphertext: long enough for both fixed parts.
fn split(blob: &[u8]) -> Result<(&[u8], &[u8]), RecordError> {
    let truncated = RecordError::Truncated { length: blob.len() };
    let Some((&length, rest)) = blob.split_first() else { return Err(truncated) };
    let Some((label, sealed)) = rest.split_at_checked(usize::from(length)) else { return Err(truncated) };
    if sealed.len() < NONCE_LENGTH + TAG_LENGTH {
        return Err(truncated);
    }
    Ok((label, sealed))
}

#[cfg(test)]
mod tests;
