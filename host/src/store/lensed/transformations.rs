//! Transformations that calls run through the modules of a lens: on threads for blocking work, a
//! bounded number at once.

use std::sync::Arc;

use bbs_units::RowsError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// Transformations of one kind at once. Each has an instance of a module, with up to 64 MiB, and
/// results of up to 32 MiB. Units are transformed far faster than the database returns them.
const MOST: usize = 2;

/// Limits the transformations that run at once. They wait for no database and no other permit.
#[derive(Debug)]
pub(super) struct Transformations {
    /// For single units, so that writes do not wait for lists.
    single: Arc<Semaphore>,
    several: Arc<Semaphore>,
}

/// The right to one transformation, without which the lenses do none.
pub(super) struct TransformPermit {
    _permit: OwnedSemaphorePermit,
}

impl Default for Transformations {
    fn default() -> Self {
        let permits = || Arc::new(Semaphore::new(MOST));
        Self {
            single: permits(),
            several: permits(),
        }
    }
}

impl Transformations {
    /// Runs `work`, which transforms `units` units.
    ///
    /// # Errors
    /// [`RowsError::Interrupted`] if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        units: usize,
        work: impl FnOnce(TransformPermit) -> T + Send + 'static,
    ) -> Result<T, RowsError> {
        let permits = if units > 1 {
            &self.several
        } else {
            &self.single
        };
        let permit = Arc::clone(permits).acquire_owned().await;
        let permit = TransformPermit {
            _permit: permit.expect("the semaphore is never closed"),
        };
        // The work has the permit: it goes on if the call is abandoned.
        let transformed = spawn_blocking(move || work(permit)).await;
        transformed.map_err(|_| RowsError::Interrupted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn transformations_are_bounded_and_single_units_do_not_wait_for_lists() {
        let transformations = Transformations::default();
        let mut running = Vec::new();
        for _ in 0..MOST {
            let (end, ended) = mpsc::channel::<()>();
            let abandoned = transformations.run(2, move |_permit| ended.recv().is_err());
            assert!(abandoned.now_or_never().is_none());
            running.push(end);
        }
        assert_eq!(transformations.several.available_permits(), 0);
        let single = transformations.run(1, |_permit| "single").await;
        assert_eq!(single.unwrap(), "single");
        drop(running);
        let several = transformations.run(2, |_permit| "several").await;
        assert_eq!(several.unwrap(), "several");
    }
}
