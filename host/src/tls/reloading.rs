//! Reloads what is made of certificate files when the files change. New connections use the new
//! certificates; open ones keep theirs, until they do not answer.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// How often the files are checked for a replacement.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

type Make<T, E> = Box<dyn Fn() -> Result<T, E> + Send + Sync>;
/// Modification time and length of each file; `None` for one that is absent at the moment.
type Stamps = Vec<Option<(SystemTime, u64)>>;

/// A value made of files. [`get`](Self::get) makes it again when they have changed.
pub struct Reloading<T, E> {
    files: Vec<PathBuf>,
    make: Make<T, E>,
    loaded: Mutex<LoadedFiles<T>>,
}

struct LoadedFiles<T> {
    made: T,
    /// Stamps of the files that it was made of.
    stamps: Stamps,
    /// Stamps of the files that could not be used last, which is logged once. They are tried again:
    /// reading them may have failed for another reason.
    unusable: Stamps,
    checked_at: Instant,
    made_at: Instant,
}

impl<T, E> fmt::Debug for Reloading<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl<T: Clone, E: std::error::Error + 'static> Reloading<T, E> {
    /// Makes the first value.
    ///
    /// # Errors
    /// The value cannot be made of the files.
    pub fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Taken before the files are read, so that a change in between is not missed.
        let stamps = stamps(&files);
        let loaded = LoadedFiles {
            made: make()?,
            stamps,
            unusable: Vec::new(),
            checked_at: Instant::now(),
            made_at: Instant::now(),
        };
        Ok(Self {
            files,
            make: Box::new(make),
            loaded: Mutex::new(loaded),
        })
    }

    /// The value made of the current files, or of the last ones that could be used.
    pub fn get(&self) -> T {
        let mut loaded = self.loaded.lock();
        if loaded.checked_at.elapsed() >= CHECK_INTERVAL {
            loaded.checked_at = Instant::now();
            self.reload_if_changed(&mut loaded);
        }
        loaded.made.clone()
    }

    /// Makes the value again, whose connections do not answer, unless it is younger than
    /// `least_age`. The previous one stays if that fails.
    pub fn make_again(&self, least_age: Duration) {
        let mut loaded = self.loaded.lock();
        if loaded.made_at.elapsed() < least_age {
            return;
        }
        // The stamps stay, so that `get` still reports a change of the files, and a fault of them.
        if let Ok(made) = (self.make)() {
            loaded.made = made;
            loaded.made_at = Instant::now();
        }
    }

    fn reload_if_changed(&self, loaded: &mut LoadedFiles<T>) {
        let stamps = stamps(&self.files);
        // A file may be absent while it is being replaced.
        if stamps == loaded.stamps || stamps.contains(&None) {
            return;
        }
        match (self.make)() {
            Ok(made) => {
                loaded.made = made;
                loaded.made_at = Instant::now();
                loaded.stamps = stamps;
                tracing::info!(name: "tls.reloaded", files = ?self.files, "new connections use the new certificates");
            }
            Err(error) if stamps != loaded.unusable => {
                loaded.unusable = stamps;
                let error = &error as &dyn std::error::Error;
                tracing::error!(name: "tls.not-reloaded", error, files = ?self.files,
                    "the new certificates cannot be used; the previous ones stay in use");
            }
            Err(_) => {}
        }
    }
}

fn stamps(files: &[PathBuf]) -> Stamps {
    files
        .iter()
        .map(|file| {
            let about = std::fs::metadata(file).ok()?;
            Some((about.modified().ok()?, about.len()))
        })
        .collect()
}
