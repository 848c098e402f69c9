//! The sequence of versions in a catalog: of migrations by data version, and of translators by API version. Owns the rules
//! of their order; reads no file.

use super::CatalogError;
use super::entries::{CatalogEntry, CatalogPosition};
use crate::layout::manifest::DataVersion;
use crate::modules::translate::ApiVersion;

/// Checks that both sequences are ordered and have no gap.
pub(super) fn check(entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    check_migrations(entries, None)?;
    check_translators(entries)
}

/// The same for a part: its first migration may follow one that is not in it.
pub(in crate::modules) fn check_part(entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    let follows = entries.iter().find_map(|entry| match entry.position {
        CatalogPosition::Migration { follows, .. } => Some(follows),
        CatalogPosition::Translator { .. } => None,
    });
    check_migrations(entries, follows.flatten())?;
    check_translators(entries)
}

fn check_migrations(entries: &[CatalogEntry], first: Option<DataVersion>) -> Result<(), CatalogError> {
    let mut before = first;
    for entry in entries {
        let CatalogPosition::Migration { version, follows } = entry.position else { continue };
        let file = entry.file.clone();
        match before {
            Some(before) if version == before => return Err(CatalogError::VersionTwice { file, version }),
            Some(before) if version < before => {
                let taken = entries.iter().take_while(|earlier| *earlier != entry).any(
                    |earlier| matches!(earlier.position, CatalogPosition::Migration { version: other, .. } if other == version),
                );
                return Err(match taken {
                    true => CatalogError::VersionTwice { file, version },
                    false => {
                        CatalogError::OutOfOrder { file, version: version.to_string(), before: before.to_string() }
                    }
                });
            }
            Some(_) | None if follows == before => {}
            Some(_) | None => {
                return Err(CatalogError::DataGap { file, version, follows, before });
            }
        }
        before = Some(version);
    }
    Ok(())
}

fn check_translators(entries: &[CatalogEntry]) -> Result<(), CatalogError> {
    let mut before: Option<(ApiVersion, ApiVersion)> = None;
    let mut served: Vec<ApiVersion> = Vec::new();
    for entry in entries {
        let CatalogPosition::Translator { serves, onto } = entry.position else { continue };
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
                return Err(CatalogError::OutOfOrder { file, version: serves.to_string(), before: before.to_string() });
            }
            Some((_, wanted)) if serves != wanted => return Err(CatalogError::ApiGap { file, serves, wanted }),
            Some(_) | None => {}
        }
        before = Some((serves, onto));
    }
    // A side shape is of any version of the line, its newest end included, or of a newer one, which is the host's own.
    let Some((_, newest)) = before else { return Ok(()) };
    for entry in entries {
        match entry.position {
            CatalogPosition::Translator { serves, onto }
                if serves.side.is_some() && onto < newest && !served.contains(&onto) =>
            {
                return Err(CatalogError::SideGap { file: entry.file.clone(), serves, onto });
            }
            CatalogPosition::Translator { .. } | CatalogPosition::Migration { .. } => {}
        }
    }
    Ok(())
}
