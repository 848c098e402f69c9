//! Doing a transaction again that lost to another: databases end one of two that wait for each other, and expect it
//! to come back. The one place where this is done. Three times in all, half a second apart, as Diego does, and up to as
//! much again, so that those who lost to each other do not meet again.

use std::time::Duration;

use backon::{ConstantBuilder, Retryable};

use super::DomainError;

const PAUSE: Duration = Duration::from_millis(500);
const MORE_ATTEMPTS: usize = 2;

/// Runs `attempt`, which is one transaction from its begin to its commit, until it succeeds or fails for good.
pub(super) async fn repeated<T, F>(attempt: impl FnMut() -> F) -> Result<T, DomainError>
where
    F: Future<Output = Result<T, DomainError>>,
{
    let pauses = ConstantBuilder::new().with_delay(PAUSE).with_max_times(MORE_ATTEMPTS).with_jitter();
    attempt
        .retry(pauses)
        .when(DomainError::is_transient)
        .notify(|fault, _| tracing::info!(reason = %fault, "a transaction lost to another and is done again"))
        .await
}
