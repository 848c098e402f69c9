//! Recognition of a server that is no longer the primary: it refuses writes, while the address of the database, behind a proxy or
//! after a change of its name's target, may lead to another one already. Owns the moment; the pools replace their connections.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::errors::{is_read_only, mysql_number};

/// MySQL's group replication, on a member that has left the group: an error in a hook of a commit.
const LEFT_GROUP: u16 = 3100;
/// Connections are replaced at most this often: the server may be the only one.
const INTERVAL: Duration = Duration::from_secs(1);

/// When the server last refused a write. Connections from before then are not used again.
#[derive(Debug, Default)]
pub(super) struct Demotion(Mutex<Option<Instant>>);

impl Demotion {
    pub(super) fn note(&self, error: &super::SqlError) {
        if !is_read_only(error) && mysql_number(error) != Some(LEFT_GROUP) {
            return;
        }
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_none_or(|at| at.elapsed() >= INTERVAL) {
            *refused = Some(Instant::now());
        }
    }

    /// Whether a connection of this age is from before the refusal.
    pub(super) fn outdates(&self, age: Duration) -> bool {
        let refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.is_some_and(|at| age > at.elapsed())
    }
}
