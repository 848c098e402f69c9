//! Which artifacts the cache accepts, which count as absent, and folders that several hosts share.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::*;

/// An empty component.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

struct Cache {
    folder: tempfile::TempDir,
    engine: Engine,
}

impl Cache {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            engine: Engine::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn open(&self) -> Artifacts {
        self.open_at(&CacheFolders::at(self.path()))
    }

    fn open_at(&self, folders: &CacheFolders) -> Artifacts {
        Artifacts::open(folders, EngineFingerprint::of(&self.engine))
    }

    /// Stores the component under the digest `abc`.
    fn fill(&self, artifacts: &Artifacts) {
        let compiled = self.engine.precompile_component(EMPTY).unwrap();
        artifacts.store(
            &SealedArtifact::new(&compiled, "abc", artifacts.engine),
            "abc",
        );
    }

    /// Returns a cache with one artifact, and the path of its file.
    fn filled(&self) -> (Artifacts, PathBuf) {
        let artifacts = self.open();
        self.fill(&artifacts);
        let file = self.path().join(artifacts.engine.file_name("abc"));
        (artifacts, file)
    }

    fn has(&self, artifacts: &Artifacts) -> bool {
        artifacts.load(&self.engine, "abc").is_some()
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Tests of ownership need a second user, which only root can act for.
fn is_root() -> bool {
    bbs_files::own_user() == 0
}

#[test]
fn stored_artifact_is_loaded() {
    let cache = Cache::new();
    cache.filled();
    assert!(cache.has(&cache.open()));
    assert!(cache.open().load(&cache.engine, "abd").is_none());
}

#[test]
fn folder_writable_by_others_is_not_used() {
    let cache = Cache::new();
    let (_, file) = cache.filled();
    assert_eq!(std::fs::metadata(cache.path()).unwrap().mode() & OTHERS, 0);
    assert_eq!(std::fs::metadata(file).unwrap().mode() & OTHERS, 0);
    for mode in [0o775, 0o757, 0o777] {
        set_mode(&cache.path(), mode);
        let artifacts = cache.open();
        assert!(!cache.has(&artifacts), "{mode:o}");
        let error = artifacts.failure().unwrap();
        assert!(matches!(error, CacheError::Untrusted { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("delete it, and the host creates it again"),
            "{error}"
        );
        let shipped = CacheFolders {
            own: Vec::new(),
            shipped: vec![cache.path()],
        };
        assert!(!cache.has(&cache.open_at(&shipped)), "{mode:o}");
    }
    set_mode(&cache.path(), 0o755);
    assert!(cache.has(&cache.open()));
}

const OTHERS: u32 = 0o022;

#[test]
fn folder_or_file_of_another_user_is_not_used() {
    if !is_root() {
        return;
    }
    let cache = Cache::new();
    let (_, file) = cache.filled();
    let give = |path: &Path, owner| std::os::unix::fs::lchown(path, Some(owner), None).unwrap();
    give(&file, 12_345);
    assert!(!cache.has(&cache.open()));
    give(&file, 0);
    give(&cache.path(), 12_345);
    assert!(!cache.has(&cache.open()));
    give(&cache.path(), 0);
    assert!(cache.has(&cache.open()));
}

#[test]
fn link_to_a_folder_is_not_used() {
    let cache = Cache::new();
    std::os::unix::fs::symlink(cache.folder.path(), cache.path()).unwrap();
    let artifacts = cache.open();
    assert!(
        matches!(artifacts.failure(), Some(CacheError::NoFolder { .. })),
        "{artifacts:?}"
    );
    cache.fill(&artifacts);
    assert_eq!(std::fs::read_dir(cache.folder.path()).unwrap().count(), 1);
}

#[test]
fn without_a_usable_folder_nothing_is_stored_and_the_reason_is_reported() {
    let cache = Cache::new();
    std::fs::write(cache.path(), "in the way").unwrap();
    let artifacts = cache.open();
    cache.fill(&artifacts);
    assert!(!cache.has(&artifacts));
    let error = artifacts.failure().unwrap().to_string();
    assert!(
        error.contains("name a folder that this user may write to"),
        "{error}"
    );
}

#[test]
fn unusable_folder_is_replaced_by_the_next() {
    let cache = Cache::new();
    let blocked = cache.folder.path().join("file");
    std::fs::write(&blocked, "in the way").unwrap();
    let artifacts = cache.open_at(&CacheFolders {
        own: vec![blocked, cache.path()],
        shipped: Vec::new(),
    });
    cache.fill(&artifacts);
    assert!(artifacts.failure().is_none());
    assert!(cache.has(&cache.open()));
}

#[test]
fn only_the_first_usable_folder_is_created() {
    let cache = Cache::new();
    let second = cache.folder.path().join("second");
    cache.open_at(&CacheFolders {
        own: vec![cache.path(), second.clone()],
        shipped: Vec::new(),
    });
    assert!(cache.path().is_dir() && !second.exists());
}

#[test]
fn shipped_folder_is_never_written_to() {
    let shipped = Cache::new();
    let (_, file) = shipped.filled();
    let own = Cache {
        folder: tempfile::tempdir().unwrap(),
        engine: shipped.engine.clone(),
    };
    let folders = CacheFolders {
        own: vec![own.path()],
        shipped: vec![shipped.path(), "/nonexistent/cache".into()],
    };
    assert!(own.has(&own.open_at(&folders)));
    std::fs::remove_file(file).unwrap();
    let artifacts = own.open_at(&folders);
    assert!(!own.has(&artifacts));
    own.fill(&artifacts);
    assert!(own.has(&own.open()));
    assert_eq!(std::fs::read_dir(shipped.path()).unwrap().count(), 0);
}

#[test]
fn artifact_writable_by_others_counts_as_absent() {
    let cache = Cache::new();
    let (artifacts, file) = cache.filled();
    set_mode(&file, 0o664);
    assert!(!cache.has(&artifacts));
    set_mode(&file, 0o644);
    assert!(cache.has(&artifacts));
}

#[test]
fn damaged_artifact_counts_as_absent_and_is_replaced() {
    let cache = Cache::new();
    let (artifacts, file) = cache.filled();
    let whole = std::fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    for damaged in [
        vec![],
        whole[..20].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        flipped(0),
        flipped(whole.len() - 1),
    ] {
        std::fs::write(&file, damaged).unwrap();
        assert!(!cache.has(&artifacts));
    }
    cache.filled();
    assert!(cache.has(&artifacts));
}

#[test]
fn damaged_artifact_does_not_hide_a_shipped_one() {
    let cache = Cache::new();
    let shipped = Cache::new();
    let (_, file) = cache.filled();
    shipped.filled();
    std::fs::write(file, "cut short").unwrap();
    let folders = CacheFolders {
        own: vec![cache.path()],
        shipped: vec![shipped.path()],
    };
    assert!(cache.has(&cache.open_at(&folders)));
}

#[test]
fn artifact_under_another_name_counts_as_absent() {
    let cache = Cache::new();
    let (artifacts, file) = cache.filled();
    std::fs::copy(file, cache.path().join(artifacts.engine.file_name("abd"))).unwrap();
    let is_found = |digest| artifacts.load(&cache.engine, digest).is_some();
    assert_eq!((is_found("abc"), is_found("abd")), (true, false));
}

#[test]
fn artifact_of_another_engine_counts_as_absent() {
    let cache = Cache::new();
    let (_, file) = cache.filled();
    let mut config = wasmtime::Config::new();
    config.epoch_interruption(true);
    let engine = Engine::new(&config).unwrap();
    let other = Artifacts::open(
        &CacheFolders::at(cache.path()),
        EngineFingerprint::of(&engine),
    );
    let name = cache.path().join(other.engine.file_name("abc"));
    assert_ne!(name, file);
    std::fs::copy(file, name).unwrap();
    assert!(other.load(&engine, "abc").is_none());
}

#[test]
fn deleted_cache_is_no_error() {
    let cache = Cache::new();
    let (artifacts, _) = cache.filled();
    std::fs::remove_dir_all(cache.path()).unwrap();
    assert!(!cache.has(&artifacts));
    cache.fill(&artifacts);
    assert!(
        matches!(artifacts.failure(), Some(CacheError::Write { .. })),
        "{artifacts:?}"
    );
}

/// While several writers replace an artifact, every reader finds none or a complete one.
#[test]
fn concurrent_writers_leave_complete_artifacts() {
    const HOSTS: usize = 4;
    let cache = Cache::new();
    std::thread::scope(|scope| {
        for _ in 0..HOSTS {
            scope.spawn(|| {
                let artifacts = cache.open();
                for _ in 0..50 {
                    cache.fill(&artifacts);
                    assert!(cache.has(&artifacts));
                }
                assert!(artifacts.failure().is_none());
            });
        }
    });
    assert_eq!(
        std::fs::read_dir(cache.path()).unwrap().count(),
        1,
        "no temporary file is left"
    );
}
