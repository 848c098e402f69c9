//! Signs the catalog of a folder of modules: gives it a name and a serial, and writes the
//! signature. Owns the checks before, so that no altered module is signed, and the order of the
//! writes.

use std::path::{Path, PathBuf};

use bbs_files::digest::digest_of;

use super::catalog::{self, CATALOG_FILE, Catalog, CatalogError};
use super::releases::RELEASES_FILE;
use super::sandbox::Sandbox;
use crate::signatures::{
    KeyId, NAME_RULE, SIGNATURE_FILE, SigningKey, SigningKeyError, is_catalog_name,
};

/// Why a catalog was not signed. Nothing was written, unless the error is [`SignError::Write`].
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("the folder {} is not a valid catalog with its modules", .folder.display())]
    Catalog {
        folder: PathBuf,
        source: Box<CatalogError>,
    },
    #[error("the catalog of {} changed while its modules were read; sign it again", .folder.display())]
    Changed { folder: PathBuf },
    #[error(
        "the catalog of {} has no name yet; give it one with `--name NAME`, under which hosts list its keys in `trusted_keys`",
        .folder.display()
    )]
    NoName { folder: PathBuf },
    #[error(
        "the catalog of {} has the name {has}, under which hosts list its keys, and keeps it; sign it without `--name`, or take \
         `name` out of {CATALOG_FILE} to give it another one",
        .folder.display()
    )]
    OtherName { folder: PathBuf, has: String },
    #[error("{name:?} cannot be the name of a catalog; {NAME_RULE}")]
    Name { name: String },
    #[error(
        "{RELEASES_FILE} of {} is not the one that was signed before; restore it, or take `releases` out of {CATALOG_FILE} if \
         the change is intended",
        .folder.display()
    )]
    Releases { folder: PathBuf },
    #[error("{RELEASES_FILE} of {} cannot be read; check its permissions", .folder.display())]
    Read {
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("the serial {serial} in the catalog of {} is the highest there can be; correct it", .folder.display())]
    LastSerial { folder: PathBuf, serial: u64 },
    #[error(transparent)]
    Key(#[from] SigningKeyError),
    #[error(
        "the folder {} cannot be written to, and its catalog may now be without a valid signature; check its permissions and \
         space, and sign it again",
        .folder.display()
    )]
    Write {
        folder: PathBuf,
        source: std::io::Error,
    },
}

/// A catalog after it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCatalog {
    /// Its name.
    pub name: String,
    /// Its serial.
    pub serial: u64,
    /// The id of the key.
    pub key: KeyId,
    /// The number of its modules.
    pub modules: usize,
}

/// Signs the catalog of a folder, which gets the name if it has none. The serial becomes `now`, in
/// seconds since 1970, or a higher one if the catalog has that already.
///
/// # Errors
/// If the folder has missing, altered or unlisted modules, the catalog has no name or another one,
/// or the folder cannot be written to.
pub fn sign(
    folder: &Path,
    key: &SigningKey,
    name: Option<&str>,
    now: u64,
    sandbox: &Sandbox,
) -> Result<SignedCatalog, SignError> {
    let refused = |source: CatalogError| SignError::Catalog {
        folder: folder.to_owned(),
        source: source.into(),
    };
    let failed = |source| SignError::Write {
        folder: folder.to_owned(),
        source,
    };
    // A folder that is not there is reported as one without a catalog.
    let mut content = catalog::read(folder).map_err(refused)?;
    let locked = catalog::lock(folder).map_err(failed)?;
    let checked = Catalog::contents(folder, sandbox).map_err(refused)?;
    if catalog::read(folder).map_err(refused)? != content
        || !checked.iter().map(|(entry, _)| entry).eq(&content.entries)
    {
        return Err(SignError::Changed {
            folder: folder.to_owned(),
        });
    }
    let name = signed_name(folder, name, content.name)?;
    let serial = next_serial(folder, content.serial, now)?;
    content.releases = releases_digest(folder, content.releases)?;
    content.name = Some(name.clone());
    content.serial = Some(serial);
    let text = catalog::text(&content).map_err(failed)?;
    let signature = key.sign(text.as_bytes(), &format!("catalog {name}, serial {serial}"))?;
    // In this order, an interruption leaves a catalog with the signature of another content, which
    // hosts refuse.
    catalog::write_readable(folder, CATALOG_FILE, &text).map_err(failed)?;
    catalog::write_readable(folder, SIGNATURE_FILE, &signature).map_err(failed)?;
    locked.sync_all().map_err(failed)?;
    Ok(SignedCatalog {
        name,
        serial,
        key: key.id(),
        modules: content.entries.len(),
    })
}

/// The name of the catalog: `named`, or else the one that it has.
fn signed_name(
    folder: &Path,
    named: Option<&str>,
    has: Option<String>,
) -> Result<String, SignError> {
    match (named, has) {
        (Some(name), _) if !is_catalog_name(name) => Err(SignError::Name {
            name: name.to_owned(),
        }),
        (Some(name), Some(has)) if has != name => Err(SignError::OtherName {
            folder: folder.to_owned(),
            has,
        }),
        (Some(name), _) => Ok(name.to_owned()),
        (None, Some(has)) => Ok(has),
        (None, None) => Err(SignError::NoName {
            folder: folder.to_owned(),
        }),
    }
}

/// The serial of the next signature. It only rises: hosts refuse a catalog whose serial is below
/// the highest that their database remembers.
fn next_serial(folder: &Path, previous: Option<u64>, now: u64) -> Result<u64, SignError> {
    match previous {
        Some(serial) if serial >= i64::MAX.unsigned_abs() => Err(SignError::LastSerial {
            folder: folder.to_owned(),
            serial,
        }),
        // A clock that was set back must not lower it.
        Some(serial) => Ok(now.max(serial + 1)),
        None => Ok(now),
    }
}

/// The digest of the folder's list of releases, which has to be the one that is pinned already.
fn releases_digest(folder: &Path, pinned: Option<String>) -> Result<Option<String>, SignError> {
    let found = match bbs_files::read_text(&folder.join(RELEASES_FILE)) {
        Ok(text) => Some(digest_of(text.as_bytes())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => {
            return Err(SignError::Read {
                folder: folder.to_owned(),
                source,
            });
        }
    };
    if pinned.is_some() && pinned != found {
        Err(SignError::Releases {
            folder: folder.to_owned(),
        })
    } else {
        Ok(found)
    }
}
