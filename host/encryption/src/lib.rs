//! Encryption of columns in Diego's sealed format. Owns the format, the keyring and the cipher;
//! independent of tables. How a column
//! is stored, [`Sealing`], is a part of the layout, whose types are those of `bbs-contract`.
//!
//! A crate of its own, which is optimised in development builds too: the cipher is generic code,
//! compiled where it is used, and takes a good part of the time of every test of a database.
//!
//! A sealed text is `02`, then the base64 of: label length (one byte), label, a 12-byte nonce, and
//! the AES-256-GCM ciphertext with its tag. The plaintext of a protobuf column begins with a
//! two-byte envelope, `02 00`; that of a JSON column is the JSON alone.

pub mod header;
mod keyring;

pub use bbs_contract::schema::Sealing;
pub use keyring::{Keyring, KeyringError, LONGEST_LABEL};

use aes_gcm::Nonce;
use aes_gcm::aead::{Aead, AeadInOut};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const ENCODING_TAG: &[u8] = b"02";
const NONCE_LENGTH: usize = 12;
const TAG_LENGTH: usize = 16;
/// Envelope format 2 (protobuf), version 0. Not checked when read, as in Diego.
const ENVELOPE: [u8; 2] = [2, 0];

/// Why a sealed text cannot be opened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EncryptionError {
    #[error(
        "unknown encoding {found:?}: this host reads sealed texts that begin with \"02\"; \
         let a version of Diego that supports this encoding rewrite the record first"
    )]
    Encoding { found: String },
    #[error("the sealed text is not base64: it is damaged")]
    Base64,
    #[error(
        "the sealed text is cut short: {length} bytes after base64, fewer than label, nonce and tag need"
    )]
    Truncated { length: usize },
    #[error("key with label {label:?} was not found; add it to `encryption_keys`")]
    UnknownKey { label: String },
    #[error("the sealed text does not open with key {label:?}: wrong passphrase or damaged text")]
    Cipher { label: String },
    #[error("the sealed text has {length} bytes of plaintext, too few for its envelope")]
    Envelope { length: usize },
}

impl Keyring {
    /// Encrypts `plain` under the active key with a random nonce. With [`Sealing::Plain`], returns
    /// it unchanged.
    ///
    /// # Panics
    /// If the operating system has no random bytes.
    pub fn seal(&self, sealing: Sealing, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LENGTH];
        getrandom::fill(&mut nonce).expect("the operating system has random bytes");
        self.seal_with_nonce(sealing, plain, nonce)
    }

    /// The length of what [`seal`](Self::seal) makes of a text with `length` bytes.
    pub fn sealed_length(&self, sealing: Sealing, length: usize) -> usize {
        let envelope = match sealing {
            Sealing::Plain => return length,
            Sealing::Sealed => 0,
            Sealing::Enveloped => ENVELOPE.len(),
        };
        let blob = 1 + self.active().0.len() + NONCE_LENGTH + envelope + length + TAG_LENGTH;
        ENCODING_TAG.len() + blob.div_ceil(3) * 4
    }

    fn seal_with_nonce(
        &self,
        sealing: Sealing,
        plain: &[u8],
        nonce: [u8; NONCE_LENGTH],
    ) -> Vec<u8> {
        let envelope: &[u8] = match sealing {
            Sealing::Plain => return plain.to_vec(),
            Sealing::Sealed => &[],
            Sealing::Enveloped => &ENVELOPE,
        };
        let (label, cipher) = self.active();
        let mut blob = Vec::with_capacity(
            1 + label.len() + NONCE_LENGTH + envelope.len() + plain.len() + TAG_LENGTH,
        );
        blob.push(u8::try_from(label.len()).expect("labels are at most 127 bytes"));
        blob.extend_from_slice(label.as_bytes());
        blob.extend_from_slice(&nonce);
        let start = blob.len();
        blob.extend_from_slice(envelope);
        blob.extend_from_slice(plain);
        let tag = cipher
            .encrypt_inout_detached(&Nonce::from(nonce), &[], (&mut blob[start..]).into())
            .expect("a column is far below the cipher's limit of 64 GiB");
        blob.extend_from_slice(&tag);

        let mut text = vec![0; ENCODING_TAG.len() + blob.len().div_ceil(3) * 4];
        text[..ENCODING_TAG.len()].copy_from_slice(ENCODING_TAG);
        STANDARD
            .encode_slice(&blob, &mut text[ENCODING_TAG.len()..])
            .expect("the buffer has the encoded length");
        text
    }

    /// Decrypts a column's text, with any key of the keyring. With [`Sealing::Plain`], returns it
    /// unchanged.
    ///
    /// # Errors
    /// If the text is damaged, or its key is not in the keyring or has another passphrase.
    pub fn open(&self, sealing: Sealing, text: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        if sealing == Sealing::Plain {
            return Ok(text.to_vec());
        }
        let blob = decode(text)?;
        let (label, sealed) = header::split_label(&blob)?;
        if sealed.len() < NONCE_LENGTH + TAG_LENGTH {
            return Err(EncryptionError::Truncated { length: blob.len() });
        }
        let (nonce, ciphertext) = sealed.split_at(NONCE_LENGTH);
        let named = || String::from_utf8_lossy(label).into_owned();
        let cipher = self
            .find(label)
            .ok_or_else(|| EncryptionError::UnknownKey { label: named() })?;
        let nonce = Nonce::try_from(nonce).expect("split at the nonce's length");
        let mut plain = cipher
            .decrypt(&nonce, ciphertext)
            .map_err(|_| EncryptionError::Cipher { label: named() })?;
        if sealing == Sealing::Enveloped {
            if plain.len() < ENVELOPE.len() {
                return Err(EncryptionError::Envelope {
                    length: plain.len(),
                });
            }
            plain.drain(..ENVELOPE.len());
        }
        Ok(plain)
    }

    /// Encrypts the plaintext of `text` under the active key. The plaintext, including an envelope,
    /// stays the same.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reseal(&self, text: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        Ok(self.seal(Sealing::Sealed, &self.open(Sealing::Sealed, text)?))
    }
}

fn decode(text: &[u8]) -> Result<Vec<u8>, EncryptionError> {
    let encoded = text
        .strip_prefix(ENCODING_TAG)
        .ok_or_else(|| EncryptionError::Encoding {
            found: String::from_utf8_lossy(&text[..text.len().min(2)]).into_owned(),
        })?;
    STANDARD
        .decode(encoded)
        .map_err(|_| EncryptionError::Base64)
}

#[cfg(test)]
mod tests;
