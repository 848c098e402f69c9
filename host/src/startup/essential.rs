//! Tasks without which a host does not serve: the servers of its ports, and the reload of its
//! certificates. The end of one ends the host, whose lock a standby takes; in Diego's BBS, such
//! tasks are one group that ends with its first member.

use std::future::pending;
use std::io;

use tokio::task::JoinSet;

use super::StartupError;

/// The tasks, which run until the process ends or they are requested to end.
#[derive(Debug, Default)]
pub(super) struct EssentialTasks(JoinSet<Result<(), StartupError>>);

impl EssentialTasks {
    /// Starts a task, which is called `name` in the error about its end.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = io::Result<()>> + Send + 'static,
    ) {
        // In a task of its own, so that a panic has the name, too.
        let task = tokio::spawn(task);
        self.0.spawn(async move {
            task.await
                .unwrap_or_else(|panic| Err(io::Error::other(panic)))
                .map_err(|source| StartupError::TaskEnded { name, source })
        });
    }

    /// Waits for the first task that fails. Does not return when tasks end as requested.
    pub(super) async fn failure(&mut self) -> StartupError {
        match self.ended().await {
            Err(failure) => failure,
            Ok(()) => pending().await,
        }
    }

    /// Waits until all tasks have ended. One that has failed before is not counted again.
    ///
    /// # Errors
    /// The first failure of a task.
    pub(super) async fn ended(&mut self) -> Result<(), StartupError> {
        while let Some(joined) = self.0.join_next().await {
            joined.expect("a task that only waits for another one does not panic")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bbs_work::causes::with_causes;

    use super::*;

    async fn panicking() -> io::Result<()> {
        panic!("a fault of the host")
    }

    #[tokio::test]
    async fn task_that_panics_or_fails_is_named_and_ends_are_counted_once() {
        let mut tasks = EssentialTasks::default();
        tasks.spawn("the first", async { Ok(()) });
        tasks.spawn("the second", panicking());
        let failure = with_causes(&tasks.failure().await).to_string();
        assert!(
            failure.contains("the second ended") && failure.contains("a fault of the host"),
            "{failure}"
        );
        tasks.ended().await.expect("the others have ended");
        tasks.spawn("the third", async {
            Err(io::Error::other("a closed socket"))
        });
        let failure = with_causes(&tasks.failure().await).to_string();
        assert!(
            failure.contains("the third ended") && failure.contains("a closed socket"),
            "{failure}"
        );
        tasks.ended().await.expect("none is left");
    }
}
