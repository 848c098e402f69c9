//! Threads for blocking work. Work beside clients has threads of its own, of a low priority: where
//! processors are busy, it takes little of their time from the calls of clients.

use std::sync::LazyLock;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

/// The nice value of threads beside clients: Linux gives one of them a tenth of the time of a
/// thread that serves, if both compute on one processor.
pub(crate) const NICENESS: i32 = 10;

static BESIDE_CLIENTS: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread()
        .thread_name("bbs-background")
        // On Linux the priority is that of a thread, and processes that it starts inherit it.
        // Without privileges a thread cannot raise its own again.
        .on_thread_start(|| {
            let own_niceness = getpriority_process(None).unwrap_or_default();
            let _ = setpriority_process(None, NICENESS.max(own_niceness));
        })
        .build()
        .expect("a runtime without drivers opens nothing")
});

/// Runs `work` on a thread for blocking work; one of low priority if `beside_clients`.
pub fn spawn<T: Send + 'static>(
    beside_clients: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    if beside_clients {
        BESIDE_CLIENTS.spawn_blocking(work)
    } else {
        spawn_blocking(work)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn work_beside_clients_and_its_processes_have_a_low_priority() {
        let niceness = || {
            let printed = Command::new("nice").output().unwrap().stdout;
            let of_process: i32 = str::from_utf8(&printed).unwrap().trim().parse().unwrap();
            (getpriority_process(None).unwrap(), of_process)
        };
        let of_test = getpriority_process(None).unwrap();
        assert_eq!(spawn(false, niceness).await.unwrap(), (of_test, of_test));
        let low = of_test.max(NICENESS);
        assert_eq!(spawn(true, niceness).await.unwrap(), (low, low));
        assert_eq!(getpriority_process(None).unwrap(), of_test);
    }
}
