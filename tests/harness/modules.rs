//! Modules for tests: the default catalog and the guests of `tests/guests`, built from source by
//! the first test that needs them, once per state of the source.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Once};

use bbs::testing::modules::build::{self, BuildRequest};
use bbs::testing::modules::catalog::Catalog;
use bbs::testing::modules::sandbox::{CacheFolders, Limits, Sandbox};
use bbs::testing::modules::translate::{CallProgress, NextAnswer, NextCall, Translate};
use bbs::testing::modules::{MigrationModule, Module, TranslatorModule};
use bbs::testing::progress::Progress;

use super::once::{files_of, folder, hash_of_files, made_once};
use super::workspace;

const DEFAULT_SOURCES: [&str; 8] = [
    "Cargo.lock",
    "Cargo.toml",
    "migrations-wasm/api",
    "migrations-wasm/catalog.toml",
    "migrations-wasm/data",
    "migrations-wasm/releases.toml",
    "migrations-wasm/revisions",
    "sdk",
];

/// The default modules directory as `bbs module build` writes it.
pub fn modules() -> PathBuf {
    made_once("default", hash_of_files(&DEFAULT_SOURCES), |folder| {
        let list = workspace().join("migrations-wasm/catalog.toml");
        let request = BuildRequest::listed(&list, folder).expect("the source list");
        build::build(&request, &sandbox(), &Progress::default())
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    })
}

/// The translators of the default catalog, oldest first. They are loaded once: the servers of a
/// test process share their instances, as the calls of one host do.
pub fn translators() -> Vec<Arc<dyn Translate>> {
    static LOADED: LazyLock<Vec<Arc<dyn Translate>>> = LazyLock::new(|| translators_of(&modules()));
    LOADED.clone()
}

fn translators_of(folder: &Path) -> Vec<Arc<dyn Translate>> {
    let catalog = Catalog::load(folder, &sandbox()).unwrap();
    catalog
        .translators()
        .iter()
        .map(|module| Arc::clone(module) as Arc<dyn Translate>)
        .collect()
}

/// A modules directory with the default modules followed by those that split `desired_lrps` in two,
/// which are not part of the default catalog.
pub fn modules_with_split() -> PathBuf {
    let proof = [
        "1795000100-split_desired_lrps",
        "1795000200-image_credentials",
    ];
    modules_with(
        "split",
        &proof.map(|name| format!("migrations-wasm/proof/{name}")),
    )
}

/// A modules directory with the default modules, and two migrations that are not part of the
/// default catalog at the places of their versions: Diego's next one and another author's. The
/// newest migration is one that changes nothing.
pub fn modules_with_next_diego() -> PathBuf {
    modules_with(
        "next-diego",
        &[GPU_SOURCE, SORTED_TAGS_SOURCE, AFTER_GPU_SOURCE].map(str::to_owned),
    )
}

const GPU_SOURCE: &str = "migrations-wasm/proof/1789335377-add_gpu_to_desired_lrps";

/// The source of another author's migration below the newest ones of the default modules.
pub const SORTED_TAGS_SOURCE: &str = "migrations-wasm/proof/1790000000-sort_placement_tags";

const AFTER_GPU_SOURCE: &str = "migrations-wasm/proof/1795000020-after_gpu";

/// Three add-ons of the default modules, each made without the others: two with a migration below
/// their newest ones, and one with an empty migration above.
pub fn add_ons_at_places_of_their_own() -> [PathBuf; 3] {
    [
        ("gpu", GPU_SOURCE),
        ("sorted-tags", SORTED_TAGS_SOURCE),
        ("after-gpu", AFTER_GPU_SOURCE),
    ]
    .map(|(name, source)| add_on(&format!("add-on-{name}"), source))
}

/// The translators of the default catalog after that of the SDK's README, oldest first.
pub fn translators_with_example() -> Vec<Arc<dyn Translate>> {
    translators_of(&modules_with(
        "example",
        &["sdk/examples/api-0-8".to_owned()],
    ))
}

/// A modules directory with the default modules and the hostile translator beside them.
pub fn modules_with_hostile() -> PathBuf {
    modules_with("hostile", &["tests/guests/hostile-translator".to_owned()])
}

/// A modules directory with the default modules followed by one that is not reversible.
pub fn modules_with_one_way() -> PathBuf {
    modules_with("one-way", &["tests/guests/one-way".to_owned()])
}

/// A modules directory with the default modules followed by one that refuses every unit.
pub fn modules_with_refusing() -> PathBuf {
    modules_with("refusing", &["tests/guests/refuses-every-unit".to_owned()])
}

/// A modules directory with the default modules followed by one whose results a database cannot
/// store.
pub fn modules_with_unstorable() -> PathBuf {
    modules_with("unstorable", &["tests/guests/unstorable".to_owned()])
}

/// A modules directory with those of [`modules_with_unstorable`] followed by one that loosens the
/// layout of their results.
pub fn modules_with_loosened() -> PathBuf {
    modules_with(
        "loosened",
        &["unstorable", "loosened"].map(|name| format!("tests/guests/{name}")),
    )
}

/// A modules directory with the default modules followed by one that misbehaves as its input says.
pub fn modules_with_greedy() -> PathBuf {
    modules_with("greedy", &["tests/guests/greedy".to_owned()])
}

/// An add-on of the default modules: a folder with a migration that follows their newest one.
pub fn migration_add_on() -> PathBuf {
    add_on("add-on-migration", "sdk/examples/add-colour")
}

/// The version of [`migration_add_on`].
pub const ADD_ON_VERSION: u64 = 1_795_000_100;

/// An add-on of the default modules: a folder with the migration of [`modules_with_greedy`].
pub fn greedy_add_on() -> PathBuf {
    add_on("add-on-greedy", "tests/guests/greedy")
}

/// An add-on of the default modules: a folder with a migration that changes nothing, between those
/// that [`modules_with_split`] adds.
pub fn between_splits_add_on() -> PathBuf {
    add_on("add-on-between-splits", "tests/guests/between-splits")
}

/// An add-on of the default modules: a folder with a translator that serves API 0.8.
pub fn translator_add_on() -> PathBuf {
    add_on("add-on-translator", "sdk/examples/api-0-8")
}

fn add_on(name: &str, source: &str) -> PathBuf {
    let sources: Vec<_> = DEFAULT_SOURCES.into_iter().chain([source]).collect();
    made_once(name, hash_of_files(&sources), |folder| {
        let request = BuildRequest::added(vec![workspace().join(source)], folder, vec![modules()]);
        build::build(&request, &sandbox(), &Progress::default())
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    })
}

/// Copies a folder of modules into another one, which is created if it does not exist.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the target folder can be made");
    for file in files_of(from)
        .iter()
        .filter(|file| !file.ends_with(".done"))
    {
        let name = file.file_name().expect("a file has a name");
        std::fs::copy(file, to.join(name)).expect("the target folder can be written");
    }
}

/// The file of the newest migration of the default modules, whose version the handlers work with.
pub const NATIVE_MIGRATION: &str = "1795000010-lrp-definitions.wasm";

/// Removes modules from a folder, and from its catalog, by the names of their files.
pub fn remove_modules(folder: &Path, files: &[&str]) {
    let catalog = folder.join("catalog.toml");
    let text = std::fs::read_to_string(&catalog).expect("a folder of modules has a catalog");
    let entries: Vec<_> = text
        .split("[[module]]")
        .filter(|entry| files.iter().all(|file| !entry.contains(file)))
        .collect();
    std::fs::write(&catalog, entries.join("[[module]]")).expect("the catalog can be written");
    for file in files {
        std::fs::remove_file(folder.join(file)).expect("the folder has the module");
    }
}

fn modules_with(name: &str, crates: &[String]) -> PathBuf {
    let sources: Vec<_> = DEFAULT_SOURCES
        .into_iter()
        .chain(crates.iter().map(String::as_str))
        .collect();
    made_once(name, hash_of_files(&sources), |folder| {
        copy_folder(&modules(), folder);
        let crates = crates.iter().map(|path| workspace().join(path)).collect();
        let request = BuildRequest::added(crates, folder, Vec::new());
        build::build(&request, &sandbox(), &Progress::default())
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
    })
}

/// A folder with one component for each folder of `tests/guests`, of the same name.
pub fn guests() -> PathBuf {
    let state = hash_of_files(&["Cargo.lock", "Cargo.toml", "sdk", "tests/guests"]);
    made_once("guests", state, |folder| {
        let mut crates: Vec<_> = files_of(&workspace().join("tests/guests"))
            .into_iter()
            .filter(|file| file.file_name().is_some_and(|name| name == "Cargo.toml"))
            .map(|manifest| manifest.parent().expect("a file is in a folder").to_owned())
            .collect();
        crates.sort();
        let components = build::components(&crates, &Progress::default())
            .unwrap_or_else(|error| panic!("{}", chain(&error)));
        for (guest, component) in crates.iter().zip(components) {
            let name = guest
                .file_name()
                .expect("a guest has a name")
                .to_string_lossy();
            std::fs::write(folder.join(format!("{name}.wasm")), component)
                .expect("the target folder can be written");
        }
    })
}

/// The file of one guest.
pub fn guest(name: &str) -> PathBuf {
    guests().join(format!("{name}.wasm"))
}

/// A sandbox with the default limits and the cache of compiled components that all tests share.
pub fn sandbox() -> Arc<Sandbox> {
    sandbox_with(Limits::default())
}

pub fn sandbox_with(limits: Limits) -> Arc<Sandbox> {
    let cache = CacheFolders::at(cache());
    Arc::new(Sandbox::compiled_at(super::bbs(), limits, Some(&cache)).expect("a sandbox starts"))
}

pub fn migration(name: &str, sandbox: &Arc<Sandbox>) -> Arc<MigrationModule> {
    match Module::open(&guest(name), sandbox).unwrap_or_else(|error| panic!("{}", chain(&error))) {
        Module::Migration(module) => module,
        Module::Translator(_) => panic!("{name} is a translator"),
    }
}

pub fn translator(name: &str, sandbox: &Arc<Sandbox>) -> Arc<TranslatorModule> {
    match Module::open(&guest(name), sandbox).unwrap_or_else(|error| panic!("{}", chain(&error))) {
        Module::Translator(module) => module,
        Module::Migration(_) => panic!("{name} is a migration"),
    }
}

/// Calls a method of a translator with `next` as the newer version. Blocks.
pub fn call(
    translator: &dyn Translate,
    method: &str,
    request: &[u8],
    next: &mut dyn FnMut(&str, &[u8]) -> NextAnswer,
) -> NextAnswer {
    let mut call = translator.call(method, request.to_vec().into());
    let mut answer = None;
    loop {
        match futures_executor::block_on(call.resume(answer.take())) {
            CallProgress::Answered(answered) => return answered,
            CallProgress::Next(NextCall { method, request }) => {
                answer = Some(next(&method, &request))
            }
        }
    }
}

/// An error with all its sources, separated by colons, as the host prints it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// The target folder of crates of the workspace for commands that are run elsewhere: it has the
/// builds of [`modules`] and [`guests`].
pub fn workspace_target() -> PathBuf {
    workspace().join("target")
}

/// An empty folder in which an author makes a crate, at one path for all tests. The flags of a build
/// name the folder of the crate, so that cargo compiles the SDK again for a crate elsewhere, or of
/// another name. A file lock lets one test after the other have it.
pub struct AuthorsFolder {
    path: PathBuf,
    _lock: File,
}

impl AuthorsFolder {
    /// Blocks while another test has the folder.
    pub fn locked() -> Self {
        std::fs::create_dir_all(folder()).expect("the target folder can be written");
        let lock = File::create(folder().join("author.lock"));
        let lock = lock.expect("the target folder can be written");
        lock.lock().expect("a file lock");
        let path = folder().join("author");
        if path.exists() {
            std::fs::remove_dir_all(&path).expect("the files of the test before can be removed");
        }
        std::fs::create_dir(&path).expect("the target folder can be written");
        Self { path, _lock: lock }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The shared target folder of crates outside of the workspace, so that the SDK is compiled once.
pub fn authors_target() -> PathBuf {
    static CLEARED: Once = Once::new();
    let target = folder().join("authors");
    CLEARED.call_once(|| {
        for profile in ["debug", "guests/wasm32-unknown-unknown/guest"] {
            remove_orphans(&target.join(profile).join("deps"));
        }
    });
    target
}

/// Removes what cargo compiled from copies of the SDK that are gone: each was in the temporary
/// folder of a test, and its files have names of their own, so that no later build replaces them.
fn remove_orphans(artifacts: &Path) {
    let files = || {
        let entries = std::fs::read_dir(artifacts).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    };
    let is_orphan = |dep_info: &Path| {
        let text = std::fs::read_to_string(dep_info).unwrap_or_default();
        let sources = text.lines().next().and_then(|line| line.split_once(": "));
        let first = sources.and_then(|(_, sources)| sources.split(' ').next());
        first
            .map(Path::new)
            .is_some_and(|source| source.is_absolute() && !source.exists())
    };
    let orphans: BTreeSet<_> = files()
        .filter(|file| file.extension().is_some_and(|end| end == "d") && is_orphan(file))
        .filter_map(|file| hash_in_name(&file))
        .collect();
    for file in files() {
        if hash_in_name(&file).is_some_and(|hash| orphans.contains(&hash)) {
            // Another test process may have removed it.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The hash at the end of a name such as `libbbs_sdk-083bd08bd09f00fa.rlib`.
fn hash_in_name(artifact: &Path) -> Option<String> {
    let stem = artifact.file_stem()?.to_str()?;
    Some(stem.rsplit_once('-')?.1.to_owned())
}

/// Leaves debug information, which no test reads, out of a command's builds of an author's crates.
pub fn without_debug_information(command: &mut Command) -> &mut Command {
    command.env("CARGO_PROFILE_DEV_DEBUG", "0")
}

/// The cache of compiled components that all sandboxes and hosts of tests share. A host finds it by
/// itself if its folder of caches, `XDG_CACHE_HOME`, is [`folder`].
pub fn cache() -> PathBuf {
    folder().join("bbs/modules")
}
