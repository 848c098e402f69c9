//! Retries of transactions that lost a conflict or a deadlock to another; all retries of API calls are here. Three attempts,
//! half a second apart as in Diego, plus jitter, so that transactions that conflicted do not meet again.

use std::time::Duration;

use backon::{ConstantBuilder, Retryable};

use super::DomainError;

const DELAY: Duration = Duration::from_millis(500);
const MAX_RETRIES: usize = 2;

/// Runs `attempt`, one transaction from begin to commit, until it succeeds, fails permanently or is out of retries.
pub(super) async fn retry<T, F>(attempt: impl FnMut() -> F) -> Result<T, DomainError>
where
    F: Future<Output = Result<T, DomainError>>,
{
    let backoff = ConstantBuilder::new().with_delay(DELAY).with_max_times(MAX_RETRIES).with_jitter();
    attempt
        .retry(backoff)
        .when(DomainError::is_transient)
        .notify(|fault, _| tracing::info!(reason = %fault, "a transaction lost a conflict and is retried"))
        .await
}
