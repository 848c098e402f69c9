//! The interface between the store and an online migration: every change is also applied to the copies, in the change's
//! own transaction.

use futures_util::future::BoxFuture;

use crate::database::Transaction;

/// The dual writes of an online migration.
pub trait DualWrite: Send + Sync + std::fmt::Debug {
    /// Excludes the copier from the units of this key in these tables until the returned guard is dropped. Called before
    /// the transaction begins, so that a waiting caller holds no database lock that the copier needs.
    fn hold<'a>(&'a self, tables: Vec<&'a str>, key: &'a [u8]) -> BoxFuture<'a, Box<dyn Send + Sync>>;

    /// Applies the transaction's changes to the copies. `touched` are stored tables and unit keys.
    ///
    /// # Errors
    /// If the change cannot be applied to the copies. The caller then rolls back.
    fn changed<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), DualWriteError>>;
}

/// A change that cannot be applied to the copies.
#[derive(Debug, thiserror::Error)]
#[error("the change cannot be carried over to the tables of the migration under way, so it was not made")]
pub struct DualWriteError {
    /// The error of the migration.
    pub source: Box<dyn std::error::Error + Send + Sync>,
    /// Whether the change may succeed when retried from its start.
    pub is_transient: bool,
}
