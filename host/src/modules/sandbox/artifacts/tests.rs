//! What the cache takes, and what it takes for nothing.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// A component that has nothing in it.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

struct Cache {
    folder: tempfile::TempDir,
    engine: Engine,
}

impl Cache {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), engine: Engine::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn open(&self) -> Artifacts {
        Artifacts::open(&self.path(), &self.engine).unwrap()
    }

    /// A cache with one artifact, and the file it is in.
    fn filled(&self) -> (Artifacts, PathBuf) {
        let artifacts = self.open();
        artifacts.store(&Component::from_binary(&self.engine, EMPTY).unwrap(), "abc");
        let file = artifacts.path("abc");
        (artifacts, file)
    }
}

#[test]
fn what_was_stored_is_found_again() {
    let cache = Cache::new();
    cache.filled();
    assert!(cache.open().load(&cache.engine, "abc").is_some());
    assert!(cache.open().load(&cache.engine, "abd").is_none());
}

#[test]
fn the_folder_is_the_hosts_alone() {
    let cache = Cache::new();
    cache.open();
    assert_eq!(std::fs::metadata(cache.path()).unwrap().mode() & 0o777, 0o700);
    for mode in [0o720, 0o702, 0o777] {
        std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let error = Artifacts::open(&cache.path(), &cache.engine).unwrap_err();
        assert!(matches!(error, CacheError::Exposed { .. }), "{mode:o}");
        assert!(error.to_string().contains("delete the folder, the host makes it anew"), "{error}");
    }
    std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    Artifacts::open(&cache.path(), &cache.engine).expect("others may read");
}

#[test]
fn a_link_to_a_folder_is_not_the_hosts_own() {
    let cache = Cache::new();
    std::os::unix::fs::symlink(cache.folder.path(), cache.path()).unwrap();
    let error = Artifacts::open(&cache.path(), &cache.engine).unwrap_err();
    assert!(matches!(error, CacheError::Exposed { .. }), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let cache = Cache::new();
    std::fs::write(cache.path(), "in the way").unwrap();
    let error = Artifacts::open(&cache.path(), &cache.engine).unwrap_err();
    assert!(error.to_string().contains("give the host a folder of its own, or none"), "{error}");
}

#[test]
fn an_artifact_that_others_may_write_is_none() {
    let cache = Cache::new();
    let (artifacts, file) = cache.filled();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o620)).unwrap();
    assert!(artifacts.load(&cache.engine, "abc").is_none());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(artifacts.load(&cache.engine, "abc").is_some());
}

#[test]
fn a_damaged_artifact_is_none_and_is_replaced() {
    let cache = Cache::new();
    let (artifacts, file) = cache.filled();
    let whole = std::fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    for damaged in
        [vec![], whole[..20].to_vec(), whole[..whole.len() - 1].to_vec(), flipped(0), flipped(whole.len() - 1)]
    {
        std::fs::write(&file, damaged).unwrap();
        assert!(artifacts.load(&cache.engine, "abc").is_none());
    }
    cache.filled();
    assert!(artifacts.load(&cache.engine, "abc").is_some());
}

#[test]
fn an_artifact_under_another_name_is_none() {
    let cache = Cache::new();
    let (artifacts, file) = cache.filled();
    std::fs::copy(file, artifacts.path("abd")).unwrap();
    assert!(artifacts.load(&cache.engine, "abd").is_none());
}

#[test]
fn an_artifact_of_another_engine_is_none() {
    let cache = Cache::new();
    let (_, file) = cache.filled();
    let mut config = wasmtime::Config::new();
    config.epoch_interruption(true);
    let other = Artifacts::open(&cache.path(), &Engine::new(&config).unwrap()).unwrap();
    assert_ne!(other.path("abc"), file);
    std::fs::copy(file, other.path("abc")).unwrap();
    assert!(other.load(&Engine::new(&config).unwrap(), "abc").is_none());
}

#[test]
fn a_cache_that_is_gone_costs_only_time() {
    let cache = Cache::new();
    let (artifacts, _) = cache.filled();
    std::fs::remove_dir_all(cache.path()).unwrap();
    assert!(artifacts.load(&cache.engine, "abc").is_none());
    artifacts.store(&Component::from_binary(&cache.engine, EMPTY).unwrap(), "abc");
}
