//! What a start has to do about an import, given what was imported before and the state of the
//! database. Pure.

use super::ImportError;
use super::state::ImportPhase;
use crate::migrate::Found;

/// What a start has to do about an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing: none is configured, or the store is imported and marked.
    Nothing,
    /// Nothing, since the database is in use and was not filled from etcd, which is configured all
    /// the same.
    NotIntoThis,
    /// Import, from the beginning.
    Import,
    /// An import has begun, and etcd is not configured any more.
    Interrupted,
    /// The store is imported and not marked in etcd; `served` if clients may have written since.
    Unmarked { served: bool },
}

/// Decides what a start has to do.
///
/// # Errors
/// The record of the import contradicts the rest of the database.
pub fn due(
    found: &Found,
    phase: Option<ImportPhase>,
    is_configured: bool,
) -> Result<Due, ImportError> {
    Ok(match (phase, found, is_configured) {
        (Some(ImportPhase::Copied | ImportPhase::Served), Found::Fresh, _)
        | (Some(ImportPhase::Marked), Found::Fresh, true) => return Err(ImportError::Dropped),
        (Some(ImportPhase::Marked), ..) | (None, _, false) => Due::Nothing,
        (Some(ImportPhase::Copied), ..) => Due::Unmarked { served: false },
        (Some(ImportPhase::Served), ..) => Due::Unmarked { served: true },
        // The transaction that gives the database its version also ends this phase. So the version,
        // and the tables with it, are those of another BBS.
        (Some(ImportPhase::Copying), Found::Versioned { .. }, true) => {
            return Err(ImportError::UsedSince);
        }
        (Some(ImportPhase::Copying), Found::Versioned { .. }, false) => Due::Nothing,
        (Some(ImportPhase::Copying), _, true) => Due::Import,
        (Some(ImportPhase::Copying), _, false) => Due::Interrupted,
        (None, Found::Fresh, true) => Due::Import,
        (None, Found::Unversioned { .. } | Found::Versioned { .. }, true) => Due::NotIntoThis,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_imports_once_into_an_empty_database() {
        let versioned = Found::Versioned {
            current: 1,
            target: 1,
            going_down: None,
            came_down: false,
        };
        let rows = Found::Unversioned {
            tables: vec!["tasks".to_owned()],
        };
        for configured in [false, true] {
            for found in [&Found::Fresh, &rows, &versioned] {
                let is_fresh = matches!(found, Found::Fresh);
                let has_version = matches!(found, Found::Versioned { .. });
                let due = |phase| due(found, phase, configured);
                let unmarked = |phase, served| match due(Some(phase)) {
                    Err(ImportError::Dropped) => assert!(is_fresh),
                    due => assert_eq!(due.unwrap(), Due::Unmarked { served }),
                };
                unmarked(ImportPhase::Copied, false);
                unmarked(ImportPhase::Served, true);
                match due(Some(ImportPhase::Marked)) {
                    Err(ImportError::Dropped) => assert!(is_fresh && configured),
                    due => assert_eq!(due.unwrap(), Due::Nothing),
                }
                let begun = match (configured, has_version) {
                    (true, _) => Due::Import,
                    (false, true) => Due::Nothing,
                    (false, false) => Due::Interrupted,
                };
                match due(Some(ImportPhase::Copying)) {
                    Err(ImportError::UsedSince) => assert!(has_version && configured),
                    due => assert_eq!(due.unwrap(), begun),
                }
                let never = match (configured, found) {
                    (false, _) => Due::Nothing,
                    (true, Found::Fresh) => Due::Import,
                    (true, _) => Due::NotIntoThis,
                };
                assert_eq!(due(None).unwrap(), never);
            }
        }
    }
}
