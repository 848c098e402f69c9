//! Interruption of commands that work on a database, by signals. Owns what is left to do then: the
//! command releases its lock and removes its socket, as at any other end.

use crate::shutdown::Shutdown;

/// A signal ended the work of a command.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; nothing is lost: the same command continues")]
pub(super) struct Interrupted;

/// Runs work until it ends, or a signal interrupts it.
///
/// # Errors
/// [`Interrupted`], or the error of the work.
pub(super) async fn until_interrupted<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let shutdown = Shutdown::listen()?;
    tokio::select! {
        done = work => done,
        () = shutdown.reach(1) => Err(Interrupted.into()),
    }
}
