//! Writing: one transaction in which this host is proven to be the master. Dropping it undoes it.

use sea_query::{DeleteStatement, Expr, InsertStatement, SqliteQueryBuilder, UpdateStatement};
use sea_query_sqlx::{SqlxBinder, SqlxValues};
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use super::{Store, StoreError};

#[derive(Debug)]
pub struct Writer {
    pub(super) store: Store,
    pub(super) tx: Transaction<'static, Sqlite>,
}

impl Writer {
    pub(super) fn new(store: Store, tx: Transaction<'static, Sqlite>) -> Self {
        Self { store, tx }
    }

    pub async fn commit(self) -> Result<(), StoreError> {
        self.tx.commit().await.map_err(|source| StoreError::Statement { what: "commit", source })
    }

    pub(super) async fn insert(&mut self, insert: &InsertStatement, what: &'static str) -> Result<u64, StoreError> {
        self.run(insert.build_sqlx(SqliteQueryBuilder), what).await
    }

    pub(super) async fn update(&mut self, update: &UpdateStatement, what: &'static str) -> Result<u64, StoreError> {
        self.run(update.build_sqlx(SqliteQueryBuilder), what).await
    }

    pub(super) async fn delete(&mut self, delete: &DeleteStatement, what: &'static str) -> Result<u64, StoreError> {
        self.run(delete.build_sqlx(SqliteQueryBuilder), what).await
    }

    /// How many rows the statement touched.
    async fn run(&mut self, (sql, values): (String, SqlxValues), what: &'static str) -> Result<u64, StoreError> {
        let done = sqlx::query_with(AssertSqlSafe(sql), values).execute(&mut *self.tx).await;
        match done {
            Ok(done) => Ok(done.rows_affected()),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Err(StoreError::Exists),
            Err(source) => Err(StoreError::Statement { what, source }),
        }
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
