//! The fence: every transaction that changes something proves, inside itself, that this host
//! still is the master. Whoever takes the lock raises the fence, so a master that lost it writes nothing more.

use sqlx::{Row, Sqlite, Transaction};

use crate::layout::database::{Database, DatabaseError};

/// One row: the token of the newest master.
pub const FENCE_TABLE: &str = "bbs_fence";

/// The right to write, as given by taking the lock.
#[derive(Debug, Clone)]
pub struct Fence {
    database: Database,
    token: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    #[error(
        "this host is no longer the master (its token is {ours}, the database has {theirs}); \
         it must stop serving and wait for the lock again"
    )]
    Lost { ours: i64, theirs: i64 },
    #[error("cannot read the fence row in {FENCE_TABLE}")]
    Read(#[source] sqlx::Error),
    #[error("cannot raise the fence in {FENCE_TABLE}")]
    Raise(#[source] sqlx::Error),
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl Fence {
    /// Raises the fence above every earlier master. Only for a host that has just taken the lock.
    pub async fn raise(database: &Database) -> Result<Self, FenceError> {
        let mut tx = database.write().await?;
        sqlx::query("CREATE TABLE IF NOT EXISTS bbs_fence (id INTEGER PRIMARY KEY, token BIGINT NOT NULL)")
            .execute(&mut *tx)
            .await
            .map_err(FenceError::Raise)?;
        let row = sqlx::query(
            "INSERT INTO bbs_fence (id, token) VALUES (1, 1) \
             ON CONFLICT (id) DO UPDATE SET token = token + 1 RETURNING token",
        )
        .fetch_one(&mut *tx)
        .await
        .map_err(FenceError::Raise)?;
        let token = row.get(0);
        tx.commit().await.map_err(FenceError::Raise)?;
        Ok(Self { database: database.clone(), token })
    }

    pub fn token(&self) -> i64 {
        self.token
    }

    /// A write transaction in which this host is proven to be the master until it ends.
    pub async fn begin(&self) -> Result<Transaction<'static, Sqlite>, FenceError> {
        let mut tx = self.database.write().await?;
        let theirs: i64 = sqlx::query("SELECT token FROM bbs_fence WHERE id = 1")
            .fetch_optional(&mut *tx)
            .await
            .map_err(FenceError::Read)?
            .map_or(0, |row| row.get(0));
        if theirs == self.token { Ok(tx) } else { Err(FenceError::Lost { ours: self.token, theirs }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn database() -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("bbs.db")).await.unwrap();
        (folder, database)
    }

    #[tokio::test]
    async fn each_master_raises_the_fence() {
        let (_folder, database) = database().await;
        let first = Fence::raise(&database).await.unwrap();
        let second = Fence::raise(&database).await.unwrap();
        assert!(second.token() > first.token());
        second.begin().await.unwrap().commit().await.unwrap();
    }

    #[tokio::test]
    async fn a_master_that_was_replaced_writes_nothing_more() {
        let (_folder, database) = database().await;
        let old = Fence::raise(&database).await.unwrap();
        let new = Fence::raise(&database).await.unwrap();
        let lost = old.begin().await.unwrap_err();
        assert!(matches!(lost, FenceError::Lost { ours, theirs } if ours == old.token() && theirs == new.token()));
    }

    #[tokio::test]
    async fn a_removed_fence_lets_nobody_through() {
        let (_folder, database) = database().await;
        let fence = Fence::raise(&database).await.unwrap();
        let mut tx = database.write().await.unwrap();
        sqlx::query("DELETE FROM bbs_fence").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        assert!(matches!(fence.begin().await.unwrap_err(), FenceError::Lost { theirs: 0, .. }));
    }
}
