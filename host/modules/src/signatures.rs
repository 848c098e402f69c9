//! Signatures of catalogs of modules, in minisign's format (Ed25519), and the public keys that are
//! trusted for each catalog. Owns every reason to refuse a signature; what a catalog lists is up to
//! `modules`.
//!
//! A catalog pins the digest of every file, so one signature over it is enough. Keys are trusted
//! for a catalog of one name, so that the author of one add-on cannot replace the modules of
//! another.

mod signing;

use std::collections::BTreeMap;
use std::io::{Cursor, ErrorKind};
use std::path::Path;

use minisign::{PublicKey, SignatureBox};

pub use self::signing::{SecretKeyFile, SigningKey, SigningKeyError};

/// The signature of `catalog.toml`, in the same folder.
pub const SIGNATURE_FILE: &str = "catalog.toml.minisig";

/// Largest size of a signature. minisign limits its two comments to 1 KiB and 8 KiB.
pub const SIGNATURE_BYTES: u64 = 16 << 10;

/// The names of an algorithm in a public key and in a signature: Ed25519, of the content's BLAKE2b
/// digest in a signature.
const ED25519: &[u8] = b"Ed";
const ED25519_OF_DIGEST: &[u8] = b"ED";

const LONGEST_NAME: usize = 64;

/// Public keys by the name of the catalog that they may sign.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrustedKeys(BTreeMap<String, Vec<PublicKey>>);

/// Why the trusted keys of a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustedKeyError {
    #[error("{name:?} is not the name of a catalog; {NAME_RULE}")]
    Name { name: String },
    #[error(
        "number {position} of the keys for {name:?} is not a public key of minisign; copy the second line of the .pub file, \
         56 characters that begin with RW"
    )]
    Key { name: String, position: usize },
}

/// The rule of [`is_catalog_name`], for messages.
pub const NAME_RULE: &str = "write 1 to 64 lower-case letters, digits and `-`, beginning with a letter, as `name` in its catalog.toml";

/// Why the signature of a catalog is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error(
        "the catalog is not signed: there is no {SIGNATURE_FILE}. Sign it with `bbs module sign DIR --key FILE --name NAME` and \
         list the public key in `trusted_keys`"
    )]
    Unsigned,
    #[error(
        "{SIGNATURE_FILE} cannot be read; check that it is a file of at most {SIGNATURE_BYTES} bytes, and its permissions"
    )]
    Read(#[source] std::io::Error),
    #[error(
        "the catalog has no `name`, so there are no keys for it; sign it with `bbs module sign DIR --key FILE --name NAME`"
    )]
    Unnamed,
    #[error(
        "the catalog {name} has no `serial`, so an older one could replace it; sign it with `bbs module sign`"
    )]
    Unnumbered { name: String },
    #[error(
        "{SIGNATURE_FILE} is not a signature of minisign: {reason}; sign the catalog with `bbs module sign`"
    )]
    Malformed { reason: &'static str },
    #[error(
        "no key is trusted for the catalog {name}; list its author's public key in `trusted_keys` under \"{name}\""
    )]
    NoKeys { name: String },
    #[error(
        "the catalog {name} is signed by key {id}, which is not trusted; its trusted keys are {}. Install a catalog that one \
         of them signed, or list the public key of {id} in `trusted_keys` under \"{name}\" if its author has a new one",
        bbs_work::joined(.trusted)
    )]
    OtherKey {
        name: String,
        id: KeyId,
        trusted: Vec<KeyId>,
    },
    #[error(
        "the signature by key {id} is not of this content: the catalog {name} or its signature was altered. Restore both files \
         as they were signed, or sign the catalog with `bbs module sign` if the change is intended"
    )]
    Altered { name: String, id: KeyId },
}

/// The id of a pair of keys, which a signature names. Printed as minisign prints it: without
/// leading zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyId([u8; 8]);

impl KeyId {
    fn of(bytes: &[u8]) -> Self {
        let mut id = [0; 8];
        id.copy_from_slice(bytes);
        Self(id)
    }

    /// The id of a public key.
    pub fn of_key(key: &PublicKey) -> Self {
        Self::of(key.keynum())
    }
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}", u64::from_le_bytes(self.0))
    }
}

/// Whether a text can be the name of a catalog.
pub fn is_catalog_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A catalog whose signature is verified.
#[derive(Debug, Clone, Copy)]
pub struct ClaimedCatalog<'a> {
    /// Its name, according to itself.
    pub name: Option<&'a str>,
    /// Its serial, according to itself.
    pub serial: Option<u64>,
    /// The bytes that both were parsed from.
    pub content: &'a [u8],
}

impl TrustedKeys {
    /// Parses public keys as minisign prints them, by the name of a catalog.
    ///
    /// # Errors
    /// If a name or a key is none.
    pub fn parse(texts: BTreeMap<String, Vec<String>>) -> Result<Self, TrustedKeyError> {
        let mut keys = BTreeMap::new();
        for (name, texts) in texts {
            if !is_catalog_name(&name) {
                return Err(TrustedKeyError::Name { name });
            }
            let parsed = texts.iter().enumerate().map(|(at, text)| {
                public_key(text).ok_or_else(|| TrustedKeyError::Key {
                    name: name.clone(),
                    position: at + 1,
                })
            });
            let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
            keys.insert(name, parsed);
        }
        Ok(Self(keys))
    }

    /// Whether no catalog is named. Otherwise every catalog has to be signed, also one that has an
    /// empty list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies the signature of the catalog in a folder, and returns its name and serial.
    ///
    /// # Errors
    /// If no key that is trusted for a catalog of this name has signed this content.
    pub fn verify<'a>(
        &self,
        folder: &Path,
        claimed: ClaimedCatalog<'a>,
    ) -> Result<(&'a str, u64), SignatureError> {
        let text =
            bbs_files::read(&folder.join(SIGNATURE_FILE), SIGNATURE_BYTES).map_err(|error| {
                match error.kind() {
                    ErrorKind::NotFound => SignatureError::Unsigned,
                    _ => SignatureError::Read(error),
                }
            })?;
        self.verify_text(&text, claimed)
    }

    /// Verifies the text of a signature.
    pub(crate) fn verify_text<'a>(
        &self,
        text: &[u8],
        claimed: ClaimedCatalog<'a>,
    ) -> Result<(&'a str, u64), SignatureError> {
        let name = claimed.name.ok_or(SignatureError::Unnamed)?;
        let owned = || name.to_owned();
        let signature = parse(text).map_err(|reason| SignatureError::Malformed { reason })?;
        let keys = self.0.get(name).filter(|keys| !keys.is_empty());
        let keys = keys.ok_or_else(|| SignatureError::NoKeys { name: owned() })?;
        let id = KeyId::of(signature.keynum());
        let mut of_this_id = keys
            .iter()
            .filter(|key| KeyId::of_key(key) == id)
            .peekable();
        if of_this_id.peek().is_none() {
            let trusted = keys.iter().map(KeyId::of_key).collect();
            return Err(SignatureError::OtherKey {
                name: owned(),
                id,
                trusted,
            });
        }
        if !of_this_id.any(|key| {
            minisign::verify(
                key,
                &signature,
                Cursor::new(claimed.content),
                true,
                false,
                false,
            )
            .is_ok()
        }) {
            return Err(SignatureError::Altered { name: owned(), id });
        }
        let serial = claimed
            .serial
            .ok_or_else(|| SignatureError::Unnumbered { name: owned() })?;
        Ok((name, serial))
    }
}

fn public_key(text: &str) -> Option<PublicKey> {
    // The crate does not check the algorithm.
    PublicKey::from_base64(text)
        .ok()
        .filter(|key| key.to_bytes().starts_with(ED25519))
}

/// Parses a signature. The crate's own parser accepts a second signature, that of the comment, of
/// any length, and its verification panics if that has less than 64 bytes; so the forms of all
/// lines are checked here first.
fn parse(text: &[u8]) -> Result<SignatureBox, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
    let lines: Vec<_> = text.lines().collect();
    let &[_, signature, _, of_comment] = &lines[..] else {
        return Err("it has more or fewer than four lines");
    };
    let signature = decoded(signature)
        .filter(|bytes| bytes.len() == 74)
        .ok_or("its second line is no signature")?;
    match &signature[..2] {
        ED25519_OF_DIGEST => {}
        ED25519 => return Err("it is of the legacy form, without a digest"),
        _ => return Err("it is of an unknown algorithm"),
    }
    decoded(of_comment)
        .filter(|bytes| bytes.len() == 64)
        .ok_or("its fourth line is no signature")?;
    SignatureBox::from_string(text).map_err(|_| "it has no comments where minisign writes them")
}

fn decoded(line: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD
        .decode(line.trim())
        .ok()
}

#[cfg(test)]
mod tests;
