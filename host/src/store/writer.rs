//! Writing: one transaction in which this host is proven to be the master. Dropping it undoes it.

use sea_query::{DeleteStatement, Expr, InsertStatement, UpdateStatement};

use super::{Store, StoreError};
use crate::database::{IntoStatement, Transaction, is_unique_violation};

#[derive(Debug)]
pub struct Writer {
    pub(super) store: Store,
    pub(super) tx: Transaction,
}

impl Writer {
    pub(super) fn new(store: Store, tx: Transaction) -> Self {
        Self { store, tx }
    }

    pub async fn commit(self) -> Result<(), StoreError> {
        self.tx.commit().await.map_err(|source| StoreError::Statement { what: "commit", source })
    }

    pub(super) async fn insert(&mut self, insert: &InsertStatement, what: &'static str) -> Result<u64, StoreError> {
        self.run(insert, what).await
    }

    pub(super) async fn update(&mut self, update: &UpdateStatement, what: &'static str) -> Result<u64, StoreError> {
        self.run(update, what).await
    }

    pub(super) async fn delete(&mut self, delete: &DeleteStatement, what: &'static str) -> Result<u64, StoreError> {
        self.run(delete, what).await
    }

    /// How many rows the statement touched.
    async fn run(&mut self, statement: impl IntoStatement, what: &'static str) -> Result<u64, StoreError> {
        self.tx.execute(statement).await.map_err(|source| match is_unique_violation(&source) {
            true => StoreError::Exists,
            false => StoreError::Statement { what, source },
        })
    }
}

impl Writer {
    /// Adds the record version to a new row, where the table has one.
    pub(super) fn stamp(&self, table: &str, columns: &mut Vec<&'static str>, values: &mut Vec<Expr>) {
        if let Some(&version) = self.store.0.stamped.get(table) {
            columns.push(super::RECORD_VERSION);
            values.push(i64::try_from(version).unwrap_or(i64::MAX).into());
        }
    }
}
