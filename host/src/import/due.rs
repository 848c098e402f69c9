//! What a start has to do about an import, given what was imported before and the state of the
//! database. Pure.

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
pub fn due(found: &Found, phase: Option<ImportPhase>, is_configured: bool) -> Due {
    match (phase, is_configured) {
        (Some(ImportPhase::Marked), _) | (None, false) => Due::Nothing,
        (Some(ImportPhase::Copied), _) => Due::Unmarked { served: false },
        (Some(ImportPhase::Served), _) => Due::Unmarked { served: true },
        (Some(ImportPhase::Copying), true) => Due::Import,
        (Some(ImportPhase::Copying), false) => Due::Interrupted,
        (None, true) => match found {
            Found::Fresh => Due::Import,
            Found::Unversioned { .. } | Found::Versioned { .. } => Due::NotIntoThis,
        },
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
                assert_eq!(
                    due(Some(ImportPhase::Copied)),
                    Due::Unmarked { served: false }
                );
                assert_eq!(
                    due(Some(ImportPhase::Served)),
                    Due::Unmarked { served: true }
                );
                let begun = if configured {
                    Due::Import
                } else {
                    Due::Interrupted
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
