//! Group commit for SQLite's single writer. Transactions that are queued without a pause in between
//! are committed as one group, because each commit waits for the disk. A member's `commit` returns
//! when the group's commit has, so no caller learns of a write before it is durable.
//!
//! A member that is dropped is rolled back alone, to its savepoint. A member sees the writes of the
//! members before it, and is committed or lost together with them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::{Sqlite, SqliteConnection, SqlitePool};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::SqlError;

/// Takes the write lock at once.
pub(super) const WRITE: &str = "BEGIN IMMEDIATE";

/// The single writer; clones share it.
#[derive(Debug, Clone)]
pub(super) struct GroupCommit {
    pool: SqlitePool,
    /// The open group. The lock is fair, for members that begin and for members that commit: a
    /// group ends when its first member commits, after all members that were already waiting by
    /// then.
    group: Arc<Mutex<Option<CommitGroup>>>,
}

/// Members that are committed together.
struct CommitGroup {
    tx: sqlx::Transaction<'static, Sqlite>,
    /// Whether there are finished members to commit.
    has_members: bool,
    outcome: watch::Sender<Option<GroupOutcome>>,
}

/// The result of a group's commit, for all its members.
type GroupOutcome = Result<(), Arc<SqlError>>;

/// A member of the open group: exclusive write access until it is committed or dropped.
pub(super) struct GroupMember {
    writer: GroupCommit,
    /// `Some` until the member ends.
    group: Option<OwnedMutexGuard<Option<CommitGroup>>>,
}

impl fmt::Debug for CommitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitGroup")
            .field("has_members", &self.has_members)
            .finish_non_exhaustive()
    }
}

impl GroupCommit {
    pub(super) fn new(pool: SqlitePool) -> Self {
        Self {
            pool,
            group: Arc::default(),
        }
    }

    pub(super) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Must not be cancelled: a member whose savepoint is half created could be neither used nor
    /// rolled back. `Database` therefore begins every transaction in a task of its own.
    pub(super) async fn begin(&self) -> Result<GroupMember, SqlError> {
        let mut group = Arc::clone(&self.group).lock_owned().await;
        let open = match &mut *group {
            Some(open) => open,
            none => none.insert(CommitGroup::begin(&self.pool).await?),
        };
        if let Err(fault) = open.run("SAVEPOINT member").await {
            return Err(lost(&mut group, fault));
        }
        Ok(GroupMember {
            writer: self.clone(),
            group: Some(group),
        })
    }

    /// Commits the group that has this outcome, unless another member has done so.
    async fn commit(&self, outcome: watch::Receiver<Option<GroupOutcome>>) -> GroupOutcome {
        let mut receiver = outcome.clone();
        let mut group = tokio::select! {
            biased;
            // The sender was dropped without an outcome: the group was never committed.
            published = receiver.wait_for(Option::is_some) => {
                return published.ok().and_then(|outcome| outcome.clone()).unwrap_or_else(|| Err(Arc::new(SqlError::WorkerCrashed)));
            }
            group = Arc::clone(&self.group).lock_owned() => group,
        };
        // The member that released the lock may have committed the group.
        if let Some(outcome) = outcome.borrow().clone() {
            return outcome;
        }
        match group.take() {
            Some(open) => open.commit().await,
            None => Err(Arc::new(SqlError::WorkerCrashed)),
        }
    }
}

impl CommitGroup {
    async fn begin(pool: &SqlitePool) -> Result<Self, SqlError> {
        Ok(Self {
            tx: pool.begin_with(WRITE).await?,
            has_members: false,
            outcome: watch::Sender::new(None),
        })
    }

    async fn run(&mut self, statement: &'static str) -> Result<(), SqlError> {
        sqlx::query(statement)
            .execute(&mut *self.tx)
            .await
            .map(drop)
    }

    async fn commit(self) -> GroupOutcome {
        let outcome = self.tx.commit().await.map_err(Arc::new);
        self.outcome.send_replace(Some(outcome.clone()));
        outcome
    }
}

/// Discards a group whose transaction no longer exists: SQLite rolls the whole transaction back
/// when the disk is full or fails. Every member receives the fault.
fn lost(group: &mut Option<CommitGroup>, fault: SqlError) -> SqlError {
    let fault = Arc::new(fault);
    if let Some(open) = group.take() {
        open.outcome.send_replace(Some(Err(Arc::clone(&fault))));
    }
    shared(fault)
}

fn shared(fault: Arc<SqlError>) -> SqlError {
    SqlError::AnyDriverError(Box::new(fault))
}

/// Rolls one member back. A group without other members ends.
async fn undo(mut group: OwnedMutexGuard<Option<CommitGroup>>) {
    match &mut *group {
        Some(open) if open.has_members => {
            let undone = match open.run("ROLLBACK TO member").await {
                Ok(()) => open.run("RELEASE member").await,
                Err(fault) => Err(fault),
            };
            if let Err(fault) = undone {
                tracing::warn!(reason = %lost(&mut group, fault), "rolling one write back failed; the whole group of writes is lost");
            }
        }
        alone => {
            if let Some(open) = alone.take()
                && let Err(fault) = open.tx.rollback().await
            {
                tracing::warn!(reason = %fault, "a rollback failed; its connection is closed");
            }
        }
    }
}

impl GroupMember {
    /// Runs in a task of its own, which completes even if the caller is cancelled: other members
    /// may wait for this commit.
    pub(super) async fn commit(self) -> Result<(), SqlError> {
        let ended = tokio::spawn(self.end()).await;
        ended.map_err(|_| SqlError::WorkerCrashed)?
    }

    async fn end(mut self) -> Result<(), SqlError> {
        let Some(mut group) = self.group.take() else {
            return Err(SqlError::WorkerCrashed);
        };
        let Some(open) = &mut *group else {
            return Err(SqlError::WorkerCrashed);
        };
        if let Err(fault) = open.run("RELEASE member").await {
            return Err(lost(&mut group, fault));
        }
        open.has_members = true;
        let outcome = open.outcome.subscribe();
        drop(group);
        self.writer.commit(outcome).await.map_err(shared)
    }

    fn open(&self) -> &CommitGroup {
        self.group
            .as_deref()
            .and_then(Option::as_ref)
            .expect("a member has its group until it ends")
    }
}

impl Deref for GroupMember {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.open().tx
    }
}

impl DerefMut for GroupMember {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        let group = self.group.as_deref_mut().and_then(Option::as_mut);
        &mut group.expect("a member has its group until it ends").tx
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        let Some(mut group) = self.group.take() else {
            return;
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(undo(group))),
            // The process ends. No caller was promised that the write is durable.
            Err(_) => drop(group.take()),
        }
    }
}

#[cfg(test)]
mod tests;
