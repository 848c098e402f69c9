//! The keyring: the configured encryption keys, one of them active. Owns key derivation and lookup.

use std::collections::BTreeMap;

use aes_gcm::{Aes256Gcm, KeyInit};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The most bytes of a label.
pub const LONGEST_LABEL: usize = 127;

/// The configured keys by label. Columns are encrypted under the active one and decrypted under
/// any. Keys are zeroized when they are dropped.
#[derive(Clone)]
pub struct Keyring {
    ciphers: BTreeMap<String, Aes256Gcm>,
    active: String,
}

/// Why the configured keys are invalid. The texts before the colon are Diego's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyringError {
    #[error("must have at least one encryption key set: add one to `encryption_keys`")]
    NoKeys,
    #[error(
        "must select an active encryption key: set `active_key_label` to a label of `encryption_keys`"
    )]
    NoActiveKey,
    #[error("the selected active key {0:?} must be listed in `encryption_keys`")]
    ActiveKeyMissing(String),
    #[error("a key label is required: `encryption_keys` has one that is empty")]
    EmptyLabel,
    #[error("key label {0:?} is longer than 127 bytes")]
    LongLabel(String),
    #[error("multiple keys with the same label: {0:?}")]
    DuplicateLabel(String),
}

impl Keyring {
    /// `keys` are pairs of label and passphrase. The AES key is the SHA-256 of the passphrase, as
    /// in Diego.
    ///
    /// # Errors
    /// If there are no keys, a label is empty, longer than 127 bytes or repeated, or `active` is
    /// not among the labels.
    pub fn new<L, P>(
        keys: impl IntoIterator<Item = (L, P)>,
        active: &str,
    ) -> Result<Self, KeyringError>
    where
        L: Into<String>,
        P: AsRef<[u8]>,
    {
        let mut ciphers = BTreeMap::new();
        for (label, passphrase) in keys {
            let label = label.into();
            if label.is_empty() {
                return Err(KeyringError::EmptyLabel);
            }
            if label.len() > LONGEST_LABEL {
                return Err(KeyringError::LongLabel(label));
            }
            let key = Zeroizing::new(Sha256::digest(passphrase.as_ref()).0);
            let cipher = Aes256Gcm::new_from_slice(&*key).expect("a digest is as long as a key");
            if ciphers.insert(label.clone(), cipher).is_some() {
                return Err(KeyringError::DuplicateLabel(label));
            }
        }
        if ciphers.is_empty() {
            return Err(KeyringError::NoKeys);
        }
        if active.is_empty() {
            return Err(KeyringError::NoActiveKey);
        }
        if !ciphers.contains_key(active) {
            return Err(KeyringError::ActiveKeyMissing(active.to_owned()));
        }
        Ok(Self {
            ciphers,
            active: active.to_owned(),
        })
    }

    /// The label of the active key.
    pub fn active_label(&self) -> &str {
        &self.active
    }

    /// The labels of all keys, in ascending order.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.ciphers.keys().map(String::as_str)
    }

    /// Whether a key has this label.
    pub fn contains(&self, label: &str) -> bool {
        self.ciphers.contains_key(label)
    }

    pub(super) fn active(&self) -> (&str, &Aes256Gcm) {
        (&self.active, &self.ciphers[&self.active])
    }

    pub(super) fn find(&self, label: &[u8]) -> Option<&Aes256Gcm> {
        self.ciphers.get(std::str::from_utf8(label).ok()?)
    }
}

impl std::fmt::Debug for Keyring {
    /// Prints labels only: a cipher contains its key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring")
            .field("labels", &self.ciphers.keys())
            .field("active", &self.active)
            .finish()
    }
}
