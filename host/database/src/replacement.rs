//! Recognition of sessions that are of no use any more. Owns the moment; the pools replace the
//! sessions from before. A server that is no longer the primary refuses writes, and a node of Galera
//! outside of the primary component nearly everything, while the address of the database, behind a
//! proxy or after a change of its name's target, may lead to another one already. After a change of
//! a table, statements that sessions have prepared may be outdated. And where one idle session gets
//! no answer, the others probably get none, too.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::errors::{is_out_of_cluster, is_outdated, is_read_only, is_transient, mysql_number};

/// MySQL's group replication, on a member that has left the group: an error in a hook of a commit.
const LEFT_GROUP: u16 = 3100;
/// Connections are replaced at most this often: the server may be the only one.
const INTERVAL: Duration = Duration::from_secs(1);

/// When a statement last failed so. Sessions from before then are not used again.
#[derive(Debug, Default)]
pub(super) struct SessionReplacement(Mutex<Option<Instant>>);

impl SessionReplacement {
    pub(super) fn note(&self, error: &super::SqlError) {
        if is_read_only(error)
            || is_outdated(error)
            || is_out_of_cluster(error)
            || mysql_number(error) == Some(LEFT_GROUP)
        {
            self.replace();
        }
    }

    /// Notes that a transaction could not begin. It waited for no row, so an error that looks like
    /// a lost conflict is one of the server: Galera answers so where a node is cut off from the
    /// others.
    pub(super) fn note_begin(&self, error: &super::SqlError) {
        if is_transient(error) {
            self.replace();
        } else {
            self.note(error);
        }
    }

    fn replace(&self) {
        let mut noted = self.0.lock();
        if noted.is_none_or(|at| at.elapsed() >= INTERVAL) {
            *noted = Some(Instant::now());
        }
    }

    /// Lets no session be used again that was opened before this moment, at which one was silent.
    pub(super) fn replace_from_before(&self, moment: Instant) {
        let mut noted = self.0.lock();
        *noted = (*noted).max(Some(moment));
    }

    /// Whether a connection of this age is from before then.
    pub(super) fn outdates(&self, age: Duration) -> bool {
        let noted = self.0.lock();
        noted.is_some_and(|at| age > at.elapsed())
    }
}
