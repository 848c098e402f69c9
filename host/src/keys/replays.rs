//! Replay files, which are sealed like columns. Owns their re-sealing under the active key, each
//! file atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::rewrite::RewriteSummary;
use super::{KeysError, LabelCounts};
use crate::encryption::Keyring;
use crate::encryption::header::{HEADER_LENGTH, label_of};
use crate::files;
use crate::migrate::{REPLAY_BYTES, REPLAY_UNFINISHED, fault};

/// The name of the replay files in lists of tables.
pub(super) const PLACE: &str = "replay files";
const EXTENSION: &str = ".replay";

fn failed(path: &Path) -> impl FnOnce(io::Error) -> KeysError {
    let path = path.to_owned();
    move |source| KeysError::Replay { path, source }
}

/// The files whose names end so, sorted. Empty if the folder does not exist.
fn paths(folder: &Path, end: &str) -> Result<Vec<PathBuf>, KeysError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(folder))?,
    };
    let paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(failed(folder))?;
    let mut paths: Vec<_> = paths
        .into_iter()
        .filter(|path| {
            path.as_os_str()
                .as_encoded_bytes()
                .ends_with(end.as_bytes())
        })
        .collect();
    paths.sort();
    Ok(paths)
}

/// Runs file work on the blocking thread pool.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeysError> + Send + 'static,
) -> Result<T, KeysError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| KeysError::Interrupted)?
}

fn header(path: &Path) -> Result<Vec<u8>, KeysError> {
    files::beginning(path, HEADER_LENGTH).map_err(failed(path))
}

pub(super) async fn count(folder: Option<PathBuf>) -> Result<LabelCounts, KeysError> {
    blocking(move || {
        let mut counted = LabelCounts::new(PLACE);
        for path in folder.map_or_else(|| Ok(Vec::new()), |folder| paths(&folder, EXTENSION))? {
            counted.add(&header(&path)?);
        }
        Ok(counted)
    })
    .await
}

pub(super) async fn stale(folder: Option<PathBuf>, active: String) -> Result<u64, KeysError> {
    let counted = count(folder).await?;
    let all = counted.nameless + counted.labels.values().sum::<u64>();
    Ok(all - counted.under(&active))
}

/// Re-seals every file under the active key. A file that does not open stays as it is and is
/// counted.
pub(super) async fn reseal(
    folder: Option<PathBuf>,
    keyring: Arc<Keyring>,
) -> Result<RewriteSummary, KeysError> {
    let Some(folder) = folder else {
        return Ok(RewriteSummary::default());
    };
    blocking(move || {
        // Leftovers of a crash.
        for path in paths(&folder, REPLAY_UNFINISHED)? {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
        each_resealed(&folder, &keyring, replace)
    })
    .await
}

/// Opens what [`reseal`] would re-seal, and writes nothing.
pub(super) async fn survey(
    folder: Option<PathBuf>,
    keyring: Arc<Keyring>,
) -> Result<RewriteSummary, KeysError> {
    let Some(folder) = folder else {
        return Ok(RewriteSummary::default());
    };
    blocking(move || each_resealed(&folder, &keyring, |_, _| Ok(()))).await
}

/// Re-seals in memory each file that is not under the active key, and gives it to `write`.
fn each_resealed(
    folder: &Path,
    keyring: &Keyring,
    write: impl Fn(&Path, &[u8]) -> io::Result<()>,
) -> Result<RewriteSummary, KeysError> {
    let mut summary = RewriteSummary::default();
    for path in paths(folder, EXTENSION)? {
        if label_of(&header(&path)?).is_ok_and(|label| label == keyring.active_label()) {
            continue;
        }
        match keyring.reseal(&files::read(&path, REPLAY_BYTES).map_err(failed(&path))?) {
            Ok(text) => {
                write(&path, &text).map_err(failed(&path))?;
                summary.rewritten += 1;
            }
            Err(reason) => summary.skip(format!("{}: {reason}", path.display())),
        }
    }
    Ok(summary)
}

/// Replaces the file atomically: a crash leaves the old or the new content.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    files::replace_private(path, text, REPLAY_UNFINISHED, || {
        fault::point(fault::WITHIN_REPLAY_FILE)
    })
}

#[cfg(test)]
mod tests {
    use bbs_lens::layout::schema::Sealing;

    use super::*;

    fn keys(active: &str) -> Arc<Keyring> {
        Arc::new(Keyring::new([("old", "first"), ("new", "second")], active).unwrap())
    }

    #[tokio::test]
    async fn readable_files_are_resealed_and_unreadable_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(
            path("1-up-a.replay"),
            keys("old").seal(Sealing::Sealed, b"a"),
        )
        .unwrap();
        fs::write(
            path("1-up-b.replay"),
            keys("new").seal(Sealing::Sealed, b"b"),
        )
        .unwrap();
        fs::write(path("1-up-c.replay"), "garbage").unwrap();
        fs::write(path("1-up-d.replay-unfinished"), "half").unwrap();
        fs::write(path("notes.txt"), "not ours").unwrap();

        let here = || Some(folder.path().to_owned());
        let counted = count(here()).await.unwrap();
        assert_eq!(
            (counted.under("old"), counted.under("new"), counted.nameless),
            (1, 1, 1)
        );
        let summary = reseal(here(), keys("new")).await.unwrap();
        assert_eq!((summary.rewritten, summary.unreadable), (1, 1));
        assert!(
            summary.examples[0].contains("1-up-c.replay: unknown encoding"),
            "{:?}",
            summary.examples
        );
        assert_eq!(stale(here(), "new".into()).await.unwrap(), 1);

        let only_new = Keyring::new([("new", "second")], "new").unwrap();
        assert_eq!(
            only_new
                .open(Sealing::Sealed, &fs::read(path("1-up-a.replay")).unwrap())
                .unwrap(),
            b"a"
        );
        assert_eq!(fs::read(path("1-up-c.replay")).unwrap(), b"garbage");
        assert!(!path("1-up-d.replay-unfinished").exists());
        assert_eq!(fs::read(path("notes.txt")).unwrap(), b"not ours");
    }

    #[tokio::test]
    async fn absent_folder_has_no_files() {
        let nowhere = Some(PathBuf::from("/nonexistent/replay"));
        assert_eq!(
            reseal(nowhere.clone(), keys("new")).await.unwrap(),
            RewriteSummary::default()
        );
        assert_eq!(stale(nowhere, "new".into()).await.unwrap(), 0);
    }
}
