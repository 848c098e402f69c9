//! Waits for locks that other clients have on the tables. A change of the schema waits for a lock
//! for a second only, since calls of clients wait behind it; it is tried again after pauses that
//! grow. Owns what an operator learns meanwhile.

use backon::Retryable;
use bbs_database::lock_holders;
use bbs_work::causes::with_causes;
use bbs_work::pauses;
use bbs_work::progress::Wait;

use super::{Context, MigrateError};
use crate::lock::fence::Fence;

/// The sessions that hold locks on the tables, for a message.
pub async fn holders(context: &Context) -> String {
    let holders = lock_holders(&context.database).await;
    if holders.is_empty() {
        "a session that the server does not name".to_owned()
    } else {
        holders.join(", ")
    }
}

/// Changes the schema. Each statement must be safe to repeat.
///
/// # Errors
/// As of [`Fence::change_schema`]; [`MigrateError::Locked`] if another client holds a lock for too
/// long.
pub(super) async fn change_schema(
    context: &Context,
    fence: &Fence,
    statements: &[String],
) -> Result<(), MigrateError> {
    patiently(context, || async {
        Ok(fence.change_schema(statements).await?)
    })
    .await
}

/// Repeats an attempt that gets no lock.
pub(super) async fn patiently<T, A>(
    context: &Context,
    attempt: impl FnMut() -> A,
) -> Result<T, MigrateError>
where
    A: Future<Output = Result<T, MigrateError>>,
{
    let mut waiting = None;
    let done = attempt.retry(pauses::of_locks(context.tuning.lock_timeout)).when(MigrateError::is_transient).notify(|fault, pause| {
        if waiting.is_none() {
            waiting = Some(context.progress.wait(Wait::Lock));
            tracing::warn!(name: "migration-waits-for-lock", reason = %with_causes(&fault), ?pause, "another client holds a lock; trying again");
        }
    });
    match done.await {
        Err(fault) if fault.is_transient() => Err(MigrateError::Locked {
            holders: holders(context).await,
            source: Box::new(fault),
        }),
        done => done,
    }
}
