//! The limit of concurrent requests of one kind to all cells.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Each request may open a connection with mutual TLS, which takes some 45 KB and 1.5 ms of a core.
const MOST: usize = 256;

#[derive(Debug)]
pub(super) struct RequestLimit(Semaphore);

impl Default for RequestLimit {
    fn default() -> Self {
        Self(Semaphore::new(MOST))
    }
}

impl RequestLimit {
    /// Waits until there are fewer requests; the permit is held over one. The permits are given in
    /// the order of the calls, so that each cell has its turn.
    pub(super) async fn permit(&self) -> SemaphorePermit<'_> {
        let permit = self.0.acquire().await;
        permit.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn requests_are_bounded() {
        let limit = RequestLimit::default();
        let mut permits: Vec<_> = (0..MOST)
            .map(|_| limit.permit().now_or_never().expect("a permit is left"))
            .collect();
        assert!(limit.permit().now_or_never().is_none());
        permits.pop();
        assert!(limit.permit().now_or_never().is_some());
    }
}
