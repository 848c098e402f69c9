//! The fence: every transaction that changes something proves, inside itself, that this host
//! still is the master. Whoever takes the lock raises the fence, so a master that lost it writes nothing more.

use crate::database::{Database, DatabaseError, Dialect, SqlError, Transaction, is_transient, schema, sql};
use crate::layout::schema::{Column, ColumnType, Sealing, Table};

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
    Read(#[source] SqlError),
    #[error("cannot raise the fence in {FENCE_TABLE}")]
    Raise(#[source] SqlError),
    #[error("cannot change the schema; the statement was: {statement}")]
    Schema { statement: String, source: SqlError },
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl FenceError {
    /// Whether the same transaction may succeed if it is done again from its start.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Read(source) | Self::Raise(source) if is_transient(source))
    }
}

fn table() -> Table {
    let column = |name: &str| Column {
        name: name.to_owned(),
        kind: ColumnType::BigInteger,
        nullable: false,
        default: None,
        sealing: Sealing::Plain,
    };
    Table {
        name: FENCE_TABLE.to_owned(),
        columns: vec![column("id"), column("token")],
        primary_key: vec!["id".to_owned()],
        indexes: Vec::new(),
        partition_key: None,
    }
}

impl Fence {
    /// Raises the fence above every earlier master. Only for a host that has just taken the lock.
    pub async fn raise(database: &Database) -> Result<Self, FenceError> {
        let mut tx = database.write().await?;
        if !schema::exists(&mut tx, FENCE_TABLE).await.map_err(FenceError::Raise)? {
            let statement = schema::create_table(tx.dialect(), &table(), FENCE_TABLE);
            tx.execute(sql(statement)).await.map_err(FenceError::Raise)?;
            tx.commit().await.map_err(FenceError::Raise)?;
            tx = database.write().await?;
        }
        let raised = tx.execute(sql("UPDATE bbs_fence SET token = token + 1 WHERE id = 1")).await;
        if raised.map_err(FenceError::Raise)? == 0 {
            tx.execute(sql("INSERT INTO bbs_fence (id, token) VALUES (1, 1)")).await.map_err(FenceError::Raise)?;
        }
        let row = tx.fetch_one(sql("SELECT token FROM bbs_fence WHERE id = 1")).await.map_err(FenceError::Raise)?;
        let token = row.integer(0).map_err(FenceError::Raise)?.unwrap_or_default();
        tx.commit().await.map_err(FenceError::Raise)?;
        Ok(Self { database: database.clone(), token })
    }

    pub fn token(&self) -> i64 {
        self.token
    }

    /// A write transaction in which this host is proven to be the master until it ends: nobody can raise the fence
    /// meanwhile.
    pub async fn begin(&self) -> Result<Transaction, FenceError> {
        let mut tx = self.database.write().await?;
        let token = match tx.dialect() {
            Dialect::Sqlite => "SELECT token FROM bbs_fence WHERE id = 1",
            Dialect::Postgres => "SELECT token FROM bbs_fence WHERE id = 1 FOR SHARE",
            Dialect::Mysql => "SELECT token FROM bbs_fence WHERE id = 1 LOCK IN SHARE MODE",
        };
        let row = tx.fetch_optional(sql(token)).await.map_err(FenceError::Read)?;
        let theirs = row.map(|row| row.integer(0)).transpose().map_err(FenceError::Read)?.flatten().unwrap_or_default();
        if theirs == self.token { Ok(tx) } else { Err(FenceError::Lost { ours: self.token, theirs }) }
    }

    /// Changes the schema as the master, each statement safe to repeat. On MySQL such a statement ends the transaction
    /// it is run in, so one connection keeps the fence while another does the work.
    pub async fn change_schema(&self, statements: &[String]) -> Result<(), FenceError> {
        if statements.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        let mut apart = match tx.dialect() {
            Dialect::Sqlite | Dialect::Postgres => None,
            Dialect::Mysql => Some(self.database.write().await?),
        };
        for statement in statements {
            let worker = apart.as_mut().unwrap_or(&mut tx);
            let failed = |source| FenceError::Schema { statement: statement.clone(), source };
            worker.execute(sql(statement.clone())).await.map_err(failed)?;
        }
        drop(apart);
        let failed = |source| FenceError::Schema { statement: "COMMIT".to_owned(), source };
        tx.commit().await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Address;

    async fn database() -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db"))).await.unwrap();
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
        tx.execute(sql("DELETE FROM bbs_fence")).await.unwrap();
        tx.commit().await.unwrap();
        assert!(matches!(fence.begin().await.unwrap_err(), FenceError::Lost { theirs: 0, .. }));
    }
}
