//! Compiled modules: compiled ahead of a start, cached, and shared by the hosts of one user.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::sync::Arc;

use bbs::testing::modules::Inspection;
use bbs::testing::modules::sandbox::{Limits, Sandbox};
use bbs_files::digest::digest_of;

use super::*;
use crate::harness::bbs;
use crate::harness::host::Host;
use crate::harness::modules::{ADD_ON_VERSION, cache, migration_add_on};

fn compile(bench: &Workbench, arguments: &[&str]) -> (usize, usize) {
    compile_folder(bench, &[&["modules"], arguments].concat())
}

fn compile_folder(bench: &Workbench, arguments: &[&str]) -> (usize, usize) {
    let report = bench.succeed(&[&["compile"], arguments].concat());
    let mut numbers = report
        .split_whitespace()
        .filter_map(|word| word.parse().ok());
    (
        numbers.next().expect("a number"),
        numbers.next().expect("a second number"),
    )
}

#[test]
fn inspected_module_is_compiled_once() {
    let sandbox = Arc::new(Sandbox::compiled_at(bbs(), Limits::default(), None).unwrap());
    Inspection::of(&guest("well-behaved"), &sandbox).unwrap();
    assert_eq!(sandbox.compiled(), 1);
}

/// The modules that [`fill`] leaves out where a test is about compiling them: all of them take long.
const LEFT_OUT: usize = 3;

/// Fills a folder with the artifacts that `compile` would write there, which the cache of all tests
/// has, but for those of the first modules. Returns the number of its files.
fn fill(bench: &Workbench, folder: &Path, left_out: usize) -> usize {
    compile(bench, &["--into", cache().to_str().unwrap()]);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .unwrap();
    let digests: Vec<_> = modules_in(&bench.modules())
        .iter()
        .skip(left_out)
        .map(|(_, module)| digest_of(module))
        .collect();
    for artifact in std::fs::read_dir(cache()).unwrap() {
        let artifact = artifact.unwrap();
        let name = artifact.file_name().into_string().unwrap();
        if digests.iter().any(|digest| name.starts_with(digest)) {
            std::fs::copy(artifact.path(), folder.join(name)).unwrap();
        }
    }
    files_in(folder).len()
}

/// Fills the folder beside the modules with the artifacts of all of them.
fn fill_folder_beside_modules(bench: &Workbench) {
    fill(bench, &bench.path("module-cache"), 0);
    let (compiled, _) = compile(bench, &[]);
    assert_eq!(compiled, 0, "the artifacts are those of `compile`");
}

/// The modules of a folder with their contents, in order.
fn modules_in(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = content(folder);
    files.retain(|(file, _)| file.extension().is_some_and(|e| e == "wasm"));
    files
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    content(folder).into_iter().map(|(file, _)| file).collect()
}

#[test]
fn modules_are_compiled_once_and_a_truncated_artifact_again() {
    let bench = Workbench::new();
    let all = modules_in(&modules()).len();
    assert_eq!(compile(&bench, &[]), (all, 0));
    assert_eq!(compile(&bench, &[]), (0, all));
    let artifact = files_in(&bench.path("module-cache")).swap_remove(0);
    let file = std::fs::File::options().write(true).open(artifact).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    assert_eq!(compile(&bench, &[]), (1, all - 1));
}

/// Goal: an add-on is compiled ahead of the next start as well. Alone, it is no whole sequence of
/// migrations.
#[test]
fn add_on_is_compiled_over_the_modules_that_it_continues() {
    let bench = Workbench::new();
    copy_folder(&migration_add_on(), &bench.path("add-ons/colour"));
    let version = format!("migration {ADD_ON_VERSION}");
    bench.refused(&["compile", "add-ons/colour"], &[version.as_str()]);
    let add_on = ["add-ons/colour", "--base", "modules"];
    let cache = bench.path("add-ons/module-cache");
    let filled = fill(&bench, &cache, LEFT_OUT);
    assert_eq!(compile_folder(&bench, &add_on), (1, 0));
    assert_eq!(compile_folder(&bench, &add_on), (0, 1));
    assert_eq!(
        files_in(&cache).len(),
        filled + LEFT_OUT + 1,
        "the base is compiled as well"
    );

    std::fs::rename(&cache, bench.path("module-cache")).unwrap();
    assert_eq!(compile_folder(&bench, &add_on), (0, 1));
    assert_eq!(
        files_in(&cache),
        Vec::<PathBuf>::new(),
        "the cache of the base is read"
    );
    let base = modules_in(&bench.modules()).len();
    assert_eq!(compile(&bench, &[]), (0, base));
}

#[test]
fn two_commands_fill_one_cache_concurrently() {
    let bench = Workbench::new();
    let cache = bench.path("module-cache");
    let filled = fill(&bench, &cache, LEFT_OUT);
    let children: Vec<_> = (0..2)
        .map(|_| bench.command(&["compile", "modules"]).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let (compiled, _) = compile(&bench, &[]);
    assert_eq!(compiled, 0);
    assert_eq!(files_in(&cache).len(), filled + LEFT_OUT);
}

#[test]
fn unwritable_cache_is_an_error_of_the_compile_command() {
    let bench = Workbench::new();
    let words = [
        "compiled modules cannot be kept",
        "name a folder that this user may write to",
    ];
    bench.refused(&["compile", "modules", "--into", "/dev/null/cache"], &words);
    let exposed = bench.path("exposed");
    std::fs::create_dir(&exposed).unwrap();
    std::fs::set_permissions(&exposed, std::fs::Permissions::from_mode(0o777)).unwrap();
    let words = [
        "compiled modules cannot be kept",
        "may be written to by other users",
        "mode 777",
    ];
    bench.refused(&["compile", "modules", "--into", "exposed"], &words);
}

#[test]
fn host_uses_what_was_compiled_beside_its_modules() {
    let bench = Workbench::new();
    fill_folder_beside_modules(&bench);
    drop(installation(&bench).serve());
    assert_eq!(
        files_in(&bench.path("own")),
        Vec::<PathBuf>::new(),
        "the host compiled modules"
    );
}

#[test]
fn host_does_not_use_compiled_modules_that_other_users_may_write() {
    let bench = Workbench::new();
    fill_folder_beside_modules(&bench);
    let own = bench.path("own");
    let filled = fill(&bench, &own, LEFT_OUT);
    std::fs::set_permissions(
        bench.path("module-cache"),
        std::fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    let mut host = installation(&bench).serve();
    assert_eq!(
        files_in(&own).len(),
        filled + LEFT_OUT,
        "the modules that are compiled there alone are compiled again"
    );
    let log = host.output().join("\n");
    assert!(
        log.contains("a folder of compiled modules is not used") && log.contains("mode 777"),
        "{log}"
    );
}

#[test]
fn host_without_a_cache_that_can_be_written_serves_and_warns_once() {
    let bench = Workbench::new();
    fill(&bench, &bench.path("module-cache"), LEFT_OUT);
    let mut host: Host = installation(&bench)
        .set("module_cache_dir", "/dev/null/cache")
        .serve();
    let log = host.output().join("\n");
    assert_eq!(
        log.matches("compiled modules are not kept").count(),
        1,
        "{log}"
    );
}

#[test]
fn hosts_of_one_user_share_compiled_modules_without_being_configured() {
    let bench = Workbench::new();
    fill(&bench, &bench.path("module-cache"), LEFT_OUT);
    let shared = bench.path("home-cache");
    let serve = || {
        let data = bench.path("data").display().to_string();
        let installation = Installation::new(&bench.modules(), Kind::Sqlite);
        let installation = installation
            .set("module_cache_dir", "")
            .set("data_dir", data);
        let mut command = installation.command(&["serve"]);
        command
            .env("XDG_CACHE_HOME", &shared)
            .env_remove("CACHE_DIRECTORY");
        drop(Host::start(command, "serving"));
        bench.path("data/module-cache").exists()
    };
    assert!(
        !serve(),
        "the shared folder has precedence over the one in the data folder"
    );
    let first = content(&shared.join("bbs/modules"));
    assert_eq!(first.len(), LEFT_OUT);
    assert!(!serve());
    assert!(content(&shared.join("bbs/modules")) == first);
}
