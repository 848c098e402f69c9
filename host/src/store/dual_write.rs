//! The seam between the store and a migration that runs while it serves: every change is carried over to the tables
//! that are being filled, in the change's own transaction.

use futures_util::future::BoxFuture;

use crate::database::Transaction;

/// The side of the migration.
pub trait DualWrite: Send + Sync + std::fmt::Debug {
    /// Keeps the copier away from the units of this key, in whichever of these tables, until what is given is dropped.
    /// Asked for before the transaction begins, so that whoever waits here holds nothing that the copier needs.
    fn hold<'a>(&'a self, tables: Vec<&'a str>, key: &'a [u8]) -> BoxFuture<'a, Box<dyn Send + Sync>>;

    /// Carries over what the transaction has changed: tables at the layout of the database, and keys of units.
    fn changed<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), DualWriteError>>;
}

#[derive(Debug, thiserror::Error)]
#[error("the change cannot be carried over to the tables of the migration under way, so it was not made")]
pub struct DualWriteError {
    pub source: Box<dyn std::error::Error + Send + Sync>,
    /// Whether the same change, made again from its start, may succeed.
    pub is_transient: bool,
}
