//! Resolution of the host names of a pool. Each takes one of the threads that SQLite, files and
//! modules need, too, for as long as the system's resolver waits for a DNS server, and cannot be
//! aborted. Bounds their number.

use std::net::ToSocketAddrs;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// The system's resolver; clones share its bound. Addresses are not resolved, so they do not wait.
#[derive(Debug, Clone)]
pub(super) struct Resolver(Arc<Semaphore>);

impl Resolver {
    /// A resolver that uses at most `threads` at once.
    pub(super) fn new(threads: usize) -> Self {
        Self(Arc::new(Semaphore::new(threads)))
    }

    /// Runs blocking work when a thread is free. The work keeps its thread until it ends, also if
    /// the future is dropped before.
    async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = self.0.acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        spawn_blocking(move || {
            let _permit = permit;
            work()
        })
        .await
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let look_up = move || (name.as_str(), 0).to_socket_addrs();
            let addresses = resolver.run(look_up).await??;
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn resolution_that_was_given_up_keeps_its_thread_until_it_ends() {
        let resolver = Resolver::new(1);
        let (end, is_ended) = mpsc::channel::<()>();
        let mut hanging = Box::pin(resolver.clone().run(move || is_ended.recv()));
        assert!(hanging.as_mut().now_or_never().is_none());
        drop(hanging);
        assert_eq!(resolver.0.available_permits(), 0);
        end.send(()).expect("the work waits");
        assert_eq!(resolver.run(|| "resolved").await.unwrap(), "resolved");
    }
}
