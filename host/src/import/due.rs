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
    /// An import has begun, another BBS has used the database since, and etcd is configured.
    UsedSince,
    /// The store is imported and not marked in etcd; `served` if clients may have written since.
    Unmarked { served: bool },
    /// As [`Self::Unmarked`], and the tables with the records were dropped.
    Dropped,
}

impl Due {
    /// Checks that a host may work with the database.
    ///
    /// # Errors
    /// The record of the import contradicts the rest of the database.
    pub fn check(self) -> Result<(), ImportError> {
        match self {
            Self::UsedSince => Err(ImportError::UsedSince),
            Self::Dropped => Err(ImportError::Dropped),
            Self::Nothing
            | Self::NotIntoThis
            | Self::Import
            | Self::Interrupted
            | Self::Unmarked { .. } => Ok(()),
        }
    }
}

/// Decides what a start has to do.
pub fn due(found: &Found, phase: Option<ImportPhase>, is_configured: bool) -> Due {
    match (phase, found, is_configured) {
        (Some(ImportPhase::Marked), ..) | (None, _, false) => Due::Nothing,
        (Some(ImportPhase::Copied | ImportPhase::Served), Found::Fresh, _) => Due::Dropped,
        (Some(ImportPhase::Copied), ..) => Due::Unmarked { served: false },
        (Some(ImportPhase::Served), ..) => Due::Unmarked { served: true },
        // The transaction that gives the database its version also ends this phase. So the version,
        // and the tables with it, are those of another BBS.
        (Some(ImportPhase::Copying), Found::Versioned { .. }, true) => Due::UsedSince,
        (Some(ImportPhase::Copying), Found::Versioned { .. }, false) => Due::Nothing,
        (Some(ImportPhase::Copying), _, true) => Due::Import,
        (Some(ImportPhase::Copying), _, false) => Due::Interrupted,
        (None, Found::Fresh, true) => Due::Import,
        (None, Found::Unversioned { .. } | Found::Versioned { .. }, true) => Due::NotIntoThis,
    }
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
                let due = |phase| due(found, phase, configured);
                assert_eq!(due(Some(ImportPhase::Marked)), Due::Nothing);
                let unmarked = |served| match found {
                    Found::Fresh => Due::Dropped,
                    _ => Due::Unmarked { served },
                };
                assert_eq!(due(Some(ImportPhase::Copied)), unmarked(false));
                assert_eq!(due(Some(ImportPhase::Served)), unmarked(true));
                let begun = match (configured, found) {
                    (true, Found::Versioned { .. }) => Due::UsedSince,
                    (false, Found::Versioned { .. }) => Due::Nothing,
                    (true, _) => Due::Import,
                    (false, _) => Due::Interrupted,
                };
                assert_eq!(due(Some(ImportPhase::Copying)), begun);
                let never = match (configured, found) {
                    (false, _) => Due::Nothing,
                    (true, Found::Fresh) => Due::Import,
                    (true, _) => Due::NotIntoThis,
                };
                assert_eq!(due(None), never);
            }
        }
    }
}
