//! The limit of open files, and what part of it the connections of each port may take, so that none
//! keeps the others, the database or the host's own files from theirs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use bbs_database::Database;

/// The most connections of the API, whatever the limit of open files: each takes up to some 60 KiB,
/// as `http/listener.rs`, `http/connections.rs` and `tls/server.rs` limit it.
const MOST_API: usize = 8192;
/// The most connections of each other port.
const MOST_OTHER: usize = 32;
/// Files that are always open: logs, lock, modules, sockets of the runtime.
const OWN_FILES: usize = 64;
/// Files of a connection to SQLite; other databases take one.
const DATABASE_FILES: usize = 3;
/// Below this number of connections, a Diego of some hundred cells displaces its own.
const FEW: usize = 1000;

/// The number of files that this process may open.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFiles(usize);

impl OpenFiles {
    /// Raises the limit as far as the process may, as Go's programs do.
    pub(super) fn raise() -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                ..limit
            },
        );
        let files = match raised {
            Ok(()) => limit.maximum,
            Err(error) => {
                tracing::warn!(%error, "the limit of open files cannot be raised to its maximum");
                limit.current
            }
        };
        // None is no limit.
        Self(
            files
                .and_then(|files| usize::try_from(files).ok())
                .unwrap_or(usize::MAX),
        )
    }

    /// The connections of the health, metrics and debug ports, for each.
    pub(super) fn other(self) -> usize {
        (self.0 / 16).clamp(2, MOST_OTHER)
    }

    /// The connections of the API: of what the other ports, the database and the host's own files
    /// leave, three quarters. The last quarter is for connections to cells, receivers of callbacks
    /// and other components.
    pub(super) fn api(self, database: &Database) -> usize {
        let connections = self.share(database.readers() * DATABASE_FILES);
        if connections < FEW {
            tracing::warn!(name: "connections.few", open_files = self.0, connections,
                "this process may open few files, so the API has few connections; raise the limit of open files (`ulimit \
                 -n`, LimitNOFILE of systemd, or open_files of bpm)");
        }
        connections
    }

    fn share(self, database: usize) -> usize {
        let available = self
            .0
            .saturating_sub(3 * self.other() + OWN_FILES + database);
        (available / 4 * 3).max(self.0 / 4).min(MOST_API)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_share_what_the_database_and_the_hosts_files_leave() {
        for (limit, other, api) in [
            (64, 4, 16),
            (160, 10, 40),
            (1024, 32, 423),
            (100_000, 32, 8192),
        ] {
            let files = OpenFiles(limit);
            assert_eq!((files.other(), files.share(300)), (other, api), "{limit}");
        }
    }
}
