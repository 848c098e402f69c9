//! Interruption of commands that work on a database, by signals. Owns what is left to do then: the
//! command releases its lock and removes its socket, as at any other end.

use crate::lock::HeldLock;
use crate::shutdown::Shutdown;
use crate::startup::Prepared;

/// A signal ended the work of a command.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; nothing is lost: the same command continues")]
pub(super) struct Interrupted;

/// Runs the work of a command that holds the lock, until it ends, a signal interrupts it, or the
/// lock is lost. Closes the database, and releases the lock.
///
/// # Errors
/// [`Interrupted`], the loss of the lock, or the error of the work.
pub(super) async fn until_interrupted<T>(
    prepared: &Prepared,
    lock: HeldLock,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let work = async {
        let shutdown = Shutdown::listen()?;
        tokio::select! {
            done = work => done,
            lost = lock.lost() => Err(lost.into()),
            () = shutdown.reach(1) => Err(Interrupted.into()),
        }
    };
    let done = work.await;
    prepared.database.close().await;
    lock.release().await;
    done
}
