//! Replay files, which are sealed as records are. Owns bringing them under another key, each whole or not at all.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::KeysError;
use super::count::Counted;
use super::rewrite::Passed;
use crate::record::Keyring;
use crate::record::header::{HEADER_LENGTH, label_of};

/// How the files are called where tables are listed.
pub(super) const PLACE: &str = "replay files";
const EXTENSION: &str = "replay";
/// Of a file that is being written. Whoever finds one was not there when it was begun.
const UNFINISHED: &str = "replay-unfinished";

fn failed(path: &Path) -> impl FnOnce(io::Error) -> KeysError {
    let path = path.to_owned();
    move |source| KeysError::Replay { path, source }
}

/// The files with an extension, in order. A folder that is not there has none.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, KeysError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(folder))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed(folder))?;
    let mut paths: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    paths.sort();
    Ok(paths)
}

async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeysError> + Send + 'static,
) -> Result<T, KeysError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| KeysError::Interrupted)?
}

fn header(path: &Path) -> Result<Vec<u8>, KeysError> {
    let mut header = Vec::new();
    let file = File::open(path).map_err(failed(path))?;
    file.take(HEADER_LENGTH as u64).read_to_end(&mut header).map_err(failed(path))?;
    Ok(header)
}

pub(super) async fn count(folder: Option<PathBuf>) -> Result<Counted, KeysError> {
    apart(move || {
        let mut counted = Counted::new(PLACE);
        for path in folder.map_or_else(|| Ok(Vec::new()), |folder| files(&folder, EXTENSION))? {
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

/// Brings every file under the active key. One that does not open stays, and is counted.
pub(super) async fn reseal(folder: Option<PathBuf>, keyring: Arc<Keyring>) -> Result<Passed, KeysError> {
    let Some(folder) = folder else { return Ok(Passed::default()) };
    apart(move || {
        for path in files(&folder, UNFINISHED)? {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
        let mut passed = Passed::default();
        for path in files(&folder, EXTENSION)? {
            if label_of(&header(&path)?).is_ok_and(|label| label == keyring.active_label()) {
                continue;
            }
            match keyring.reseal(&fs::read(&path).map_err(failed(&path))?) {
                Ok(text) => {
                    replace(&path, &text).map_err(failed(&path))?;
                    passed.rewritten += 1;
                }
                Err(reason) => passed.leave(format!("{}: {reason}", path.display())),
            }
        }
        Ok(passed)
    })
    .await
}

/// At any moment the file is the old one or the new one.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension(UNFINISHED);
    let mut file = File::create(&unfinished)?;
    file.write_all(text)?;
    file.sync_all()?;
    crate::migrate::fault::point(crate::migrate::fault::WITHIN_REPLAY_FILE);
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::schema::Sealing;

    fn keys(active: &str) -> Arc<Keyring> {
        Arc::new(Keyring::new([("old", "first"), ("new", "second")], active).unwrap())
    }

    #[tokio::test]
    async fn files_come_under_the_active_key_and_what_does_not_open_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("1-up-a.replay"), keys("old").seal(Sealing::Sealed, b"a")).unwrap();
        fs::write(path("1-up-b.replay"), keys("new").seal(Sealing::Sealed, b"b")).unwrap();
        fs::write(path("1-up-c.replay"), "garbage").unwrap();
        fs::write(path("1-up-d.replay-unfinished"), "half").unwrap();
        fs::write(path("notes.txt"), "not ours").unwrap();

        let here = || Some(folder.path().to_owned());
        let counted = count(here()).await.unwrap();
        assert_eq!((counted.under("old"), counted.under("new"), counted.nameless), (1, 1, 1));
        let passed = reseal(here(), keys("new")).await.unwrap();
        assert_eq!((passed.rewritten, passed.unreadable), (1, 1));
        assert!(passed.examples[0].contains("1-up-c.replay: unknown encoding"), "{:?}", passed.examples);
        assert_eq!(stale(here(), "new".into()).await.unwrap(), 1);

        let only_new = Keyring::new([("new", "second")], "new").unwrap();
        assert_eq!(only_new.open(Sealing::Sealed, &fs::read(path("1-up-a.replay")).unwrap()).unwrap(), b"a");
        assert_eq!(fs::read(path("1-up-c.replay")).unwrap(), b"garbage");
        assert!(!path("1-up-d.replay-unfinished").exists());
        assert_eq!(fs::read(path("notes.txt")).unwrap(), b"not ours");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_has_no_files() {
        let nowhere = Some(PathBuf::from("/nonexistent/replay"));
        assert_eq!(reseal(nowhere.clone(), keys("new")).await.unwrap(), Passed::default());
        assert_eq!(stale(nowhere, "new".into()).await.unwrap(), 0);
    }
}
