//! A check that transactions can begin. A lock that is renewed over a connection of its own says
//! nothing about the others: a server may reject new log-ins, or have no connection left, while
//! that one lives on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Database, DatabaseError, SqlError};

/// Checks the connections of a database from time to time.
#[derive(Debug)]
pub struct ConnectionCheck {
    database: Database,
    /// Transactions that had begun at the last check.
    begun: AtomicU64,
}

impl ConnectionCheck {
    /// A check whose first run compares with the present.
    pub fn new(database: &Database) -> Self {
        let begun = AtomicU64::new(database.0.counters.begun());
        Self {
            database: database.clone(),
            begun,
        }
    }

    /// Succeeds if a transaction has begun since the last check, if one can begin within `longest`,
    /// or if transactions have all connections.
    ///
    /// # Errors
    /// [`DatabaseError::Begin`] with the reason.
    pub async fn run(&self, longest: Duration) -> Result<(), DatabaseError> {
        let begun = self.database.0.counters.begun();
        if self.begun.swap(begun, Relaxed) != begun {
            return Ok(());
        }
        let failed = match tokio::time::timeout(longest, self.database.look()).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(failed)) => failed,
            Err(_) => DatabaseError::Begin {
                name: self.database.name().to_owned(),
                source: SqlError::PoolTimedOut,
            },
        };
        let is_busy = self.database.0.counters.open() >= self.database.readers() as u64;
        if is_busy { Ok(()) } else { Err(failed) }
    }
}
