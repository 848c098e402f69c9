//! The secret keys that sign catalogs: files of `minisign -G` or `rsign generate`. Prints no
//! secret.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use minisign::{PublicKey, SecretKey, SecretKeyBox};
use zeroize::Zeroizing;

use super::{KeyId, SIGNATURE_BYTES, decoded};

/// Why a catalog cannot be signed with a key.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    #[error("the secret key {} cannot be read; check its path and permissions", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is not a secret key of minisign; name the file that `minisign -G -s FILE` has written", .path.display())]
    Malformed { path: PathBuf },
    #[error("the secret key {} cannot be opened; check the password, and that the file is complete", .path.display())]
    Locked {
        path: PathBuf,
        source: minisign::PError,
    },
    #[error("the secret key {} is damaged: its parts do not belong together; restore it from a backup", .path.display())]
    Damaged { path: PathBuf },
    #[error("the signature could not be made")]
    Sign(#[source] minisign::PError),
}

/// The file of a secret key.
pub struct SecretKeyFile {
    path: PathBuf,
    text: Zeroizing<String>,
    /// As it is in the file, maybe encrypted.
    key: SecretKey,
}

impl std::fmt::Debug for SecretKeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretKeyFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// A secret key that can sign.
pub struct SigningKey {
    secret: SecretKey,
    public: PublicKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl SecretKeyFile {
    /// Reads the file, without opening the key.
    ///
    /// # Errors
    /// If it cannot be read, or is no secret key.
    pub fn read(path: &Path) -> Result<Self, SigningKeyError> {
        let bytes = bbs_files::read(path, SIGNATURE_BYTES).map(Zeroizing::new);
        let bytes = bytes.map_err(|source| SigningKeyError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &bytes)
    }

    /// Parses the content of the file. `path` is only used in errors.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, SigningKeyError> {
        let malformed = || SigningKeyError::Malformed {
            path: path.to_owned(),
        };
        let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
        let key = text
            .lines()
            .nth(1)
            .and_then(decoded)
            .map(Zeroizing::new)
            .ok_or_else(malformed)?;
        // A public key and a signature have two or more lines, too, but are shorter.
        let key = SecretKey::from_bytes(&key).map_err(|_| malformed())?;
        Ok(Self {
            path: path.to_owned(),
            text: Zeroizing::new(text.to_owned()),
            key,
        })
    }

    /// Whether a password is needed.
    pub fn is_encrypted(&self) -> bool {
        self.key.is_encrypted()
    }

    /// Opens the key. An encrypted one without a password is opened with the one that the user
    /// types at the terminal.
    ///
    /// # Errors
    /// If the password is wrong, or the file is damaged.
    pub fn open(self, password: Option<Zeroizing<String>>) -> Result<SigningKey, SigningKeyError> {
        let locked = |source| SigningKeyError::Locked {
            path: self.path.clone(),
            source,
        };
        let secret = if self.is_encrypted() {
            let password = password.map(|password| password.to_string());
            SecretKeyBox::from(self.text.to_string())
                .into_secret_key(password)
                .map_err(locked)?
        } else {
            // Not opened by the crate, which expects a checksum: `minisign -G -W` leaves that
            // empty.
            self.key
        };
        let public = PublicKey::from_secret_key(&secret).map_err(locked)?;
        let key = SigningKey { secret, public };
        if key.can_be_verified() {
            Ok(key)
        } else {
            Err(SigningKeyError::Damaged { path: self.path })
        }
    }
}

impl SigningKey {
    /// Its id.
    pub fn id(&self) -> KeyId {
        KeyId::of_key(&self.public)
    }

    /// Whether its public part belongs to its secret one.
    fn can_be_verified(&self) -> bool {
        let signed = minisign::sign(None, &self.secret, Cursor::new(b""), None, None);
        signed.is_ok_and(|signed| {
            minisign::verify(&self.public, &signed, Cursor::new(b""), true, false, false).is_ok()
        })
    }

    /// Its public key, as a configuration lists it.
    pub fn public_key(&self) -> String {
        self.public.to_base64()
    }

    /// Signs a content, and the comment with it. The result is the text of a signature file.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn sign(&self, content: &[u8], comment: &str) -> Result<String, SigningKeyError> {
        let untrusted = format!("signature by key {}", self.id());
        minisign::sign(
            Some(&self.public),
            &self.secret,
            Cursor::new(content),
            Some(comment),
            Some(&untrusted),
        )
        .map(String::from)
        .map_err(SigningKeyError::Sign)
    }
}
