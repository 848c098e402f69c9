//! The turns of SQLite's one writer. Whoever wants to write waits for a turn; what was written in turns that followed
//! one another without a pause is committed together, because each commit waits for the disk. A turn is over for its
//! owner when that commit is: nobody is told of anything that is not durable.
//!
//! A turn that is dropped is undone, alone. A turn sees what the turns before it wrote, and is kept or lost with them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::{Sqlite, SqliteConnection, SqlitePool};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::SqlError;
use super::sqlite::WRITE;

/// Clones are the same writer.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    pool: SqlitePool,
    /// Those who want a turn, and those who want to commit, are served in the order in which they came. So a group ends
    /// when its first member comes to commit, after everybody who waited already by then.
    group: Arc<Mutex<Option<Group>>>,
}

/// Turns that are committed together.
struct Group {
    tx: sqlx::Transaction<'static, Sqlite>,
    /// Whether there are turns to commit.
    has_members: bool,
    outcome: watch::Sender<Option<Outcome>>,
}

/// Of a group, for all its members.
type Outcome = Result<(), Arc<SqlError>>;

/// The right to write, until it is committed or dropped.
pub(super) struct Turn {
    turns: Turns,
    /// Always there until the end.
    group: Option<OwnedMutexGuard<Option<Group>>>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("has_members", &self.has_members).finish_non_exhaustive()
    }
}

impl Turns {
    pub(super) fn new(pool: SqlitePool) -> Self {
        Self { pool, group: Arc::default() }
    }

    pub(super) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Goes on to its end: `Database` begins everything in a task of its own. A turn that is half begun could be neither
    /// used nor undone.
    pub(super) async fn begin(&self) -> Result<Turn, SqlError> {
        let mut group = Arc::clone(&self.group).lock_owned().await;
        let open = match &mut *group {
            Some(open) => open,
            none => none.insert(Group::begin(&self.pool).await?),
        };
        if let Err(fault) = open.run("SAVEPOINT turn").await {
            return Err(lost(&mut group, fault));
        }
        Ok(Turn { turns: self.clone(), group: Some(group) })
    }

    /// Commits the group with this outcome, unless another member has.
    async fn commit(&self, outcome: watch::Receiver<Option<Outcome>>) -> Outcome {
        let mut told = outcome.clone();
        let mut group = tokio::select! {
            biased;
            // If nobody says it, the group went without one.
            said = told.wait_for(Option::is_some) => {
                return said.ok().and_then(|outcome| outcome.clone()).unwrap_or_else(|| Err(Arc::new(SqlError::WorkerCrashed)));
            }
            group = Arc::clone(&self.group).lock_owned() => group,
        };
        // It may have been said by the one who gave the lock.
        if let Some(outcome) = outcome.borrow().clone() {
            return outcome;
        }
        match group.take() {
            Some(open) => open.commit().await,
            None => Err(Arc::new(SqlError::WorkerCrashed)),
        }
    }
}

impl Group {
    async fn begin(pool: &SqlitePool) -> Result<Self, SqlError> {
        Ok(Self { tx: pool.begin_with(WRITE).await?, has_members: false, outcome: watch::Sender::new(None) })
    }

    async fn run(&mut self, statement: &'static str) -> Result<(), SqlError> {
        sqlx::query(statement).execute(&mut *self.tx).await.map(drop)
    }

    async fn commit(self) -> Outcome {
        let outcome = self.tx.commit().await.map_err(Arc::new);
        self.outcome.send_replace(Some(outcome.clone()));
        outcome
    }
}

/// Gives up a group that is not what it should be any more: SQLite undoes a whole transaction where the disk is full or
/// fails.
fn lost(group: &mut Option<Group>, fault: SqlError) -> SqlError {
    let fault = Arc::new(fault);
    if let Some(open) = group.take() {
        open.outcome.send_replace(Some(Err(Arc::clone(&fault))));
    }
    shared(fault)
}

fn shared(fault: Arc<SqlError>) -> SqlError {
    SqlError::AnyDriverError(Box::new(fault))
}

/// What a turn did is undone. A group of nobody ends.
async fn undo(mut group: OwnedMutexGuard<Option<Group>>) {
    match &mut *group {
        Some(open) if open.has_members => {
            let undone = match open.run("ROLLBACK TO turn").await {
                Ok(()) => open.run("RELEASE turn").await,
                Err(fault) => Err(fault),
            };
            if let Err(fault) = undone {
                tracing::warn!(reason = %lost(&mut group, fault), "what was written could not be kept");
            }
        }
        alone => {
            if let Some(open) = alone.take()
                && let Err(fault) = open.tx.rollback().await
            {
                tracing::warn!(reason = %fault, "a transaction could not be undone; its connection is closed");
            }
        }
    }
}

impl Turn {
    /// In a task of its own, which goes on when nobody waits for it any more: others may be waiting for it.
    pub(super) async fn commit(self) -> Result<(), SqlError> {
        let ended = tokio::spawn(self.end()).await;
        ended.map_err(|_| SqlError::WorkerCrashed)?
    }

    async fn end(mut self) -> Result<(), SqlError> {
        let Some(mut group) = self.group.take() else { return Err(SqlError::WorkerCrashed) };
        let Some(open) = &mut *group else { return Err(SqlError::WorkerCrashed) };
        if let Err(fault) = open.run("RELEASE turn").await {
            return Err(lost(&mut group, fault));
        }
        open.has_members = true;
        let outcome = open.outcome.subscribe();
        drop(group);
        self.turns.commit(outcome).await.map_err(shared)
    }

    fn open(&self) -> &Group {
        self.group.as_deref().and_then(Option::as_ref).expect("a turn has its group until it ends")
    }
}

impl Deref for Turn {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.open().tx
    }
}

impl DerefMut for Turn {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        let group = self.group.as_deref_mut().and_then(Option::as_mut);
        &mut group.expect("a turn has its group until it ends").tx
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(mut group) = self.group.take() else { return };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(undo(group))),
            // The process ends. Nobody is told that anything was kept.
            Err(_) => drop(group.take()),
        }
    }
}

#[cfg(test)]
mod tests;
