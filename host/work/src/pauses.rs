//! The pauses between attempts: how often, and for how long. Connections to the database, the lock,
//! the stream to Loggregator and the admin socket have pauses of their own. Which failures pass is
//! decided where they occur. And the rests of work beside clients.

use std::error::Error;
use std::time::Duration;

use backon::{BackoffBuilder, ConstantBuilder, ExponentialBuilder};

use crate::causes::with_causes;
use crate::progress::{Progress, Wait};

/// Pause of a call whose transaction lost a conflict or its session: three attempts, as in Diego.
pub const CALL: Duration = Duration::from_millis(500);
/// Time after which a call's transaction is not tried again. One that waits for a lock fails after
/// longer, and its lock stays then.
pub const CALL_TIME: Duration = Duration::from_secs(5);
/// Pause of a request that another component does not take, while a caller waits.
const REQUEST: Duration = Duration::from_millis(100);
/// Attempts of a call or a request after the first.
const RETRIES: usize = 2;
/// Pause of the fence, which a transaction of the previous master still holds.
const FENCE: Duration = Duration::from_millis(200);
/// Shortest and longest pause of a batch: some 6 s in all, after which the holder of the
/// conflicting lock is assumed stuck.
const BATCH: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
const BATCH_RETRIES: usize = 7;
/// Pause of a connection to Locket, which may start at the same time.
const LOCKET: Duration = Duration::from_millis(250);
/// Shortest and longest pause of a change that waits for locks of other clients.
const LOCK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// Longest rest of work beside clients.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Pause between two requests to the health port of a host that is not ready.
const READINESS: Duration = Duration::from_millis(200);
/// Before the next attempt to find out whether a cut-over has succeeded.
const OUTCOME: Duration = Duration::from_secs(1);
/// Shortest and longest pause of work beside the service; the longest is for what an operator has
/// to remove.
const BACKGROUND: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Pauses between the attempts of a call, with jitter, so that transactions that conflicted do not
/// meet again.
pub fn of_calls() -> ConstantBuilder {
    ConstantBuilder::new()
        .with_delay(CALL)
        .with_max_times(RETRIES)
        .with_jitter()
}

/// Pauses between the attempts of a request to another component.
pub fn of_requests() -> ConstantBuilder {
    ConstantBuilder::new()
        .with_delay(REQUEST)
        .with_max_times(RETRIES)
        .with_jitter()
}

/// Pauses between the attempts to raise the fence.
pub fn of_fence() -> ConstantBuilder {
    ConstantBuilder::new().with_delay(FENCE).without_max_times()
}

/// Reads or writes a batch again, after pauses, while its transaction loses conflicts with those of
/// others: nothing of it is written then.
///
/// # Errors
/// The last attempt's, if it is no conflict or the attempts are used up.
pub async fn retry_batch<T, E, A>(
    progress: &Progress,
    is_conflict: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> A,
) -> Result<T, E>
where
    E: Error + 'static,
    A: Future<Output = Result<T, E>>,
{
    let mut pauses = growing(BATCH).with_max_times(BATCH_RETRIES).build();
    loop {
        let fault = match attempt().await {
            Err(fault) if is_conflict(&fault) => fault,
            done => return done,
        };
        let Some(pause) = pauses.next() else {
            return Err(fault);
        };
        tracing::info!(reason = %with_causes(&fault), "a batch lost to another transaction and is tried again");
        progress.retried();
        let _waiting = progress.wait(Wait::Retry);
        tokio::time::sleep(pause).await;
    }
}

/// Rests after a piece of work beside clients for as long as it took, at most a second: so clients
/// have half of the processors' and the server's time.
pub async fn rest_after(worked: Duration) {
    tokio::time::sleep(worked.min(LONGEST_REST)).await;
}

/// Pauses between attempts to find out whether a cut-over has succeeded: calls are refused
/// meanwhile.
pub fn of_outcome() -> ConstantBuilder {
    ConstantBuilder::new()
        .with_delay(OUTCOME)
        .without_max_times()
}

/// Pauses between the requests to the health port of a host that is not ready; the caller ends them
/// by the time, since a request may last as well.
pub fn of_readiness() -> ConstantBuilder {
    ConstantBuilder::new()
        .with_delay(READINESS)
        .without_max_times()
}

/// Pauses between this number of further attempts to connect to Locket.
pub fn of_locket(retries: usize) -> ConstantBuilder {
    ConstantBuilder::new()
        .with_delay(LOCKET)
        .with_max_times(retries)
}

/// Pauses between the attempts to get the locks for a change, for at most this time.
pub fn of_locks(longest: Duration) -> ExponentialBuilder {
    growing(LOCK)
        .without_max_times()
        .with_total_delay(Some(longest))
        .with_jitter()
}

/// Pauses between the attempts of work beside the service, without end.
pub fn of_background_work() -> ExponentialBuilder {
    growing(BACKGROUND).without_max_times()
}

fn growing([shortest, longest]: [Duration; 2]) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(shortest)
        .with_max_delay(longest)
}
