//! The sequence of versions in a catalog: of migrations by data version, and of translators by API
//! version. Owns the rules of their order; reads no file.

use bbs_lens::layout::manifest::DataVersion;

use super::CatalogError;
use super::entries::{CatalogEntry, CatalogPosition};
use crate::translate::ApiVersion;

/// Checks that both sequences are ordered and have no gap.
pub(super) fn check(entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    check_migrations(entries, |follows, before| follows == before)?;
    check_translators(entries)
}

/// Checks a part of a sequence, whose migrations may follow ones that are not in it.
pub(crate) fn check_part(entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    check_migrations_of_part(entries)?;
    check_translators(entries)
}

/// Checks the migrations of one folder among several.
pub(super) fn check_migrations_of_part(entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    check_migrations(entries, |follows, before| follows >= before)
}

/// Checks that migrations are ordered, and that each follows an older one which is acceptable,
/// given the one before it.
fn check_migrations(
    entries: &[CatalogEntry],
    is_accepted: impl Fn(Option<DataVersion>, Option<DataVersion>) -> bool,
) -> Result<(), CatalogError> {
    let mut before = None;
    for entry in entries {
        let CatalogPosition::Migration { version, follows } = entry.position else {
            continue;
        };
        let file = entry.file.clone();
        match before {
            Some(before) if version == before => {
                return Err(CatalogError::VersionTwice { file, version });
            }
            Some(before) if version < before => {
                let taken = entries.iter().take_while(|earlier| *earlier != entry).any(
                    |earlier| matches!(earlier.position, CatalogPosition::Migration { version: other, .. } if other == version),
                );
                return Err(if taken {
                    CatalogError::VersionTwice { file, version }
                } else {
                    CatalogError::OutOfOrder {
                        file,
                        version: version.to_string(),
                        before: before.to_string(),
                    }
                });
            }
            Some(_) | None if is_accepted(follows, before) && follows < Some(version) => {}
            Some(_) | None => {
                return Err(CatalogError::DataGap {
                    file,
                    version,
                    follows,
                    before,
                });
            }
        }
        before = Some(version);
    }
    Ok(())
}

/// Checks that translators are ordered and have no gap.
pub(super) fn check_translators(entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    let mut before: Option<(ApiVersion, ApiVersion)> = None;
    let mut served: Vec<ApiVersion> = Vec::new();
    for entry in entries {
        let CatalogPosition::Translator { serves, onto } = entry.position else {
            continue;
        };
        let file = entry.file.clone();
        if served.contains(&serves) {
            return Err(CatalogError::ServedTwice { file, serves });
        }
        served.push(serves);
        if serves.side.is_some() {
            continue;
        }
        match before {
            Some((before, _)) if serves < before => {
                return Err(CatalogError::OutOfOrder {
                    file,
                    version: serves.to_string(),
                    before: before.to_string(),
                });
            }
            Some((_, wanted)) if serves != wanted => {
                return Err(CatalogError::ApiGap {
                    file,
                    serves,
                    wanted,
                });
            }
            Some(_) | None => {}
        }
        before = Some((serves, onto));
    }
    // A side shape is of any version of the chain, its newest end included, or of a newer one, which
    // is the host's own.
    let Some((_, newest)) = before else {
        return Ok(());
    };
    for entry in entries {
        match entry.position {
            CatalogPosition::Translator { serves, onto }
                if serves.side.is_some() && onto < newest && !served.contains(&onto) =>
            {
                return Err(CatalogError::SideGap {
                    file: entry.file.clone(),
                    serves,
                    onto,
                });
            }
            CatalogPosition::Translator { .. } | CatalogPosition::Migration { .. } => {}
        }
    }
    Ok(())
}
