//! Retries of transactions that lost a conflict or a deadlock to another, or their session to the
//! server.

use backon::Retryable;
use bbs_work::causes::with_causes;
use bbs_work::pauses;
use tokio::time::Instant;

use super::DomainError;

/// Runs `attempt`, one transaction from begin to commit, until it succeeds, fails permanently or is
/// out of retries or time.
///
/// # Errors
/// That of the last attempt.
pub async fn retry<T, F>(attempt: impl FnMut() -> F) -> Result<T, DomainError>
where
    F: Future<Output = Result<T, DomainError>>,
{
    let begin = Instant::now();
    attempt
        .retry(pauses::of_calls())
        .when(|fault| fault.is_transient() && begin.elapsed() < pauses::CALL_TIME)
        .notify(
            |fault, _| tracing::info!(reason = %with_causes(&fault), "a transaction lost a conflict or its session and is retried"),
        )
        .await
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use super::*;
    use crate::store::StoreError;

    /// Makes attempts that fail with `fault`. Returns the last error, and when each was made.
    async fn failing(fault: fn() -> DomainError) -> (DomainError, Vec<Duration>) {
        let begin = Instant::now();
        let mut attempts = Vec::new();
        let failed = retry(|| {
            attempts.push(begin.elapsed());
            ready(Err::<(), _>(fault()))
        })
        .await
        .unwrap_err();
        (failed, attempts)
    }

    #[tokio::test(start_paused = true)]
    async fn lost_conflict_is_retried_twice_after_the_delay_and_jitter() {
        let (failed, attempts) = failing(|| DomainError::Store(StoreError::Raced)).await;
        assert!(
            matches!(failed, DomainError::Store(StoreError::Raced)),
            "{failed}"
        );
        assert_eq!(attempts.len(), 3);
        // A sleep ends up to a millisecond late.
        let delays = pauses::CALL..=pauses::CALL * 2 + Duration::from_millis(1);
        assert!(
            attempts
                .windows(2)
                .all(|pair| delays.contains(&(pair[1] - pair[0]))),
            "{attempts:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_failure_is_not_retried() {
        let (failed, attempts) = failing(|| DomainError::NotFound).await;
        assert!(matches!(failed, DomainError::NotFound), "{failed}");
        assert_eq!(attempts, [Duration::ZERO]);
    }

    #[tokio::test(start_paused = true)]
    async fn conflict_that_took_a_lock_wait_is_not_retried() {
        let mut attempts = 0;
        let failed = retry(|| {
            attempts += 1;
            async {
                tokio::time::sleep(pauses::CALL_TIME).await;
                Err::<(), _>(DomainError::Store(StoreError::Raced))
            }
        });
        failed.await.unwrap_err();
        assert_eq!(attempts, 1);
    }
}
