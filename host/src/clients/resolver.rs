//! Resolution of the host names of a pool. Each takes one of the threads that SQLite, files and
//! modules need, too, for as long as the system's resolver waits for a DNS server, and cannot be
//! aborted. Bounds their number, and resolves a name in one thread at a time: a name whose DNS server
//! does not answer must not delay the others.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::spawn_blocking;

/// The system's resolver; clones share its bound. Addresses are not resolved, so they do not wait.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    threads: Arc<Semaphore>,
    /// The names that are being resolved.
    running: Arc<Mutex<HashMap<String, Resolution>>>,
}

/// A resolution for which any number of callers wait. The error is that of a process that ends.
type Resolution = Shared<oneshot::Receiver<Resolved>>;
type Resolved = Result<Vec<SocketAddr>, Arc<io::Error>>;

impl Resolver {
    /// A resolver that uses at most `threads` at once.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            running: Arc::default(),
        }
    }

    /// The addresses of a name: those that are being looked up, or else of `look_up`, which runs
    /// when a thread is free. It keeps its thread until it ends, also if the future is dropped
    /// before.
    async fn addresses(
        self,
        name: String,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Resolved, RecvError> {
        let running = self.running.lock().get(&name).cloned();
        if let Some(running) = running {
            return running.await;
        }
        let permit = Arc::clone(&self.threads).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        self.begin(name, permit, look_up).await
    }

    /// Begins to resolve a name, unless that has begun while the caller waited for a thread.
    fn begin(
        &self,
        name: String,
        permit: OwnedSemaphorePermit,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Resolution {
        // Locked until the resolution is listed: its thread takes it off the list.
        let mut running = self.running.lock();
        if let Some(begun) = running.get(&name) {
            return begun.clone();
        }
        let (sender, receiver) = oneshot::channel();
        let list = Arc::clone(&self.running);
        let listed = name.clone();
        spawn_blocking(move || {
            let _permit = permit;
            let resolved = look_up(&listed).map_err(Arc::new);
            list.lock().remove(&listed);
            // Callers that have given up need no answer.
            let _ = sender.send(resolved);
        });
        let resolution = receiver.shared();
        running.insert(name, resolution.clone());
        resolution
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.clone();
        Box::pin(async move {
            let name = name.as_str().to_owned();
            let addresses = resolver.addresses(name, look_up).await??;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn look_up(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((name, 0).to_socket_addrs()?.collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    use super::*;

    fn found() -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(Ipv4Addr::LOCALHOST, 1).into()])
    }

    #[tokio::test]
    async fn resolution_that_was_given_up_keeps_its_thread_and_serves_later_callers_of_the_name() {
        let resolver = Resolver::new(2);
        let (end, is_ended) = mpsc::channel::<()>();
        let addresses =
            |name: &'static str| resolver.clone().addresses(name.to_owned(), |_| found());
        let waits = move |_: &str| {
            is_ended.recv().expect("the test ends the resolution");
            Err(io::Error::other("no answer"))
        };
        let mut hanging = Box::pin(resolver.clone().addresses("dead".to_owned(), waits));
        assert!(hanging.as_mut().now_or_never().is_none());
        drop(hanging);
        let mut later = [(); 3].map(|()| Box::pin(addresses("dead")));
        for caller in &mut later {
            assert!(caller.as_mut().now_or_never().is_none());
        }
        assert_eq!(resolver.threads.available_permits(), 1);
        let other = addresses("other").await.unwrap();
        assert_eq!(other.unwrap(), found().unwrap());
        end.send(()).expect("the resolution waits");
        for caller in later {
            let error = caller.await.unwrap().unwrap_err();
            assert_eq!(error.to_string(), "no answer");
        }
        let again = addresses("dead").await.unwrap();
        assert_eq!(again.unwrap(), found().unwrap());
    }

    #[tokio::test]
    async fn callers_of_a_name_that_wait_for_a_thread_use_one() {
        let resolver = Resolver::new(0);
        let (end, is_ended) = mpsc::channel::<()>();
        let waits = move |_: &str| {
            is_ended.recv().expect("the test ends the resolution");
            found()
        };
        let name = "dead".to_owned();
        let mut first = Box::pin(resolver.clone().addresses(name.clone(), waits));
        let mut second = Box::pin(resolver.clone().addresses(name, |_| found()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        resolver.threads.add_permits(2);
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(resolver.threads.available_permits(), 1);
        end.send(()).expect("the resolution waits");
        assert_eq!(first.await.unwrap().unwrap(), found().unwrap());
        assert_eq!(second.await.unwrap().unwrap(), found().unwrap());
    }
}
