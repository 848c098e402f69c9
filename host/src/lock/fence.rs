//! The fence: every write transaction checks, inside itself, that this host is still the master.
//! Taking the lock raises the fence, after which a host with a stale token cannot write.
//!
//! Raising locks the fence's row exclusively and fenced transactions lock it shared, so the fence
//! is raised before or after a transaction, never during one. A host that froze within a
//! transaction loses it, and its row lock: its successor ends the session where the server shows
//! it, and else the timeout for idle transactions does that every connection has.
//!
//! In a Galera cluster a locked row is locked on one node only. There a transaction updates one of
//! several rows instead, and raising updates all of them: of two transactions that update the same
//! row, the cluster commits one. PostgreSQL has several rows, too: a row that transactions lock
//! beside each other needs a list of them on disk (a multixact), of which a server has a limited
//! number until it has cleared the old ones from all tables.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backon::Retryable;
use bbs_database::{
    Database, DatabaseError, Dialect, READ_ONLY, Sql, SqlError, Transaction, end_holders_of_rows,
    first_write_advice, is_outage, is_read_only, is_transient, schema, sql,
};
use bbs_lens::layout::schema::{Column, Table};
use bbs_work::pauses;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::first_token;

/// Holds the token of the newest master: one row, in Galera and on PostgreSQL one per concurrent
/// transaction.
pub const FENCE_TABLE: &str = "bbs_fence";
/// The rows in Galera, and the fewest on PostgreSQL.
const SHARDS: i64 = 64;

/// Longest wait of a change of the schema, and of a raise, for a lock.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Interval of statements on the keeper's connection; far below any timeout for idle transactions.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(250);

/// The right to write, obtained by taking the lock. Clones share it.
#[derive(Debug, Clone)]
pub struct Fence(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    token: i64,
    is_in_cluster: bool,
    /// Present if each transaction needs a row of its own.
    shards: Option<Arc<Shards>>,
    lost: watch::Sender<Option<i64>>,
}

/// The rows that no transaction of this host updates at the moment.
#[derive(Debug)]
struct Shards(Mutex<Vec<i64>>);

/// A row for one transaction. With more transactions than rows, some share a row and wait for each
/// other.
struct Shard {
    shards: Arc<Shards>,
    id: i64,
    ours: bool,
}

impl Shards {
    fn take(self: &Arc<Self>) -> Shard {
        let free = self.0.lock().pop();
        Shard {
            shards: Arc::clone(self),
            id: free.unwrap_or(1),
            ours: free.is_some(),
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        if self.ours {
            self.shards.0.lock().push(self.id);
        }
    }
}

/// Why a fenced transaction cannot begin or proceed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum FenceError {
    #[error(
        "this host is no longer the master (its token is {ours}, the database has {theirs}); \
         it must stop serving and wait for the lock again"
    )]
    Lost { ours: i64, theirs: i64 },
    #[error("cannot read the fence row in {FENCE_TABLE}")]
    Read(#[source] SqlError),
    #[error("cannot raise the fence in {FENCE_TABLE}; {}", first_write_advice(.0))]
    Raise(#[source] SqlError),
    #[error("{READ_ONLY}")]
    ReadOnly(#[source] SqlError),
    #[error("cannot change the schema; the statement was: {statement}")]
    Schema { statement: String, source: SqlError },
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl FenceError {
    fn reading(source: SqlError) -> Self {
        if is_read_only(&source) {
            Self::ReadOnly(source)
        } else {
            Self::Read(source)
        }
    }

    fn raising(source: SqlError) -> Self {
        if is_read_only(&source) {
            Self::ReadOnly(source)
        } else {
            Self::Raise(source)
        }
    }

    /// Whether the server is away, or has ended the session.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Read(source) | Self::Raise(source) | Self::Schema { source, .. } => {
                is_outage(source)
            }
            Self::Database(fault) => fault.is_outage(),
            Self::Lost { .. } | Self::ReadOnly(_) => false,
        }
    }

    /// Whether the same transaction may succeed when it is retried from its start.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Read(source) | Self::Raise(source) | Self::Schema { source, .. } => {
                is_transient(source)
            }
            Self::Database(fault) => fault.is_transient(),
            Self::Lost { .. } | Self::ReadOnly(_) => false,
        }
    }
}

fn table() -> Table {
    let column = |name| Column::big_integer(name).default(0);
    Table::new(FENCE_TABLE)
        .column(column("id"))
        .column(column("token"))
        .column(column("uses"))
        .primary_key(["id"])
}

impl Fence {
    /// Raises the fence above every earlier master. Waits for their open transactions for a second,
    /// and then ends their sessions, or where the server does not show these, waits on. Only for a
    /// host that has just taken the lock.
    ///
    /// # Errors
    /// The table cannot be created or changed, or the database cannot be reached.
    pub async fn raise(database: &Database) -> Result<Self, FenceError> {
        create_table(database).await?;
        let in_cluster = database.is_in_cluster().await.map_err(FenceError::Read)?;
        let token = (|| raised_or_blocked(database, in_cluster))
            .retry(pauses::of_fence())
            .when(FenceError::is_transient)
            .notify(|fault, _| {
                let is_away = fault.is_outage();
                let fault: &dyn std::error::Error = fault;
                if is_away {
                    tracing::warn!(
                        fault,
                        database = database.name(),
                        "the server of the database accepts no transaction; the takeover waits for it and is tried again"
                    );
                } else {
                    tracing::warn!(
                        fault,
                        database = database.name(),
                        "a transaction of the previous master is still open; waiting for it to end, at the latest when the server \
                         ends the session after half of the `lock_ttl` of that master without a statement"
                    );
                }
            })
            .await?;
        let rows = rows(database, in_cluster);
        Ok(Self::of(database, in_cluster, rows, token))
    }

    /// The fence of the current master, for a command that writes besides a serving host: its
    /// transactions commit only while that host is the master. Raises nothing, and needs no lock.
    pub async fn of_master(database: &Database) -> Result<Self, FenceError> {
        let mut tx = database.read().await?;
        let is_there = schema::exists(&mut tx, FENCE_TABLE)
            .await
            .map_err(FenceError::Read)?;
        let token = if is_there {
            token_in(&mut tx, sql("SELECT token FROM bbs_fence WHERE id = 1")).await?
        } else {
            0
        };
        drop(tx);
        let in_cluster = database.is_in_cluster().await.map_err(FenceError::Read)?;
        // Outside of a cluster a master of an earlier release has one row.
        let rows = if in_cluster { SHARDS } else { 1 };
        Ok(Self::of(database, in_cluster, rows, token))
    }

    fn of(database: &Database, is_in_cluster: bool, rows: i64, token: i64) -> Self {
        let shards = (rows > 1).then(|| Arc::new(Shards(Mutex::new((1..=rows).collect()))));
        Self(Arc::new(Inner {
            database: database.clone(),
            token,
            is_in_cluster,
            shards,
            lost: watch::Sender::new(None),
        }))
    }

    /// The token of this master; each raise increments it.
    pub fn token(&self) -> i64 {
        self.0.token
    }

    /// Whether the database is a node of a Galera cluster.
    pub fn is_in_cluster(&self) -> bool {
        self.0.is_in_cluster
    }

    /// Returns when a transaction has found the fence raised by another host.
    pub async fn lost(&self) -> FenceError {
        let mut lost = self.0.lost.subscribe();
        let theirs = *lost
            .wait_for(Option::is_some)
            .await
            .expect("the sender is ours");
        FenceError::Lost {
            ours: self.0.token,
            theirs: theirs.unwrap_or_default(),
        }
    }

    /// Begins a write transaction in which this host is proven to be the master until it ends.
    ///
    /// # Errors
    /// `Lost` if another host has raised the fence; errors of the database.
    pub async fn begin(&self) -> Result<Transaction, FenceError> {
        self.prove(self.0.database.write().await?).await
    }

    /// Begins a writing transaction whose commit does not wait for the disk: see
    /// [`Database::write_relaxed`].
    ///
    /// # Errors
    /// As of [`Self::begin`].
    pub async fn begin_relaxed(&self) -> Result<Transaction, FenceError> {
        self.prove(self.0.database.write_relaxed().await?).await
    }

    /// Begins such a transaction for changes of the schema, with the limit of waits of
    /// [`Self::change_schema`].
    ///
    /// # Errors
    /// As of [`Self::begin`].
    pub async fn begin_change(&self) -> Result<Transaction, FenceError> {
        let mut tx = self.begin().await?;
        tx.limit_waits(LONGEST_WAIT)
            .await
            .map_err(FenceError::Read)?;
        Ok(tx)
    }

    /// Waits for the open transactions of this master to end: the server completes a commit
    /// whose connection was lost or whose caller was dropped. Transactions that begin meanwhile wait.
    ///
    /// # Errors
    /// Transient if one of them does not end within a second; otherwise as of [`Self::begin`].
    pub async fn wait_for_transactions(&self) -> Result<(), FenceError> {
        let mut tx = self.0.database.write_relaxed().await?;
        tx.limit_waits(LONGEST_WAIT)
            .await
            .map_err(FenceError::Read)?;
        let mut tx = self.prove(tx).await?;
        // Every row, as in a raise.
        tx.execute(sql("UPDATE bbs_fence SET uses = uses + 1"))
            .await
            .map_err(FenceError::reading)?;
        tx.commit().await.map_err(FenceError::Read)
    }

    async fn prove(&self, mut tx: Transaction) -> Result<Transaction, FenceError> {
        let shard = self.0.shards.as_ref().map(Shards::take);
        let id = shard.as_ref().map_or(1, |shard| shard.id);
        let theirs = if self.0.is_in_cluster {
            self.change_row(&mut tx, id).await?
        } else {
            lock_row(&mut tx, id).await?
        };
        if theirs != self.0.token {
            return Err(self.found_lost(theirs));
        }
        if let Some(shard) = shard {
            tx.keep(shard);
        }
        Ok(tx)
    }

    /// Updates a row that has the token of this master, and returns the token that it has.
    async fn change_row(&self, tx: &mut Transaction, id: i64) -> Result<i64, FenceError> {
        let change = sql("UPDATE bbs_fence SET uses = uses + 1 WHERE id = ? AND token = ?");
        let changed = tx
            .execute(change.bind(id).bind(self.0.token))
            .await
            .map_err(FenceError::reading)?;
        if changed == 1 {
            return Ok(self.0.token);
        }
        let token = sql("SELECT token FROM bbs_fence WHERE id = ?");
        token_in(tx, token.bind(id)).await
    }

    fn found_lost(&self, theirs: i64) -> FenceError {
        self.0.lost.send_replace(Some(theirs));
        FenceError::Lost {
            ours: self.0.token,
            theirs,
        }
    }

    /// Changes the schema as the master. Each statement must be safe to repeat. Waits for each lock
    /// for a second only: whatever comes later to the same table waits behind a change that waits.
    ///
    /// # Errors
    /// `Lost` if another host has raised the fence; `Schema` names the statement that failed, and
    /// is transient if it got no lock.
    pub async fn change_schema(&self, statements: &[String]) -> Result<(), FenceError> {
        self.build_indexes(statements, 1).await
    }

    /// Changes the schema by statements that build this number of indexes. On MariaDB and MySQL,
    /// where one statement builds all of them, it may run for as many times the limit of a
    /// statement.
    ///
    /// # Errors
    /// As of [`Self::change_schema`].
    pub async fn build_indexes(
        &self,
        statements: &[String],
        indexes: usize,
    ) -> Result<(), FenceError> {
        if self.0.database.dialect() == Dialect::Mysql {
            for statement in statements {
                self.change_apart(statement, indexes).await?;
            }
            return Ok(());
        }
        if statements.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin_change().await?;
        for statement in statements {
            tx.execute(sql(statement.clone()))
                .await
                .map_err(|source| FenceError::Schema {
                    statement: statement.clone(),
                    source,
                })?;
        }
        tx.commit().await.map_err(|source| FenceError::Schema {
            statement: "COMMIT".to_owned(),
            source,
        })
    }

    /// On MySQL a schema statement commits its own transaction, so one connection holds the fence
    /// while another runs the statement. The worker's transaction begins first: if this host
    /// freezes, the server ends that one first, and a statement sent after the fence was raised
    /// finds no connection.
    async fn change_apart(&self, statement: &str, indexes: usize) -> Result<(), FenceError> {
        let mut worker = self.0.database.write().await?;
        worker
            .limit_waits(LONGEST_WAIT)
            .await
            .map_err(FenceError::Read)?;
        if indexes > 1 {
            let times = u32::try_from(indexes).unwrap_or(u32::MAX);
            worker.extend_limit(times).await.map_err(FenceError::Read)?;
        }
        let mut keeper = self.begin().await?;
        let work = worker.execute(sql(statement.to_owned()));
        tokio::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => {
                    keeper.fetch_one(sql("SELECT 1")).await.map_err(FenceError::Read)?;
                }
            }
        };
        done.map_err(|source| FenceError::Schema {
            statement: statement.to_owned(),
            source,
        })?;
        keeper.commit().await.map_err(FenceError::Read)
    }
}

async fn create_table(database: &Database) -> Result<(), FenceError> {
    let mut tx = database.write().await?;
    if !schema::exists(&mut tx, FENCE_TABLE)
        .await
        .map_err(FenceError::raising)?
    {
        tx.execute(sql(schema::ensure_table(tx.dialect(), &table())))
            .await
            .map_err(FenceError::raising)?;
        tx.commit().await.map_err(FenceError::raising)?;
    }
    Ok(())
}

/// Raises the fence once. Ends the sessions of the previous master if that got no lock.
async fn raised_or_blocked(database: &Database, in_cluster: bool) -> Result<i64, FenceError> {
    let raised = raised(database, in_cluster).await;
    if raised.as_ref().is_err_and(FenceError::is_transient) {
        let mut tx = database.look().await?;
        let ended = end_holders_of_rows(&mut tx, FENCE_TABLE)
            .await
            .map_err(FenceError::Read)?;
        if ended > 0 {
            tracing::warn!(
                ended,
                "ended sessions of the previous master, whose transactions were still open"
            );
        }
    }
    raised
}

async fn raised(database: &Database, in_cluster: bool) -> Result<i64, FenceError> {
    let mut tx = database.write().await?;
    tx.limit_waits(LONGEST_WAIT)
        .await
        .map_err(FenceError::raising)?;
    // Every row, so that it conflicts with each open transaction of the former master, whichever
    // row that one uses.
    tx.execute(sql("UPDATE bbs_fence SET token = token + 1"))
        .await
        .map_err(FenceError::raising)?;
    let highest = sql("SELECT MAX(token) FROM bbs_fence");
    let highest = tx
        .fetch_number(highest)
        .await
        .map_err(FenceError::raising)?;
    let token = if highest == 0 { first_token() } else { highest };
    // Rows that another raise has inserted since this one began, or that were restored, may have
    // another one.
    let equal = sql("UPDATE bbs_fence SET token = ? WHERE token <> ?");
    tx.execute(equal.bind(token).bind(token))
        .await
        .map_err(FenceError::raising)?;
    let present = tx.fetch_as(sql("SELECT id FROM bbs_fence"), |row| {
        row.integer_or_zero(0)
    });
    let present: BTreeSet<i64> = present.await.map_err(FenceError::raising)?;
    let missing = (1..=rows(database, in_cluster)).filter(|id| !present.contains(id));
    let missing: Vec<_> = missing.map(|id| format!("({id}, {token})")).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        let insert = format!("INSERT INTO bbs_fence (id, token) VALUES {missing}");
        tx.execute(sql(insert)).await.map_err(FenceError::raising)?;
    }
    tx.commit().await.map_err(FenceError::raising)?;
    Ok(token)
}

/// The number of rows that a master needs.
fn rows(database: &Database, is_in_cluster: bool) -> i64 {
    if is_in_cluster {
        return SHARDS;
    }
    match database.dialect() {
        Dialect::Postgres => {
            i64::try_from(database.readers()).map_or(SHARDS, |sessions| sessions.max(SHARDS))
        }
        Dialect::Sqlite | Dialect::Mysql => 1,
    }
}

/// Locks a row shared, and returns its token.
async fn lock_row(tx: &mut Transaction, id: i64) -> Result<i64, FenceError> {
    let token = match tx.dialect() {
        // It has one writer, and this transaction is it.
        Dialect::Sqlite => sql("SELECT token FROM bbs_fence WHERE id = 1"),
        Dialect::Postgres => sql("SELECT token FROM bbs_fence WHERE id = ? FOR SHARE").bind(id),
        Dialect::Mysql => sql("SELECT token FROM bbs_fence WHERE id = 1 LOCK IN SHARE MODE"),
    };
    token_in(tx, token).await
}

/// The token in a row; zero, which no master has, without a row.
async fn token_in(tx: &mut Transaction, statement: Sql) -> Result<i64, FenceError> {
    let row = tx
        .fetch_optional(statement)
        .await
        .map_err(FenceError::reading)?;
    Ok(row
        .map(|row| row.integer_or_zero(0))
        .transpose()
        .map_err(FenceError::Read)?
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bbs_database::Address;

    use super::*;

    async fn database() -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Address::Sqlite(folder.path().join("bbs.db")))
            .await
            .unwrap();
        (folder, database)
    }

    async fn remove_row(database: &Database) {
        let mut tx = database.write().await.unwrap();
        tx.execute(sql("DELETE FROM bbs_fence")).await.unwrap();
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn each_raise_increments_the_token() {
        let (_folder, database) = database().await;
        let first = Fence::raise(&database).await.unwrap();
        let second = Fence::raise(&database).await.unwrap();
        assert_eq!(
            second.token(),
            first.token() + 1,
            "consecutive tokens prove that no other host served in between"
        );
        second.begin().await.unwrap().commit().await.unwrap();
    }

    #[tokio::test]
    async fn replaced_master_cannot_write_and_reports_the_loss() {
        let (_folder, database) = database().await;
        let old = Fence::raise(&database).await.unwrap();
        let new = Fence::raise(&database).await.unwrap();
        let lost = old.begin().await.unwrap_err();
        assert!(
            matches!(lost, FenceError::Lost { ours, theirs } if ours == old.token() && theirs == new.token())
        );
        assert!(
            matches!(old.clone().lost().await, FenceError::Lost { theirs, .. } if theirs == new.token())
        );
        let refused = old
            .change_schema(&["CREATE TABLE x (id INTEGER)".to_owned()])
            .await
            .unwrap_err();
        assert!(matches!(refused, FenceError::Lost { .. }));
    }

    #[tokio::test]
    async fn deleted_fence_row_rejects_writes() {
        let (_folder, database) = database().await;
        let fence = Fence::raise(&database).await.unwrap();
        remove_row(&database).await;
        assert!(matches!(
            fence.begin().await.unwrap_err(),
            FenceError::Lost { theirs: 0, .. }
        ));
        let next = Fence::raise(&database).await.unwrap();
        assert_ne!(next.token(), fence.token());
        assert!(fence.begin().await.is_err());
    }
}
