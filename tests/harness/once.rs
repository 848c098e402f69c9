//! Artifacts that are built once and kept for later runs: modules built from source, data folders
//! of empty database servers. Owns the folders below `target/test-modules`, which can be deleted at
//! any time.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::workspace;

pub fn folder() -> PathBuf {
    workspace().join("target/test-modules")
}

/// A folder that `make` fills once per `state`. A file lock synchronises test processes.
pub fn made_once(name: &str, state: u64, make: impl FnOnce(&Path)) -> PathBuf {
    std::fs::create_dir_all(folder()).expect("the target folder can be written");
    let lock = File::create(folder().join(format!("{name}.lock")))
        .expect("the target folder can be written");
    lock.lock().expect("a file lock");
    let made = folder().join(format!("{name}-{state:016x}"));
    if !made.join(".done").exists() {
        if made.exists() {
            // Left by a process that was killed: a build refuses modules without a catalog.
            std::fs::remove_dir_all(&made).expect("the target folder can be written");
        }
        std::fs::create_dir_all(&made).expect("the target folder can be written");
        make(&made);
        File::create(made.join(".done")).expect("the target folder can be written");
    }
    made
}

pub fn hash_of(state: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// A hash of the names and contents of files and folders of the workspace. They are read once: they
/// do not change while a test process runs.
pub fn hash_of_files(sources: &[&str]) -> u64 {
    static HASHES: Mutex<BTreeMap<Vec<String>, u64>> = Mutex::new(BTreeMap::new());
    let names = sources.iter().map(|&source| source.to_owned()).collect();
    let mut hashes = HASHES.lock().expect("no source file is missing");
    *hashes
        .entry(names)
        .or_insert_with(|| read_and_hash(sources))
}

fn read_and_hash(sources: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for source in sources {
        for file in files_of(&workspace().join(source)) {
            // Relative to the workspace: the hash must not depend on the place of the checkout.
            file.strip_prefix(workspace())
                .expect("a file of the workspace")
                .hash(&mut hasher);
            std::fs::read(&file)
                .expect("a source file")
                .hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// All files below a path in order, without `target` folders.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let mut entries: Vec<_> = std::fs::read_dir(path)
        .expect("a source folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    entries
        .iter()
        .filter(|entry| !entry.ends_with("target"))
        .flat_map(|entry| files_of(entry))
        .collect()
}
