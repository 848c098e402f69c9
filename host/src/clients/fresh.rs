//! What is made of certificate files, and made again when they change. Owns noticing; a connection that stands keeps the
//! certificates that it was made with.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How soon a certificate that was replaced is used.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

type Make<T, E> = Box<dyn Fn() -> Result<T, E> + Send + Sync>;
/// When each file was written, and how long it is. Absent for one that is not there at the moment.
type Stamps = Vec<Option<(SystemTime, u64)>>;

pub(super) struct Fresh<T, E> {
    files: Vec<PathBuf>,
    make: Make<T, E>,
    kept: Mutex<Kept<T>>,
}

struct Kept<T> {
    made: T,
    /// Of the files that were last looked into, whether or not they could be used.
    stamps: Stamps,
    looked_at: Instant,
}

impl<T, E> fmt::Debug for Fresh<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T: Clone, E: std::error::Error + 'static> Fresh<T, E> {
    pub(super) fn new(files: Vec<PathBuf>, make: impl Fn() -> Result<T, E> + Send + Sync + 'static) -> Result<Self, E> {
        // Before they are read, so that a change after that is not missed.
        let stamps = stamps(&files);
        let kept = Kept { made: make()?, stamps, looked_at: Instant::now() };
        Ok(Self { files, make: Box::new(make), kept: Mutex::new(kept) })
    }

    /// As the files are now, or as they were when they could last be used.
    pub(super) fn get(&self) -> T {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.looked_at.elapsed() >= LOOK_INTERVAL {
            kept.looked_at = Instant::now();
            self.look_again(&mut kept);
        }
        kept.made.clone()
    }

    fn look_again(&self, kept: &mut Kept<T>) {
        let stamps = stamps(&self.files);
        // While a file is being replaced it may not be there.
        if stamps == kept.stamps || stamps.contains(&None) {
            return;
        }
        kept.stamps = stamps;
        match (self.make)() {
            Ok(made) => {
                kept.made = made;
                tracing::info!(name: "tls.reloaded", files = ?self.files, "new connections use the certificates put in place");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(name: "tls.not-reloaded", error, files = ?self.files,
                    "the certificates that were put in place are not used; those before stay");
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Stamps {
    let stamp = |file: &PathBuf| {
        let about = std::fs::metadata(file).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    files.iter().map(stamp).collect()
}
