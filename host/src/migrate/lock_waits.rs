//! Waits for locks that other clients have on the tables. A change of the schema waits for a lock
//! for a second only, since calls of clients wait behind it; it is tried again after pauses that
//! grow. Owns what an operator learns meanwhile.

use std::time::Duration;

use backon::BackoffBuilder;
use bbs_database::{Database, Dialect, lock_holders};
use bbs_work::causes::with_causes;
use bbs_work::pauses;
use bbs_work::progress::{Progress, Wait};

use super::{Context, MigrateError};
use crate::lock::fence::Fence;

/// A database, and how changes of its schema wait for locks.
#[derive(Debug, Clone, Copy)]
pub struct LockWaits<'a> {
    /// The database.
    pub database: &'a Database,
    /// Shows that a change waits.
    pub progress: &'a Progress,
    /// How long a change is tried again while other clients hold locks.
    pub timeout: Duration,
}

impl<'a> LockWaits<'a> {
    /// The waits of a migration.
    fn of(context: &'a Context) -> Self {
        Self {
            database: &context.database,
            progress: &context.progress,
            timeout: context.tuning.lock_timeout,
        }
    }

    /// Changes the schema. Where each statement commits by itself, one that gets no lock is tried
    /// again without those before it.
    ///
    /// # Errors
    /// As of [`Fence::change_schema`]; [`MigrateError::Locked`] if another client holds a lock for
    /// too long.
    pub async fn change_schema(
        self,
        fence: &Fence,
        statements: &[String],
    ) -> Result<(), MigrateError> {
        let of_attempt = match self.database.dialect() {
            Dialect::Mysql => 1,
            Dialect::Sqlite | Dialect::Postgres => statements.len().max(1),
        };
        for statements in statements.chunks(of_attempt) {
            self.patiently(|| async { Ok(fence.change_schema(statements).await?) })
                .await?;
        }
        Ok(())
    }

    /// Repeats an attempt that gets no lock. The first one logs whose lock it waits for.
    async fn patiently<T, A>(self, mut attempt: impl FnMut() -> A) -> Result<T, MigrateError>
    where
        A: Future<Output = Result<T, MigrateError>>,
    {
        let mut pauses = pauses::of_locks(self.timeout).build();
        let mut waiting = None;
        loop {
            let fault = match attempt().await {
                Err(fault) if fault.is_transient() => fault,
                done => return done,
            };
            let Some(pause) = pauses.next() else {
                if fault.is_outage() {
                    return Err(fault);
                }
                return Err(MigrateError::Locked {
                    holders: holders(self.database).await,
                    source: Box::new(fault),
                });
            };
            if waiting.is_none() {
                waiting = Some(self.progress.wait(Wait::Lock));
                let holders = holders(self.database).await;
                let reason = with_causes(&fault);
                tracing::warn!(name: "migration-waits-for-lock", %reason, holders, ?pause, "another client holds a lock; trying again");
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// The sessions that hold locks on the tables, for a message.
pub async fn holders(database: &Database) -> String {
    let holders = lock_holders(database).await;
    if holders.is_empty() {
        "a session that the server does not name".to_owned()
    } else {
        holders.join(", ")
    }
}

/// [`LockWaits::change_schema`] in a migration.
///
/// # Errors
/// As of it.
pub(super) async fn change_schema(
    context: &Context,
    fence: &Fence,
    statements: &[String],
) -> Result<(), MigrateError> {
    LockWaits::of(context)
        .change_schema(fence, statements)
        .await
}

/// Repeats an attempt of a migration that gets no lock. The first one logs whose lock it waits for.
pub(super) async fn patiently<T, A>(
    context: &Context,
    attempt: impl FnMut() -> A,
) -> Result<T, MigrateError>
where
    A: Future<Output = Result<T, MigrateError>>,
{
    LockWaits::of(context).patiently(attempt).await
}
