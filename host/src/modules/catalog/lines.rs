//! The two version lines of a catalog: data versions and API versions. Owns the rules of their order and
//! knows nothing of files.

use super::CatalogError;
use super::entries::{Entry, Place};
use crate::layout::manifest::DataVersion;
use crate::modules::translate::ApiVersion;

/// Checks that both lines run without a gap, each in the order of the catalog.
pub(in crate::modules) fn check(entries: &[Entry]) -> Result<(), CatalogError> {
    check_data_line(entries)?;
    check_api_line(entries)
}

fn check_data_line(entries: &[Entry]) -> Result<(), CatalogError> {
    let mut before: Option<DataVersion> = None;
    for entry in entries {
        let Place::Migration { version, follows } = entry.place else { continue };
        let file = entry.file.clone();
        match before {
            Some(before) if version == before => return Err(CatalogError::VersionTwice { file, version }),
            Some(before) if version < before => {
                let taken = entries.iter().take_while(|earlier| *earlier != entry).any(
                    |earlier| matches!(earlier.place, Place::Migration { version: other, .. } if other == version),
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

fn check_api_line(entries: &[Entry]) -> Result<(), CatalogError> {
    let mut before: Option<(ApiVersion, ApiVersion)> = None;
    let mut served: Vec<ApiVersion> = Vec::new();
    for entry in entries {
        let Place::Translator { serves, onto } = entry.place else { continue };
        let file = entry.file.clone();
        if served.contains(&serves) {
            return Err(CatalogError::ServedTwice { file, serves });
        }
        match before {
            Some((before, _)) if serves < before => {
                return Err(CatalogError::OutOfOrder { file, version: serves.to_string(), before: before.to_string() });
            }
            Some((_, wanted)) if serves != wanted => return Err(CatalogError::ApiGap { file, serves, wanted }),
            Some(_) | None => {}
        }
        served.push(serves);
        before = Some((serves, onto));
    }
    Ok(())
}
