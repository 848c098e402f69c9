//! The pauses between attempts, of everything that is tried again: how often, and for how long. Which failures pass is decided where
//! they occur.

use std::time::Duration;

use backon::{ConstantBuilder, ExponentialBuilder};

/// Of a call whose transaction lost a conflict or its session: three attempts, as in Diego.
pub const CALL: Duration = Duration::from_millis(500);
/// Of a request that another component does not take, while a caller waits.
const REQUEST: Duration = Duration::from_millis(100);
/// After the first attempt of a call or a request.
const RETRIES: usize = 2;
/// Of the fence, which a transaction of the previous master still holds.
const FENCE: Duration = Duration::from_millis(200);
/// Of a batch: some 6 s, after which the holder of the conflicting lock is assumed stuck.
const BATCH: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
const BATCH_RETRIES: usize = 7;
/// Of a connection to the database.
const CONNECTION: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// Of a change that waits for locks of other clients.
const LOCK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// Of work beside the service, the longest where an operator has to remove what it met.
const BACKGROUND: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Between the attempts of a call, with jitter, so that transactions that conflicted do not meet again.
pub fn of_calls() -> ConstantBuilder {
    ConstantBuilder::new().with_delay(CALL).with_max_times(RETRIES).with_jitter()
}

/// Between the attempts of a request to another component.
pub fn of_requests() -> ConstantBuilder {
    ConstantBuilder::new().with_delay(REQUEST).with_max_times(RETRIES).with_jitter()
}

/// Between the attempts to raise the fence.
pub fn of_fence() -> ConstantBuilder {
    ConstantBuilder::new().with_delay(FENCE).without_max_times()
}

/// Between the attempts to write a batch that lost a conflict with a call.
pub fn of_batches() -> ExponentialBuilder {
    growing(BATCH).with_max_times(BATCH_RETRIES)
}

/// Between the attempts to connect to the database, for at most this time.
pub fn of_connections(longest: Duration) -> ExponentialBuilder {
    growing(CONNECTION).without_max_times().with_total_delay(Some(longest))
}

/// Between the attempts to get the locks for a change, for at most this time.
pub fn of_locks(longest: Duration) -> ExponentialBuilder {
    growing(LOCK).without_max_times().with_total_delay(Some(longest)).with_jitter()
}

/// Between the attempts of work beside the service, without end.
pub fn of_background_work() -> ExponentialBuilder {
    growing(BACKGROUND).without_max_times()
}

fn growing([shortest, longest]: [Duration; 2]) -> ExponentialBuilder {
    ExponentialBuilder::new().with_min_delay(shortest).with_max_delay(longest)
}
